//! Reads YAML so that an error can name its line and key.

pub mod document;

use std::marker::PhantomData;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess,
};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::suggest;

/// What is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Counted from 1.
    pub line: Option<u64>,
    /// The key from the root, such as `podFinalizer.profiles[1].mode`.
    pub key: Option<String>,
    /// What is wrong, and what to do about it if that is known.
    pub message: String,
}

/// Reads one document.
///
/// # Errors
/// If it is no YAML, or a value does not fit.
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

/// The value of one key at the root of a document; nothing if it is not there or empty.
///
/// # Errors
/// If the value does not fit.
pub fn parse_key<T: DeserializeOwned>(text: &str, key: &str) -> Result<Option<T>, Problem> {
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
        f.write_str("keys with values")
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

/// A path as far as it is known: it ends in `?` where the key itself could not be read.
fn known_part(path: &str) -> Option<String> {
    let path = path.trim_end_matches('?').trim_end_matches('.');
    (!path.is_empty()).then(|| path.to_owned())
}

/// Folds a text of several lines into one.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A library's error in our words, or else in its own, without the place.
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
            format!("unexpected {unexpected}: expected {expected}")
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key `{key}`")
        }
        Error::InvalidScalar { ty, .. } => format!("wrong type: expected {}", plain(ty)),
        Error::Unexpected { expected, .. } => {
            format!("wrong type: expected {}", plain(expected))
        }
        Error::NullIntoString { .. } => "empty: expected a text".to_owned(),
        Error::Eof { .. } => "the file is empty, or ends too early".to_owned(),
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    Problem {
        line,
        key: None,
        message: one_line(&message),
    }
}

/// The parser's name of what it expected, as people call it.
fn plain(expected: &str) -> &str {
    match expected {
        "mapping start" => "keys with values",
        "sequence start" => "a list",
        "boolean" | "bool" => "true or false",
        "u8" | "u16" | "u32" | "u64" => "a whole number, not below zero",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        other => other,
    }
}

fn unknown(what: &str, given: &str, expected: &[&str]) -> String {
    let way_out = suggest::way_out(given, expected);
    format!("unknown {what} `{given}`: {way_out}")
}

/// The line of a key in a text that was parsed before, or of the nearest key around it that is
/// there.
pub fn line_of(text: &str, key: &str) -> Option<u64> {
    let mut best = Best {
        left: usize::MAX,
        line: None,
    };
    let looked = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        Look {
            key,
            best: &mut best,
        }
        .deserialize(deserializer)
    });
    looked.ok().and(best.line)
}

/// The place that is nearest to what was looked for.
struct Best {
    /// Characters of the key that lead further than this place.
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

/// Looks for what is left of a key in the value at hand.
struct Look<'a> {
    key: &'a str,
    best: &'a mut Best,
}

impl Look<'_> {
    /// What is left of the key below a member of this name. Names may contain dots, so this can
    /// be true of two members; the one that leads further wins.
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

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key::<Spanned<String>>()? {
            match Self::below(self.key, &member.value) {
                Some(left) => {
                    self.best.offer(left, member.referenced.line());
                    map.next_value_seed(Look {
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
                Some(left) => items.next_element_seed(Look {
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
    #[case::what_is_missing_is_looked_for_around("b.e", Some(2))]
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
