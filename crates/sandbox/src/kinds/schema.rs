//! Applies a CRD's schema to an instance: pruning, defaulting, validation.

use serde_json::{Map, Value};

use crate::error::Cause;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
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

/// All errors of an instance against its schema.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, object, "", &mut causes);
    causes
}

fn cause(reason: &str, path: &str, message: String) -> Cause {
    Cause {
        reason: reason.into(),
        message,
        field: if path.is_empty() {
            "<nil>".into()
        } else {
            path.into()
        },
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    let found = type_of(value);
    let wanted = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let fits = match wanted {
        "" => !flag(schema, INT_OR_STRING) || matches!(found, "integer" | "string"),
        "number" => matches!(found, "integer" | "number"),
        wanted => wanted == found,
    };
    if !fits {
        let wanted = if wanted.is_empty() {
            "integer,string"
        } else {
            wanted
        };
        let name = if path.is_empty() { "<nil>" } else { path };
        let why =
            format!("Invalid value: {found:?}: {name} in body must be of type {wanted}: {found:?}");
        causes.push(cause("FieldValueTypeInvalid", path, why));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        let why = format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        );
        causes.push(cause("FieldValueNotSupported", path, why));
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, causes),
        Value::Array(items) => check_list(schema, items, path, causes),
        Value::String(text) => check_text(schema, text, path, causes),
        Value::Number(_) => check_number(schema, value, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
}

fn inner(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn check_object(schema: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            causes.push(Cause::required(&inner(path, name), ""));
        }
    }
    let others = schema.get("additionalProperties").filter(|a| a.is_object());
    for (name, value) in map {
        if path.is_empty() && is_typed(name) {
            continue;
        }
        if let Some(schema) = property(schema, name).or(others) {
            check(schema, value, &inner(path, name), causes);
        }
    }
}

fn limit(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

fn check_list(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let count = items.len() as u64;
    if let Some(most) = limit(schema, "maxItems").filter(|most| count > *most) {
        let noun = if most == 1 { "item" } else { "items" };
        let why = format!("Too many: {count}: must have at most {most} {noun}");
        causes.push(cause("FieldValueTooMany", path, why));
    }
    if let Some(least) = limit(schema, "minItems").filter(|least| count < *least) {
        let why =
            format!("Invalid value: {count}: {path} in body should have at least {least} items");
        causes.push(cause("FieldValueInvalid", path, why));
    }
    if let Some(schema) = schema.get("items") {
        for (index, item) in items.iter().enumerate() {
            check(schema, item, &format!("{path}[{index}]"), causes);
        }
    }
}

fn check_text(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    if let Some(most) = limit(schema, "maxLength").filter(|most| length > *most) {
        let why = format!("Too long: may not be more than {most} bytes");
        causes.push(cause("FieldValueTooLong", path, why));
    }
    if let Some(least) = limit(schema, "minLength").filter(|least| length < *least) {
        let why = format!(
            "Invalid value: {text:?}: {path} in body should be at least {least} chars long"
        );
        causes.push(cause("FieldValueInvalid", path, why));
    }
}

fn check_number(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else {
        return;
    };
    let bounds = [
        ("minimum", "greater than or equal to"),
        ("maximum", "less than or equal to"),
    ];
    for (name, words) in bounds {
        let Some(bound) = schema.get(name).and_then(Value::as_f64) else {
            continue;
        };
        let broken = if name == "minimum" {
            number < bound
        } else {
            number > bound
        };
        if broken {
            let shown = schema.get(name).map(Value::to_string).unwrap_or_default();
            let why = format!("Invalid value: {value}: {path} in body should be {words} {shown}");
            causes.push(cause("FieldValueInvalid", path, why));
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
            validate(&spec(), &object)
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
