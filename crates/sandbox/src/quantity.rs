//! Kubernetes quantities (`100m`, `2Gi`, `1e3`) in thousandths, and their canonical form.

mod canonical;

pub(crate) use canonical::{Finest, canonical};

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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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
}
