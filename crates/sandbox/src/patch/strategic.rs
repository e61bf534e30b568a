//! Kubernetes' strategic merge patch for built-in kinds.
//!
//! Lists are merged by a key that the Go types declare. Types are not known here, so the key is found by
//! the field's name; fields whose key differs between places are told apart by the path.

use serde_json::{Map, Value};

/// How a list is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRule {
    /// The patch's list takes its place.
    Replace,
    /// Items are matched by this field.
    MergeBy(&'static str),
    /// A set of primitive values that is added to.
    Union,
}

/// `parent` is the field that holds the list's object.
fn rule(parent: &str, field: &str) -> ListRule {
    use ListRule::{MergeBy, Replace, Union};
    match (parent, field) {
        ("metadata", "finalizers") => Union,
        ("spec", "finalizers") => Replace,
        (_, "ownerReferences") => MergeBy("uid"),
        (_, "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env") => {
            MergeBy("name")
        }
        (_, "imagePullSecrets" | "secrets") => MergeBy("name"),
        (_, "resourceClaims") => MergeBy("name"),
        (_, "conditions") => MergeBy("type"),
        ("status", "addresses") => MergeBy("type"),
        (_, "volumeMounts") => MergeBy("mountPath"),
        (_, "volumeDevices") => MergeBy("devicePath"),
        (_, "hostAliases") => MergeBy("ip"),
        ("status", "podIPs" | "hostIPs") => MergeBy("ip"),
        (_, "topologySpreadConstraints") => MergeBy("topologyKey"),
        ("spec", "podCIDRs") => Union,
        // A container's ports and a service's.
        ("spec", "ports") => MergeBy("port"),
        (_, "ports") => MergeBy("containerPort"),
        (_, "webhooks" | "validations" | "variables") if parent.is_empty() => MergeBy("name"),
        _ => Replace,
    }
}

const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";
const DIRECTIVE: &str = "$patch";

/// Applies `patch` in place.
///
/// # Errors
/// Words for a 400: the patch is not an object, carries an unknown directive or lacks a merge key.
pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        return Err("error decoding patch: the patch is not an object".into());
    };
    merge_object(target, patch, "")
}

fn merge_object(target: &mut Value, patch: &Map<String, Value>, field: &str) -> Result<(), String> {
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
        Some(other) => return Err(format!("Wrong Patch Directive Value: {other:?}")),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return Ok(());
    };
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(DELETE_PREFIX) {
            drop_values(map, list, change)?;
            continue;
        }
        if key == DIRECTIVE || key == RETAIN || key.starts_with(ORDER_PREFIX) {
            continue;
        }
        merge_field(map, key, change, field)?;
    }
    for (key, order) in patch {
        if let Some(list) = key.strip_prefix(ORDER_PREFIX) {
            reorder(map, list, order, field);
        }
    }
    Ok(())
}

fn merge_field(
    map: &mut Map<String, Value>,
    key: &str,
    change: &Value,
    parent: &str,
) -> Result<(), String> {
    match change {
        Value::Null => {
            map.remove(key);
        }
        Value::Object(inner) => {
            merge_object(map.entry(key).or_insert(Value::Null), inner, key)?;
        }
        Value::Array(items) => {
            let target = map.entry(key).or_insert(Value::Null);
            merge_list(target, items, rule(parent, key), key)?;
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
    rule: ListRule,
    field: &str,
) -> Result<(), String> {
    let replaces = items.iter().any(|i| directive(i) == Some("replace"));
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(list) = target.as_array_mut() else {
        return Ok(());
    };
    match rule {
        _ if replaces => {
            *list = items
                .iter()
                .filter(|i| directive(i).is_none())
                .cloned()
                .collect();
        }
        ListRule::Replace => *list = items.to_vec(),
        ListRule::Union => {
            for item in items {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
        }
        ListRule::MergeBy(key) => merge_by(list, items, key, field)?,
    }
    Ok(())
}

fn merge_by(list: &mut Vec<Value>, items: &[Value], key: &str, field: &str) -> Result<(), String> {
    for item in items {
        let Some(change) = item.as_object() else {
            return Err(format!(
                "expected a map in list {field}, but received a value"
            ));
        };
        let Some(id) = change.get(key) else {
            return Err(format!(
                "map: {item} does not contain declared merge key: {key}"
            ));
        };
        let place = list.iter().position(|had| had.get(key) == Some(id));
        match (directive(item), place) {
            (Some("delete"), _) => list.retain(|had| had.get(key) != Some(id)),
            (_, Some(place)) => merge_object(&mut list[place], change, field)?,
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                merge_object(&mut fresh, change, field)?;
                list.push(fresh);
            }
        }
    }
    Ok(())
}

fn directive(item: &Value) -> Option<&str> {
    item.get(DIRECTIVE).and_then(Value::as_str)
}

fn drop_values(map: &mut Map<String, Value>, list: &str, gone: &Value) -> Result<(), String> {
    let Some(gone) = gone.as_array() else {
        return Err(format!("{DELETE_PREFIX}{list}: expected a list"));
    };
    if let Some(Value::Array(values)) = map.get_mut(list) {
        values.retain(|v| !gone.contains(v));
    }
    Ok(())
}

/// Sorts the items that the patch names into its order; others keep their place behind them.
fn reorder(map: &mut Map<String, Value>, list: &str, order: &Value, parent: &str) {
    let (Some(order), Some(Value::Array(items))) = (order.as_array(), map.get_mut(list)) else {
        return;
    };
    let rank = |item: &Value| {
        let place = match rule(parent, list) {
            ListRule::MergeBy(key) => order.iter().position(|o| o.get(key) == item.get(key)),
            _ => order.iter().position(|o| o == item),
        };
        place.unwrap_or(usize::MAX)
    };
    items.sort_by_key(rank);
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
        json!({"metadata": {"finalizers": ["a/a", "b/b"]}}))]
    #[case::drops_a_finalizer(
        json!({"metadata": {"finalizers": ["a/a", "b/b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}),
        json!({"metadata": {"finalizers": ["b/b"]}}))]
    #[case::merges_conditions_by_type(
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}, {"type": "X"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "X"}, {"type": "New"}]}}))]
    #[case::merges_containers_and_their_env(
        json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "K", "value": "v"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "L", "value": "w"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "K", "value": "v"}, {"name": "L", "value": "w"}]}]}}))]
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
        apply(&mut target, &patch).unwrap();
        assert_eq!(target, wanted);
    }

    #[test]
    fn a_list_item_without_its_key_is_refused() {
        let mut target = json!({"spec": {"containers": [{"name": "a"}]}});
        let error = apply(
            &mut target,
            &json!({"spec": {"containers": [{"image": "x"}]}}),
        );
        assert!(error.unwrap_err().contains("merge key: name"));
    }
}
