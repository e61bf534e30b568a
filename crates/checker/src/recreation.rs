//! The invariants of re-creating a pod.

use belayer_holds::names::{
    RECREATE_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION, RECREATION_UID_ANNOTATION,
};
use belayer_sandbox::Verb;
use belayer_workload::names;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::history::History;
use super::objects::{Kind, annotation, describe, is_rejected, text, uid};
use super::rule::{Part, Rule, Step, Verdict};
use crate::BELAYERS;

/// The kind of the records.
const RECORD: &str = "PodRecreation";

/// The final phases of a record.
const FINAL: &[&str] = &["Started", "Exhausted", "Ended"];

/// The invariant that [`lost`] also checks at the end.
pub(crate) const NO_LOSS: &str = "NO-LOSS";

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::PodRecreation,
        name: "ONE-POD",
        kept: "pods re-created, one at a time, each attempt reserved",
        check_script: one_pod,
    },
    Rule {
        part: Part::PodRecreation,
        name: NO_LOSS,
        kept: "times a pod was replaced, its spec never lost or changed",
        check_script: no_loss,
    },
    Rule {
        part: Part::PodRecreation,
        name: "RAN-ONCE",
        kept: "pods re-created, none after it had run",
        check_script: ran_once,
    },
];

/// The record of a pod, if it exists.
pub(crate) fn record_of<'a>(history: &'a History, pod: &str) -> Option<&'a Value> {
    records_of(history, pod).find(|record| history.live(uid(record)).is_some())
}

/// The records of a pod, also deleted ones: it is their first pod, the last rejected one, or one of their re-creations.
fn records_of<'a>(history: &'a History, pod: &str) -> impl Iterator<Item = &'a Value> {
    let mark = history
        .object(pod)
        .map_or("", |pod| annotation(pod, RECREATION_UID_ANNOTATION));
    history.all(RECORD).filter(move |record| {
        uid(record) == mark
            || text(record, "/spec/firstUID") == pod
            || text(record, "/status/rejectedUID") == pod
    })
}

/// ONE-POD: a create follows an unused reservation within the budget, no pod of the same record
/// exists, and the pod before was not deleted by another client. A request that is on its way cannot be recalled: a pod that is created
/// late is deleted instead.
fn one_pod(step: &Step<'_>) -> Verdict {
    let Some(pod) = step.created_pod() else {
        return replaced(step);
    };
    if step.write.actor.is_late() {
        return Verdict::NotConcerned;
    }
    let broken = |why: &str| Verdict::Broken(format!("{} was created {why}", describe(pod)));
    let mark = annotation(pod, RECREATION_UID_ANNOTATION);
    let Some(record) = step.history.live(mark) else {
        return match is_cancelled(step.history, pod) {
            true => Verdict::ByHand,
            false => broken("without a record"),
        };
    };
    let number = |pointer| record.pointer(pointer).and_then(Value::as_u64);
    let attempt = annotation(pod, RECREATION_ATTEMPT_ANNOTATION);
    let reserved = number("/status/attempts").unwrap_or_default();
    if attempt.parse() != Ok(reserved) {
        return broken(&format!(
            "as attempt {attempt}, but {reserved} were reserved"
        ));
    }
    if reserved > number("/spec/policy/maxRetries").unwrap_or_default() {
        return broken("beyond its budget");
    }
    let is_of_chain = |other: &&Value| {
        uid(other) != uid(pod)
            && (annotation(other, RECREATION_UID_ANNOTATION) == mark
                || uid(other) == text(record, "/spec/firstUID"))
    };
    if step.history.live_pods().any(|other| is_of_chain(&other)) {
        return broken("while another pod of the same record existed");
    }
    // Its hold keeps the pod of an attempt until it is recorded, unless another client removes the hold.
    let mut chain = step
        .history
        .all("Pod")
        .filter(|other| is_of_chain(other) && !step.history.is_by_hand(other))
        .filter(|other| !step.history.is_created_late(other));
    if chain.any(|other| annotation(other, RECREATION_ATTEMPT_ANNOTATION) == attempt) {
        return broken(&format!("twice as attempt {attempt}"));
    }
    Verdict::Kept
}

/// How long before the intent to replace a pod is written Belayer may have read the pod: one slow request.
const READ_BEFORE: SignedDuration = SignedDuration::from_secs(20);

