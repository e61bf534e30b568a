//! What re-creating a pod has to obey.

use belayer_holds::names::{
    RECREATE_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION, RECREATION_UID_ANNOTATION,
};
use belayer_sandbox::Verb;
use serde_json::{Map, Value};

use super::objects::{Kind, annotation, called, is_rejected, text, uid};
use super::past::Past;
use super::rule::{Part, Rule, Step, Verdict};
use crate::OURS;

/// The kind of the records.
const RECORD: &str = "PodRecreation";

/// A record in one of these phases is done with.
const FINAL: &[&str] = &["Started", "Exhausted", "Ended"];

/// The promise that is also judged at the end, by [`lost`].
pub(crate) const NO_LOSS: &str = "NO-LOSS";

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::PodRecreation,
        name: "ONE-POD",
        kept: "pods re-created, one at a time, each attempt reserved",
        judge: one_pod,
    },
    Rule {
        part: Part::PodRecreation,
        name: NO_LOSS,
        kept: "times a pod's spec changed hands, never lost or changed",
        judge: no_loss,
    },
    Rule {
        part: Part::PodRecreation,
        name: "RAN-ONCE",
        kept: "pods re-created, none after it had run",
        judge: ran_once,
    },
];

/// The record that is about a pod: its first, the one that was rejected last, or one of its own.
pub(crate) fn record_of<'a>(past: &'a Past, pod: &str) -> Option<&'a Value> {
    let marked = past
        .object(pod)
        .map_or("", |pod| annotation(pod, RECREATION_UID_ANNOTATION));
    past.all(RECORD)
        .filter(|record| past.live(uid(record)).is_some())
        .find(|record| {
            text(record, "/spec/firstUID") == pod
                || text(record, "/status/rejectedUID") == pod
                || uid(record) == marked
        })
}

/// ONE-POD: a create follows a reservation within the budget that nobody used before, and no pod
/// of the chain is there.
fn one_pod(step: &Step<'_>) -> Verdict {
    let Some(pod) = step.created_pod() else {
        return Verdict::NotConcerned;
    };
    let broken = |why: &str| Verdict::Broken(format!("{} was created {why}", called(pod)));
    let mark = annotation(pod, RECREATION_UID_ANNOTATION);
    let Some(record) = step.past.live(mark) else {
        return broken("without a record");
    };
    let number = |pointer| record.pointer(pointer).and_then(Value::as_u64);
    let attempt = annotation(pod, RECREATION_ATTEMPT_ANNOTATION);
    let reserved = number("/status/attempts").unwrap_or_default();
    if attempt.parse() != Ok(reserved) {
        return broken(&format!("as attempt {attempt}, {reserved} were reserved"));
    }
    if reserved > number("/spec/policy/maxRetries").unwrap_or_default() {
        return broken("beyond its budget");
    }
    let is_of_chain = |other: &&Value| {
        uid(other) != uid(pod)
            && (annotation(other, RECREATION_UID_ANNOTATION) == mark
                || uid(other) == text(record, "/spec/firstUID"))
    };
    if step.past.live_pods().any(|other| is_of_chain(&other)) {
        return broken("while another of its chain was there");
    }
    let mut chain = step.past.all("Pod").filter(is_of_chain);
    if chain.any(|other| annotation(other, RECREATION_ATTEMPT_ANNOTATION) == attempt) {
        return broken(&format!("twice as attempt {attempt}"));
    }
    Verdict::Kept
}

/// NO-LOSS: before a pod is deleted its spec stands in a record, the next pod is what the user
/// wrote, and no record goes before its end.
fn no_loss(step: &Step<'_>) -> Verdict {
    if let Some(pod) = step.created_pod() {
        return as_its_user_wrote_it(step.past, pod);
    }
    let Some(before) = step.before.filter(|_| step.write.changed()) else {
        return Verdict::NotConcerned;
    };
    match (step.kind(), step.write.verb) {
        (Kind::Pod, Verb::Delete) => match record_of(step.past, uid(before)) {
            Some(record) if wish(&record["spec"]["pod"]) == wish(before) => Verdict::Kept,
            Some(_) => Verdict::Broken(format!(
                "{} was deleted, and its record describes another pod",
                called(before)
            )),
            None => Verdict::Broken(format!("{} was deleted without a record", called(before))),
        },
        (Kind::Record, Verb::Delete) => {
            let phase = text(before, "/status/phase");
            if FINAL.contains(&phase) {
                return Verdict::Kept;
            }
            Verdict::Broken(format!("{} was deleted in phase {phase}", called(before)))
        }
        _ => Verdict::NotConcerned,
    }
}

fn as_its_user_wrote_it(past: &Past, pod: &Value) -> Verdict {
    let first = past
        .live(annotation(pod, RECREATION_UID_ANNOTATION))
        .and_then(|record| past.object(text(record, "/spec/firstUID")));
    match first {
        Some(first) if wish(first) == wish(pod) => Verdict::Kept,
        Some(_) => Verdict::Broken(format!("{} is not what its user wrote", called(pod))),
        None => Verdict::Broken(format!("{}: nobody knows what its user wrote", called(pod))),
    }
}

/// What the user of a pod wrote, of a pod or of its record: labels, annotations but for ours, and
/// the spec without the node, which the scheduler wrote.
fn wish(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        for written_by_others in ["nodeName", "priority", "preemptionPolicy", "tolerations"] {
            spec.remove(written_by_others);
        }
    }
    let annotations: Map<String, Value> = pod
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.starts_with(OURS))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let labels = pod.pointer("/metadata/labels").cloned();
    serde_json::json!([labels, annotations, spec])
}

/// RAN-ONCE: nothing of any earlier pod of the chain ran.
fn ran_once(step: &Step<'_>) -> Verdict {
    let Some(pod) = step.created_pod() else {
        return Verdict::NotConcerned;
    };
    let mark = annotation(pod, RECREATION_UID_ANNOTATION);
    if mark.is_empty() {
        return Verdict::NotConcerned;
    }
    let first = step
        .past
        .live(mark)
        .map_or("", |record| text(record, "/spec/firstUID"));
    let mut earlier = step.past.all("Pod").filter(|other| {
        uid(other) == first || annotation(other, RECREATION_UID_ANNOTATION) == mark
    });
    match earlier.find(|other| step.past.has_run(uid(other))) {
        None => Verdict::Kept,
        Some(_) => Verdict::Broken(format!(
            "{} was created again after it had run",
            called(pod)
        )),
    }
}

/// NO-LOSS at the end: whoever asked to come back and was rejected before anything of it ran is
/// there, or its budget is used up.
pub(crate) fn lost(past: &Past) -> Vec<String> {
    let wanted = past.all("Pod").filter(|pod| {
        annotation(pod, RECREATE_ANNOTATION) == "true"
            && is_rejected(pod)
            && !past.has_run(uid(pod))
            && !past.is_by_hand(pod)
            && !past.is_namespace_going(text(pod, "/metadata/namespace"))
    });
    let name = |pod: &Value| called(pod);
    wanted
        .filter(|pod| !past.live_pods().any(|there| name(there) == name(pod)))
        .map(|pod| format!("{} was rejected, and is not back", called(pod)))
        .collect()
}
