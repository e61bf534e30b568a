//! The `scale` subresource of kinds with replicas.

use serde_json::{Value, json};

use super::ResourceInfo;
use crate::address::Gvr;
use crate::error::{ApiError, Cause};
use crate::meta;

/// The `Scale` of an object.
pub(crate) fn of(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        metadata[field] = json!(meta::field(object, field));
    }
    let number = |path: &[&str]| meta::at(object, path).and_then(Value::as_i64);
    let labels = meta::at(object, &["spec", "selector", "matchLabels"]).and_then(Value::as_object);
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    // A zero is omitted.
    let spec = match number(&["spec", "replicas"]).unwrap_or(1) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "replicas": number(&["status", "replicas"]).unwrap_or(0),
            "selector": selector.join(","),
        },
    })
}

/// How many replicas a `Scale` wants.
pub(crate) fn replicas(scale: &Value) -> i64 {
    let replicas = meta::at(scale, &["spec", "replicas"]).and_then(Value::as_i64);
    replicas.unwrap_or(0)
}

/// The merge patch of the object for a changed `Scale`.
///
/// # Errors
/// 422 for a negative number.
pub(crate) fn change(name: &str, scale: &Value) -> Result<Value, ApiError> {
    let replicas = replicas(scale);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &replicas.to_string(), why);
        return Err(ApiError::invalid("autoscaling", "Scale", name, vec![cause]));
    }
    let mut patch = json!({"spec": {"replicas": replicas}});
    for field in ["uid", "resourceVersion"] {
        let value = meta::field(scale, field);
        if !value.is_empty() {
            patch["metadata"][field] = json!(value);
        }
    }
    Ok(patch)
}

/// The configuration of the object for an applied `Scale`.
///
/// # Errors
/// 400 for another type.
pub(crate) fn applied(info: &ResourceInfo, gvr: &Gvr, config: &Value) -> Result<Value, ApiError> {
    let (api_version, kind) = (
        meta::text(config, &["apiVersion"]),
        meta::text(config, &["kind"]),
    );
    if (api_version, kind) != ("autoscaling/v1", "Scale") {
        return Err(ApiError::bad_request(format!(
            "invalid object type: {api_version}, Kind={kind}"
        )));
    }
    let mut applied = json!({
        "apiVersion": gvr.api_version(),
        "kind": info.kind,
        "metadata": config.get("metadata").cloned().unwrap_or_default(),
    });
    if let Some(replicas) = meta::at(config, &["spec", "replicas"]) {
        applied["spec"] = json!({"replicas": replicas});
    }
    Ok(applied)
}
