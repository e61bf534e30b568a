//! The invariants of every single write of Belayer.

use belayer_holds::names::{GATE, RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION};
use belayer_sandbox::{Outcome, Verb};
use serde_json::Value;

use super::objects::{
    Kind, annotation, describe, has_hold, is_deleting, is_final_record, is_rejected, text, uid,
};
use super::recreation;
use super::rule::{Part, Rule, Step, Verdict};
use crate::{BELAYERS, POD_HOLD};

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::AllOfBelayer,
        name: "FOREIGN",
        kept: "writes, none changed anything but Belayer's own finalizers and objects",
        check_script: others,
    },
    Rule {
        part: Part::AllOfBelayer,
        name: "IDENTITY",
        kept: "writes, each with the UID (and version) of its object",
        check_script: identity,
    },
    Rule {
        part: Part::AllOfBelayer,
        name: "NO-LATE-HOLD",
        kept: "holds added, none to an object being deleted",
        check_script: no_late_hold,
    },
    Rule {
        part: Part::AllOfBelayer,
        name: "EVIDENCE",
        kept: "holds removed, each with a reason in the record",
        check_script: evidence,
    },
];

/// FOREIGN, and more than it requires: not only the finalizers, labels and annotations of others are
/// unchanged, but every field except Belayer's own finalizers.
fn others(step: &Step<'_>) -> Verdict {
    if is_own_object(step) {
        return Verdict::NotConcerned;
    }
    let write = step.write;
    let held = matches!(step.kind(), Kind::Pod | Kind::Workflow | Kind::Pvc);
    if !held || write.verb != Verb::Patch || !write.subresource.is_empty() {
        return Verdict::Broken(format!(
            "{}: Belayer must not make this request",
            step.what()
        ));
    }
    let Some(after) = step.after() else {
        return Verdict::NotConcerned;
    };
    let Some(before) = step.before else {
        return Verdict::Broken(format!(
            "{}: of an object that was never created",
            step.what()
        ));
    };
    if without_own_fields(before) == without_own_fields(after) {
        return Verdict::Kept;
    }
    if let Some(adopted) = step.history.adopted(before, write.at)
        && without_own_fields(&without_finalizer(before, adopted)) == without_own_fields(after)
    {
        return Verdict::Kept;
    }
    // Pod-recreation says on a rejected pod why it is not re-created, also in place of what was copied from another pod,
    // but not in place of a user's text.
    let said = annotation(before, RECREATION_ENDED_ANNOTATION);
    if is_rejected(before)
        && (said.is_empty() || said.starts_with("pod ") && !said.contains(uid(before)))
        && without_own_fields(&without_end(before)) == without_own_fields(&without_end(after))
    {
        return Verdict::Kept;
    }
    let list = |object: &Value| {
        object
            .pointer("/metadata/finalizers")
            .cloned()
            .unwrap_or_default()
    };
    Verdict::Broken(format!(
        "{}: changed more than Belayer's finalizers; finalizers {} became {}",
        step.what(),
        list(before),
        list(after)
    ))
}

/// Events, the gate of the admission policies, PodRecreation and PodOutcome records; and pods that such a
/// record is about, which the invariants of pod-recreation cover.
fn is_own_object(step: &Step<'_>) -> bool {
    let write = step.write;
    let is_gate = write.resource.resource == "gates" && &*write.key.name == GATE;
    // Node agents write its status.
    let is_wipe = write.resource.resource == "nodewipes" && write.subresource.is_empty();
    match (step.kind(), write.verb) {
        (Kind::Other, Verb::Create) => {
            is_gate || is_wipe || ["events", "podoutcomes"].contains(&&*write.resource.resource)
        }
        (Kind::Other, Verb::Patch) => is_gate || is_wipe,
        // A pod that was released before it ended may get another record once it has.
        (Kind::Other, Verb::Delete) => {
            let is_final = step.before.is_none_or(is_final_record);
            write.resource.resource == "podoutcomes" && !(is_final && write.changed())
        }
        (Kind::Record, _) => true,
        (Kind::Pod, Verb::Create) => {
            let pod = write.object.as_deref().or(write.body.as_deref());
            // A refused create has no effect.
            pod.is_none_or(|pod| !annotation(pod, RECREATION_UID_ANNOTATION).is_empty())
        }
        (Kind::Pod, Verb::Delete) => step.before.is_none_or(|pod| {
            recreation::record_of(step.history, uid(pod)).is_some()
                || recreation::is_cancelled(step.history, pod)
                || step.history.is_created_late(pod)
                || step.history.may_be_cleaned_up(pod)
                || step.history.settings.cleans_up && step.history.is_by_hand(pod)
        }),
        _ => false,
    }
}

