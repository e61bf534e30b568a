//! Decodes Kubernetes' protobuf bodies into the same value as a JSON body.
//!
//! A body is the four bytes of [`MAGIC`] and a message with apiVersion, kind and the encoded object.
//! `numbers.json` contains the fields of each message by number, each as `name type`: `+` is a message that
//! JSON inlines, `?` marks a field whose zero JSON omits. `examples/digests` generates it from the
//! Go modules. Omitted fields are dropped here, because Go writes the zeros of plain fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Buf as _;
use jiff::Timestamp;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::{Map, Value, json};

use super::messages::{Field, Node, messages};
use super::types;

#[cfg(test)]
mod tests;

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every body.
pub(crate) const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting of messages.
const DEEPEST: u32 = 64;

/// Why a body cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// The body does not begin with the magic bytes.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Magic,
    /// Invalid bytes of a message.
    #[error("proto: {0}")]
    Wire(#[from] prost::DecodeError),
    /// A field is longer than the rest of the body.
    #[error("unexpected EOF")]
    Truncated,
    /// A field has another wire type than its message declares.
    #[error("proto: wrong wireType for field {0}")]
    Field(String),
    /// The messages are nested too deeply.
    #[error("proto: more than {DEEPEST} nested messages")]
    Depth,
    /// A time outside the supported range.
    #[error("proto: {0}")]
    Time(#[from] jiff::Error),
    /// A field that must contain JSON does not.
    #[error("json parse error: {0}")]
    Json(#[from] serde_json::Error),
    /// The server does not know the type.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind {
        /// The kind in the body.
        kind: String,
        /// The apiVersion in the body.
        version: String,
    },
}

/// Decodes a body; a missing apiVersion or kind defaults to the expected one.
///
/// # Errors
/// Why it cannot be decoded.
pub(crate) fn read(body: &[u8], api_version: &str, kind: &str) -> Result<Value, Malformed> {
    let mut left = body.strip_prefix(MAGIC).ok_or(Malformed::Magic)?;
    let (mut body_version, mut body_kind, mut raw) = (String::new(), String::new(), &[][..]);
    while left.has_remaining() {
        let (number, wire) = decode_key(&mut left)?;
        match number {
            1 => {
                let mut type_meta = chunk("typeMeta", wire, &mut left)?;
                while type_meta.has_remaining() {
                    let (number, wire) = decode_key(&mut type_meta)?;
                    match number {
                        1 => body_version = text(chunk("apiVersion", wire, &mut type_meta)?),
                        2 => body_kind = text(chunk("kind", wire, &mut type_meta)?),
                        _ => skip_field(wire, number, &mut type_meta, DecodeContext::default())?,
                    }
                }
            }
            2 => raw = chunk("raw", wire, &mut left)?,
            _ => skip_field(wire, number, &mut left, DecodeContext::default())?,
        }
    }
    let or = |found: &str, expected: &str| match found {
        "" => expected.to_owned(),
        found => found.to_owned(),
    };
    let (version, kind) = (or(&body_version, api_version), or(&body_kind, kind));
    let Some(name) = message_of(&version, &kind) else {
        return Err(Malformed::Kind { kind, version });
    };
    let mut object = Map::new();
    message(name, raw, &mut object, DEEPEST)?;
    for (field, value) in [("apiVersion", body_version), ("kind", body_kind)] {
        if !value.is_empty() {
            object.insert(field.to_owned(), value.into());
        }
    }
    Ok(Value::Object(object))
}

fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match (group, version, kind) {
        // Every group has them.
        (_, _, "DeleteOptions") => Some("meta.v1.DeleteOptions"),
        ("autoscaling", "v1", "Scale") => Some("autoscaling.v1.Scale"),
        _ => types::of_kind(group, version, kind),
    }
}

/// The bytes of a field that has a length.
fn chunk<'a>(name: &str, wire: WireType, left: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    if wire != WireType::LengthDelimited {
        return Err(Malformed::Field(name.to_owned()));
    }
    let length = decode_varint(left)?;
    let length = usize::try_from(length).map_err(|_| Malformed::Truncated)?;
    let (chunk, rest) = left.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *left = rest;
    Ok(chunk)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Adds the fields of a message to an object.
fn message(
    name: &str,
    mut left: &[u8],
    object: &mut Map<String, Value>,
    depth: u32,
) -> Result<(), Malformed> {
    let fields = messages().get(name).ok_or_else(|| Malformed::Kind {
        kind: name.to_owned(),
        version: String::new(),
    })?;
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    while left.has_remaining() {
        let (number, wire) = decode_key(&mut left)?;
        let Some(field) = fields.get(&number) else {
            skip_field(wire, number, &mut left, DecodeContext::default())?;
            continue;
        };
        if field.name.is_empty() {
            if let Node::Message(inlined) = &field.node {
                message(inlined, chunk(name, wire, &mut left)?, object, depth)?;
            }
            continue;
        }
        let old = object.remove(&field.name).unwrap_or_default();
        let value = value(field, &field.node, wire, &mut left, old, depth)?;
        let left_out = value.is_null() || (field.omits && is_zero(&value));
        if !left_out {
            object.insert(field.name.clone(), value);
        }
    }
    Ok(())
}