/// The intent to replace a pod, which its record states before the pod is deleted.
fn replaced(step: &Step<'_>) -> Verdict {
    let intends = |record: &Value| text(record, "/status/phase") == "Deleting";
    let Some(record) = step.after().filter(|record| intends(record)) else {
        return Verdict::NotConcerned;
    };
    if step.kind() != Kind::Record || step.before.is_some_and(intends) || step.write.actor.is_late()
    {
        return Verdict::NotConcerned;
    }
    let pod = text(record, "/status/rejectedUID");
    let deleted = step.history.deleted_by_user_at(pod);
    match (deleted, step.history.object(pod)) {
        (Some(at), Some(pod)) if step.write.at.duration_since(at) > READ_BEFORE => {
            Verdict::Broken(format!(
                "{} is replaced although another client had deleted it",
                describe(pod)
            ))
        }
        _ => Verdict::NotConcerned,
    }
}

/// NO-LOSS: before a pod is deleted, its spec is in a record, which permits another attempt; the next pod
/// has the spec that the user wrote; and no record is deleted before its final phase.
fn no_loss(step: &Step<'_>) -> Verdict {
    if let Some(pod) = step.created_pod() {
        let is_unneeded = step.write.actor.is_late()
            && step
                .history
                .live(annotation(pod, RECREATION_UID_ANNOTATION))
                .is_none();
        return match is_unneeded {
            true => Verdict::NotConcerned,
            false => matches_its_user(step.history, pod),
        };
    }
    let Some(before) = step.before.filter(|_| step.write.changed()) else {
        return Verdict::NotConcerned;
    };
    match (step.kind(), step.write.verb) {
        (Kind::Pod, Verb::Delete) => match record_of(step.history, uid(before)) {
            Some(_) if is_last(step.history, before) => Verdict::Broken(format!(
                "{} was deleted, but its record permits no other attempt",
                describe(before)
            )),
            Some(record)
                if described(step.history, &compared(record, &pod_of(record)), before)
                    == by_user(step.history, &compared(record, before)) =>
            {
                Verdict::Kept
            }
            Some(_) => Verdict::Broken(format!(
                "{} was deleted, but its record describes another pod",
                describe(before)
            )),
            None if is_cancelled(step.history, before) => Verdict::ByHand,
            None if step.history.may_be_cleaned_up(before)
                || step.history.is_created_late(before) =>
            {
                Verdict::NotConcerned
            }
            None if step.history.settings.cleans_up && step.history.is_by_hand(before) => {
                Verdict::ByHand
            }
            None => Verdict::Broken(format!("{} was deleted without a record", describe(before))),
        },
        (Kind::Record, Verb::Delete) => {
            let phase = text(before, "/status/phase");
            // A record without a phase is an intent that nothing has followed. Without its pod nothing ever will.
            let is_unused =
                phase.is_empty() && step.history.live(text(before, "/spec/firstUID")).is_none();
            if FINAL.contains(&phase) || is_unused {
                return Verdict::Kept;
            }
            Verdict::Broken(format!("{} was deleted in phase {phase}", describe(before)))
        }
        _ => Verdict::NotConcerned,
    }
}

/// Whether nothing follows the pod: its user must still see why it was rejected.
fn is_last(history: &History, pod: &Value) -> bool {
    is_used_up(history, pod)
        && !history.may_be_cleaned_up(pod)
        && !history.is_by_hand(pod)
        && !history.is_created_late(pod)
}

fn matches_its_user(history: &History, pod: &Value) -> Verdict {
    let record = history.live(annotation(pod, RECREATION_UID_ANNOTATION));
    let first = record.and_then(|record| history.object(text(record, "/spec/firstUID")));
    let compared = |pod: &Value| record.map_or_else(|| pod.clone(), |record| compared(record, pod));
    match first {
        Some(first)
            if by_user(history, &compared(first)) == described(history, &compared(pod), first) =>
        {
            Verdict::Kept
        }
        Some(_) => Verdict::Broken(format!(
            "{} differs from the pod that its user created",
            describe(pod)
        )),
        None if is_cancelled(history, pod) => Verdict::ByHand,
        None => Verdict::Broken(format!(
            "{}: no record has the spec that its user wrote",
            describe(pod)
        )),
    }
}

