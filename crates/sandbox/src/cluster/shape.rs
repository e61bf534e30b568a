//! Brings an object into the form of its kind: unknown fields, defaults, duplicate owners.

use serde_json::{Value, json};

use super::{FieldValidation, WriteOptions};
use crate::address::Gvr;
use crate::error::ApiError;
use crate::kinds::schema::SchemaVerdict;
use crate::kinds::{ResourceInfo, schema, types};
use crate::meta;

/// The unknown fields in the metadata of a custom resource; built-in kinds are decoded as a whole.
pub(super) fn unknown_metadata(info: &ResourceInfo, object: &Value) -> Vec<String> {
    match object.get("metadata").filter(|_| info.custom) {
        Some(metadata) => types::unknown_fields(types::METADATA, metadata, "metadata"),
        None => Vec::new(),
    }
}

/// Prunes and defaults an instance of a CRD; returns the dropped fields.
///
/// # Errors
/// The wrong type of a field of an embedded object.
pub(super) fn custom(
    info: &ResourceInfo,
    gvr: &Gvr,
    object: &mut Value,
) -> Result<Vec<String>, String> {
    let Some(version) = info.version(&gvr.version) else {
        return Ok(Vec::new());
    };
    let Some(schema) = version.schema.as_deref() else {
        return Ok(Vec::new());
    };
    let mut dropped = schema::prune(schema, object);
    if version.checks.has_embedded() {
        dropped.extend(schema::coerce(schema, object)?);
    }
    schema::default(schema, object);
    Ok(dropped)
}

/// Brings a stored instance of a CRD into the form of a version, as the real server decodes it: pruned and defaulted by
/// the schema of its own version, and then pruned by that of the requested one.
pub(super) fn read(info: &ResourceInfo, version: &str, object: &mut Value) {
    let varied = info.schemas.are_varied();
    let stored = info.schemas.of(info.version_of(object));
    if let Some(schema) = stored.filter(|_| varied) {
        schema::prune(schema, object);
        schema::default(schema, object);
    }
    convert(info, version, object);
}

/// Brings an instance of a CRD into the form in which it is stored.
pub(super) fn store(info: &ResourceInfo, object: &mut Value) {
    convert(info, &info.storage_version, object);
}

fn convert(info: &ResourceInfo, version: &str, object: &mut Value) {
    object["apiVersion"] = json!(info.api_version(version));
    let schema = info.schemas.of(version);
    if let Some(schema) = schema.filter(|_| info.schemas.are_varied()) {
        schema::prune(schema, object);
    }
}

/// The errors of an instance against its CRD's schema; `old` is its stored state.
pub(super) fn misfits(
    info: &ResourceInfo,
    gvr: &Gvr,
    object: &Value,
    old: Option<&Value>,
) -> SchemaVerdict {
    let version = info.version(&gvr.version);
    version.map_or_else(SchemaVerdict::default, |version| {
        match version.schema.as_deref() {
            Some(schema) => version.checks.check(schema, object, old),
            None => SchemaVerdict::default(),
        }
    })
}

/// Handles unknown fields as the client's `fieldValidation` requires.
///
/// # Errors
/// 400 for strict validation.
pub(crate) fn judge(
    info: &ResourceInfo,
    gvr: &Gvr,
    complaints: Vec<String>,
    options: &WriteOptions,
) -> Result<Vec<String>, ApiError> {
    if complaints.is_empty() {
        return Ok(complaints);
    }
    match options.field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(complaints),
        FieldValidation::Strict => Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {}",
            strict(&complaints),
            kind = info.kind,
            version = gvr.version,
        ))),
    }
}

/// The message of a strict refusal.
pub(super) fn strict(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}

/// `unknown field "a.b"` for each path.
pub(crate) fn unknown(paths: Vec<String>) -> Vec<String> {
    let complain = |path: String| format!("unknown field {path:?}");
    paths.into_iter().map(complain).collect()
}

/// Keeps the first of several references to the same owner.
pub(super) fn dedup_owners(object: &mut Value) -> Option<String> {
    let owners = object
        .get_mut("metadata")
        .and_then(|m| m.get_mut("ownerReferences"))
        .and_then(Value::as_array_mut)?;
    let mut seen: Vec<Value> = Vec::new();
    let mut twice: Vec<String> = Vec::new();
    owners.retain(|owner| {
        if !seen.contains(owner) {
            seen.push(owner.clone());
            return true;
        }
        let uid = meta::text(owner, &["uid"]).to_owned();
        if !twice.contains(&uid) {
            twice.push(uid);
        }
        false
    });
    if twice.is_empty() {
        return None;
    }
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        twice.join(", ")
    ))
}
