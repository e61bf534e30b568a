//! The formats of strings and numbers that a CRD's schema can require, and its regular expressions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;

use base64::Engine as _;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Go's `\d`, `\w`, `\s` and `\b` are ASCII; everything else of the syntax is common. Every sandbox of a process installs
/// the same CRDs, so each pattern is compiled once.
pub(super) fn regex(pattern: &str) -> Option<Regex> {
    static COMPILED: Mutex<BTreeMap<String, Option<Regex>>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock();
    if let Some(known) = compiled.get(pattern) {
        return known.clone();
    }
    let new = RegexBuilder::new(&ascii_classes(pattern)).build().ok();
    compiled.insert(pattern.to_owned(), new.clone());
    new
}

fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    let mut inside = false;
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            inside = match letter {
                '[' => true,
                ']' => false,
                _ => inside,
            };
            out.push(letter);
            continue;
        }
        match (letters.next(), inside) {
            (Some('d'), false) => out.push_str("[0-9]"),
            (Some('w'), false) => out.push_str("[0-9A-Za-z_]"),
            (Some('s'), false) => out.push_str("[\\t\\n\\f\\r ]"),
            (Some('D'), false) => out.push_str("[^0-9]"),
            (Some('W'), false) => out.push_str("[^0-9A-Za-z_]"),
            (Some('S'), false) => out.push_str("[^\\t\\n\\f\\r ]"),
            (Some('d'), true) => out.push_str("0-9"),
            (Some('w'), true) => out.push_str("0-9A-Za-z_"),
            (Some('s'), true) => out.push_str("\\t\\n\\f\\r "),
            (Some(other), _) => out.extend(['\\', other]),
            (None, _) => out.push('\\'),
        }
    }
    out
}

const OF_STRINGS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8s-short-name",
    "k8s-long-name",
];

/// The schema's format, if the server checks it; every other one is ignored.
pub(super) fn supported(schema: &Value) -> Option<&str> {
    let format = schema.get("format").and_then(Value::as_str)?;
    let known = match schema.get("type").and_then(Value::as_str) {
        None | Some("string") => OF_STRINGS.iter().any(|known| is(known, format)),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    };
    known.then_some(format)
}

/// Names of formats are compared without dashes.
fn is(known: &str, format: &str) -> bool {
    let letters = |text: &'_ str| text.chars().filter(|c| *c != '-').collect::<String>();
    letters(known) == letters(format)
}

/// Whether a text has a supported format.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    let format: String = format.chars().filter(|c| *c != '-').collect();
    match format.as_str() {
        "ipv4" => v4(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "uri" => uri(text),
        "byte" => {
            let engine = base64::engine::general_purpose::STANDARD;
            !text.is_empty() && engine.decode(text).is_ok()
        }
        "date" => date(text),
        "datetime" => datetime(text),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => creditcard(text),
        "k8sshortname" => text.len() <= 63 && matches("label", text),
        "k8slongname" => text.len() <= 253 && matches("subdomain", text),
        "hostname" => {
            text.len() <= 255
                && text.split('.').all(|label| label.len() <= 63)
                && matches("hostname", text)
        }
        other => matches(other, text),
    }
}

