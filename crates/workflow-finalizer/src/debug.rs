//! What workflow-finalizer reports of its finalizers, for `/debug/holds`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::component::WorkflowFinalizer;
use belayer_holds::names;

/// The workflows, of every kind, that wait for their pods.
pub(crate) fn report(kinds: &[Arc<WorkflowFinalizer>]) -> Value {
    kinds.iter().map(|kind| of_kind(kind)).collect()
}

fn of_kind(finalizer: &WorkflowFinalizer) -> Value {
    let census = finalizer.census();
    let counts = census.counts();
    let waiting: Vec<Value> = census
        .waiting()
        .into_iter()
        .map(|(key, workflow)| {
            json!({
                "namespace": key.namespace(),
                "name": key.name(),
                "uid": workflow.uid.as_str(),
                "deletionTimestamp": workflow.deleting.map(|time| time.to_string()),
                "podsRemaining": finalizer.pods_held(&workflow),
            })
        })
        .collect();
    json!({
        "kind": finalizer.rule().kind.to_string(),
        "finalizer": names::WORKFLOW_HOLD,
        "held": counts.held,
        "waiting": counts.waiting,
        "unselected": counts.unselected,
        "unselectedKept": census.kept() > 0,
        "deleting": waiting,
    })
}
