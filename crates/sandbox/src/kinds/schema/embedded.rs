//! Objects inside of custom resources (`x-kubernetes-embedded-resource`).

use serde_json::{Map, Value};

use super::children;
use super::verdict::inner;
use super::{EMBEDDED, flag, property};
use crate::error::Cause;
use crate::kinds::types;
use crate::names::letter_label;

/// Whether a schema has such an object.
pub(super) fn has_embedded(schema: &Value) -> bool {
    let mut found = flag(schema, EMBEDDED);
    children(schema, |_, child| found = found || has_embedded(child));
    found
}

/// Brings the metadata of embedded objects into the form of a typed server; returns the paths of unknown fields.
///
/// # Errors
/// The wrong type.
pub(crate) fn coerce(schema: &Value, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    coerce_at(schema, object, "", &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

fn coerce_at(
    schema: &Value,
    value: &mut Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    match value {
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else {
                return Ok(());
            };
            for (index, item) in items.iter_mut().enumerate() {
                coerce_at(schema, item, &format!("{path}[{index}]"), unknown)?;
            }
        }
        Value::Object(map) => {
            if flag(schema, EMBEDDED) {
                coerce_one(map, path, unknown)?;
            }
            for (name, value) in map.iter_mut() {
                if let Some(schema) = of_field(schema, name) {
                    coerce_at(schema, value, &inner(path, name), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_one(
    map: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    for field in ["apiVersion", "kind"] {
        if let Some(found) = map.get(field).filter(|found| !found.is_string()) {
            return Err(format!(
                "{path}.{field}: Invalid value: {found}: must be a string"
            ));
        }
    }
    let Some(metadata) = map.get_mut("metadata") else {
        return Ok(());
    };
    let invalid =
        |found: &Value, why: &str| Err(format!("{path}.metadata: Invalid value: {found}: {why}"));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    if !metadata.is_object() {
        let why = "json: cannot unmarshal into Go value of type v1.ObjectMeta";
        return invalid(metadata, why);
    }
    match types::decode(types::METADATA, metadata) {
        Ok(fields) => {
            unknown.extend(
                fields
                    .iter()
                    .map(|field| format!("{path}.metadata.{field}")),
            );
            Ok(())
        }
        Err(why) => invalid(metadata, &why),
    }
}

/// The errors of embedded objects.
pub(super) fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    check(schema, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        Value::Object(map) => {
            if flag(schema, EMBEDDED) {
                causes.extend(check_one(map, path));
            }
            for (name, value) in map {
                if let Some(schema) = property(schema, name) {
                    check(schema, value, &inner(path, name), causes);
                } else if let Some(schema) = of_field(schema, name) {
                    check(schema, value, &format!("{path}[{name}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_one(map: &Map<String, Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["apiVersion", "kind"] {
        let at = format!("{path}.{field}");
        match map.get(field) {
            None => causes.push(Cause::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid(&at, "\"\"", "must not be empty"));
            }
            Some(Value::String(text)) if field == "kind" => {
                if let Some(why) = letter_label(&text.to_lowercase()) {
                    let why = format!("may have mixed case, but should otherwise match: {why}");
                    causes.push(Cause::invalid(&at, &format!("{text:?}"), &why));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {text}");
                causes.push(Cause::invalid(&at, &format!("{text:?}"), &why));
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.push(Cause::invalid(&at, &other.to_string(), "must be a string")),
        }
    }
    causes
}

fn of_field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let others = schema.get("additionalProperties");
    property(schema, name).or(others.filter(|others| others.is_object()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "array", "items":
            {"type": "object", (EMBEDDED): true, "x-kubernetes-preserve-unknown-fields": true}}}})
    }

    #[test]
    fn metadata_is_typed() {
        let mut object =
            json!({"spec": [{"metadata": {"name": "n", "foo": 1, "labels": {}}, "kind": "K"}]});
        assert_eq!(
            coerce(&schema(), &mut object).unwrap(),
            ["spec[0].metadata.foo"]
        );
        assert_eq!(
            object["spec"][0],
            json!({"metadata": {"name": "n"}, "kind": "K"})
        );
        assert!(has_embedded(&schema()));
    }

    #[rstest]
    #[case(json!({"metadata": 5}))]
    #[case(json!({"metadata": {"labels": {"a": 1}}}))]
    #[case(json!({"kind": 1}))]
    fn wrong_types_are_refused(#[case] embedded: Value) {
        let mut object = json!({"spec": [embedded]});
        assert!(coerce(&schema(), &mut object).is_err());
    }

    #[rstest]
    #[case(json!({}), &["spec[0].apiVersion", "spec[0].kind"])]
    #[case(json!({"apiVersion": "", "kind": "a b"}), &["spec[0].apiVersion", "spec[0].kind"])]
    #[case(json!({"apiVersion": "a/b/c", "kind": "Pod"}), &["spec[0].apiVersion"])]
    #[case(json!({"apiVersion": "v1", "kind": "Pod"}), &[])]
    fn an_embedded_object_has_a_type(#[case] embedded: Value, #[case] expected: &[&str]) {
        let mut causes = Vec::new();
        check(&schema(), &json!({"spec": [embedded]}), "", &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, expected);
    }
}
