//! The canonical form of quantities, in which a typed server stores them.

use std::borrow::Cow;

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It has other characters, or in another order.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// Its suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The smallest part of a quantity that is stored: more precise ones are rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finest {
    Nano,
    /// In lists of resources.
    Milli,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Decimal,
    Exponent,
    Binary,
}

/// The suffixes of decimal quantities, from 10⁻⁹ in steps of a thousand.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// The suffixes of binary quantities, in steps of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The digits that the real server parses exactly.
const EXACT: usize = 18;

/// The canonical form of a quantity. As on the real server, some texts are kept though they are not canonical (`+1`, `1e0`), and
/// a number that is larger than the largest suffix loses it (`1000E` is `1`). More than 38 digits are kept, too.
///
/// # Errors
/// When the text is not a quantity.
pub(crate) fn canonical(text: &str, finest: Finest) -> Result<Cow<'_, str>, Malformed> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Malformed::Format);
    }
    let parts = Parts::of(text)?;
    let (notation, exponent) = unit(parts.suffix)?;
    let Some(mantissa) = parts.mantissa() else {
        return Ok(Cow::Borrowed(text));
    };
    if mantissa == 0 {
        return Ok(Cow::Borrowed("0"));
    }
    let digits = parts.whole.len().max(1) + parts.fraction.len();
    let decimals = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    let scale = match notation {
        Notation::Binary => -decimals,
        _ => exponent.saturating_sub(decimals),
    };
    let kept = match notation {
        Notation::Binary => {
            let room = usize::try_from(14 - exponent * 3 / 10).unwrap_or(0);
            decimals == 0 && digits <= room && mantissa & 7 != 0
        }
        _ => {
            let plain = !parts.whole.is_empty() && mantissa % 1000 != 0;
            digits <= EXACT && scale >= -9 && scale % 3 == 0 && plain
        }
    };
    if kept && (finest == Finest::Nano || scale >= -3) {
        return Ok(Cow::Borrowed(text));
    }
    let amount = Amount {
        mantissa,
        scale,
        notation,
    };
    let shown = amount.in_units(exponent).rounded(finest).show();
    Ok(match (shown, parts.negative) {
        (None, _) => Cow::Borrowed(text),
        (Some(shown), true) => Cow::Owned(format!("-{shown}")),
        (Some(shown), false) => Cow::Owned(shown),
    })
}

struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, Malformed> {
        let negative = text.starts_with('-');
        let number = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = digits(number.trim_start_matches('0'));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let tail = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let tail = tail.strip_prefix(['+', '-']).unwrap_or(tail);
        if !tail.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Malformed::Format);
        }
        Ok(Parts {
            negative,
            whole,
            fraction,
            suffix,
        })
    }

    /// The number without its point; `None` if it is too large.
    fn mantissa(&self) -> Option<i128> {
        let mut digits = self.whole.bytes().chain(self.fraction.bytes());
        let add = |sum: i128, digit: u8| sum.checked_mul(10)?.checked_add(i128::from(digit - b'0'));
        digits.try_fold(0, add)
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// The notation of a suffix, and the power of ten or two that it stands for.
fn unit(suffix: &str) -> Result<(Notation, i32), Malformed> {
    let place = |all: &[&str]| {
        let place = all.iter().position(|one| *one == suffix)?;
        i32::try_from(place).ok()
    };
    if let Some(place) = place(&DECIMAL) {
        return Ok((Notation::Decimal, place * 3 - 9));
    }
    if let Some(place) = place(&BINARY) {
        return Ok((Notation::Binary, place * 10));
    }
    let power = suffix.strip_prefix(['e', 'E']).ok_or(Malformed::Suffix)?;
    let power = power.parse().map_err(|_| Malformed::Suffix)?;
    Ok((Notation::Exponent, power))
}

/// A mantissa times a power of ten.
struct Amount {
    mantissa: i128,
    scale: i32,
    notation: Notation,
}

impl Amount {
    /// Multiplies a binary quantity by its unit, up to the largest number of 64 bits.
    fn in_units(mut self, exponent: i32) -> Self {
        if self.notation != Notation::Binary {
            return self.rounded_to(-9);
        }
        let most = i128::from(i64::MAX);
        self.mantissa = self.mantissa.saturating_mul(1 << exponent);
        self = self.rounded_to(-9);
        match power(-self.scale) {
            Some(unit) if self.mantissa / unit >= most => (self.mantissa, self.scale) = (most, 0),
            Some(unit) if self.mantissa < unit => self.notation = Notation::Decimal,
            _ => {}
        }
        self
    }

    fn rounded(self, finest: Finest) -> Self {
        match finest {
            Finest::Nano => self,
            Finest::Milli => self.rounded_to(-3),
        }
    }

    /// Rounds up to a power of ten.
    fn rounded_to(mut self, scale: i32) -> Self {
        if self.scale < scale {
            self.mantissa = match power(scale.saturating_sub(self.scale)) {
                Some(unit) => {
                    let up = i128::from(self.mantissa % unit != 0);
                    self.mantissa / unit + up
                }
                None => 1,
            };
            self.scale = scale;
        }
        self
    }

    /// `None` if it has too many digits, or too large an exponent.
    fn show(mut self) -> Option<String> {
        if self.notation == Notation::Binary {
            let unit = power(-self.scale)?;
            let whole = self.mantissa / unit;
            if whole >= 1024 && self.mantissa % unit == 0 {
                return Some(binary(whole));
            }
            self.notation = Notation::Decimal;
        }
        while self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.scale = self.scale.checked_add(1)?;
        }
        while self.scale % 3 != 0 {
            self.mantissa = self.mantissa.checked_mul(10)?;
            self.scale -= 1;
        }
        let Amount {
            mantissa, scale, ..
        } = self;
        if self.notation == Notation::Exponent {
            return Some(match scale {
                0 => mantissa.to_string(),
                power => format!("{mantissa}e{power}"),
            });
        }
        let place = usize::try_from(scale / 3 + 3).ok();
        let suffix = place.and_then(|place| DECIMAL.get(place));
        Some(format!("{mantissa}{}", suffix.unwrap_or(&"")))
    }
}

