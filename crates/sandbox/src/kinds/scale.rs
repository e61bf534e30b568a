//! The `scale` subresource of kinds with replicas.

use serde_json::{Value, json};

use super::ResourceInfo;
use crate::address::Gvr;
use crate::error::{ApiError, Cause};
use crate::meta;

/// Where a custom resource has what its `Scale` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    spec: FieldPath,
    status: FieldPath,
    selector: Option<FieldPath>,
}

/// A path such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldPath {
    text: String,
    names: Vec<String>,
}

impl FieldPath {
    fn of(text: &str) -> Self {
        let names = text.strip_prefix('.').unwrap_or(text).split('.');
        FieldPath {
            text: text.to_owned(),
            names: names.map(str::to_owned).collect(),
        }
    }

    fn at<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut names = self.names.iter();
        let found = names.try_fold(object, |value, name| value.get(name))?;
        Some(found).filter(|found| !found.is_null())
    }

    /// A number of replicas that does not fit.
    fn wrong_count(&self, object: &Value) -> Option<Cause> {
        let found = self.at(object)?;
        let invalid = |shown: &str, why: &str| Some(Cause::invalid(&self.text, shown, why));
        match found.as_i64() {
            None => invalid("0", &self.wrong_type(found, "int64")),
            Some(0..=MOST) => None,
            Some(..0) => invalid(&found.to_string(), "should be a non-negative integer"),
            Some(_) => {
                let why = format!("should be less than or equal to {MOST}");
                invalid(&found.to_string(), &why)
            }
        }
    }

    fn wrong_type(&self, found: &Value, wanted: &str) -> String {
        let (shown, kind) = match found {
            Value::String(text) => (text.clone(), "string"),
            Value::Bool(_) => (found.to_string(), "bool"),
            Value::Number(number) if number.is_f64() => (found.to_string(), "float64"),
            Value::Array(_) => (found.to_string(), "[]interface {}"),
            Value::Object(_) => (found.to_string(), "map[string]interface {}"),
            Value::Number(_) | Value::Null => (found.to_string(), "int64"),
        };
        format!(
            ".{} accessor error: {shown} is of the type {kind}, expected {wanted}",
            self.names.join(".")
        )
    }
}

const MOST: i64 = i32::MAX as i64;

impl Paths {
    /// The paths that a version of a definition declares.
    pub(crate) fn of(version: &Value) -> Option<Self> {
        let scale = meta::at(version, &["subresources", "scale"]).filter(|s| s.is_object())?;
        let path = |field| Some(meta::text(scale, &[field])).filter(|text| !text.is_empty());
        Some(Paths {
            spec: FieldPath::of(path("specReplicasPath")?),
            status: FieldPath::of(path("statusReplicasPath")?),
            selector: path("labelSelectorPath").map(FieldPath::of),
        })
    }

    /// The errors of an object in these fields. Values that did not change are not checked again.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let changed = |path: &&FieldPath| old.is_none_or(|old| path.at(old) != path.at(object));
        let counts = [&self.spec, &self.status].into_iter().filter(changed);
        let mut causes: Vec<Cause> = counts.filter_map(|p| p.wrong_count(object)).collect();
        for path in self.selector.iter().filter(changed) {
            if let Some(found) = path.at(object).filter(|found| !found.is_string()) {
                let why = path.wrong_type(found, "string");
                causes.push(Cause::invalid(&path.text, "\"\"", &why));
            }
        }
        causes
    }
}

