//! The types of the built-in kinds: their fields, and how lists are merged.
//!
//! `types.json` is the digest of the OpenAPI documents of Kubernetes 1.36: per type its fields, each with
//! a node such as `text`, `[]core.v1.Container by name` or `map text`; `!` marks a field that is printed
//! even when it is empty. `examples/digests` generates it from a server.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Any,
    Text,
    Bytes,
    Time,
    Integer,
    Number,
    Boolean,
    Quantity,
    IntOrText,
    List(Box<Node>),
    Map(Box<Node>),
    Type(String),
}

/// How a strategic merge patch merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The patch's list replaces it.
    Replace,
    /// Items are matched by this field.
    By(String),
    /// A set of primitive values that the patch extends.
    Set,
}

#[derive(Debug)]
struct Field {
    node: Node,
    merge: Merge,
    /// Printed even when it is empty.
    always: bool,
}

type Fields = BTreeMap<String, Field>;

#[derive(Deserialize)]
struct Document {
    kinds: BTreeMap<String, String>,
    types: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
struct Types {
    kinds: BTreeMap<String, String>,
    types: BTreeMap<String, Fields>,
}

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| {
        // A test checks that it parses: without types every body is kept as it is.
        let document: Document = match serde_json::from_str(include_str!("types.json")) {
            Ok(document) => document,
            Err(_) => return Types::default(),
        };
        let fields = |fields: BTreeMap<String, String>| -> Fields {
            fields.into_iter().map(|(n, f)| (n, field(&f))).collect()
        };
        Types {
            kinds: document.kinds,
            types: document
                .types
                .into_iter()
                .map(|(n, f)| (n, fields(f)))
                .collect(),
        }
    })
}

fn field(text: &str) -> Field {
    let mut field = Field {
        node: Node::Any,
        merge: Merge::Replace,
        always: false,
    };
    let mut text = text;
    if let Some(rest) = text.strip_suffix(" !") {
        field.always = true;
        text = rest;
    }
    text = text.strip_suffix(" retain").unwrap_or(text);
    if let Some(rest) = text.strip_suffix(" set") {
        field.merge = Merge::Set;
        text = rest;
    }
    if let Some((rest, key)) = text.split_once(" by ") {
        field.merge = Merge::By(key.to_owned());
        text = rest;
    }
    field.node = node(text);
    field
}

fn node(text: &str) -> Node {
    if let Some(item) = text.strip_prefix("[]") {
        return Node::List(Box::new(node(item)));
    }
    if let Some(item) = text.strip_prefix("map ") {
        return Node::Map(Box::new(node(item)));
    }
    match text {
        "any" => Node::Any,
        "text" => Node::Text,
        "bytes" => Node::Bytes,
        "time" => Node::Time,
        "int" => Node::Integer,
        "number" => Node::Number,
        "bool" => Node::Boolean,
        "quantity" => Node::Quantity,
        "int-or-text" => Node::IntOrText,
        name => Node::Type(name.to_owned()),
    }
}

/// The name of a built-in kind's type.
pub(crate) fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let key = format!("{group}/{version}/{kind}");
    types().kinds.get(&key).map(String::as_str)
}

/// How a list field of a type is merged, and the type of its items or of the nested object.
pub(crate) fn of_field(owner: Option<&str>, name: &str) -> (Merge, Option<&'static str>) {
    let field = owner.and_then(|owner| types().types.get(owner)?.get(name));
    let Some(field) = field else {
        return (Merge::Replace, None);
    };
    let inner = match &field.node {
        Node::List(item) | Node::Map(item) => item,
        node => node,
    };
    let inner = match inner {
        Node::Type(name) => Some(name.as_str()),
        _ => None,
    };
    (field.merge.clone(), inner)
}

/// Brings a body into the form of a typed server: without unknown fields, nulls and empty
/// optional lists and maps. Returns the paths of the unknown fields.
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

struct Reader {
    unknown: Vec<String>,
    path: String,
}

