//! Kubernetes' strategic merge patch for built-in kinds.
//!
//! Lists are merged by the key that the type of the parent object declares.

use serde_json::{Map, Value};

use crate::kinds::types::{Merge, of_field};

const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";
const DIRECTIVE: &str = "$patch";

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A 400.
    Bad(String),
    /// A 500 without a reason, as the real server fails here instead of refusing.
    Broken(String),
}

/// A type's name; `None` where types are unknown, so that lists are replaced.
type Owner = Option<&'static str>;

/// Applies `patch` to an object of a type, in place.
///
/// # Errors
/// When the patch is not an object, carries an unknown directive or lacks a merge key.
pub(crate) fn apply(target: &mut Value, patch: &Value, owner: Owner) -> Result<(), Refusal> {
    let Some(patch) = patch.as_object() else {
        let why = "error decoding patch: the patch is not an object";
        return Err(Refusal::Bad(why.into()));
    };
    merge_object(target, patch, owner)
}

fn merge_object(
    target: &mut Value,
    patch: &Map<String, Value>,
    owner: Owner,
) -> Result<(), Refusal> {
    let fresh = target.is_null();
    match patch.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            let kept = patch.iter().filter(|(k, _)| *k != DIRECTIVE);
            *target = Value::Object(kept.map(|(k, v)| (k.clone(), v.clone())).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        // Directives in new values are kept as they are.
        Some(_) if fresh => {}
        Some(other) => {
            return Err(Refusal::Broken(format!(
                "Unknown patch type found: {other}"
            )));
        }
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return Ok(());
    };
    if let Some(Value::Array(kept)) = patch.get(RETAIN) {
        map.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(DELETE_PREFIX) {
            drop_values(map, list, change)?;
            continue;
        }
        if key == DIRECTIVE || key == RETAIN || key.starts_with(ORDER_PREFIX) {
            continue;
        }
        let order = patch.get(&format!("{ORDER_PREFIX}{key}"));
        merge_field(map, key, change, order, owner)?;
    }
    for (key, order) in patch {
        if let Some(list) = key.strip_prefix(ORDER_PREFIX)
            && !patch.contains_key(list)
            && let (Some(order), Some(Value::Array(items))) = (order.as_array(), map.get_mut(list))
        {
            let (merge, _) = of_field(owner, list);
            let before = items.clone();
            arrange(items, order, &before, &merge);
        }
    }
    Ok(())
}

fn merge_field(
    map: &mut Map<String, Value>,
    key: &str,
    change: &Value,
    order: Option<&Value>,
    owner: Owner,
) -> Result<(), Refusal> {
    let (merge, inner) = of_field(owner, key);
    match change {
        Value::Null => {
            map.remove(key);
        }
        Value::Object(change) => {
            merge_object(map.entry(key).or_insert(Value::Null), change, inner)?;
        }
        Value::Array(items) => {
            let target = map.entry(key).or_insert(Value::Null);
            merge_list(target, items, order, &merge, (key, inner))?;
        }
        other => {
            map.insert(key.to_owned(), other.clone());
        }
    }
    Ok(())
}

