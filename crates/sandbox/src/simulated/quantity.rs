//! A pod's resource requests, and what nodes have.

use std::ops::{Add, AddAssign, Sub};

use serde_json::Value;

use super::object;
use crate::quantity::parse_milli;

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
    use serde_json::json;

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