/// Patterns as on the real server, by format.
const PATTERNS: &[(&str, &str)] = &[
    (
        "hostname",
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    ),
    (
        "uuid",
        r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
    ),
    (
        "uuid3",
        r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
    ),
    (
        "uuid4",
        r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
    ),
    (
        "uuid5",
        r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
    ),
    ("bsonobjectid", r"^[0-9a-fA-F]{24}$"),
    ("email", r"^(.*<[^<>@\s]+@[^<>@\s]+>|[^<>@\s]+@[^<>@\s]+)$"),
    (
        "mac",
        r"^([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5,7}|([0-9a-fA-F]{4}\.){2,3}[0-9a-fA-F]{4})$",
    ),
    ("ssn", r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"),
    ("hexcolor", r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    (
        "rgbcolor",
        r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*(,\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*){2}\)$",
    ),
    (
        "duration",
        r"^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|(?i)[0-9]+\s*(ns|nano|us|µs|micro|ms|milli|s|m|h|d|w)",
    ),
    (
        "datetime",
        r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$",
    ),
    (
        "creditcard",
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    ),
    ("label", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    (
        "subdomain",
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
];

fn matches(format: &str, text: &str) -> bool {
    static COMPILED: OnceLock<Vec<(&str, Regex)>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let compile =
            |(name, pattern): &(&'static str, &str)| Some((*name, Regex::new(pattern).ok()?));
        PATTERNS.iter().filter_map(compile).collect()
    });
    let found = compiled.iter().find(|(name, _)| *name == format);
    found.is_none_or(|(_, pattern)| pattern.is_match(text))
}

/// An IPv4 address, also with leading zeros.
fn v4(text: &str) -> Option<()> {
    let mut parts = 0;
    for part in text.split('.') {
        let digits = part.trim_start_matches('0');
        let number = if digits.is_empty() { "0" } else { digits };
        if part.is_empty() || number.parse::<u8>().is_err() {
            return None;
        }
        parts += 1;
    }
    (parts == 4).then_some(())
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => 128,
        Ok(IpAddr::V4(_)) => 32,
        Err(_) if v4(address).is_some() => 32,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}

/// Go's `url.ParseRequestURI`, roughly: an absolute path, or a scheme.
fn uri(text: &str) -> bool {
    if text.chars().any(|c| c.is_ascii_control() || c == ' ') {
        return false;
    }
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    text.starts_with('/')
        || text
            .split_once(':')
            .is_some_and(|(before, _)| scheme(before))
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn datetime(text: &str) -> bool {
    let text = text.to_lowercase();
    let Some((day, time)) = text.split_once('t') else {
        return false;
    };
    let below = |range: std::ops::Range<usize>, most: &str| {
        time.get(range).is_some_and(|digits| digits <= most)
    };
    date(day)
        && matches("datetime", time)
        && below(0..2, "23")
        && below(3..5, "59")
        && below(6..8, "59")
}

fn digits(text: &str) -> Vec<u32> {
    let letters = text.chars().filter(|c| !"- ".contains(*c));
    letters
        .map(|c| match c {
            'X' => 10,
            c => c.to_digit(10).unwrap_or(99),
        })
        .collect()
}

fn isbn10(text: &str) -> bool {
    let digits = digits(text);
    let (body, last) = digits.split_at(digits.len().saturating_sub(1));
    let sum: u32 = digits
        .iter()
        .zip(1..)
        .map(|(digit, place)| digit * place)
        .sum();
    body.len() == 9
        && body.iter().all(|d| *d < 10)
        && last.iter().all(|d| *d <= 10)
        && sum.is_multiple_of(11)
}

fn isbn13(text: &str) -> bool {
    let digits = digits(text);
    let factors = [1, 3].into_iter().cycle();
    let sum: u32 = digits
        .iter()
        .zip(factors)
        .map(|(digit, factor)| digit * factor)
        .sum();
    digits.len() == 13 && digits.iter().all(|d| *d < 10) && sum.is_multiple_of(10)
}

fn creditcard(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let value = |(place, digit): (usize, u32)| match place % 2 {
        0 => digit,
        _ if digit > 4 => digit * 2 - 9,
        _ => digit * 2,
    };
    let reversed = number.chars().rev().filter_map(|c| c.to_digit(10));
    let sum: u32 = reversed.enumerate().map(value).sum();
    matches("creditcard", &number) && sum.is_multiple_of(10)
}

/// The error of a number that its type and format cannot have.
pub(super) fn out_of_range(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let kind = schema.get("type").and_then(Value::as_str)?;
    let format = supported(schema);
    let whole = value.as_i64().or_else(|| {
        let number = value.as_f64().filter(|n| n.fract() == 0.0)?;
        // Out of range for i64 stays out of range for i32.
        (number.abs() < 9.3e18).then_some(number as i64)
    });
    let fits = match (kind, format) {
        ("integer", Some("int32")) => whole.is_some_and(|n| i32::try_from(n).is_ok()),
        ("integer", _) => whole.is_some(),
        ("number", Some("float")) => value
            .as_f64()
            .is_some_and(|n| n.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    if fits {
        return None;
    }
    Some(match format {
        Some(format) => {
            format!("Checked value must be of type {kind} with format {format} in {path}")
        }
        None => format!("Checked value must be of type {kind} (default format) in {path}"),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("creditcard", "4111111111111111", "4111111111111112")]
    #[case("isbn13", "9783161484100", "9783161484101")]
    #[case("isbn10", "0321751043", "0321751044")]
    #[case("date-time", "2026-01-02T03:04:05.1+02:00", "2026-01-02T24:00:00Z")]
    #[case("ipv4", "1.2.3.04", "1.2.3")]
    #[case("duration", "1.5h", "10")]
    fn a_format_accepts_and_refuses(#[case] format: &str, #[case] good: &str, #[case] bad: &str) {
        assert!(is_valid(format, good), "{good}");
        assert!(!is_valid(format, bad), "{bad}");
    }

    #[test]
    fn classes_are_ascii_as_in_go() {
        let digits = regex(r"^\d[\d\w]$").unwrap();
        assert!(digits.is_match("1a") && !digits.is_match("٣a"));
    }

    #[test]
    fn every_pattern_compiles() {
        for (name, pattern) in PATTERNS {
            assert!(Regex::new(pattern).is_ok(), "{name}");
        }
    }
}
