//! PVCs and PVs: defaults, required fields, immutability.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::Cause;
use crate::meta;
use crate::quantity::parse_milli;

const PVC: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
/// Fields of a PV's spec that are not volume sources.
const NO_SOURCE: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Defaults and validation of a new PVC or PV.
pub(crate) fn prepare_create(object: &mut Value) -> Vec<Cause> {
    object["status"] = json!({"phase": "Pending"});
    let is_pvc = meta::text(object, &["kind"]) == "PersistentVolumeClaim";
    let causes = if is_pvc {
        check_pvc(object)
    } else {
        check(object)
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("volumeMode")
            .or_insert_with(|| json!("Filesystem"));
        if !is_pvc {
            let policy = spec.entry("persistentVolumeReclaimPolicy");
            policy.or_insert_with(|| json!("Retain"));
        }
    }
    causes
}

fn check_pvc(pvc: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let modes = meta::at(pvc, &["spec", "accessModes"]).and_then(Value::as_array);
    if modes.is_none_or(Vec::is_empty) {
        causes.push(Cause::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    if meta::at(pvc, &["spec", "resources", "requests", "storage"]).is_none() {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
    causes
}

fn check(volume: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let modes = meta::at(volume, &["spec", "accessModes"]).and_then(Value::as_array);
    if modes.is_none_or(Vec::is_empty) {
        causes.push(Cause::required("spec.accessModes", ""));
    }
    if meta::at(volume, &["spec", "capacity"]).is_none() {
        causes.push(Cause::required("spec.capacity", ""));
    }
    let spec = volume.get("spec").and_then(Value::as_object);
    if !spec.is_some_and(|s| s.keys().any(|k| !NO_SOURCE.contains(&k.as_str()))) {
        causes.push(Cause::required("spec", "must specify a volume type"));
    }
    causes
}

/// All errors in an update of a PVC.
pub(crate) fn check_pvc_update(old: &Value, new: &Value) -> Vec<Cause> {
    let is_bound = meta::text(new, &["status", "phase"]) == "Bound";
    let fixed = |pvc: &Value| {
        let mut spec = pvc.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("resources");
            if is_bound {
                spec.remove("volumeAttributesClassName");
            }
            // The binder sets the volume name once.
            if meta::text(old, &["spec", "volumeName"]).is_empty() {
                spec.remove("volumeName");
            }
        }
        spec
    };
    let (before, mut after) = (resources(old), resources(new));
    let (had, has) = (before.get(&STORAGE), after.get(&STORAGE).cloned());
    if is_bound && let (Some(had), Some(size)) = (had, after.get_mut(&STORAGE)) {
        size.clone_from(had);
    }
    let mut causes = check_pvc(new);
    if fixed(old) != fixed(new) || before != after {
        causes.push(Cause::forbidden("spec", PVC));
    }
    let capacity = meta::text(old, &["status", "capacity", "storage"]);
    let milli = |size: Option<&Amount>| match size {
        Some(Ok(milli)) => *milli,
        _ => 0,
    };
    let size = milli(has.as_ref());
    if size < milli(had) && size <= parse_milli(capacity).unwrap_or_default() {
        let why = "field can not be less than status.capacity";
        let path = "spec.resources.requests.storage";
        causes.push(Cause::forbidden(path, why));
    }
    causes
}

const STORAGE: (&str, &str) = ("requests", "storage");

/// A quantity in thousandths, or what is none.
type Amount = Result<i128, Value>;

/// The requests and limits of a claim, by name.
fn resources(pvc: &Value) -> BTreeMap<(&str, &str), Amount> {
    let part = |part: &'static str| {
        let named = meta::at(pvc, &["spec", "resources", part]).and_then(Value::as_object);
        named.into_iter().flatten().map(move |(name, quantity)| {
            let milli = quantity.as_str().and_then(parse_milli);
            ((part, name.as_str()), milli.ok_or_else(|| quantity.clone()))
        })
    };
    part("requests").chain(part("limits")).collect()
}

/// All errors in an update of a PV.
pub(crate) fn check_update(old: &Value, new: &Value) -> Vec<Cause> {
    let source = |volume: &Value| {
        let mut spec = volume.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|k, _| !NO_SOURCE.contains(&k.as_str()));
        }
        spec
    };
    if source(old) == source(new) {
        return Vec::new();
    }
    let why = "spec.persistentvolumesource is immutable after creation";
    vec![Cause::forbidden("spec.persistentvolumesource", why)]
}
