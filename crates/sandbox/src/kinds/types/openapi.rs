//! The OpenAPI schemas of the built-in types.

use serde_json::{Map, Value, json};

use super::{Apply, Field, ListKey, Merge, Node, Type, of_name};

const ANY: &str = "Any JSON value.";

/// The name of a type in OpenAPI documents.
pub(crate) fn full_name(name: &str) -> String {
    let package = match name.split('.').next().unwrap_or_default() {
        "io" => return name.to_owned(),
        "apiextensions" => "io.k8s.apiextensions-apiserver.pkg.apis",
        "meta" => "io.k8s.apimachinery.pkg.apis",
        "api" | "runtime" | "util" | "version" => "io.k8s.apimachinery.pkg",
        _ => "io.k8s.api",
    };
    format!("{package}.{name}")
}

/// The OpenAPI schemas of a type and of all types that it references.
pub(crate) fn schemas(owner: &str, out: &mut Map<String, Value>) {
    let Some(Type { fields, atomic }) = of_name(owner) else {
        return;
    };
    let name = full_name(owner);
    if out.contains_key(&name) {
        return;
    }
    out.insert(name.clone(), Value::Null);
    let mut properties = Map::new();
    for (name, field) in fields {
        let mut schema = schema(owner, &field.node, out);
        match &field.merge {
            Merge::Replace => {}
            Merge::Set => schema["x-kubernetes-patch-strategy"] = json!("merge"),
            Merge::By(key) => {
                schema["x-kubernetes-patch-strategy"] = json!("merge");
                schema["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
        merged_by_apply(field, &mut schema);
        properties.insert(name.clone(), schema);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    let required = fields.iter().filter(|(_, field)| field.always);
    let required: Vec<&String> = required.map(|(name, _)| name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if *atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    out.insert(name, schema);
}

/// How server-side apply merges a field.
fn merged_by_apply(field: &Field, schema: &mut Value) {
    let map = !matches!(field.node, Node::List(_));
    match &field.apply {
        None => {}
        Some(Apply::Atomic) if map => schema["x-kubernetes-map-type"] = json!("atomic"),
        Some(Apply::Granular) => schema["x-kubernetes-map-type"] = json!("granular"),
        Some(Apply::Atomic) => schema["x-kubernetes-list-type"] = json!("atomic"),
        Some(Apply::Set) => schema["x-kubernetes-list-type"] = json!("set"),
        Some(Apply::Keys(keys)) => {
            let names: Vec<&String> = keys.iter().map(|ListKey { name, .. }| name).collect();
            schema["x-kubernetes-list-type"] = json!("map");
            schema["x-kubernetes-list-map-keys"] = json!(names);
        }
    }
}

fn schema(owner: &str, node: &Node, out: &mut Map<String, Value>) -> Value {
    match node {
        // `kubectl explain` fails on an empty schema.
        Node::Any if owner.starts_with("apiextensions.") => json!({"description": ANY}),
        Node::Any => json!({"type": "object"}),
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
        Node::List(item) => json!({"type": "array", "items": schema(owner, item, out)}),
        Node::Map(item) => {
            json!({"type": "object", "additionalProperties": schema(owner, item, out)})
        }
        Node::Type(name) => {
            schemas(name, out);
            json!({"$ref": format!("#/components/schemas/{}", full_name(name))})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &Value, path: &str) {
        let map = schema.as_object().unwrap();
        assert!(!map.is_empty(), "{path}");
        for (name, schema) in map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            check(schema, &format!("{path}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(schema) = map.get(inner) {
                check(schema, &format!("{path}.{inner}"));
            }
        }
    }

    #[test]
    fn no_schema_is_empty() {
        for name in [
            "core.v1.Pod",
            "apiextensions.v1.CustomResourceDefinition",
            "apps.v1.ControllerRevision",
        ] {
            let mut out = Map::new();
            schemas(name, &mut out);
            for (name, schema) in &out {
                check(schema, name);
            }
        }
    }
}
