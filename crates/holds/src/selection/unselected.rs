use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// How many holds may be released at once because their objects are no longer selected.
///
/// More than that look like a mistyped selector, and all of them are kept.
///
/// ```
/// use belayer_holds::selection::MaxUnselected;
///
/// let max = MaxUnselected::Percent(10);
/// assert!(max.allows(100, 1_000) && !max.allows(101, 1_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnselected {
    /// Percentage of all held objects, from 0 to 100, but at least [`MaxUnselected::FLOOR`] objects.
    Percent(u8),
    /// This many.
    Count(usize),
}

impl MaxUnselected {
    /// The minimum that a percentage allows: in a small cluster a changed profile does little harm.
    pub const FLOOR: usize = 20;

    /// The maximum number of unselected holds that are released; `held` is the number of all objects with
    /// Belayer's hold, these included.
    pub fn limit(self, held: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                // Split to avoid an overflow.
                let percent = usize::from(percent);
                let share = held / 100 * percent + held % 100 * percent / 100;
                share.max(Self::FLOOR)
            }
        }
    }

    /// Whether `unselected` of `held` objects may be released.
    pub fn allows(self, unselected: usize, held: usize) -> bool {
        unselected <= self.limit(held)
    }
}

impl Default for MaxUnselected {
    fn default() -> Self {
        Self::Percent(10)
    }
}

impl fmt::Display for MaxUnselected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

/// A value that is neither a percentage nor a number. Returned when a
/// [`MaxUnselected`](crate::selection::MaxUnselected) is parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid limit {0:?}: use a percentage from 0% to 100% or a number of objects (example: 10% or 50)"
)]
pub struct ParseMaxUnselectedError(String);

impl FromStr for MaxUnselected {
    type Err = ParseMaxUnselectedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseMaxUnselectedError(text.to_owned());
        // The integer parser accepts a sign, which is invalid here.
        if text.starts_with('+') {
            return Err(bad());
        }
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(bad()),
            },
            None => text.parse().map(Self::Count).map_err(|_| bad()),
        }
    }
}

impl<'de> Deserialize<'de> for MaxUnselected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = MaxUnselected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage or a number of objects, such as 10% or 50")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Self::Value, E> {
                Ok(MaxUnselected::Count(
                    usize::try_from(count).unwrap_or(usize::MAX),
                ))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Self::Value, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::few_pods_have_the_floor("10%", 20, 30, true)]
    #[case::one_above_the_floor("10%", 21, 30, false)]
    #[case::the_share_of_many("10%", 100, 1_000, true)]
    #[case::one_above_the_share("10%", 101, 1_000, false)]
    #[case::the_share_is_rounded_down("10%", 100, 1_009, true)]
    #[case::zero_percent_keeps_the_floor("0%", 20, 1_000, true)]
    #[case::all("100%", 1_000, 1_000, true)]
    #[case::a_number_has_no_floor("5", 6, 1_000, false)]
    #[case::none_at_all("0", 1, 1_000, false)]
    #[case::none_to_release("0", 0, 1_000, true)]
    #[case::no_overflow("100%", usize::MAX, usize::MAX, true)]
    fn what_is_allowed(
        #[case] max: MaxUnselected,
        #[case] unselected: usize,
        #[case] held: usize,
        #[case] allowed: bool,
    ) {
        assert_eq!(max.allows(unselected, held), allowed);
    }

    #[rstest]
    #[case("\"10%\"", MaxUnselected::Percent(10))]
    #[case("50", MaxUnselected::Count(50))]
    #[case("\"50\"", MaxUnselected::Count(50))]
    fn both_forms_are_read(#[case] json: &str, #[case] max: MaxUnselected) {
        assert_eq!(serde_json::from_str::<MaxUnselected>(json).unwrap(), max);
        assert_eq!(max.to_string().parse(), Ok(max));
    }

    #[rstest]
    #[case("\"101%\"")]
    #[case("\"-1%\"")]
    #[case("\"+5\"")]
    #[case("\"many\"")]
    #[case("\"\"")]
    #[case("-1")]
    #[case("1.5")]
    #[case("null")]
    fn anything_else_is_refused(#[case] json: &str) {
        let error = serde_json::from_str::<MaxUnselected>(json)
            .unwrap_err()
            .to_string();
        assert!(error.contains("10% or 50"), "{error}");
    }
}
