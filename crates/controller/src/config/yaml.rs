//! Parses YAML with errors that name their line and key.
//!
//! ```
//! use belayer_controller::config::yaml;
//!
//! assert_eq!(yaml::parse::<Vec<u8>>("[1, 2]")?, [1, 2]);
//! assert_eq!(yaml::line_of("a: 1\nb: 2\n", "b"), Some(2));
//! # Ok::<(), yaml::Problem>(())
//! ```

pub mod document;

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess};
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use super::suggest;

pub use document::line_of;

/// An error in a file. Returned by [`parse`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Counted from 1.
    pub line: Option<u64>,
    /// The key from the root, such as `podFinalizer.profiles[1].mode`.
    pub key: Option<String>,
    /// The error, and how to fix it if that is known.
    pub message: String,
}

/// Parses one document. The [module's example](self) reads a list.
///
/// # Errors
/// If it is not valid YAML, or a value is invalid.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    read(text, PhantomData)
}

/// The value of one root key of a document; `None` if it is missing or empty.
/// [`parse`](crate::config::yaml::parse) reads the whole document.
///
/// # Errors
/// If the value is invalid.
pub(crate) fn parse_key<T: DeserializeOwned>(text: &str, key: &str) -> Result<Option<T>, Problem> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    read(
        text,
        OneKey {
            key,
            value: PhantomData,
        },
    )
}

fn read<S: for<'de> DeserializeSeed<'de, Value = T>, T>(text: &str, seed: S) -> Result<T, Problem> {
    let mut key = None;
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let read = seed.deserialize(tracked);
        read.inspect_err(|_| key = known_part(&track.path().to_string()))
    });
    read.map_err(|error| Problem {
        key,
        ..describe(&error)
    })
}

/// Reads one key and skips the others.
struct OneKey<'a, T> {
    key: &'a str,
    value: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for OneKey<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned> serde::de::Visitor<'de> for OneKey<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                found = map.next_value::<Option<T>>()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The known part of a path: it ends in `?` if the key itself could not be parsed.
fn known_part(path: &str) -> Option<String> {
    let path = path.trim_end_matches('?').trim_end_matches('.');
    (!path.is_empty()).then(|| path.to_owned())
}

/// Joins a text of several lines into one. [`Problem`] prints its message so. See the
/// [example](crate::config::yaml) of this module.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Converts a parser error to a message without the location.
/// [`parse`] calls it.
pub fn describe(error: &Error) -> Problem {
    let line = error
        .location()
        .map(|location| location.line())
        .filter(|line| *line > 0);
    let message = match error.without_snippet() {
        Error::SerdeUnknownField {
            field, expected, ..
        } => unknown("key", field, expected),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => unknown("value", variant, expected),
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing: add it"),
        Error::SerdeInvalidType {
            unexpected,
            expected,
            ..
        }
        | Error::SerdeInvalidValue {
            unexpected,
            expected,
            ..
        } => {
            format!("invalid value: {unexpected}, expected {expected}")
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key `{key}`")
        }
        Error::InvalidScalar { ty, .. } => format!("invalid value: expected {}", plain(ty)),
        Error::Unexpected { expected, .. } => {
            format!("invalid value: expected {}", plain(expected))
        }
        Error::NullIntoString { .. } => "empty value: expected a string".to_owned(),
        Error::Eof { .. } => "the file is empty or truncated".to_owned(),
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    Problem {
        line,
        key: None,
        message: one_line(&message),
    }
}

/// A readable name of the type that the parser expected.
fn plain(expected: &str) -> &str {
    match expected {
        "mapping start" => "a mapping",
        "sequence start" => "a list",
        "boolean" | "bool" => "true or false",
        "u8" | "u16" | "u32" | "u64" => "a non-negative integer",
        "i8" | "i16" | "i32" | "i64" => "an integer",
        other => other,
    }
}

fn unknown(what: &str, given: &str, expected: &[&str]) -> String {
    let suggestion = suggest::suggestion(given, expected);
    format!("unknown {what} `{given}`: {suggestion}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TEXT: &str = "a: 1\nb:\n  c: x\n  c.d: y\nlist:\n- one\n- k: 1\n  l: [true, null, 1.5]\n";

    #[rstest]
    #[case("a", Some(1))]
    #[case("b", Some(2))]
    #[case("b.c", Some(3))]
    #[case::a_name_with_a_dot("b.c.d", Some(4))]
    #[case::a_missing_key_has_the_line_of_its_parent("b.e", Some(2))]
    #[case("list[0]", Some(6))]
    #[case("list[1]", Some(7))]
    #[case("list[1].l", Some(8))]
    #[case("list[1].l[2]", Some(8))]
    #[case::beyond_the_end("list[9]", Some(5))]
    #[case("nowhere", None)]
    fn keys_have_lines(#[case] key: &str, #[case] line: Option<u64>) {
        assert_eq!(line_of(TEXT, key), line);
    }
}
