//! Kubernetes quantities (`100m`, `2Gi`, `1e3`) in thousandths, and a pod's resource requests.

use std::ops::{Add, AddAssign, Sub};

use serde_json::Value;

use super::object;

/// Parses a quantity into thousandths of its unit (milli-cores, milli-bytes), rounded up.
/// `None` for an invalid quantity.
pub(crate) fn parse_milli(quantity: &str) -> Option<i128> {
    let quantity = quantity.trim();
    let digits = quantity
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let (mantissa, decimals) = decimal(number)?;
    let thousand = |power: u32| 1000_i128.checked_pow(power);
    let (times, over) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (thousand(2)?, 1),
        "M" => (thousand(3)?, 1),
        "G" => (thousand(4)?, 1),
        "T" => (thousand(5)?, 1),
        "P" => (thousand(6)?, 1),
        "E" => (thousand(7)?, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 {
                (1_000, ten)
            } else {
                (ten.checked_mul(1_000)?, 1)
            }
        }
    };
    let over = 10_i128.checked_pow(decimals)?.checked_mul(over)?;
    let value = mantissa.checked_mul(times)?;
    let up = i128::from(value > 0 && value % over != 0);
    Some(value / over + up)
}

/// Splits a decimal number into an integer and the number of digits after the point.
fn decimal(number: &str) -> Option<(i128, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    Some((digits.parse().ok()?, u32::try_from(fraction.len()).ok()?))
}

/// An amount of node resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Thousandths of a core.
    pub(crate) cpu: i128,
    /// Thousandths of a byte.
    pub(crate) memory: i128,
    pub(crate) pods: i128,
}

impl Amount {
    /// A pod's requests: the sum over its containers, but no less than the largest request of an
    /// init container.
    pub(crate) fn requested_by(pod: &Value) -> Self {
        let of = |container: &Value, name: &str| {
            container
                .get("resources")
                .and_then(|resources| resources.get("requests"))
                .and_then(|requests| requests.get(name))
                .and_then(read)
                .unwrap_or_default()
        };
        let containers = object::items(pod, "/spec/containers");
        let init = object::items(pod, "/spec/initContainers");
        let need = |name: &str| {
            let together: i128 = containers.iter().map(|c| of(c, name)).sum();
            let hungriest = init.iter().map(|c| of(c, name)).max().unwrap_or_default();
            together.max(hungriest)
        };
        Self {
            cpu: need("cpu"),
            memory: need("memory"),
            pods: 1,
        }
    }

    /// A node's capacity for pods: `status.allocatable`.
    pub(crate) fn offered_by(node: &Value) -> Self {
        let of = |pointer| node.pointer(pointer).and_then(read).unwrap_or_default();
        Self {
            cpu: of("/status/allocatable/cpu"),
            memory: of("/status/allocatable/memory"),
            pods: of("/status/allocatable/pods") / 1_000,
        }
    }

    /// The resources of which `self` has less than `need`.
    pub(crate) fn lacks(&self, need: &Self) -> impl Iterator<Item = Lack> {
        [
            (need.pods > self.pods, Lack::Pods),
            (need.cpu > 0 && need.cpu > self.cpu, Lack::Cpu),
            (need.memory > 0 && need.memory > self.memory, Lack::Memory),
        ]
        .into_iter()
        .filter_map(|(lacks, what)| lacks.then_some(what))
    }
}

fn read(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse_milli(text),
        Value::Number(number) => parse_milli(&number.to_string()),
        _ => None,
    }
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
            pods: self.pods + other.pods,
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
            pods: self.pods - other.pods,
        }
    }
}

/// A resource of which a node has too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lack {
    Pods,
    Cpu,
    Memory,
}

impl Lack {
    /// The resource's name as `status.capacity` spells it.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    /// The amount of this resource in the units that a kubelet's message uses.
    pub(crate) fn of(self, amount: &Amount) -> i128 {
        match self {
            Self::Pods => amount.pods,
            Self::Cpu => amount.cpu,
            Self::Memory => amount.memory / 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::cores("2", Some(2_000))]
    #[case::millis("250m", Some(250))]
    #[case::a_fraction("0.5", Some(500))]
    #[case::rounded_up("1.0001", Some(1_001))]
    #[case::micro("1500u", Some(2))]
    #[case::binary("2Gi", Some((2 << 30) * 1_000))]
    #[case::decimal("1M", Some(1_000_000_000))]
    #[case::exponent("1e3", Some(1_000_000))]
    #[case::capital_e_alone_is_exa("1E", Some(1_000_000_000_000_000_000_000))]
    #[case::negative("-1", Some(-1_000))]
    #[case::nonsense("lots", None)]
    #[case::nothing("", None)]
    #[case::too_big("99999999999999999999999999999999999999Ei", None)]
    #[case::an_absurd_exponent("1e99", None)]
    fn quantities(#[case] text: &str, #[case] expected: Option<i128>) {
        assert_eq!(parse_milli(text), expected);
    }

    #[test]
    fn a_pod_requests_the_sum_of_its_containers_or_its_largest_init_container() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": "1Ki"}}});
        let pod = json!({"spec": {
            "containers": [asks("100m"), asks("200m"), {"name": "modest"}],
            "initContainers": [asks("1")],
        }});
        let expected = Amount {
            cpu: 1_000,
            memory: 2_048_000,
            pods: 1,
        };
        assert_eq!(Amount::requested_by(&pod), expected);
    }
}
