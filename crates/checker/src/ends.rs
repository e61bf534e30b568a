//! Checks of the final state.

use std::collections::HashSet;
use std::sync::Arc;

use belayer_holds::names::RELEASE_ANNOTATION;
use belayer_sandbox::Write;
use belayer_workload::names;
use serde_json::Value;

use super::history::History;
use super::objects::{
    Node, annotation, describe, holds, is_deleting, is_rejected, text, uid, workflow_of,
};
use super::reasons::Why;
use super::rule::Part;
use super::{BELAYER, Check, Evidence, Findings, POD_HOLD};

/// The one check that is fulfilled when it sees no writes at all.
pub(crate) const QUIET: &str = "QUIET";

/// No pod with a hold was removed before its result was consumed, unless its workflow or namespace
/// was deleted too.
pub(crate) fn results(findings: &mut Findings, history: &History) -> Check {
    let mut broken = Vec::new();
    findings.workflows = history.all("Workflow").count();
    findings.pods = history.all("Pod").count();
    for pod in history.all("Pod").filter(|pod| workflow_of(pod).is_some()) {
        match history.node_of(pod) {
            Node::Taken => findings.taken += 1,
            Node::Open | Node::Unsynced => {}
            // The result is not needed when the workflow or namespace is deleted.
            Node::Lost if history.release_reason(pod, POD_HOLD).is_some() => {}
            // A node that was destroyed takes the results of its pods with it.
            Node::Lost if history.is_lost_with_node(pod) => {}
            Node::Lost if history.was_released_without_result(pod) => {}
            Node::Lost if history.is_by_hand(pod) => findings.by_hand += 1,
            Node::Lost if history.had_hold(uid(pod)) => {
                broken.push(format!(
                    "{} had a hold, but its result is lost",
                    describe(pod)
                ));
            }
            Node::Lost => findings.never_held += 1,
        }
    }
    let unfinished = history.all("Workflow").filter(|workflow| {
        text(workflow, "/status/finishedAt").is_empty()
            && !history.is_deleted_or_in_deleted_namespace(workflow)
            && !history.is_by_hand(workflow)
            && !history.waits_for_outputs(workflow)
            && !has_hidden_pod(history, workflow)
    });
    broken.extend(unfinished.map(|workflow| format!("{} has not finished", describe(workflow))));
    broken.sort();
    Check {
        part: Part::PodFinalizer,
        name: "RESULTS",
        seen: findings.taken,
        kept: "results consumed, none lost of a pod with a hold".to_owned(),
        broken,
    }
}

/// Whether a pod of the workflow was created with the label of pods that Argo does not read any more, as a user's copy is.
fn has_hidden_pod(history: &History, workflow: &Value) -> bool {
    let pods = history.all("Pod");
    let mut created = pods.filter_map(|pod| history.created_pod(uid(pod)));
    created.any(|pod| {
        workflow_of(pod) == Some(uid(workflow))
            && pod["metadata"]["labels"][names::COMPLETED] == "true"
    })
}

/// Nothing is stuck at the end.
pub(crate) fn liveness(findings: &mut Findings, history: &History, left: &[Arc<Value>]) -> Check {
    let (broken, by_hand) = stuck(history, left.iter());
    findings.by_hand += by_hand;
    Check {
        part: Part::AllOfBelayer,
        name: "LIVENESS",
        seen: left.len(),
        kept: "objects left, none Terminating, none with a hold that may be released".to_owned(),
        broken,
    }
}

/// Nothing that was created while nothing failed is stuck. Older objects may wait until a refused request is repeated.
pub(crate) fn prompt(history: &History, left: &[Arc<Value>], from: usize) -> Check {
    let is_new = |object: &&Arc<Value>| history.is_created_from(uid(object), from);
    let new: Vec<_> = left.iter().filter(is_new).collect();
    let seen = new.len();
    Check {
        part: Part::AllOfBelayer,
        name: "PROMPT",
        seen,
        kept: "objects left that were created while nothing failed, none waits".to_owned(),
        broken: stuck(history, new.into_iter()).0,
    }
}

