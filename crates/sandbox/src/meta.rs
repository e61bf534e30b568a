//! Reads and changes `metadata` of an untyped object.

use serde_json::{Map, Value, json};

use crate::error::Cause;

const EMPTY: &[Value] = &[];

/// Text at a path; empty when absent or of another type.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Text of one metadata field; empty when absent.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    field(object, "name")
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    field(object, "uid")
}

/// `metadata.resourceVersion` as a number; zero when absent.
pub(crate) fn version(object: &Value) -> u64 {
    field(object, "resourceVersion").parse().unwrap_or(0)
}

/// Whether it has a deletion timestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !field(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> &[Value] {
    object
        .get("metadata")
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map_or(EMPTY, Vec::as_slice)
}

/// Whether the object has that finalizer.
pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    finalizers(object).iter().any(|f| f == name)
}

/// `metadata.deletionGracePeriodSeconds`.
pub(crate) fn grace(object: &Value) -> Option<i64> {
    at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64)
}

/// The metadata map, created when it is missing. `None` when the value is not an object.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let map = object.as_object_mut()?;
    let metadata = map.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut()
}

/// Sets one metadata field.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(field.to_owned(), value);
    }
}

/// Drops one metadata field.
pub(crate) fn unset(object: &mut Value, field: &str) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove(field);
    }
}

/// Replaces the finalizers; an empty list drops the field, as the wire does.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    if finalizers.is_empty() {
        return unset(object, "finalizers");
    }
    set(object, "finalizers", Value::Array(finalizers));
}

const TEXT_FIELDS: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
];
const NUMBER_FIELDS: &[&str] = &["generation", "deletionGracePeriodSeconds"];
const TEXT_MAPS: &[&str] = &["labels", "annotations"];
const OWNER_FIELDS: &[&str] = &["apiVersion", "kind", "name", "uid"];

/// Normalises `metadata` to what a typed server would print: known fields only, without nulls and
/// empty values. Returns the first wrong type. managedFields stay: the caller removes them.
pub(crate) fn normalise(object: &mut Value) -> Result<(), String> {
    let Some(map) = object.as_object_mut() else {
        return Err("json: cannot unmarshal value into an object".into());
    };
    let metadata = match map.get_mut("metadata") {
        None | Some(Value::Null) => {
            map.insert("metadata".into(), json!({}));
            return Ok(());
        }
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(wrong_type("metadata", "v1.ObjectMeta")),
    };
    let mut wrong = None;
    metadata.retain(|key, value| match keep(key, value) {
        Ok(keep) => keep,
        Err(error) => {
            wrong.get_or_insert(error);
            false
        }
    });
    wrong.map_or(Ok(()), Err)
}

fn keep(key: &str, value: &mut Value) -> Result<bool, String> {
    if value.is_null() {
        return Ok(false);
    }
    if TEXT_FIELDS.contains(&key) {
        let Some(text) = value.as_str() else {
            return Err(wrong_type(key, "string"));
        };
        return Ok(!text.is_empty());
    }
    if NUMBER_FIELDS.contains(&key) {
        return if value.is_i64() {
            Ok(true)
        } else {
            Err(wrong_type(key, "int64"))
        };
    }
    if TEXT_MAPS.contains(&key) {
        let Some(map) = value.as_object_mut() else {
            return Err(wrong_type(key, "map[string]string"));
        };
        for (name, text) in map.iter_mut() {
            match text {
                Value::String(_) => {}
                // Go decodes null into a string as its zero value.
                Value::Null => *text = json!(""),
                _ => return Err(wrong_type(&format!("{key}.{name}"), "string")),
            }
        }
        return Ok(!map.is_empty());
    }
    match key {
        "finalizers" => {
            let Some(list) = value.as_array() else {
                return Err(wrong_type(key, "[]string"));
            };
            if list.iter().any(|f| !f.is_string()) {
                return Err(wrong_type(key, "string"));
            }
            Ok(!list.is_empty())
        }
        "ownerReferences" => keep_owners(value),
        "managedFields" => Ok(value.is_array()),
        _ => Ok(false),
    }
}

