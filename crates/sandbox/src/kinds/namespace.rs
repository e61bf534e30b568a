//! Namespaces: two lists of finalizers, two phases.

use serde_json::{Value, json};

use crate::error::Cause;
use crate::meta;

/// The finalizer in `spec` that the namespace controller removes once the namespace is empty.
const KUBERNETES: &str = "kubernetes";

/// `spec.finalizers`.
pub(crate) fn spec_finalizers(object: &Value) -> &[Value] {
    meta::at(object, &["spec", "finalizers"])
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Every namespace has its name as a label, for selectors.
pub(crate) fn canonicalise(object: &mut Value) {
    let name = meta::name(object).to_owned();
    if !name.is_empty()
        && let Some(metadata) = meta::metadata_mut(object)
    {
        metadata.entry("labels").or_insert_with(|| json!({}))["kubernetes.io/metadata.name"] =
            json!(name);
    }
    if spec_finalizers(object).is_empty()
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("finalizers");
    }
}

pub(crate) fn prepare_create(object: &mut Value) {
    canonicalise(object);
    let mut finalizers = spec_finalizers(object).to_vec();
    if !finalizers.iter().any(|f| f == KUBERNETES) {
        finalizers.push(json!(KUBERNETES));
    }
    object["spec"] = json!({"finalizers": finalizers});
    object["status"] = json!({"phase": "Active"});
}

/// Only `/finalize` can change `spec.finalizers`.
pub(crate) fn keep_spec_finalizers(old: &Value, new: &mut Value) {
    let finalizers = spec_finalizers(old);
    if finalizers == spec_finalizers(new) && old.get("spec").is_some() == new.get("spec").is_some()
    {
        return;
    }
    let finalizers = finalizers.to_vec();
    if !new.get("spec").is_some_and(Value::is_object) {
        new["spec"] = json!({});
    }
    match finalizers.is_empty() {
        true => drop(
            new["spec"]
                .as_object_mut()
                .map(|spec| spec.remove("finalizers")),
        ),
        false => new["spec"]["finalizers"] = json!(finalizers),
    }
}

pub(crate) fn mark_terminating(object: &mut Value) {
    if !object.get("status").is_some_and(Value::is_object) {
        object["status"] = json!({});
    }
    object["status"]["phase"] = json!("Terminating");
}

/// Sets the phase from the deletion timestamp.
pub(crate) fn check_status(object: &Value) -> Vec<Cause> {
    let phase = meta::text(object, &["status", "phase"]);
    let wanted = if meta::is_deleting(object) {
        "Terminating"
    } else {
        "Active"
    };
    if phase == wanted {
        return Vec::new();
    }
    let is = if meta::is_deleting(object) {
        "is not empty"
    } else {
        "is empty"
    };
    let why = format!("may only be '{wanted}' if `deletionTimestamp` {is}");
    vec![Cause::invalid("status.Phase", &format!("{phase:?}"), &why)]
}