fn binary(mut whole: i128) -> String {
    let mut place = 0;
    while whole >= 1024 && whole % 1024 == 0 {
        whole /= 1024;
        place += 1;
    }
    format!("{whole}{}", BINARY.get(place).unwrap_or(&""))
}

fn power(of_ten: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(of_ten).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// What a kube-apiserver 1.36 makes of them.
    const STORED: &str = "1000m=1 0.5=500m 1e3=1e3 1E3=1E3 1.5Gi=1536Mi 1024Ki=1Mi 1000k=1M 1000Ki=1000Ki 0.0001=100u 1n=1n \
        1500n=1500n 1000n=1u +1=+1 01=01 1.0=1 0.0=0 -0=0 1e-3=1e-3 12e6=12e6 1000000=1M 1E=1E 1000E=1 1024Gi=1Ti \
        0.5Mi=512Ki 0.1Ki=102400m 0.001Ki=1024m 100u=100u 1.2345678901=1234567891n 0Gi=0 0m=0 0e3=0 1e0=1e0 1e1=10 \
        1e+2=100 10000000000000000000=10E 9223372036854775807=9223372036854775807 \
        9223372036854775808=9223372036854775808 1Ei=1Ei 8Ei=9223372036854775807 16Ei=9223372036854775807 16Ti=16Ti 1.=1. \
        .5=500m 100e2=10e3 1.5e3=1500 1000e3=1e6 123456789012345678901234567890=123456789012345678901234567890 \
        1.1Ei=1268213655067531673600m 00.5Gi=512Mi 1536Mi=1536Mi 1023Mi=1023Mi 1e18=1e18 1e19=10e18 5e-10=1e-9 1.5k=1500 \
        0.15m=150u -1000m=-1 .=0 e3=0 1e2000=100e1998";

    /// Not compared with the real server.
    const LARGEST: &str = "10e2147483647";

    #[test]
    fn the_form_is_that_of_the_real_server() {
        for pair in STORED.split_whitespace() {
            let (text, expected) = pair.split_once('=').unwrap();
            assert_eq!(canonical(text, Finest::Nano).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn the_largest_exponent_is_kept() {
        assert_eq!(canonical(LARGEST, Finest::Nano).unwrap(), LARGEST);
    }

    #[rstest]
    #[case("0.0001", "1m")]
    #[case("1n", "1m")]
    #[case("1e-3", "1e-3")]
    #[case("0.1Ki", "102400m")]
    #[case("1.2345", "1235m")]
    #[case("-0.0001", "-1m")]
    fn resources_are_rounded_up_to_thousandths(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(canonical(text, Finest::Milli).unwrap(), expected);
    }

    #[rstest]
    #[case("abc", Malformed::Format)]
    #[case("1 Gi", Malformed::Format)]
    #[case("", Malformed::Format)]
    #[case("1e1.5", Malformed::Format)]
    #[case("1.1.1", Malformed::Format)]
    #[case("1KI", Malformed::Format)]
    #[case("1kk", Malformed::Suffix)]
    #[case("1e", Malformed::Suffix)]
    #[case("--1", Malformed::Suffix)]
    #[case("1mi", Malformed::Suffix)]
    fn what_is_not_a_quantity_is_refused(#[case] text: &str, #[case] why: Malformed) {
        assert_eq!(canonical(text, Finest::Nano), Err(why));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[+-]?[0-9]{0,45}\\.?[0-9]{0,45}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,12}") {
            let _ = canonical(&text, Finest::Milli);
        }

        #[test]
        fn a_canonical_quantity_stays(number in 1_i64..1_000_000_000, suffix in "|m|k|M|Ki|Mi|Gi") {
            let once = canonical(&format!("{number}{suffix}"), Finest::Milli).unwrap().into_owned();
            prop_assert_eq!(&canonical(&once, Finest::Milli).unwrap(), &once);
        }
    }
}