/// The pod without what keeps it away from nodes that rejected it or were not wiped.
fn compared(record: &Value, pod: &Value) -> Value {
    let mut pod = pod.clone();
    if record.pointer("/status/avoidNodes").is_some()
        && let Some(spec) = pod["spec"].as_object_mut()
    {
        spec.remove("affinity");
    }
    pod
}

/// The part of a pod that its user wrote. Annotations that others added or changed later describe that pod alone (R2).
fn by_user(history: &History, pod: &Value) -> Value {
    let created = history.created_pod(uid(pod)).unwrap_or(pod);
    let is_first = |name: &str, value: &Value| created["metadata"]["annotations"][name] == *value;
    part(pod, created, is_first)
}

/// The pod that a record describes: a user may have changed its metadata after the record was created.
fn pod_of(record: &Value) -> Value {
    let mut pod = record["spec"]["pod"].clone();
    if let Some(metadata) = record.pointer("/status/podMetadata") {
        pod["metadata"] = metadata.clone();
    }
    pod
}

/// The same part of a record, or of a pod that was created again.
fn described(history: &History, pod: &Value, first: &Value) -> Value {
    let created = history.created_pod(uid(first)).unwrap_or(first);
    part(pod, created, |_, _| true)
}

/// The labels of the created pod, these annotations except Belayer's, and the spec without the node, which the scheduler sets.
fn part(pod: &Value, created: &Value, keeps: impl Fn(&str, &Value) -> bool) -> Value {
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
        .filter(|(name, value)| !name.starts_with(BELAYERS) && keeps(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let labels: Map<String, Value> = pod
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        // A record has those that others added before it was written, and not what Argo says about one pod.
        .filter(|(name, _)| created["metadata"]["labels"].get(name).is_some())
        .filter(|(name, _)| *name != names::COMPLETED)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    serde_json::json!([labels, annotations, spec])
}

/// RAN-ONCE: no earlier pod of the record ran, unless another client removed Belayer's finalizer from it.
fn ran_once(step: &Step<'_>) -> Verdict {
    let Some(pod) = step.created_pod() else {
        return Verdict::NotConcerned;
    };
    let mark = annotation(pod, RECREATION_UID_ANNOTATION);
    if mark.is_empty() || step.write.actor.is_late() {
        return Verdict::NotConcerned;
    }
    let first = step
        .history
        .live(mark)
        .map_or("", |record| text(record, "/spec/firstUID"));
    let mut earlier = step.history.all("Pod").filter(|other| {
        uid(other) == first || annotation(other, RECREATION_UID_ANNOTATION) == mark
    });
    let ran = |other: &Value| {
        step.history.has_run(uid(other)) && !step.history.is_unheld_by_others(other)
    };
    match earlier.find(|other| ran(other)) {
        None => Verdict::Kept,
        Some(_) => Verdict::Broken(format!(
            "{} was created again after it had run",
            describe(pod)
        )),
    }
}

/// NO-LOSS at the end: every pod that requested re-creation and was rejected before it ran has been
/// re-created, or its budget is used up, or its user deleted it.
pub(crate) fn lost(history: &History) -> Vec<String> {
    let wanted = history.all("Pod").filter(|pod| {
        annotation(pod, RECREATE_ANNOTATION) == "true"
            && is_rejected(pod)
            && !history.has_run(uid(pod))
            && !history.was_rejected_late(uid(pod))
            && !history.is_by_hand(pod)
            && !history.was_deleted_by_user(uid(pod))
            && !history.is_owner_deleted(pod)
            && !is_cancelled(history, pod)
            && !is_wipe_overdue(history, pod)
            && !is_denied(history, pod)
            && !is_unneeded(history, pod)
            && !history.was_ever_ignored(pod)
            && !history.is_in_deleted_namespace(pod)
    });
    let mut lost: Vec<String> = wanted
        .filter(|pod| !is_followed(history, pod))
        .map(|pod| format!("{} was rejected and not re-created", describe(pod)))
        .collect();
    lost.sort();
    lost
}

/// Whether no record ever named the pod, which a request created that was given up.
fn is_unneeded(history: &History, pod: &Value) -> bool {
    let names = |record: &Value| {
        ["/status/podUID", "/status/rejectedUID"]
            .iter()
            .any(|pointer| text(record, pointer) == uid(pod))
    };
    history.is_created_late(pod) && !records_of(history, uid(pod)).any(names)
}

/// Whether the pod is of the last attempt that its record permits, or permitted: Belayer may have deleted the record when its time
/// to live was over, before the pod could be released.
pub(crate) fn is_used_up(history: &History, pod: &Value) -> bool {
    let attempt: u64 = annotation(pod, RECREATION_ATTEMPT_ANNOTATION)
        .parse()
        .unwrap_or_default();
    let limit = |record: &Value| record.pointer("/spec/policy/maxRetries")?.as_u64();
    let mut limits = records_of(history, uid(pod)).filter_map(limit);
    limits.any(|limit| attempt >= limit)
}

/// Whether the policy of the pod's record ends the re-creation because the node was not wiped in time.
pub(crate) fn is_wipe_overdue(history: &History, pod: &Value) -> bool {
    records_of(history, uid(pod)).any(|record| is_wipe_of_record_overdue(history, record))
}

fn is_wipe_of_record_overdue(history: &History, record: &Value) -> bool {
    let conditions = record
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    // Both are times of Belayer's clock. After the end of the re-creation a wipe changes nothing.
    let ended = text(record, "/status/finishedAt").parse::<Timestamp>().ok();
    let is_wiped = conditions.any(|one| {
        let since = text(one, "/lastTransitionTime").parse::<Timestamp>().ok();
        one["type"] == "StateWiped"
            && one["status"] == "True"
            && ended.is_none_or(|ended| since < Some(ended))
    });
    let timeout = record
        .pointer("/spec/policy/wipeTimeoutSeconds")
        .and_then(Value::as_i64);
    let created = text(record, "/metadata/creationTimestamp").parse::<Timestamp>();
    let (Some(timeout), Ok(created)) = (timeout, created) else {
        return false;
    };
    text(record, "/spec/policy/onWipeTimeout") == "fail"
        && !is_wiped
        && history.now.duration_since(created) >= SignedDuration::from_secs(timeout)
}

/// How long the API server has to deny a pod before its re-creation ends.
const DENIED: SignedDuration = SignedDuration::from_hours(1);

/// Whether a record of the pod ended after the API server had denied the next pod for long.
pub(crate) fn is_denied(history: &History, pod: &Value) -> bool {
    let is_denied = |record: &Value| {
        let conditions = record
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        // Both are times of Belayer's clock.
        let ended = text(record, "/status/finishedAt").parse::<Timestamp>();
        let mut conditions = conditions.into_iter().flatten();
        ended.is_ok_and(|ended| {
            conditions.any(|one| {
                let since = text(one, "/lastTransitionTime").parse::<Timestamp>();
                one["type"] == "CreateDenied"
                    && one["status"] == "True"
                    && since.is_ok_and(|since| ended.duration_since(since) >= DENIED)
            })
        })
    };
    records_of(history, uid(pod)).any(is_denied)
}

/// Whether another client deleted a record of the pod, which cancels its re-creation.
pub(crate) fn is_cancelled(history: &History, pod: &Value) -> bool {
    records_of(history, uid(pod)).any(|record| history.was_deleted_by_user(uid(record)))
}

/// Whether another pod followed a rejected one, or none may follow.
fn is_followed(history: &History, pod: &Value) -> bool {
    let name = describe(pod);
    if history.live_pods().any(|there| describe(there) == name) {
        return true;
    }
    // The name is taken, for as long as that pod exists.
    let mut others = history.all("Pod").filter(|other| describe(other) == name);
    if others.any(|other| history.is_stranger_after(other, pod)) {
        return true;
    }
    let attempt = |pod: &Value| {
        let number = annotation(pod, RECREATION_ATTEMPT_ANNOTATION);
        number.parse::<u64>().unwrap_or_default()
    };
    records_of(history, uid(pod)).any(|record| {
        // Whoever may change a pod can overwrite its annotations.
        let created = history
            .all("Pod")
            .map(|other| history.created_pod(uid(other)).unwrap_or(other));
        let mut later = created.filter(|other| {
            annotation(other, RECREATION_UID_ANNOTATION) == uid(record)
                && attempt(other) > attempt(pod)
        });
        text(record, "/status/phase") == "Exhausted" || later.next().is_some()
    })
}
