//! What every single write of Belayer has to obey.

use belayer_holds::names::{GATE_CONFIG_MAP, RECREATION_UID_ANNOTATION};
use belayer_sandbox::{Outcome, Verb};
use serde_json::Value;

use super::objects::{Kind, annotation, called, is_deleting, is_held, text, uid};
use super::recreation;
use super::rule::{Part, Rule, Step, Verdict};
use crate::OURS;

pub(crate) const RULES: &[Rule] = &[
    Rule {
        part: Part::Everybody,
        name: "FOREIGN",
        kept: "writes, which changed nothing but what is ours",
        judge: foreign,
    },
    Rule {
        part: Part::Everybody,
        name: "IDENTITY",
        kept: "writes named the uid (and version) they were meant for",
        judge: identity,
    },
    Rule {
        part: Part::Everybody,
        name: "NO-LATE-HOLD",
        kept: "holds added, none to what was being deleted",
        judge: no_late_hold,
    },
    Rule {
        part: Part::Everybody,
        name: "EVIDENCE",
        kept: "holds taken off, each with a reason in the record",
        judge: evidence,
    },
];

/// FOREIGN, and more than it asks for: not only foreign finalizers, labels and annotations but
/// every field that is not our own finalizer is as it was.
fn foreign(step: &Step<'_>) -> Verdict {
    if is_on_our_own(step) {
        return Verdict::NotConcerned;
    }
    let write = step.write;
    let held = matches!(step.kind(), Kind::Pod | Kind::Workflow | Kind::Claim);
    if !held || write.verb != Verb::Patch || !write.subresource.is_empty() {
        return Verdict::Broken(format!("{}: not a thing for Belayer to do", step.what()));
    }
    let Some(after) = step.after() else {
        return Verdict::NotConcerned;
    };
    let Some(before) = step.before else {
        return Verdict::Broken(format!("{}: of what nobody created", step.what()));
    };
    if without_ours(before) == without_ours(after) {
        return Verdict::Kept;
    }
    let list = |object: &Value| {
        object
            .pointer("/metadata/finalizers")
            .cloned()
            .unwrap_or_default()
    };
    Verdict::Broken(format!(
        "{}: more than our finalizer changed, finalizers {} became {}",
        step.what(),
        list(before),
        list(after)
    ))
}

/// Events, the gate of the admission policies, records of re-creations; and pods that such a
/// record is about: those are judged by what pod-recreation promises.
fn is_on_our_own(step: &Step<'_>) -> bool {
    let write = step.write;
    let name = &*write.key.name;
    match (step.kind(), write.verb) {
        (Kind::Other, Verb::Create) => write.resource.resource == "events",
        (Kind::Other, Verb::Patch) => {
            write.resource.resource == "configmaps" && name == GATE_CONFIG_MAP
        }
        (Kind::Record, _) => true,
        (Kind::Pod, Verb::Create) => {
            let pod = write.object.as_deref().or(write.body.as_deref());
            // A create that was refused came to nothing.
            pod.is_none_or(|pod| !annotation(pod, RECREATION_UID_ANNOTATION).is_empty())
        }
        (Kind::Pod, Verb::Delete) => step
            .before
            .is_none_or(|pod| recreation::record_of(step.past, uid(pod)).is_some()),
        _ => false,
    }
}

/// An object without our finalizers and without what the server counts by.
fn without_ours(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
            let ours = |name: &Value| name.as_str().is_some_and(|name| name.starts_with(OURS));
            finalizers.retain(|finalizer| !ours(finalizer));
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }
    object
}

/// IDENTITY: every patch says which object, at which version, it is about, every delete which
/// object; and that one it hit.
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
        return Verdict::Broken(format!("{}: names no uid, or no version", step.what()));
    }
    let refused = matches!(step.write.outcome, Outcome::Refused(_));
    if refused || uid == step.write.uid {
        return Verdict::Kept;
    }
    Verdict::Broken(format!(
        "{}: meant for {uid}, hit {}",
        step.what(),
        step.write.uid
    ))
}

/// NO-LATE-HOLD: neither done nor tried with the right version, which the server refuses by 422.
fn no_late_hold(step: &Step<'_>) -> Verdict {
    let tried = step.write.body.as_deref().is_some_and(is_held);
    if step.write.outcome == Outcome::Refused(422) && tried {
        return Verdict::Broken(format!("{}: refused by the server as invalid", step.what()));
    }
    match step.before {
        _ if step.added().is_empty() => Verdict::NotConcerned,
        Some(object) if is_deleting(object) => Verdict::Broken(format!(
            "{} was held though it was being deleted",
            called(object)
        )),
        _ => Verdict::Kept,
    }
}

/// EVIDENCE: at the moment a hold was taken off, the record held a reason to.
fn evidence(step: &Step<'_>) -> Verdict {
    let (Some(object), removed) = (step.before, step.removed()) else {
        return Verdict::NotConcerned;
    };
    if removed.is_empty() {
        return Verdict::NotConcerned;
    }
    let without = removed
        .into_iter()
        .find(|hold| step.past.why_may_go(object, hold).is_none());
    match without {
        None => Verdict::Kept,
        Some(_) if step.past.is_by_hand(object) => Verdict::ByHand,
        Some(hold) => Verdict::Broken(format!(
            "{} lost {hold} without a reason in the record",
            called(object)
        )),
    }
}
