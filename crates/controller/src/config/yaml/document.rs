//! A YAML document that preserves scalars as written.
//!
//! YAML guesses the type of a plain scalar: `1.10` is a number, and `off` may be a boolean. The
//! type of a configuration key is defined by its Rust type, so the guess must not change the value:
//! a scalar whose text the guess would change stays a string. A document that is read and written
//! here keeps its meaning.
//!
//! ```
//! use belayer_controller::config::yaml::document;
//!
//! let value = document::read("a: [1, 2]")?;
//! assert_eq!(value["a"][1], 2);
//! # Ok::<(), belayer_controller::config::yaml::Problem>(())
//! ```

use std::fmt::Write as _;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use super::{Problem, parse};

/// Parses one document. The [module's example](self) reads a list.
///
/// # Errors
/// If it is not valid YAML.
pub fn read(text: &str) -> Result<Value, Problem> {
    // A key with a place is no text for the parser, which would name it `?`. The line is right.
    let node = parse::<Spanned<Node>>(text).map_err(|problem| Problem {
        key: None,
        ..problem
    })?;
    Ok(node.value.value(text, node.defined))
}

/// The line of a key in a text that was parsed before, or of the nearest existing parent. The
/// [module's example](super) finds a line.
pub fn line_of(text: &str, key: &str) -> Option<u64> {
    let document = parse::<Node>(text).ok()?;
    document.nearest(key).map(|(_, line)| line)
}

/// Writes an equivalent document on one line. The value is as of [`read`]. The
/// [example](crate::config::yaml::document) reads such a document.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    put(value, &mut text);
    text
}

enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Text(String),
    /// The parser's guess for a plain scalar.
    Plain(Value),
}

impl Node {
    fn value(self, text: &str, place: serde_saphyr::Location) -> Value {
        match self {
            Self::Map(entries) => Value::Object(Map::from_iter(
                entries
                    .into_iter()
                    .map(|(key, node)| (key.value, node.value.value(text, node.defined))),
            )),
            Self::List(items) => {
                let items = items.into_iter();
                items
                    .map(|node| node.value.value(text, node.defined))
                    .collect()
            }
            Self::Text(text) => Value::String(text),
            Self::Plain(Value::Null) => Value::Null,
            Self::Plain(guess) => {
                let as_text = guess.to_string();
                match written(text, place) {
                    Some(written) if written != as_text.as_str() => {
                        Value::String(written.to_owned())
                    }
                    _ => guess,
                }
            }
        }
    }

    /// How many characters of the key are not matched where it is matched best, and the line of that place.
    fn nearest(&self, key: &str) -> Option<(usize, u64)> {
        match self {
            Self::Map(entries) => {
                let matches = entries.iter().filter_map(|(name, node)| {
                    let left = below(key, &name.value)?;
                    let here = (left.len(), name.referenced.line());
                    Some(node.value.nearest(left).unwrap_or(here))
                });
                matches.min_by_key(|(left, _)| *left)
            }
            Self::List(items) => items.iter().enumerate().find_map(|(index, item)| {
                let left = key.strip_prefix(&format!("[{index}]"))?;
                match left.strip_prefix('.').unwrap_or(left) {
                    "" => Some((0, item.referenced.line())),
                    left => item.value.nearest(left),
                }
            }),
            Self::Text(_) | Self::Plain(_) => None,
        }
    }
}

/// The rest of the key below a member of this name. Names may contain dots, so two members can
/// match; the longer match wins.
fn below<'k>(key: &'k str, member: &str) -> Option<&'k str> {
    let left = key.strip_prefix(member)?;
    match left.strip_prefix('.') {
        Some(left) => Some(left),
        None => (left.is_empty() || left.starts_with('[')).then_some(left),
    }
}

/// The source text of a plain scalar.
fn written(text: &str, place: serde_saphyr::Location) -> Option<&str> {
    let span = place.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    let written = text.get(start..start.checked_add(length)?)?.trim();
    is_word(written).then_some(written)
}

/// Whether a text needs no quotes anywhere, and is parsed as itself where a string is expected.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    let nothing = matches!(text, "null" | "Null" | "NULL");
    text.chars().all(plain) && text.contains(|c: char| c.is_ascii_alphanumeric()) && !nothing
}

fn put(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            text.push('{');
            for (key, value) in map {
                let _ = write!(text, "{}: ", Value::String(key.clone()));
                put(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                put(item, text);
                text.push(',');
            }
            text.push(']');
        }
        // Without quotes it is parsed as the type of its key, as in the original document.
        Value::String(word) if is_word(word) => text.push_str(word),
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // A number that JSON cannot represent, such as `.inf`, becomes a string, so that it differs
        // from null.
        Ok(Node::Plain(Number::from_f64(value).map_or_else(
            || Value::String(value.to_string()),
            Value::Number,
        )))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::a_number("a: 8", json!({"a": 8}))]
    #[case::a_boolean("a: true", json!({"a": true}))]
    #[case::nothing("a: null\nb:\nc: ~", json!({"a": null, "b": null, "c": null}))]
    #[case::a_version("a: 1.10", json!({"a": "1.10"}))]
    #[case::an_octal("a: 010", json!({"a": "010"}))]
    #[case::a_power("a: [1e3, 0x10]", json!({"a": ["1e3", "0x10"]}))]
    #[case::a_switch("a: {b: on, c: off, d: yes}", json!({"a": {"b": "on", "c": "off", "d": "yes"}}))]
    #[case::quoted_strings("a: '8'\nb: \"true\"", json!({"a": "8", "b": "true"}))]
    #[case::behind_letters_of_many_bytes("x: äöü\na: 1.10 # é\n", json!({"x": "äöü", "a": "1.10"}))]
    #[case::a_block("- |\n  a\n  b\n- 2", json!(["a\nb\n", 2]))]
    fn scalars_stay_as_written(#[case] text: &str, #[case] expected: Value) {
        assert_eq!(read(text).unwrap(), expected);
    }

    #[rstest]
    #[case(
        "{v: 1.10, w: on, x: yes, y: 010, z: 8, q: '1.10', r: 'null', s: '', t: a b, u: 'x: y', k.l/m: \"{\"}"
    )]
    fn a_written_document_is_equivalent(#[case] text: &str) {
        let labels = |text: &str| parse::<BTreeMap<String, String>>(text).unwrap();
        let again = write(&read(text).unwrap());
        assert_eq!(labels(&again), labels(text), "{again}");
        assert_eq!(read(&again).unwrap(), read(text).unwrap());
    }

    #[test]
    fn booleans_and_numbers_keep_their_value() {
        let again = write(&read("a: yes\nb: 0x10\nc: 1.5").unwrap());
        #[derive(serde::Deserialize)]
        struct Typed {
            a: bool,
            b: u32,
            c: f64,
        }
        let Typed { a, b, c } = parse(&again).unwrap();
        assert!(a && b == 16 && c > 1.4, "{again}");
    }
}
