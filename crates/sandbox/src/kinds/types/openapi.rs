//! The OpenAPI schemas of the built-in types.

use serde_json::{Map, Value, json};

use super::{Merge, Node, Type, of_name};

/// The OpenAPI schemas of a type and of all types that it references.
pub(crate) fn schemas(owner: &str, out: &mut Map<String, Value>) {
    let Some(Type { fields, .. }) = of_name(owner) else {
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
