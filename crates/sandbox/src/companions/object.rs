//! Reading the few fields of an object that companions decide by.
//!
//! Objects are plain JSON here; whatever a client wrote is read leniently, so that no field of
//! the wrong type can ever stop a companion.

use serde_json::Value;

/// The text at a JSON pointer; the empty string counts as absent, as in Kubernetes' own types.
pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// The list at a JSON pointer; an absent one is empty.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Its UID; empty if there is none.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

/// Its name; empty if there is none.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// Its namespace.
pub fn namespace(object: &Value) -> Option<&str> {
    text(object, "/metadata/namespace")
}

/// The version it was read at; empty if there is none.
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion").unwrap_or_default()
}

/// Whether its deletion was asked for.
pub fn is_deleting(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_some()
}

/// Its finalizers, in their order.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/finalizers")
        .iter()
        .filter_map(Value::as_str)
}

/// One of its annotations.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(key)?
        .as_str()
}

/// One of its labels.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// `Succeeded` and `Failed` are for ever.
pub fn is_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_the_wrong_type_read_as_absent() {
        let odd = json!({"metadata": {"uid": 7, "finalizers": {"a": "b"}, "labels": []}});
        assert_eq!(uid(&odd), "");
        assert_eq!(finalizers(&odd).count(), 0);
        assert_eq!(label(&odd, "a"), None);
        assert!(!is_deleting(&odd));
    }
}
