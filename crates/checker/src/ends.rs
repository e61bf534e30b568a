//! What has to be true at the end.

use std::sync::Arc;

use belayer_sandbox::Write;
use serde_json::Value;

use super::objects::{called, holds, is_deleting, text, uid, workflow_of};
use super::past::Past;
use super::reasons::Node;
use super::rule::Part;
use super::{BELAYER, Check, Evidence, Findings};

/// The promise of which no writes at all are seen when all is well.
pub(crate) const QUIET: &str = "QUIET";

/// No pod that was held vanished before its result was taken, unless its workflow or namespace
/// was to go with it.
pub(crate) fn results(findings: &mut Findings, past: &Past) -> Check {
    let mut broken = Vec::new();
    findings.workflows = past.all("Workflow").count();
    findings.pods = past.all("Pod").count();
    for pod in past.all("Pod").filter(|pod| workflow_of(pod).is_some()) {
        match past.node_of(pod) {
            Node::Taken => findings.taken += 1,
            Node::Open => {}
            // Nobody waits for the result of what is deleted as a whole.
            Node::Lost if past.why_nobody_waits(pod).is_some() => {}
            Node::Lost if past.is_by_hand(pod) => findings.by_hand += 1,
            Node::Lost if past.was_held(uid(pod)) => {
                broken.push(format!("{} was held, and its result is lost", called(pod)));
            }
            Node::Lost => findings.never_held += 1,
        }
    }
    let unfinished = past.all("Workflow").filter(|workflow| {
        text(workflow, "/status/finishedAt").is_empty()
            && !past.is_doomed(workflow)
            && !past.is_by_hand(workflow)
    });
    broken.extend(unfinished.map(|workflow| format!("{} has not finished", called(workflow))));
    broken.sort();
    Check {
        part: Part::PodFinalizer,
        name: "RESULTS",
        seen: findings.taken,
        kept: "results taken, none lost of a pod that was held".to_owned(),
        broken,
    }
}

/// Nothing is left hanging.
pub(crate) fn liveness(findings: &mut Findings, past: &Past, left: &[Arc<Value>]) -> Check {
    let mut broken = Vec::new();
    for object in left {
        // A workflow or claim is let go when it is deleted, and then it hangs or does not.
        let why = holds(object).find_map(|hold| past.why_may_go(object, hold));
        let how = match (is_deleting(object), why) {
            (false, None) => continue,
            (_, Some(why)) => format!("{} is still held: {}", called(object), why.as_str()),
            (true, None) => format!("{} is still Terminating", called(object)),
        };
        if past.is_by_hand(object) {
            findings.by_hand += 1;
        } else {
            broken.push(how);
        }
    }
    Check {
        part: Part::Everybody,
        name: "LIVENESS",
        seen: left.len(),
        kept: "objects left, none Terminating, none held that may go".to_owned(),
        broken,
    }
}

/// Belayer writes nothing in a settled cluster.
pub(crate) fn quiet(evidence: &Evidence<'_>) -> Check {
    let mut broken: Vec<String> = evidence
        .written_in_quiet
        .iter()
        .filter(|write| write.actor.as_str() == BELAYER)
        .map(Write::summary)
        .collect();
    let seconds = evidence.quiet.as_secs_f64();
    if evidence.quiet.is_zero() {
        broken.push("there was no quiet time to look at".to_owned());
    }
    Check {
        part: Part::Everybody,
        name: QUIET,
        seen: 0,
        kept: format!("writes in {seconds:.1} s once all had settled"),
        broken,
    }
}
