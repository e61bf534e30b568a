//! Lists that are sets or maps: each of their items, or its keys, may occur once.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::{Map, Value};

use super::children;
use super::verdict::inner;
use super::{list_type, property};
use crate::error::Cause;

/// Whether a schema has such a list.
pub(super) fn has_unique(schema: &Value) -> bool {
    let mut found = matches!(list_type(schema), Some("set" | "map"));
    children(schema, |_, child| found = found || has_unique(child));
    found
}

/// The duplicates in an object. An object that had some may keep them.
pub(super) fn duplicates(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, object, old, "", &mut causes);
    if let Some(old) = old.filter(|_| !causes.is_empty()) {
        let mut before = Vec::new();
        walk(schema, old, None, "", &mut before);
        if !before.is_empty() {
            causes.clear();
        }
    }
    causes
}

fn walk(schema: &Value, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    // What is unchanged has new duplicates only if it had them.
    if old == Some(value) {
        return;
    }
    match value {
        Value::Array(items) => {
            match list_type(schema) {
                Some("set") => {
                    for index in repeated(items.iter()) {
                        causes.push(duplicate(path, index, &items[index]));
                    }
                }
                Some("map") => keyed(schema, items, path, causes),
                _ => {}
            }
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, None, &format!("{path}[{index}]"), causes);
                }
            }
        }
        Value::Object(map) => {
            let others = schema.get("additionalProperties");
            for (name, value) in map {
                let old = old.and_then(|old| old.get(name));
                if let Some(schema) = property(schema, name) {
                    walk(schema, value, old, &inner(path, name), causes);
                } else if let Some(schema) = others.filter(|others| others.is_object()) {
                    walk(schema, value, old, &format!("{path}[{name}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn keyed(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let strange = |item: &Value| !(item.is_null() || item.is_object());
    if let Some(index) = items.iter().position(strange) {
        let shown = items[index].to_string();
        let why = "must be an object for an array of list-type map";
        causes.push(Cause::invalid(&format!("{path}[{index}]"), &shown, why));
        return;
    }
    let keys = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array);
    let keys: Vec<&str> = (keys.into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let of = |item: &'_ Value| -> Vec<Option<Value>> {
        keys.iter().map(|key| item.get(key).cloned()).collect()
    };
    for index in repeated(items.iter().map(of)) {
        let key = |key: &&str| Some(((*key).to_owned(), items[index].get(key)?.clone()));
        let shown: Map<String, Value> = keys.iter().filter_map(key).collect();
        causes.push(duplicate(path, index, &Value::Object(shown)));
    }
}

/// The place of the second of several equal items.
fn repeated<T: Hash + Eq>(items: impl ExactSizeIterator<Item = T>) -> Vec<usize> {
    let mut times: HashMap<T, u32> = HashMap::with_capacity(items.len());
    let mut second = Vec::new();
    for (index, item) in items.enumerate() {
        let times = times.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}

fn duplicate(path: &str, index: usize, value: &Value) -> Cause {
    Cause {
        reason: "FieldValueDuplicate".into(),
        message: format!("Duplicate value: {value}"),
        field: format!("{path}[{index}]"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "one": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object"}},
            "two": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "l"],
                "items": {"type": "object"}},
            "map": {"type": "object", "additionalProperties":
                {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}},
        }})
    }

    fn found(object: Value, old: Option<Value>) -> Vec<String> {
        let causes = duplicates(&schema(), &object, old.as_ref());
        let show = |cause: Cause| format!("{}: {}", cause.field, cause.message);
        causes.into_iter().map(show).collect()
    }

    #[rstest]
    #[case::none(json!({"set": ["a", "b"], "one": [{"k": 1}, {"k": 2}]}), &[])]
    #[case::the_second_of_three(json!({"set": ["a", "a", "a"]}), &[r#"set[1]: Duplicate value: "a""#])]
    #[case::keys(json!({"one": [{"k": 1, "v": 2}, {"k": 1}]}), &[r#"one[1]: Duplicate value: {"k":1}"#])]
    #[case::no_keys(json!({"one": [{}, null]}), &["one[1]: Duplicate value: {}"])]
    #[case::two_keys(json!({"two": [{"k": 1}, {"k": 1, "l": 2}, {"k": 1}]}), &[r#"two[2]: Duplicate value: {"k":1}"#])]
    #[case::in_a_map(json!({"map": {"x": [1, 1]}}), &["map[x][1]: Duplicate value: 1"])]
    fn duplicates_are_found(#[case] object: Value, #[case] expected: &[&str]) {
        assert!(has_unique(&schema()));
        assert_eq!(found(object, None), expected);
    }

    #[test]
    fn an_object_with_duplicates_may_get_more() {
        let (had, has) = (json!({"set": ["a"]}), json!({"set": ["a", "a"]}));
        assert_eq!(found(has.clone(), Some(had)).len(), 1);
        assert!(found(json!({"set": ["b", "b"]}), Some(has)).is_empty());
    }
}
