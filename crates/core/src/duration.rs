//! Durations as they are written in configuration files and on the command line.
//!
//! ```
//! use std::time::Duration;
//! use belayer_core::duration;
//!
//! assert_eq!(duration::parse("1h30m"), Ok(Duration::from_secs(5400)));
//! assert_eq!(duration::format(Duration::from_secs(5400)), "1h30m");
//! assert!(duration::parse("90").is_err());
//! ```

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// The error for a text that is not a duration. Returned by [`parse`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {0:?} (example: 30s, 10m, 1h30m, 3d)")]
pub struct InvalidDuration(String);

/// Parses `30s`, `1h30m`, `3d`, `500ms`. A day has 24 hours. A number without a unit and a negative
/// duration are refused.
///
/// ```
/// use std::time::Duration;
/// use belayer_core::duration;
///
/// assert_eq!(duration::parse("1d12h"), Ok(Duration::from_secs(36 * 3600)));
/// assert!(duration::parse("30").is_err(), "which unit?");
/// ```
///
/// # Errors
///
/// If the text is anything else.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let span: Result<Span, _> = text.parse();
    span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .ok_or_else(|| InvalidDuration(text.to_owned()))
}

/// Writes a duration so that [`parse`] can read it: `1h30m`, `1.5s` as `1s500ms`, zero as `0s`.
///
/// ```
/// use std::time::Duration;
/// use belayer_core::duration;
///
/// assert_eq!(duration::format(Duration::from_millis(1500)), "1s500ms");
/// ```
pub fn format(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(millis), "ms"),
    ];
    let text: String = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0s", 0)]
    #[case("90s", 90_000)]
    #[case("500ms", 500)]
    #[case("1h30m", 5_400_000)]
    #[case("3d", 259_200_000)]
    #[case("1d12h", 129_600_000)]
    fn durations_are_parsed_and_formatted(#[case] text: &str, #[case] millis: u64) {
        let duration = Duration::from_millis(millis);
        assert_eq!(parse(text), Ok(duration));
        assert_eq!(parse(&format(duration)), Ok(duration));
    }

    #[rstest]
    #[case("")]
    #[case("5")]
    #[case("m")]
    #[case("ten")]
    #[case("-5m")]
    #[case("5mü")]
    #[case("1 month")]
    #[case("99999999999999999999d")]
    fn invalid_durations_are_refused(#[case] text: &str) {
        assert!(parse(text).is_err(), "{text}");
    }
}