fn without_end(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let annotations = pod.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(RECREATION_ENDED_ANNOTATION);
    }
    pod
}

fn without_finalizer(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    if let Some(Value::Array(finalizers)) = object.pointer_mut("/metadata/finalizers") {
        finalizers.retain(|finalizer| finalizer != name);
    }
    object
}

/// An object without Belayer's finalizers and the server's counters.
fn without_own_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
            let belayers =
                |name: &Value| name.as_str().is_some_and(|name| name.starts_with(BELAYERS));
            finalizers.retain(|finalizer| !belayers(finalizer));
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }
    object
}

/// IDENTITY: every patch has the UID and version of its object, every delete the UID; and the write
/// reached that object.
fn identity(step: &Step<'_>) -> Verdict {
    let named = |pointer| {
        let body = step.write.body.as_deref();
        body.map_or("", |body| text(body, pointer))
    };
    let (uid, sure) = match (step.kind(), step.write.verb) {
        (Kind::Other, _) => return Verdict::NotConcerned,
        (_, Verb::Patch) => {
            let version = named("/metadata/resourceVersion");
            (named("/metadata/uid"), !version.is_empty())
        }
        (_, Verb::Delete) => (named("/preconditions/uid"), true),
        _ => return Verdict::NotConcerned,
    };
    if uid.is_empty() || !sure {
        return Verdict::Broken(format!("{}: has no UID or no version", step.what()));
    }
    let refused = matches!(step.write.outcome, Outcome::Refused(_));
    if refused || uid == step.write.uid {
        return Verdict::Kept;
    }
    Verdict::Broken(format!(
        "{}: intended for {uid}, but reached {}",
        step.what(),
        step.write.uid
    ))
}

/// NO-LATE-HOLD: neither done nor tried with the right version, which the server refuses with 422.
fn no_late_hold(step: &Step<'_>) -> Verdict {
    let tried = step.write.body.as_deref().is_some_and(has_hold);
    if step.write.outcome == Outcome::Refused(422) && tried {
        return Verdict::Broken(format!("{}: refused by the server as invalid", step.what()));
    }
    match step.before {
        _ if step.added().is_empty() => Verdict::NotConcerned,
        Some(object) if is_deleting(object) => Verdict::Broken(format!(
            "{} got a hold while it was being deleted",
            describe(object)
        )),
        _ => Verdict::Kept,
    }
}

/// EVIDENCE: when a hold was removed, the record contained a reason.
fn evidence(step: &Step<'_>) -> Verdict {
    let (Some(object), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if removed.is_empty() {
        return Verdict::NotConcerned;
    }
    let too_early =
        removed.contains(&POD_HOLD) && step.history.was_released_too_early(object, step.write.at);
    let without = removed
        .into_iter()
        .find(|hold| step.history.release_reason(object, hold).is_none());
    match without {
        None if too_early && step.history.is_by_hand(object) => Verdict::ByHand,
        None if too_early => Verdict::Broken(format!(
            "{} was released before nodeLostDelay or releaseAfter was over",
            describe(object)
        )),
        None => Verdict::Kept,
        Some(_) if step.history.is_by_hand(object) => Verdict::ByHand,
        Some(hold) => Verdict::Broken(format!(
            "{} lost {hold} without a reason in the record",
            describe(object)
        )),
    }
}
