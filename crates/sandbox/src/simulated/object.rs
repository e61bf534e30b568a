//! Reads the few fields of an object that simulated controllers decide by.
//!
//! Objects are plain JSON here, and a client may write anything. A field of the wrong type counts
//! as absent, so that it cannot stop a controller.
//!
//! ```
//! use belayer_sandbox::simulated::object;
//! use serde_json::json;
//!
//! let pod = json!({"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}});
//! assert_eq!((object::namespace(&pod), object::name(&pod)), (Some("shop"), "web"));
//! assert_eq!(object::label(&pod, "app"), Some("web"));
//! ```

use serde_json::Value;

/// The text at a JSON pointer; the empty string counts as absent, as in Kubernetes' own types.
/// [`items`] reads a list at a pointer, of an object as in the
/// [example](self).
pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    at(object, pointer)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// The list at a JSON pointer; an absent one is empty. [`text`]
/// reads a text at a pointer, of an object as in the [example](self).
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The value at a JSON pointer. `Value::pointer` allocates for each name, which may be escaped; few are.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    let mut names = pointer.split('/').skip(1);
    names.try_fold(object, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })
}

/// Its UID; empty if there is none. The object of the [example](self) was not created yet.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

/// Its name; empty if there is none. The [module's example](self) reads it.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// Its namespace. The [module's example](self) reads it.
pub fn namespace(object: &Value) -> Option<&str> {
    text(object, "/metadata/namespace")
}

/// `metadata.resourceVersion`; empty if there is none. The object of the [example](self) was not
/// created yet.
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion").unwrap_or_default()
}

/// Whether it has a deletion timestamp. The pod of the [example](self) has none.
pub fn is_deleting(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_some()
}

/// Its finalizers, in their order. The object is one as in the [example](self).
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/finalizers")
        .iter()
        .filter_map(Value::as_str)
}

/// One of its annotations. [`label`] is the same for labels; see
/// the [example](self).
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(key)?
        .as_str()
}

/// One of its labels. The [module's example](self) reads one.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Whether the pod has ended. `Succeeded` and `Failed` are final. The pod of the [example](self)
/// has not.
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

    #[test]
    fn a_pointer_may_have_an_index_and_an_escaped_name() {
        let object = json!({"list": [{"a/b": "first"}, {"a/b": "second"}]});
        assert_eq!(text(&object, "/list/1/a~1b"), Some("second"));
        assert_eq!(items(&object, "/list").len(), 2);
        assert_eq!(text(&json!({"list": [{"a": "x"}]}), "/list/0/a"), Some("x"));
        assert_eq!(text(&object, "/list/2"), None);
        assert_eq!(text(&json!("all"), ""), Some("all"));
    }
}
