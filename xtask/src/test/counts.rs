//! The number of passed, failed and skipped tests, parsed from output.

use std::fmt;
use std::ops::Add;

/// The sum over all steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Counts {
    /// The counts of a line that ends one test binary of `cargo test`, such as
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`.
    pub(super) fn of_cargo_test(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        Self::read(counts, "; ", "ignored")
    }

    /// The counts of a line `N passed, N failed, N skipped`.
    pub(super) fn of_scenarios(line: &str) -> Option<Self> {
        Self::read(line.trim(), ", ", "skipped")
    }

    fn read(text: &str, separator: &str, skipped: &str) -> Option<Self> {
        let mut counts = text.split(separator).map(|part| part.split_once(' '));
        let mut next = |word: &str| {
            let (number, found) = counts.next()??;
            (found == word).then(|| number.parse().ok())?
        };
        Some(Self {
            passed: next("passed")?,
            failed: next("failed")?,
            skipped: next(skipped)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::all_passed("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s", Some((12, 0, 1)))]
    #[case::some_failed("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", Some((3, 2, 0)))]
    #[case::another_line("test tests::a ... ok", None)]
    fn cargo_test(#[case] line: &str, #[case] expected: Option<(u64, u64, u64)>) {
        let expected = expected.map(|(passed, failed, skipped)| Counts {
            passed,
            failed,
            skipped,
        });
        assert_eq!(Counts::of_cargo_test(line), expected);
    }

    #[test]
    fn the_last_line_of_the_scenarios_is_parsed() {
        let counts = Counts {
            passed: 37,
            failed: 1,
            skipped: 2,
        };
        assert_eq!(Counts::of_scenarios(&counts.to_string()), Some(counts));
        assert_eq!(Counts::of_scenarios("ok   row-05-owner-gone 1.2 s"), None);
    }
}
