//! Events as `events.k8s.io` shows them: the stored core events with other names of fields.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ListOptions, ListPage, Patch, Written};
use crate::address::Gvr;
use crate::error::{ApiError, Cause};
use crate::kinds::ResourceInfo;
use crate::meta;

const GROUP: &str = "events.k8s.io";
const API_VERSION: &str = "events.k8s.io/v1";

/// Names of fields: stored, and shown.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether requests for a resource are answered from the core events.
pub(crate) fn shows(gvr: &Gvr) -> bool {
    gvr.group == GROUP && gvr.resource == "events"
}

/// Whether objects of a kind are shown in this form.
pub(crate) fn is_form_of(info: &ResourceInfo) -> bool {
    !info.custom && info.group == GROUP
}

fn stored_name(shown: &str) -> &str {
    let found = NAMES.iter().find(|(_, name)| *name == shown);
    found.map_or(shown, |(stored, _)| stored)
}

fn shown_name(stored: &str) -> &str {
    let found = NAMES.iter().find(|(name, _)| *name == stored);
    found.map_or(stored, |(_, shown)| shown)
}

fn renamed(object: Value, name: impl Fn(&str) -> &str) -> Value {
    match object {
        Value::Object(map) => {
            let pairs = map
                .into_iter()
                .map(|(key, value)| (name(&key).to_owned(), value));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// A body as it is stored.
pub(super) fn incoming(object: Value) -> Value {
    let mut object = renamed(object, stored_name);
    if meta::text(&object, &["apiVersion"]) == API_VERSION {
        object["apiVersion"] = json!("v1");
    }
    object
}

/// A stored event as it is shown.
pub(crate) fn outgoing(object: &Value) -> Value {
    let mut object = renamed(object.clone(), shown_name);
    object["apiVersion"] = json!(API_VERSION);
    object
}

/// A patch of the stored event.
pub(super) fn patch(patch: Patch) -> Patch {
    match patch {
        Patch::Merge(body) => Patch::Merge(incoming(body)),
        Patch::Strategic(body) => Patch::Strategic(incoming(body)),
        Patch::Apply(body) => Patch::Apply(incoming(body)),
        Patch::Json(Value::Array(operations)) => {
            Patch::Json(operations.into_iter().map(operation).collect())
        }
        Patch::Json(other) => Patch::Json(other),
    }
}

fn operation(mut operation: Value) -> Value {
    for field in ["path", "from"] {
        let Some(path) = operation.get(field).and_then(Value::as_str) else {
            continue;
        };
        let mut parts: Vec<&str> = path.split('/').collect();
        if let Some(first) = parts.get_mut(1) {
            *first = stored_name(first);
        }
        let path = parts.join("/");
        operation[field] = json!(path);
    }
    operation
}

/// A field selector over the stored events.
pub(crate) fn field_selector(text: &str) -> String {
    let terms = text.split(',').map(|term| {
        let end = term.find(['.', '=', '!']).unwrap_or(term.len());
        let (name, rest) = term.split_at(end);
        format!("{}{rest}", stored_name(name.trim()))
    });
    terms.collect::<Vec<_>>().join(",")
}

pub(super) fn list_options(options: &ListOptions) -> ListOptions {
    ListOptions {
        field_selector: field_selector(&options.field_selector),
        ..options.clone()
    }
}

pub(super) fn page(mut page: ListPage) -> ListPage {
    for item in &mut page.items {
        *item = Arc::new(outgoing(item));
    }
    page
}

/// The result of a write to the stored event.
pub(super) fn written(result: Result<Written, ApiError>) -> Result<Written, ApiError> {
    let mut written = result.map_err(error)?;
    written.object = Arc::new(outgoing(&written.object));
    Ok(written)
}

/// An error about a stored event, with the group of the request. Errors in fields keep the names of core, as on the
/// real server.
pub(super) fn error(mut error: ApiError) -> ApiError {
    if let Some(details) = &mut error.details
        && details.group.is_empty()
        && details.kind == "events"
    {
        let grouped = format!("events.{GROUP} ");
        error.message = error.message.replacen("events ", &grouped, 1);
        details.group = GROUP.to_owned();
    }
    error
}

/// What the new group requires of a new event, besides the checks of core.
///
/// # Errors
/// 422.
pub(super) fn check_new(event: &Value) -> Result<(), ApiError> {
    let mut causes = crate::kinds::event::check(event, "reportingController");
    let invalid = |field: &str, why: &str| Cause::invalid(field, "\"\"", why);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
            causes.push(invalid("series.count", "should be at least 2"));
        }
        if series.get("lastObservedTime").is_none_or(Value::is_null) {
            causes.push(Cause::required("series.lastObservedTime", ""));
        }
    }
    if meta::text(event, &["eventTime"]).is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = meta::text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(invalid("type", &format!("has invalid value: {kind}")));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if event
            .get(field)
            .is_some_and(|value| !value.is_null() && *value != json!(0))
        {
            causes.push(invalid(field, "needs to be unset"));
        }
    }
    let source = |name| meta::text(event, &["source", name]);
    if !source("component").is_empty() || !source("host").is_empty() {
        causes.push(invalid("source", "needs to be unset"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("", "Event", meta::name(event), causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_the_stored_fields() {
        let body = json!([{"op": "replace", "path": "/note", "value": "n"}, {"op": "test", "path": "/regarding/name"}]);
        let Patch::Json(stored) = patch(Patch::Json(body)) else {
            panic!("another patch")
        };
        assert_eq!(stored[0]["path"], "/message");
        assert_eq!(stored[1]["path"], "/involvedObject/name");
    }

    #[test]
    fn a_selector_names_the_stored_fields() {
        let text = "regarding.name=a,reportingController!=b,type=Normal";
        let expected = "involvedObject.name=a,reportingComponent!=b,type=Normal";
        assert_eq!(field_selector(text), expected);
    }

    #[test]
    fn what_is_shown_is_stored_unchanged() {
        let event = json!({"kind": "Event", "apiVersion": API_VERSION, "note": "n", "regarding": {}, "series": {"count": 2}});
        assert_eq!(outgoing(&incoming(event.clone())), event);
    }
}
