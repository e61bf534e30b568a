//! Decodes a body by the type of its kind.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Field, Node, Type, of_name};
use crate::quantity::{Finest, canonical};

/// Brings a body into the form of a typed server: without unknown fields, nulls and empty
/// optional values, and with canonical quantities. Returns the paths of the unknown fields.
///
/// # Errors
/// The wrong type, with Go's error text.
pub(crate) fn decode(owner: &'static str, value: &mut Value) -> Result<Vec<String>, String> {
    let mut reader = Reader {
        unknown: Vec::new(),
        path: String::new(),
    };
    if let Value::Object(map) = value {
        reader.fields(owner, map)?;
    }
    Ok(reader.unknown)
}

/// The paths of the fields that a type does not have.
pub(crate) fn unknown_fields(owner: &'static str, value: &Value, path: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    search(&Node::Type(owner.to_owned()), value, path, &mut unknown);
    unknown
}

fn search(node: &Node, value: &Value, path: &str, unknown: &mut Vec<String>) {
    match (node, value) {
        (Node::List(item), Value::Array(list)) if matches!(**item, Node::Type(_)) => {
            for (index, value) in list.iter().enumerate() {
                search(item, value, &format!("{path}[{index}]"), unknown);
            }
        }
        (Node::Type(name), Value::Object(map)) => {
            let fields = of_name(name).map(|of| &of.fields);
            for (name, value) in map {
                match fields.and_then(|fields| fields.get(name)) {
                    None => unknown.push(format!("{path}.{name}")),
                    Some(field) if value.is_object() || value.is_array() => {
                        search(&field.node, value, &format!("{path}.{name}"), unknown);
                    }
                    Some(_) => {}
                }
            }
        }
        _ => {}
    }
}

struct Reader {
    unknown: Vec<String>,
    path: String,
}

impl Reader {
    fn fields(&mut self, owner: &str, map: &mut Map<String, Value>) -> Result<(), String> {
        let Some(Type { fields, .. }) = of_name(owner) else {
            return Ok(());
        };
        let mut wrong = None;
        map.retain(|name, value| {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let keep = match fields.get(name) {
                None => {
                    self.unknown.push(self.path.clone());
                    false
                }
                // `meta::normalise` handles the nulls of metadata.
                Some(_) if value.is_null() => false,
                Some(field) => match self.node(owner, &field.node, value) {
                    Ok(()) => field.always || !is_empty(field, value),
                    Err(why) => {
                        wrong.get_or_insert(why);
                        false
                    }
                },
            };
            self.path.truncate(length);
            keep
        });
        wrong.map_or(Ok(()), Err)
    }

    fn node(&mut self, owner: &str, node: &Node, value: &mut Value) -> Result<(), String> {
        let fits = match node {
            Node::Any => true,
            Node::Text => value.is_string(),
            Node::Bytes => match value {
                Value::String(text) => return bytes(text),
                _ => value.is_array(),
            },
            Node::Time => match value {
                Value::String(text) => return time(text),
                _ => false,
            },
            Node::Integer => value.is_i64() || value.is_u64(),
            Node::Number => value.is_number(),
            Node::Boolean => value.is_boolean(),
            Node::Quantity => return quantity(value, Finest::Nano),
            Node::IntOrText => value.is_string() || value.is_i64(),
            Node::List(item) => match value {
                Value::Array(list) => return self.list(owner, item, list),
                _ => false,
            },
            Node::Map(item) => match value {
                Value::Object(map) => return self.map(owner, item, map),
                _ => false,
            },
            Node::Type(name) => match value {
                Value::Object(map) => return self.fields(name, map),
                _ => false,
            },
        };
        if fits {
            return Ok(());
        }
        let kind = owner.rsplit('.').next().unwrap_or_default();
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {kind}.{} of type {}",
            self.path,
            go_type(node)
        ))
    }

    fn list(&mut self, owner: &str, item: &Node, list: &mut [Value]) -> Result<(), String> {
        for (index, value) in list.iter_mut().enumerate() {
            if value.is_null() {
                *value = zero(item);
                continue;
            }
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            let read = self.node(owner, item, value);
            self.path.truncate(length);
            read?;
        }
        Ok(())
    }

    fn map(
        &mut self,
        owner: &str,
        item: &Node,
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for (key, value) in map.iter_mut() {
            if value.is_null() {
                *value = zero(item);
                continue;
            }
            let length = self.path.len();
            self.path.push('.');
            self.path.push_str(key);
            let read = match item {
                Node::Quantity => quantity(value, Finest::Milli),
                item => self.node(owner, item, value),
            };
            self.path.truncate(length);
            read?;
        }
        Ok(())
    }
}

/// Whether Go omits the value of an optional field: an empty list or map, or the zero of a field that is not a pointer.
fn is_empty(field: &Field, value: &Value) -> bool {
    match (&field.node, value) {
        (Node::List(_), Value::Array(list)) => list.is_empty(),
        (Node::Map(_), Value::Object(map)) => map.is_empty(),
        (Node::Text | Node::Bytes, Value::String(text)) => field.omits && text.is_empty(),
        (Node::Boolean, Value::Bool(is)) => field.omits && !is,
        (Node::Integer | Node::Number, Value::Number(number)) => {
            field.omits && number.as_f64() == Some(0.0)
        }
        _ => false,
    }
}

/// Brings a quantity into its canonical form.
fn quantity(value: &mut Value, finest: Finest) -> Result<(), String> {
    let text = match &*value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
        other => Cow::Owned(other.to_string()),
    };
    let stored = canonical(&text, finest).map_err(|why| why.to_string())?;
    if value.as_str() != Some(&*stored) {
        *value = Value::String(stored.into_owned());
    }
    Ok(())
}

/// The value that Go decodes from a null inside a list or map, and the value of a field that is not set.
pub(crate) fn zero(node: &Node) -> Value {
    match node {
        Node::Text | Node::Bytes => json!(""),
        Node::Integer | Node::Number | Node::IntOrText => json!(0),
        Node::Quantity => json!("0"),
        Node::Boolean => json!(false),
        Node::Type(_) => json!({}),
        Node::Any | Node::Time | Node::List(_) | Node::Map(_) => Value::Null,
    }
}

fn go_type(node: &Node) -> String {
    match node {
        Node::Any | Node::Quantity | Node::IntOrText | Node::Time => "interface {}".into(),
        Node::Text => "string".into(),
        Node::Bytes => "[]uint8".into(),
        Node::Integer => "int64".into(),
        Node::Number => "float64".into(),
        Node::Boolean => "bool".into(),
        Node::List(item) => format!("[]{}", go_type(item)),
        Node::Map(item) => format!("map[string]{}", go_type(item)),
        Node::Type(name) => {
            let mut parts = name.rsplit('.');
            let kind = parts.next().unwrap_or_default();
            format!("{}.{kind}", parts.next().unwrap_or_default())
        }
    }
}

fn bytes(text: &str) -> Result<(), String> {
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map_or_else(
        |error| Err(format!("illegal base64 data: {error}")),
        |_| Ok(()),
    )
}

fn time(text: &str) -> Result<(), String> {
    let read = text.parse::<jiff::Timestamp>();
    read.map_or_else(
        |_| {
            Err(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse"
            ))
        },
        |_| Ok(()),
    )
}
