//! `metadata.managedFields`: who wrote which fields, through which subresource, and when.
//!
//! One entry per manager, API version and subresource. Which fields an entry names is coarser than on a
//! real server: a field of the top level, or of metadata, is owned as a whole.

use serde_json::{Map, Value, json};

use crate::meta;

const FIELD: &str = "managedFields";

/// A write by a manager.
pub(super) struct Stamp<'a> {
    pub(super) manager: &'a str,
    pub(super) api_version: &'a str,
    pub(super) subresource: &'a str,
    /// RFC 3339, in seconds.
    pub(super) now: &'a str,
}

/// The `managedFields` that a client sent.
pub(super) enum Sent {
    /// None, or invalid ones: the entries of the stored object stay.
    Nothing,
    /// An empty list: all entries are removed.
    FreshStart,
    /// Entries that replace those of the stored object.
    Entries(Value),
}

impl Sent {
    pub(super) fn is_fresh_start(&self) -> bool {
        matches!(self, Self::FreshStart)
    }
}

/// Removes the entries that a client sent from the object.
pub(super) fn take_sent(object: &mut Value) -> Sent {
    let sent = meta::metadata_mut(object).and_then(|m| m.remove(FIELD));
    let Some(Value::Array(entries)) = sent else {
        return Sent::Nothing;
    };
    match entries.as_slice() {
        [] => Sent::FreshStart,
        [only] if only.as_object().is_some_and(Map::is_empty) => Sent::FreshStart,
        all if all.iter().all(is_entry) => Sent::Entries(Value::Array(entries)),
        _ => Sent::Nothing,
    }
}

fn is_entry(entry: &Value) -> bool {
    let text = |field: &str| meta::text(entry, &[field]);
    matches!(text("operation"), "Apply" | "Update")
        && !text("apiVersion").is_empty()
        && text("fieldsType") == "FieldsV1"
        && entry["fieldsV1"].is_object()
}

/// Restores the entries that were sent, or else those of the stored object.
pub(super) fn carry(old: &Value, new: &mut Value, sent: &Sent) {
    let stored = meta::at(old, &["metadata", FIELD]);
    let entries = match sent {
        Sent::Entries(entries) => Some(entries),
        Sent::Nothing | Sent::FreshStart => stored,
    };
    if let Some(entries) = entries {
        meta::set(new, FIELD, entries.clone());
    }
}

/// Adds an entry for a write that changed `old` into `new`.
pub(super) fn stamp(old: Option<&Value>, new: &mut Value, stamp: &Stamp<'_>) {
    let fields = changed(old, new);
    if fields.is_empty() || stamp.manager.is_empty() {
        return;
    }
    let entries = meta::at(new, &["metadata", FIELD]).and_then(Value::as_array);
    let mut entries = entries.cloned().unwrap_or_default();
    let same = |entry: &Value| {
        meta::text(entry, &["manager"]) == stamp.manager
            && meta::text(entry, &["subresource"]) == stamp.subresource
            && meta::text(entry, &["apiVersion"]) == stamp.api_version
    };
    match entries.iter_mut().find(|entry| same(entry)) {
        Some(entry) => {
            entry["time"] = json!(stamp.now);
            merge(&mut entry["fieldsV1"], fields);
        }
        None => {
            let mut entry = json!({
                "manager": stamp.manager,
                "operation": "Update",
                "apiVersion": stamp.api_version,
                "time": stamp.now,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            });
            if !stamp.subresource.is_empty() {
                entry["subresource"] = json!(stamp.subresource);
            }
            entries.push(entry);
        }
    }
    entries.sort_by(|a, b| {
        let key = |entry: &Value| {
            ["time", "manager", "apiVersion", "subresource"]
                .map(|f| meta::text(entry, &[f]).to_owned())
        };
        key(a).cmp(&key(b))
    });
    meta::set(new, FIELD, Value::Array(entries));
}

fn merge(had: &mut Value, fields: Map<String, Value>) {
    let Some(had) = had.as_object_mut() else {
        *had = Value::Object(fields);
        return;
    };
    for (name, inner) in fields {
        match (had.get_mut(&name), inner) {
            (Some(before), Value::Object(inner)) if !inner.is_empty() => merge(before, inner),
            (Some(_), _) => {}
            (None, inner) => {
                had.insert(name, inner);
            }
        }
    }
}

/// The changed fields of the top level and of metadata, in the form of `fieldsV1`.
fn changed(old: Option<&Value>, new: &Value) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in new.as_object().into_iter().flatten() {
        let before = old.and_then(|old| old.get(name));
        if before == Some(value) || matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        if name != "metadata" {
            fields.insert(format!("f:{name}"), json!({}));
            continue;
        }
        let mut inner = Map::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let clients = matches!(
                name.as_str(),
                "labels" | "annotations" | "finalizers" | "ownerReferences" | "generateName"
            );
            if clients && before.and_then(|b| b.get(name)) != Some(value) {
                inner.insert(format!("f:{name}"), json!({}));
            }
        }
        if !inner.is_empty() {
            fields.insert("f:metadata".into(), Value::Object(inner));
        }
    }
    fields
}