/// The errors in the paths of a definition's version.
pub(crate) fn refuse(version: &Value, path: &str) -> Vec<Cause> {
    let Some(scale) = meta::at(version, &["subresources", "scale"]).filter(|s| s.is_object())
    else {
        return Vec::new();
    };
    let check = |field: &str, places: &[&str], required: bool| {
        let (text, path) = (meta::text(scale, &[field]), format!("{path}.scale.{field}"));
        let invalid = |why: &str| Some(Cause::invalid(&path, &format!("{text:?}"), why));
        match text {
            "" if required => Some(Cause::required(&path, "")),
            "" => None,
            text if !text.starts_with('.') => invalid("must be a simple json path starting with ."),
            text if places.iter().any(|place| text.starts_with(place)) => None,
            _ if required => {
                let place = places.concat();
                invalid(&format!(
                    "should be a json path under {}",
                    place.trim_end_matches('.')
                ))
            }
            _ => invalid("should be a json path under either .spec or .status"),
        }
    };
    let checks = [
        check("specReplicasPath", &[".spec."], true),
        check("statusReplicasPath", &[".status."], true),
        check("labelSelectorPath", &[".spec.", ".status."], false),
    ];
    checks.into_iter().flatten().collect()
}

/// The `Scale` of an object.
pub(crate) fn of(info: &ResourceInfo, version: &str, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        let text = meta::field(object, field);
        if !text.is_empty() {
            metadata[field] = json!(text);
        }
    }
    let count = |value: Option<&Value>| value.and_then(Value::as_i64);
    let (wanted, found, selector) = match info.scale(version) {
        Some(paths) => {
            let selector = paths
                .selector
                .as_ref()
                .and_then(|path| path.at(object)?.as_str());
            (
                count(paths.spec.at(object)).unwrap_or(0),
                paths.status.at(object),
                selector.unwrap_or_default().to_owned(),
            )
        }
        None => (
            count(meta::at(object, &["spec", "replicas"])).unwrap_or(1),
            meta::at(object, &["status", "replicas"]),
            selector_of_labels(object),
        ),
    };
    // A zero is omitted.
    let spec = match wanted {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    let mut status = json!({"replicas": count(found).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

fn selector_of_labels(object: &Value) -> String {
    let labels = meta::at(object, &["spec", "selector", "matchLabels"]).and_then(Value::as_object);
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    selector.join(",")
}

/// The path of the replicas if a custom resource does not have them.
pub(crate) fn unset<'a>(info: &'a ResourceInfo, version: &str, object: &Value) -> Option<&'a str> {
    let path = &info.scale(version)?.spec;
    path.at(object).is_none().then_some(path.text.as_str())
}

/// Part of an object: the replicas where it has them.
fn part(info: &ResourceInfo, version: &str, replicas: Value) -> Value {
    let default = ["spec".to_owned(), "replicas".to_owned()];
    let names = info
        .scale(version)
        .map_or(&default[..], |paths| &paths.spec.names);
    let nest = |inner, name: &String| json!({name.as_str(): inner});
    names.iter().rev().fold(replicas, nest)
}

/// Sets the replicas of an object.
pub(crate) fn set(info: &ResourceInfo, version: &str, object: &mut Value, replicas: i64) {
    json_patch::merge(object, &part(info, version, json!(replicas)));
}

/// How many replicas a `Scale` wants.
pub(crate) fn replicas(scale: &Value) -> i64 {
    let replicas = meta::at(scale, &["spec", "replicas"]).and_then(Value::as_i64);
    replicas.unwrap_or(0)
}

/// The merge patch of the object for a changed `Scale`.
///
/// # Errors
/// 422 for a negative number; that of a custom resource is refused with the object.
pub(crate) fn change(
    info: &ResourceInfo,
    gvr: &Gvr,
    name: &str,
    scale: &Value,
) -> Result<Value, ApiError> {
    let replicas = replicas(scale);
    if replicas < 0 && !info.custom {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &replicas.to_string(), why);
        return Err(ApiError::invalid("autoscaling", "Scale", name, vec![cause]));
    }
    let mut patch = part(info, &gvr.version, json!(replicas));
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
    let replicas = meta::at(config, &["spec", "replicas"]).cloned();
    let mut applied = replicas.map_or_else(|| json!({}), |n| part(info, &gvr.version, n));
    applied["apiVersion"] = json!(gvr.api_version());
    applied["kind"] = json!(info.kind);
    applied["metadata"] = config.get("metadata").cloned().unwrap_or_default();
    Ok(applied)
}