/// Decodes one occurrence of a field; lists, maps and messages are merged with earlier occurrences.
fn value(
    field: &Field,
    node: &Node,
    wire: WireType,
    left: &mut &[u8],
    old: Value,
    depth: u32,
) -> Result<Value, Malformed> {
    let name = &field.name;
    Ok(match node {
        Node::Text => text(chunk(name, wire, left)?).into(),
        Node::Bytes => STANDARD.encode(chunk(name, wire, left)?).into(),
        Node::Json => match chunk(name, wire, left)? {
            [] => Value::Null,
            raw => serde_json::from_slice(raw)?,
        },
        Node::Int | Node::Int32 | Node::Bool if wire != WireType::Varint => {
            return Err(Malformed::Field(name.clone()));
        }
        Node::Int => decode_varint(left)?.cast_signed().into(),
        // Go truncates larger values.
        Node::Int32 => (decode_varint(left)?.cast_signed() as i32).into(),
        Node::Bool => (decode_varint(left)? != 0).into(),
        Node::Number if wire != WireType::SixtyFourBit => {
            return Err(Malformed::Field(name.clone()));
        }
        Node::Number => number(left.try_get_f64_le().map_err(|_| Malformed::Truncated)?),
        Node::Message(of) => {
            let part = chunk(name, wire, left)?;
            let mut object = match old {
                Value::Object(old) => old,
                _ => Map::new(),
            };
            message(of, part, &mut object, depth)?;
            finish(of, part.is_empty(), object)?
        }
        Node::List(item) => {
            let mut list = match old {
                Value::Array(old) => old,
                _ => Vec::new(),
            };
            let is_number = matches!(**item, Node::Int | Node::Int32 | Node::Bool);
            if is_number && wire == WireType::LengthDelimited {
                let mut packed = chunk(name, wire, left)?;
                while packed.has_remaining() {
                    let wire = WireType::Varint;
                    list.push(value(field, item, wire, &mut packed, Value::Null, depth)?);
                }
            } else {
                list.push(value(field, item, wire, left, Value::Null, depth)?);
            }
            Value::Array(list)
        }
        Node::Map(item) => {
            let mut map = match old {
                Value::Object(old) => old,
                _ => Map::new(),
            };
            let mut entry = chunk(name, wire, left)?;
            let (mut key, mut found) = (String::new(), zero(item));
            while entry.has_remaining() {
                let (number, wire) = decode_key(&mut entry)?;
                match number {
                    1 => key = text(chunk(name, wire, &mut entry)?),
                    2 => found = value(field, item, wire, &mut entry, Value::Null, depth)?,
                    _ => skip_field(wire, number, &mut entry, DecodeContext::default())?,
                }
            }
            map.insert(key, found);
            Value::Object(map)
        }
    })
}

/// The value of a map entry that has only a key.
fn zero(node: &Node) -> Value {
    match node {
        Node::Text | Node::Bytes => json!(""),
        Node::Int | Node::Int32 => json!(0),
        Node::Bool => json!(false),
        Node::Message(name) => finish(name, true, Map::new()).unwrap_or_default(),
        Node::Json | Node::Number | Node::List(_) | Node::Map(_) => Value::Null,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Encodes whole numbers without a fraction, as JSON does.
fn number(number: f64) -> Value {
    // Whole numbers up to this size are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return json!(number as i64);
    }
    json!(number)
}

/// Converts messages that have a special form in JSON.
fn finish(name: &str, is_empty: bool, mut object: Map<String, Value>) -> Result<Value, Malformed> {
    let int = |field: &str| object.get(field).and_then(Value::as_i64).unwrap_or(0);
    let is_list =
        |field: &str| matches!(object.get(field), Some(Value::Array(list)) if !list.is_empty());
    Ok(match name {
        "meta.v1.Time" | "meta.v1.MicroTime" if is_empty => Value::Null,
        "meta.v1.Time" => Timestamp::from_second(int("seconds"))?.to_string().into(),
        "meta.v1.MicroTime" => {
            let micros = i32::try_from(int("nanos")).unwrap_or(0) / 1000 * 1000;
            format!("{:.6}", Timestamp::new(int("seconds"), micros)?).into()
        }
        "api.resource.Quantity" => match object.remove("string") {
            Some(Value::String(text)) if !text.is_empty() => text.into(),
            _ => json!("0"),
        },
        "util.intstr.IntOrString" if int("type") == 0 => int("intVal").into(),
        "util.intstr.IntOrString" => object.remove("strVal").unwrap_or_else(|| json!("")),
        "apiextensions.v1.JSON" | "meta.v1.FieldsV1" | "runtime.RawExtension" => object
            .remove("raw")
            .or_else(|| object.remove("Raw"))
            .unwrap_or_default(),
        "apiextensions.v1.JSONSchemaPropsOrArray" if is_list("jSONSchemas") => {
            object.remove("jSONSchemas").unwrap_or_default()
        }
        "apiextensions.v1.JSONSchemaPropsOrStringArray" if is_list("property") => {
            object.remove("property").unwrap_or_default()
        }
        "apiextensions.v1.JSONSchemaPropsOrBool" if !object.contains_key("schema") => {
            object.remove("allows").unwrap_or(json!(false))
        }
        "apiextensions.v1.JSONSchemaPropsOrArray"
        | "apiextensions.v1.JSONSchemaPropsOrStringArray"
        | "apiextensions.v1.JSONSchemaPropsOrBool" => object.remove("schema").unwrap_or_default(),
        _ => Value::Object(object),
    })
}
