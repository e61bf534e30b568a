//! What has to be gone before a hold is taken off: a workflow's held pods, a claim's users.

use super::objects::{called, holds, text, uid, uses, workflow_of};
use super::rule::{Part, Rule, Step, Verdict};
use crate::{CLAIM_HOLD, POD_HOLD, WORKFLOW_HOLD};

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::WorkflowFinalizer,
        name: "ORDER",
        kept: "workflows let go, each after the last of its held pods",
        judge: order,
    },
    Rule {
        part: Part::PvcProtection,
        name: "IN-USE",
        kept: "claim let go, when no pod on a node used it any more",
        judge: in_use,
    },
];

/// ORDER. A pod that was held only after the deletion had been asked for may have been created
/// after the look that found none: it goes because its owner does.
fn order(step: &Step<'_>) -> Verdict {
    let (Some(workflow), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if !removed.contains(&WORKFLOW_HOLD) {
        return Verdict::NotConcerned;
    }
    let owner = uid(workflow);
    let held = step.past.live_pods().find(|pod| {
        workflow_of(pod) == Some(owner)
            && holds(pod).any(|hold| hold == POD_HOLD)
            && step.past.was_held_before_deletion(uid(pod), owner)
    });
    match held {
        None => Verdict::Kept,
        Some(pod) => Verdict::Broken(format!(
            "{} was let go while {} was held",
            called(workflow),
            called(pod)
        )),
    }
}

/// IN-USE.
fn in_use(step: &Step<'_>) -> Verdict {
    let (Some(claim), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if !removed.contains(&CLAIM_HOLD) {
        return Verdict::NotConcerned;
    }
    let namespace = text(claim, "/metadata/namespace");
    let name = text(claim, "/metadata/name");
    let user = step.past.live_pods().find(|pod| uses(pod, namespace, name));
    match user {
        None => Verdict::Kept,
        Some(_) if step.past.is_by_hand(claim) => Verdict::ByHand,
        Some(pod) => Verdict::Broken(format!(
            "{} was let go while {} used it",
            called(claim),
            called(pod)
        )),
    }
}
