//! Reads the fields of JSON objects that the checks need.

use belayer_sandbox::{Gvr, Verb, Write};
use belayer_workload::{WORKFLOWS, names};
use serde_json::Value;

use crate::BELAYERS;

/// Marks the record of a pod that had not ended.
const NOT_FINAL_LABEL: &str = "belayer.dev/not-final";

/// Prefix of the message of a pod that its node rejected.
const REJECTED: &str = "Pod was rejected";

/// The kinds that invariants are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    Workflow,
    Pvc,
    /// A PodRecreation record.
    Record,
    Other,
}

impl Kind {
    pub(crate) fn of(gvr: &Gvr) -> Self {
        match gvr {
            gvr if *gvr == Gvr::PODS => Self::Pod,
            gvr if *gvr == WORKFLOWS => Self::Workflow,
            gvr if *gvr == Gvr::PERSISTENTVOLUMECLAIMS => Self::Pvc,
            gvr if gvr.group == "belayer.dev" && gvr.resource == "podrecreations" => Self::Record,
            _ => Self::Other,
        }
    }
}

/// The exit code of the main container of a workflow's pod, if it has exited.
pub(crate) fn main_exit_code(pod: &Value) -> Option<i64> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let main = statuses.iter().find(|status| status["name"] == "main")?;
    main.pointer("/state/terminated/exitCode")?.as_i64()
}

/// Whether the write removed the object.
pub(crate) fn is_removal(write: &Write) -> bool {
    let Some(object) = write.object.as_deref().filter(|_| write.changed()) else {
        return false;
    };
    let deletes = matches!(write.verb, Verb::Delete | Verb::DeleteCollection);
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    let waits = grace.is_some_and(|grace| *grace != 0);
    (deletes || is_deleting(object)) && !waits && finalizers(object).next().is_none()
}

/// Its finalizers, in their order.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let all = object.pointer("/metadata/finalizers");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str)
}

/// Its finalizers that are Belayer's.
pub(crate) fn holds(object: &Value) -> impl Iterator<Item = &str> {
    finalizers(object).filter(|name| name.starts_with(BELAYERS))
}

/// Whether it has a hold of Belayer's.
pub(crate) fn has_hold(object: &Value) -> bool {
    holds(object).next().is_some()
}

/// Whether it is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether its node rejected this pod.
pub(crate) fn is_rejected(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Failed" && text(pod, "/status/message").starts_with(REJECTED)
}

/// Whether this record of an outcome is of a pod that had ended.
pub(crate) fn is_final_record(record: &Value) -> bool {
    let labels = record.pointer("/metadata/labels");
    labels.is_none_or(|labels| labels[NOT_FINAL_LABEL].is_null())
}

/// Whether this state of a pod proves that a container ran.
pub(crate) fn shows_a_run(pod: &Value) -> bool {
    let all = pod.pointer("/status/containerStatuses");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let ran = |status: &Value| {
        status.pointer("/state/running").is_some()
            || !text(status, "/state/terminated/startedAt").is_empty()
    };
    matches!(text(pod, "/status/phase"), "Running" | "Succeeded") || all.into_iter().any(ran)
}

/// The UID of the workflow that controls a pod.
pub(crate) fn workflow_of(pod: &Value) -> Option<&str> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let workflow = |owner: &&Value| owner["kind"] == "Workflow" && owner["controller"] == true;
    owners.iter().find(workflow)?["uid"].as_str()
}

/// Whether the label of this workflow says that it has completed.
pub(crate) fn is_completed(workflow: &Value) -> bool {
    workflow["metadata"]["labels"][names::COMPLETED] == "true"
}

/// The UID of the controller owner.
pub(crate) fn controller_of(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str()
}

/// Whether a pod is bound to a node and refers to the PVC of this name.
pub(crate) fn uses(pod: &Value, namespace: &str, pvc: &str) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    text(pod, "/metadata/namespace") == namespace
        && !text(pod, "/spec/nodeName").is_empty()
        && volumes
            .into_iter()
            .flatten()
            .any(|volume| text(volume, "/persistentVolumeClaim/claimName") == pvc)
}

/// An annotation; empty if there is none.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let all = object.pointer("/metadata/annotations");
    all.and_then(|all| all.get(name)?.as_str())
        .unwrap_or_default()
}

/// `Pod ci/web-0`.
pub(crate) fn describe(object: &Value) -> String {
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name}", text(object, "/kind"))
}

/// The UID.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The state of one pod in its workflow's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// Its result was consumed.
    Taken,
    /// It has a final phase, but Argo still waits for its outputs.
    Unsynced,
    /// It was removed before that.
    Lost,
    /// Nothing final.
    Open,
}