fn merge_list(
    target: &mut Value,
    items: &[Value],
    order: Option<&Value>,
    merge: &Merge,
    (field, inner): (&str, Owner),
) -> Result<(), Refusal> {
    let replaces = items.iter().any(|i| directive(i) == Some("replace"));
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(list) = target.as_array_mut() else {
        return Ok(());
    };
    let before = list.clone();
    match merge {
        _ if replaces => {
            let kept = items.iter().filter(|i| directive(i).is_none());
            *list = kept.cloned().collect();
            return Ok(());
        }
        Merge::Replace => {
            *list = items.to_vec();
            return Ok(());
        }
        Merge::Set => {
            for item in items {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
        }
        Merge::By(key) => merge_by(list, items, key, (field, inner))?,
    }
    let order = order.and_then(Value::as_array).map_or(items, Vec::as_slice);
    arrange(list, order, &before, merge);
    Ok(())
}

fn merge_by(
    list: &mut Vec<Value>,
    items: &[Value],
    key: &str,
    (field, inner): (&str, Owner),
) -> Result<(), Refusal> {
    for item in items {
        let Some(change) = item.as_object() else {
            let why = format!("expected a map in list {field}, but received a value");
            return Err(Refusal::Broken(why));
        };
        let Some(id) = change.get(key) else {
            let why = format!("map: {item} does not contain declared merge key: {key}");
            return Err(Refusal::Broken(why));
        };
        let place = list.iter().position(|had| had.get(key) == Some(id));
        match (directive(item), place) {
            (Some("delete"), _) => list.retain(|had| had.get(key) != Some(id)),
            (_, Some(place)) => merge_object(&mut list[place], change, inner)?,
            (_, None) => {
                let mut fresh = Value::Null;
                merge_object(&mut fresh, change, inner)?;
                list.push(fresh);
            }
        }
    }
    Ok(())
}

fn directive(item: &Value) -> Option<&str> {
    item.get(DIRECTIVE).and_then(Value::as_str)
}

fn drop_values(map: &mut Map<String, Value>, list: &str, gone: &Value) -> Result<(), Refusal> {
    let Some(gone) = gone.as_array() else {
        return Err(Refusal::Bad(format!(
            "{DELETE_PREFIX}{list}: expected a list"
        )));
    };
    if let Some(Value::Array(values)) = map.get_mut(list) {
        values.retain(|v| !gone.contains(v));
    }
    Ok(())
}

/// Items that the patch names are put in its order. Other items keep their place before the items that
/// followed them, else they come last.
fn arrange(items: &mut Vec<Value>, order: &[Value], before: &[Value], merge: &Merge) {
    let same = |a: &Value, b: &Value| match merge {
        Merge::By(key) => a.get(key) == b.get(key),
        _ => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, servers): (Vec<Value>, Vec<Value>) = std::mem::take(items)
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut servers = servers.into_iter().peekable();
    for item in named {
        let at = place(before, &item);
        while let Some(server) = servers.peek() {
            match (place(before, server), at) {
                (Some(server), Some(at)) if server < at => items.extend(servers.next()),
                _ => break,
            }
        }
        items.push(item);
    }
    items.extend(servers);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::adds_a_finalizer(
        json!({"metadata": {"finalizers": ["a/a"]}}),
        json!({"metadata": {"finalizers": ["b/b", "a/a"]}}),
        json!({"metadata": {"finalizers": ["b/b", "a/a"]}}))]
    #[case::drops_a_finalizer(
        json!({"metadata": {"finalizers": ["a/a", "b/b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}),
        json!({"metadata": {"finalizers": ["b/b"]}}))]
    #[case::merges_conditions_by_type(
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}, {"type": "X"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "New"}, {"type": "X"}]}}))]
    #[case::merges_containers_and_their_env(
        json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "K", "value": "v"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "L", "value": "w"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "L", "value": "w"}, {"name": "K", "value": "v"}]}]}}))]
    #[case::deletes_by_key(
        json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}),
        json!({"spec": {"volumes": [{"name": "b"}]}}))]
    #[case::replaces_atomic_lists(
        json!({"spec": {"tolerations": [{"key": "a"}], "args": ["x"]}}),
        json!({"spec": {"tolerations": [{"key": "b"}], "args": ["y"]}}),
        json!({"spec": {"tolerations": [{"key": "b"}], "args": ["y"]}}))]
    #[case::replaces_on_request(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
        json!({"metadata": {"labels": {"c": "3"}}}))]
    #[case::null_removes(
        json!({"metadata": {"labels": {"a": "1"}}}),
        json!({"metadata": {"labels": {"a": null}}}),
        json!({"metadata": {"labels": {}}}))]
    #[case::owner_by_uid(
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}),
        json!({"metadata": {"ownerReferences": []}}))]
    #[case::orders_elements(
        json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}))]
    fn does_what_the_go_types_declare(
        #[case] mut target: Value,
        #[case] patch: Value,
        #[case] wanted: Value,
    ) {
        apply(&mut target, &patch, Some("core.v1.Pod")).unwrap();
        assert_eq!(target, wanted);
    }

    #[test]
    fn a_list_item_without_its_merge_key_is_refused() {
        let mut target = json!({"spec": {"containers": [{"name": "a"}]}});
        let error = apply(
            &mut target,
            &json!({"spec": {"containers": [{"image": "x"}]}}),
            Some("core.v1.Pod"),
        );
        let Err(Refusal::Broken(why)) = error else {
            panic!("{error:?}")
        };
        assert!(why.contains("merge key: name"), "{why}");
    }
}
