//! What the simulated controller knows about one workflow.

use std::collections::BTreeMap;
use std::sync::Arc;

use belayer_sandbox::simulated::object;
use serde_json::Value;
use tokio::time::Instant;

use crate::model::TaskResults;
use crate::names;

pub(super) type Uid = Arc<str>;

/// One workflow, as the controller knows it.
pub(super) struct Flow {
    pub(super) object: Arc<Value>,
    pub(super) pods: BTreeMap<Uid, Arc<Value>>,
    pub(super) results: TaskResults,
    /// When pods ended whose result is not in the workflow yet.
    pub(super) ended: BTreeMap<Uid, Instant>,
}

impl Flow {
    pub(super) fn new(object: Arc<Value>) -> Self {
        Self {
            object,
            pods: BTreeMap::new(),
            results: TaskResults::default(),
            ended: BTreeMap::new(),
        }
    }

    /// Whether the result of a pod is in the workflow.
    pub(super) fn has_result_of(&self, pod: &Value) -> bool {
        let id = object::annotation(pod, names::NODE_ID).unwrap_or_default();
        let nodes = self.object.pointer("/status/nodes");
        nodes.and_then(|nodes| nodes.get(id)).is_some_and(is_result)
    }
}

/// Whether a node of a workflow has its final phase and its outputs.
pub(super) fn is_result(node: &Value) -> bool {
    let is_final = matches!(
        object::text(node, "/phase"),
        Some("Succeeded" | "Failed" | "Error")
    );
    is_final && node["taskResultSynced"] != false
}

/// The changes of a pod that make the controller look at its workflow; changes of finalizers are none.
pub(super) fn is_significant(old: &Value, new: &Value) -> bool {
    let fields = [
        "/status",
        "/spec/nodeName",
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/deletionTimestamp",
    ];
    fields
        .iter()
        .any(|field| old.pointer(field) != new.pointer(field))
}

pub(super) fn name_of(object: &Value) -> (String, String) {
    let namespace = object::namespace(object).unwrap_or_default();
    (namespace.to_owned(), object::name(object).to_owned())
}

/// The UID of the workflow that controls the pod.
pub(super) fn workflow_of(pod: &Value) -> Option<Uid> {
    object::items(pod, "/metadata/ownerReferences")
        .iter()
        .find(|owner| {
            object::text(owner, "/kind") == Some("Workflow")
                && owner.get("controller") == Some(&Value::Bool(true))
        })
        .and_then(|owner| object::text(owner, "/uid"))
        .map(Uid::from)
}
