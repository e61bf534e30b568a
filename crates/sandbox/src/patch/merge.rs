//! JSON merge patch, RFC 7396, without cloning unchanged values.

use serde_json::{Map, Value};

/// Applies `patch` in place.
pub(crate) fn apply(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            map.remove(key);
        } else if change.is_object() {
            apply(map.entry(key.clone()).or_insert(Value::Null), change);
        } else {
            map.insert(key.clone(), change.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}))]
    #[case(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}))]
    #[case(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}))]
    #[case(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}))]
    #[case(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}))]
    #[case(json!({"a": "foo"}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}}))]
    #[case(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}))]
    fn follows_the_examples_of_the_rfc(
        #[case] mut target: Value,
        #[case] patch: Value,
        #[case] wanted: Value,
    ) {
        apply(&mut target, &patch);
        assert_eq!(target, wanted);
    }
}
