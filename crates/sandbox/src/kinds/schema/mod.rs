//! Applies a CRD's schema to an instance: pruning, defaulting, validation.

mod check;
mod embedded;
mod format;
mod lists;
mod refuse;
#[cfg(feature = "cel")]
mod rules;
#[cfg(feature = "cel")]
pub(crate) use rules::cel;
mod verdict;

use serde_json::Value;

pub(crate) use check::Checks;
pub(crate) use embedded::coerce;
pub(crate) use refuse::{refuse, unrecognized_formats};
pub(crate) use verdict::SchemaVerdict;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
}

/// How the items of a list are identified: `set`, `map` or `atomic`.
fn list_type(schema: &Value) -> Option<&str> {
    schema.get("x-kubernetes-list-type")?.as_str()
}

/// Fields of every object.
fn is_typed(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Drops fields that the schema does not have; returns their paths.
pub(crate) fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    prune_at(schema, object, &mut String::new(), true, &mut dropped);
    dropped.sort();
    dropped
}

fn prune_at(
    schema: &Value,
    value: &mut Value,
    path: &mut String,
    whole: bool,
    dropped: &mut Vec<String>,
) {
    match value {
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else {
                return;
            };
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                prune_at(schema, item, path, flag(schema, EMBEDDED), dropped);
                path.truncate(length);
            }
        }
        Value::Object(map) => {
            let others = schema
                .get("additionalProperties")
                .filter(|a| **a != Value::Bool(false));
            let preserve = flag(schema, PRESERVE);
            map.retain(|name, inner| {
                if whole && is_typed(name) {
                    return true;
                }
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                let keep = match property(schema, name).or(others) {
                    Some(schema) => {
                        prune_at(schema, inner, path, flag(schema, EMBEDDED), dropped);
                        true
                    }
                    None if preserve => true,
                    None => {
                        dropped.push(path.clone());
                        false
                    }
                };
                path.truncate(length);
                keep
            });
        }
        _ => {}
    }
}

/// Sets the defaults of missing fields; a null that is not nullable counts as missing.
pub(crate) fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| default(schema, item));
            }
        }
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                let missing = match map.get(name) {
                    None => true,
                    Some(Value::Null) => !flag(schema, "nullable"),
                    Some(_) => false,
                };
                match schema.get("default").filter(|_| missing) {
                    Some(value) => drop(map.insert(name.clone(), value.clone())),
                    None if missing => drop(map.remove(name)),
                    None => {}
                }
                if let Some(value) = map.get_mut(name) {
                    default(schema, value);
                }
            }
            if let Some(schema) = schema.get("additionalProperties").filter(|a| a.is_object()) {
                let named = |name: &String| properties.is_some_and(|p| p.contains_key(name));
                for (name, value) in map.iter_mut() {
                    if !named(name) {
                        default(schema, value);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Calls `visit` with every direct part of a schema, and its path in the schema.
fn children<'a>(schema: &'a Value, mut visit: impl FnMut(String, &'a Value)) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, child) in properties.into_iter().flatten() {
        visit(format!("properties[{name}]"), child);
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(child) = schema.get(name).filter(|child| child.is_object()) {
            visit(name.to_owned(), child);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let branches = schema.get(name).and_then(Value::as_array);
        for (index, child) in branches.into_iter().flatten().enumerate() {
            visit(format!("{name}[{index}]"), child);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "required": ["n"],
            "properties": {"n": {"type": "integer", "minimum": 1, "default": 3},
                "free": {"type": "object", (PRESERVE): true}}}}})
    }

    #[test]
    fn unknown_fields_are_dropped() {
        let mut object = json!({"kind": "K", "metadata": {}, "x": 1, "spec": {"n": 1, "y": 2, "free": {"z": 3}}});
        assert_eq!(prune(&spec(), &mut object), ["spec.y", "x"]);
        assert_eq!(object["spec"], json!({"n": 1, "free": {"z": 3}}));
    }

    #[test]
    fn defaults_are_nested() {
        let mut object = json!({"kind": "K"});
        default(&spec(), &mut object);
        assert_eq!(object["spec"], json!({"n": 3}));
    }

    #[test]
    fn errors_name_the_field() {
        let fields = |object: Value| -> Vec<String> {
            Checks::of(&spec())
                .check(&spec(), &object, None)
                .causes
                .into_iter()
                .map(|c| c.field)
                .collect()
        };
        assert_eq!(fields(json!({"spec": {}})), ["spec.n"]);
        assert_eq!(fields(json!({"spec": {"n": 0}})), ["spec.n"]);
        assert_eq!(fields(json!({"spec": "text"})), ["spec"]);
        assert!(fields(json!({"spec": {"n": 1}})).is_empty());
    }
}
