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

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess,
};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::suggest;

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
    let mut key = None;
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            key = known_part(&error.path().to_string());
            error.into_inner()
        })
    });
    read.map_err(|error| Problem {
        key,
        ..describe(&error)
    })
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
    let mut place = None;
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let one = OneKey {
            key,
            value: PhantomData,
        };
        one.deserialize(tracked).inspect_err(|_| {
            place = known_part(&track.path().to_string());
        })
    });
    read.map_err(|error| Problem {
        key: place,
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

/// The line of a key in a text that was parsed before, or of the nearest existing parent. The
/// [module's example](self) finds a line.
pub fn line_of(text: &str, key: &str) -> Option<u64> {
    let mut best = Best {
        left: usize::MAX,
        line: None,
    };
    let searched = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        Search {
            key,
            best: &mut best,
        }
        .deserialize(deserializer)
    });
    searched.ok().and(best.line)
}

/// The nearest match so far.
struct Best {
    /// Characters of the key that are not matched.
    left: usize,
    line: Option<u64>,
}

impl Best {
    fn offer(&mut self, left: &str, line: u64) {
        if left.len() < self.left {
            *self = Self {
                left: left.len(),
                line: Some(line),
            };
        }
    }
}

/// Searches the value for the rest of a key.
struct Search<'a> {
    key: &'a str,
    best: &'a mut Best,
}

impl Search<'_> {
    /// The rest of the key below a member of this name. Names may contain dots, so two members can
    /// match; the longer match wins.
    fn below<'k>(key: &'k str, member: &str) -> Option<&'k str> {
        let left = key.strip_prefix(member)?;
        match left.strip_prefix('.') {
            Some(left) => Some(left),
            None => (left.is_empty() || left.starts_with('[')).then_some(left),
        }
    }

    /// The same for an item of a sequence.
    fn below_item(key: &str, index: usize) -> Option<&str> {
        let left = key.strip_prefix(&format!("[{index}]"))?;
        Some(left.strip_prefix('.').unwrap_or(left))
    }
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key::<Spanned<String>>()? {
            match Self::below(self.key, &member.value) {
                Some(left) => {
                    self.best.offer(left, member.referenced.line());
                    map.next_value_seed(Search {
                        key: left,
                        best: &mut *self.best,
                    })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let more = match Self::below_item(self.key, index) {
                Some("") => {
                    let item = items.next_element::<Spanned<IgnoredAny>>()?;
                    item.map(|item| self.best.offer("", item.referenced.line()))
                }
                Some(left) => items.next_element_seed(Search {
                    key: left,
                    best: &mut *self.best,
                })?,
                None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
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