/// What is Terminating or has a hold that may be released, and how many more objects users have changed by hand.
fn stuck<'a>(
    history: &History,
    left: impl Iterator<Item = &'a Arc<Value>>,
) -> (Vec<String>, usize) {
    let (mut broken, mut by_hand) = (Vec::new(), 0);
    let is_held_for_argo = history.settings.holds_deleted || history.settings.adopts.is_some();
    for object in left {
        // Only a deleted workflow or PVC is released, so only such a one can be stuck.
        let why = holds(object).find_map(|hold| history.release_reason(object, hold));
        let how = match (is_deleting(object), why) {
            // The release of a pod that a user requested says nothing about its result.
            (false, None)
                if history.may_be_cleaned_up(object)
                    && annotation(object, RELEASE_ANNOTATION) != "true" =>
            {
                format!(
                    "{} is not deleted although its annotation requires it",
                    describe(object)
                )
            }
            (false, None) => continue,
            // Argo waits for its outputs for ever. Only versions of the pod that a restart may have missed prove that it
            // never ran: kubelets that restart also reject pods that have run.
            (_, Some(Why::EndedByDeletion))
                if is_rejected(object) && history.node_of(object) == Node::Unsynced =>
            {
                continue;
            }
            (_, Some(why)) => format!(
                "{} still has a hold although it may be released: {}",
                describe(object),
                why.as_str()
            ),
            // Argo waits for its outputs for ever, and then so does what is held for Argo.
            (true, None) if is_held_for_argo && history.node_of(object) == Node::Unsynced => {
                continue;
            }
            (true, None) => format!("{} is still Terminating", describe(object)),
        };
        if history.is_by_hand(object) {
            by_hand += 1;
        } else {
            broken.push(how);
        }
    }
    (broken, by_hand)
}

/// Workflows, their pods that ran, and PVCs that were created while nothing failed had a hold.
pub(crate) fn held(history: &History, from: usize) -> Check {
    let kinds = ["Workflow", "Pod", "PersistentVolumeClaim"];
    let created: Vec<_> = kinds
        .into_iter()
        .flat_map(|kind| history.all(kind))
        .filter(|object| history.is_created_from(uid(object), from))
        .filter(|object| match text(object, "/kind") {
            "Pod" => {
                let owner = workflow_of(object);
                history.has_run(uid(object))
                    && (owner.is_some_and(|owner| history.is_created_from(owner, from))
                        || history.is_read_by_record(object))
            }
            _ => true,
        })
        .filter(|object| !history.is_in_deleted_namespace(object))
        .collect();
    let unheld = created
        .iter()
        .filter(|object| !history.had_hold(uid(object)));
    let mut broken: Vec<String> = unheld
        .map(|object| format!("{} had no hold although nothing failed", describe(object)))
        .collect();
    broken.sort();
    Check {
        part: Part::AllOfBelayer,
        name: "HELD",
        seen: created.len(),
        kept: "objects created while nothing failed, each held".to_owned(),
        broken,
    }
}

/// Records of outcomes say how their pods ended, and every pod that ended while nothing failed and was released has one.
pub(crate) fn recorded(history: &History, from: usize) -> Check {
    let mut broken = Vec::new();
    let mut has_record = HashSet::new();
    for record in history.all("PodOutcome") {
        let pod = text(record, "/spec/podUID");
        has_record.insert(pod);
        let Some(pod) = history.object(pod) else {
            broken.push(format!("{} is of no pod", describe(record)));
            continue;
        };
        let (recorded, phase) = (text(record, "/spec/phase"), text(pod, "/status/phase"));
        if record["spec"]["complete"] == true && recorded != phase {
            broken.push(format!(
                "{} is {phase}, its record says {recorded}",
                describe(pod)
            ));
        }
    }
    let ended = history.all("Pod").filter(|pod| {
        history.is_created_from(uid(pod), from)
            && (history.settings.captures || history.is_read_by_record(pod))
            && history.had_hold(uid(pod))
            && holds(pod).all(|hold| hold != POD_HOLD)
            && matches!(
                history.release_reason(pod, POD_HOLD),
                Some(Why::ResultConsumed | Why::OutcomeRecorded)
            )
            && !history.is_by_hand(pod)
    });
    let unrecorded = ended.filter(|pod| !has_record.contains(uid(pod)));
    broken.extend(unrecorded.map(|pod| format!("{} was released without a record", describe(pod))));
    broken.sort();
    Check {
        part: Part::PodFinalizer,
        name: "OUTCOMES",
        seen: has_record.len(),
        kept: "outcomes recorded, each as its pod ended".to_owned(),
        broken,
    }
}

/// Belayer writes nothing in a settled cluster.
pub(crate) fn quiet(evidence: &Evidence<'_>) -> Check {
    let mut broken: Vec<String> = evidence
        .written_in_quiet
        .iter()
        .filter(|write| write.actor.program() == BELAYER)
        .map(Write::summary)
        .collect();
    let seconds = evidence.quiet.as_secs_f64();
    if evidence.quiet.is_zero() {
        broken.push("no quiet period was recorded".to_owned());
    }
    Check {
        part: Part::AllOfBelayer,
        name: QUIET,
        seen: 0,
        kept: format!("writes in {seconds:.1} s in the settled cluster"),
        broken,
    }
}