impl Reader {
    fn fields(&mut self, owner: &str, map: &mut Map<String, Value>) -> Result<(), String> {
        let Some(fields) = types().types.get(owner) else {
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
                    Ok(()) => field.always || !is_empty(&field.node, value),
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
            Node::Quantity => value.is_string() || value.is_number(),
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
            let read = self.node(owner, item, value);
            self.path.truncate(length);
            read?;
        }
        Ok(())
    }
}

fn is_empty(node: &Node, value: &Value) -> bool {
    match (node, value) {
        (Node::List(_), Value::Array(list)) => list.is_empty(),
        (Node::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

/// The value that Go decodes from a null inside a list or map.
fn zero(node: &Node) -> Value {
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

/// The OpenAPI schemas of a type and of all types that it references.
pub(crate) fn schemas(owner: &str, out: &mut Map<String, Value>) {
    let Some(fields) = types().types.get(owner) else {
        return;
    };
    if out.contains_key(owner) {
        return;
    }
    out.insert(owner.to_owned(), Value::Null);
    let mut properties = Map::new();
    for (name, field) in fields {
        let mut schema = schema(&field.node, out);
        match &field.merge {
            Merge::Replace => {}
            Merge::Set => schema["x-kubernetes-patch-strategy"] = json!("merge"),
            Merge::By(key) => {
                schema["x-kubernetes-patch-strategy"] = json!("merge");
                schema["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
        properties.insert(name.clone(), schema);
    }
    out.insert(
        owner.to_owned(),
        json!({"type": "object", "properties": properties}),
    );
}

fn schema(node: &Node, out: &mut Map<String, Value>) -> Value {
    match node {
        Node::Any => json!({}),
        Node::Text => json!({"type": "string"}),
        Node::Bytes => json!({"type": "string", "format": "byte"}),
        Node::Time => json!({"type": "string", "format": "date-time"}),
        Node::Integer => json!({"type": "integer", "format": "int64"}),
        Node::Number => json!({"type": "number"}),
        Node::Boolean => json!({"type": "boolean"}),
        Node::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Node::IntOrText => {
            json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"})
        }
        Node::List(item) => json!({"type": "array", "items": schema(item, out)}),
        Node::Map(item) => json!({"type": "object", "additionalProperties": schema(item, out)}),
        Node::Type(name) => {
            schemas(name, out);
            json!({"$ref": format!("#/components/schemas/{name}")})
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn every_referenced_type_exists() {
        let types = types();
        assert!(types.types.len() > 300);
        for fields in types.types.values() {
            for field in fields.values() {
                let mut node = &field.node;
                while let Node::List(inner) | Node::Map(inner) = node {
                    node = inner;
                }
                if let Node::Type(name) = node {
                    assert!(types.types.contains_key(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn every_built_in_kind_has_a_type() {
        for info in crate::kinds::builtin() {
            let version = &info.storage_version;
            assert!(
                of_kind(&info.group, version, &info.kind).is_some(),
                "{}",
                info.kind
            );
        }
    }

    #[rstest]
    #[case(json!({"data": {"k": 5}}))]
    #[case(json!({"data": []}))]
    #[case(json!({"binaryData": {"k": "%%"}}))]
    #[case(json!({"immutable": "yes"}))]
    fn wrong_types_are_refused(#[case] mut body: Value) {
        assert!(decode("core.v1.ConfigMap", &mut body).is_err(), "{body}");
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let mut body = json!({"x": 1, "spec": {"y": 2, "containers": [{"name": "c", "z": 3}]}});
        let unknown = decode("core.v1.Pod", &mut body).unwrap();
        assert_eq!(unknown, ["spec.containers[0].z", "spec.y", "x"]);
        assert_eq!(body, json!({"spec": {"containers": [{"name": "c"}]}}));
    }

    #[test]
    fn nulls_and_empty_optional_fields_are_dropped() {
        let mut body = json!({"data": {"k": null}, "binaryData": {}, "immutable": null});
        assert!(decode("core.v1.ConfigMap", &mut body).unwrap().is_empty());
        assert_eq!(body, json!({"data": {"k": ""}}));
    }
}
