//! What a release waits for: a workflow's pods with holds, a PVC's users.

use belayer_workload::names;
use serde_json::Value;

use super::objects::{
    controller_of, describe, finalizers, holds, is_completed, is_deleting, text, uid, uses,
    workflow_of,
};
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
/// workflow in an ignored namespace. Where workflows are held until they are archived, one is released after that too, unless its
/// namespace is being deleted (A20).
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
    if step.history.settings.until_archived
        && is_to_be_archived(workflow)
        && !step.history.is_in_deleted_namespace(workflow)
    {
        return if step.history.is_by_hand(workflow) {
            Verdict::ByHand
        } else {
            Verdict::Broken(format!("{} was released unarchived", describe(workflow)))
        };
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

fn is_to_be_archived(workflow: &Value) -> bool {
    is_completed(workflow) && workflow["metadata"]["labels"][names::ARCHIVING] == "Pending"
}

fn is_kept_running(workflow: &Value) -> bool {
    let passing = [WORKFLOW_HOLD, "foregroundDeletion", "orphan"];
    is_deleting(workflow)
        && !is_completed(workflow)
        && finalizers(workflow).any(|name| !passing.contains(&name))
}

/// IN-USE. A PVC of a finished workflow is not in use by pods that have ended (A18).
fn in_use(step: &Step<'_>) -> Verdict {
    let (Some(pvc), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if !removed.contains(&PVC_HOLD) {
        return Verdict::NotConcerned;
    }
    let namespace = text(pvc, "/metadata/namespace");
    let name = text(pvc, "/metadata/name");
    let is_over = controller_of(pvc).is_some_and(|owner| step.history.has_finished_lately(owner));
    let user = step
        .history
        .live_pods()
        .find(|pod| uses(pod, namespace, name) && !(is_over && has_ended(pod)));
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

/// A pod that fails while it is being deleted may still run.
fn has_ended(pod: &Value) -> bool {
    match text(pod, "/status/phase") {
        "Succeeded" => true,
        "Failed" => !is_deleting(pod),
        _ => false,
    }
}
