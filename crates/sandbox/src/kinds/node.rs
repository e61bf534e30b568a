//! Nodes: taints, and the form of conditions.

use serde_json::Value;

use super::pod::print_times;
use crate::error::Cause;
use crate::meta;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validation of a new node.
pub(crate) fn prepare_create(node: &mut Value) -> Vec<Cause> {
    settle(node);
    check(node)
}

/// Fields that the server always prints.
pub(crate) fn settle(node: &mut Value) {
    print_times(node, &["lastHeartbeatTime", "lastTransitionTime"]);
}

/// All errors in a node.
pub(crate) fn check(node: &Value) -> Vec<Cause> {
    let taints = meta::at(node, &["spec", "taints"]).and_then(Value::as_array);
    let mut causes = Vec::new();
    for (index, taint) in taints.into_iter().flatten().enumerate() {
        let effect = meta::text(taint, &["effect"]);
        if !EFFECTS.contains(&effect) {
            let path = format!("metadata.taints[{index}].effect");
            causes.push(Cause::not_supported(&path, effect, EFFECTS));
        }
    }
    causes
}
