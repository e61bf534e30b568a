//! The part of `/debug/holds` for workflow-finalizer.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::component::WorkflowFinalizer;
use belayer_holds::names;

/// The workflows of every kind that wait for their pods.
pub(crate) fn report(kinds: &[Arc<WorkflowFinalizer>]) -> Value {
    kinds.iter().map(|kind| of_kind(kind)).collect()
}

fn of_kind(finalizer: &WorkflowFinalizer) -> Value {
    let held_objects = finalizer.held_objects();
    let counts = held_objects.counts();
    let waiting: Vec<Value> = held_objects
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
        "unselectedKept": held_objects.kept() > 0,
        "deleting": waiting,
    })
}
