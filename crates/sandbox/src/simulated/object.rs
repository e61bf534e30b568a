//! Reads the few fields of an object that simulated controllers decide by.
//!
//! Objects are plain JSON here, and a client may write anything. A field of the wrong type counts
//! as absent, so that it cannot stop a controller.

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

/// `metadata.resourceVersion`; empty if there is none.
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion").unwrap_or_default()
}

/// Whether it has a deletion timestamp.
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

/// Whether the pod has ended. `Succeeded` and `Failed` are final.
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
