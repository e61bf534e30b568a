//! What a release waits for: a workflow's pods with holds, a PVC's users.

use serde_json::Value;

use super::objects::{describe, finalizers, holds, is_deleting, text, uid, uses, workflow_of};
use super::rule::{Part, Rule, Step, Verdict};
use crate::{POD_HOLD, PVC_HOLD, WORKFLOW_HOLD};

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::WorkflowFinalizer,
        name: "ORDER",
        kept: "workflows released, each after the last of its pods with a hold",
        check_script: order,
    },
    Rule {
        part: Part::PvcProtection,
        name: "IN-USE",
        kept: "PVC(s) released, none while a pod on a node used it",
        check_script: in_use,
    },
];

/// ORDER. A pod that got its hold only after the workflow's deletion may have been created after the
/// live read that found none: its owner's deletion releases it. An unfinished workflow with a finalizer of another
/// program goes on running after its deletion, and its pods stay held: its own hold protects nothing (A16). Nor does that of a
/// workflow in an ignored namespace.
fn order(step: &Step<'_>) -> Verdict {
    let (Some(workflow), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if !removed.contains(&WORKFLOW_HOLD) {
        return Verdict::NotConcerned;
    }
    if is_kept_running(workflow) || step.history.is_ignored(workflow) {
        return Verdict::Kept;
    }
    let owner = uid(workflow);
    let held = step.history.live_pods().find(|pod| {
        workflow_of(pod) == Some(owner)
            && holds(pod).any(|hold| hold == POD_HOLD)
            && step.history.had_hold_before_deletion(uid(pod), owner)
    });
    match held {
        None => Verdict::Kept,
        Some(pod) => Verdict::Broken(format!(
            "{} was released while {} had a hold",
            describe(workflow),
            describe(pod)
        )),
    }
}

fn is_kept_running(workflow: &Value) -> bool {
    let passing = [WORKFLOW_HOLD, "foregroundDeletion", "orphan"];
    let completed = &workflow["metadata"]["labels"]["workflows.argoproj.io/completed"];
    is_deleting(workflow)
        && completed != "true"
        && finalizers(workflow).any(|name| !passing.contains(&name))
}

/// IN-USE.
fn in_use(step: &Step<'_>) -> Verdict {
    let (Some(pvc), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if !removed.contains(&PVC_HOLD) {
        return Verdict::NotConcerned;
    }
    let namespace = text(pvc, "/metadata/namespace");
    let name = text(pvc, "/metadata/name");
    let user = step
        .history
        .live_pods()
        .find(|pod| uses(pod, namespace, name));
    match user {
        None => Verdict::Kept,
        Some(_) if step.history.is_by_hand(pvc) => Verdict::ByHand,
        Some(pod) => Verdict::Broken(format!(
            "{} was released while {} used it",
            describe(pvc),
            describe(pod)
        )),
    }
}