fn keep_owners(value: &mut Value) -> Result<bool, String> {
    let key = "ownerReferences";
    let Some(list) = value.as_array_mut() else {
        return Err(wrong_type(key, "[]v1.OwnerReference"));
    };
    for owner in list.iter_mut() {
        let Some(owner) = owner.as_object_mut() else {
            return Err(wrong_type(key, "v1.OwnerReference"));
        };
        for field in OWNER_FIELDS {
            let text = owner.entry(*field).or_insert_with(|| json!(""));
            if text.is_null() {
                *text = json!("");
            }
            if !text.is_string() {
                return Err(wrong_type(&format!("{key}.{field}"), "string"));
            }
        }
        for field in ["controller", "blockOwnerDeletion"] {
            match owner.get(field) {
                None | Some(Value::Bool(_)) => {}
                Some(Value::Null) => {
                    owner.remove(field);
                }
                Some(_) => return Err(wrong_type(&format!("{key}.{field}"), "bool")),
            }
        }
    }
    Ok(!list.is_empty())
}

fn wrong_type(field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal value into Go struct field ObjectMeta.{field} of type {wanted}")
}

/// Errors in owner references.
pub(crate) fn check_owners(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let owners = at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    let owners = owners.map_or(EMPTY, Vec::as_slice);
    for owner in owners {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            let value = text(owner, &[field]);
            // A version that cannot be parsed counts as empty.
            let unreadable = field == "apiVersion" && value.matches('/').count() > 1;
            if value.is_empty() || unreadable {
                let path = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(&path, &format!("{value:?}"), why));
            }
        }
    }
    for owner in owners {
        if text(owner, &["apiVersion"]) == "v1" && text(owner, &["kind"]) == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            let shown = show_owner(owner);
            causes.push(Cause::invalid("metadata.ownerReferences", &shown, why));
        }
    }
    let controls = |o: &&Value| o.get("controller") == Some(&Value::Bool(true));
    let controllers: Vec<&Value> = owners.iter().filter(controls).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let named = |o: &Value| format!("{}/{}", text(o, &["kind"]), text(o, &["name"]));
        let shown: Vec<String> = owners.iter().map(show_owner).collect();
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            named(first),
            named(second)
        );
        let shown = format!("[{}]", shown.join(","));
        causes.push(Cause::invalid("metadata.ownerReferences", &shown, &why));
    }
    causes
}

fn show_owner(owner: &Value) -> String {
    const ORDER: &[&str] = &[
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    show_in_order(owner, ORDER)
}

/// A map with these fields first.
fn show_in_order(value: &Value, order: &[&str]) -> String {
    let Some(map) = value.as_object() else {
        return value.to_string();
    };
    let first = order.iter().filter_map(|k| map.get_key_value(*k));
    let rest = map.iter().filter(|(k, _)| !order.contains(&k.as_str()));
    let fields: Vec<String> = first
        .chain(rest)
        .map(|(k, v)| format!("{}:{v}", Value::from(k.as_str())))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The object as the server quotes it: metadata in the order of its Go type.
pub(crate) fn in_go_order(object: &Value) -> String {
    const ORDER: &[&str] = &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let fields = object.as_object().into_iter().flatten().map(|(k, v)| {
        let shown = match k.as_str() {
            "metadata" => show_in_order(v, ORDER),
            _ => v.to_string(),
        };
        format!("{}:{shown}", Value::from(k.as_str()))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Whether two maps are equal except for one field.
pub(crate) fn same_without(one: &Value, other: &Value, field: &str) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let fields = |map| Map::iter(map).filter(|(name, _)| *name != field);
    fields(one).eq(fields(other))
}

/// The object without its `managedFields`.
pub(crate) fn without_managers(object: &Value) -> Value {
    let Some(map) = object.as_object() else {
        return object.clone();
    };
    let copy = |(name, value): (&String, &Value)| match value.as_object() {
        Some(metadata) if name == "metadata" => {
            let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
            let kept = kept.map(|(name, value)| (name.clone(), value.clone()));
            (name.clone(), Value::Object(kept.collect()))
        }
        _ => (name.clone(), value.clone()),
    };
    Value::Object(map.iter().map(copy).collect())
}

/// Drops nulls below the top level, as decoding into a typed object does.
pub(crate) fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}
