//! What each single write of Belayer has to obey.

use belayer_sandbox::{Gvr, Outcome, Verb, Write};
use serde_json::Value;

use super::super::HOLD;
use super::past::{Past, called, is_deleting, is_held, text};

/// A write of Belayer, and the moment before it.
pub(super) struct Step<'a> {
    pub(super) write: &'a Write,
    pub(super) before: Option<&'a Value>,
    pub(super) past: &'a Past,
}

/// What a write did about our hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Added,
    Removed,
    Unchanged,
}

/// What a rule says about a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The rule is about other writes.
    NotConcerned,
    Kept,
    /// It would be broken, had not somebody outside the story had a hand in it.
    ByHand,
    Broken(String),
}

/// An invariant of single writes.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// What follows the number of writes it was kept by.
    pub(super) kept: &'static str,
    pub(super) judge: fn(&Step<'_>) -> Verdict,
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "FOREIGN",
        kept: "writes changed nothing but our own finalizer",
        judge: foreign,
    },
    Rule {
        name: "NO-LATE-HOLD",
        kept: "holds added, none to a pod being deleted",
        judge: no_late_hold,
    },
    Rule {
        name: "IDENTITY",
        kept: "patches named the uid and version they were meant for",
        judge: identity,
    },
    Rule {
        name: "EVIDENCE",
        kept: "holds taken off, each with a reason in the record",
        judge: evidence,
    },
];

impl Step<'_> {
    fn is_pod(&self) -> bool {
        self.write.resource == Gvr::PODS
    }

    fn after(&self) -> Option<&Value> {
        self.write
            .object
            .as_deref()
            .filter(|_| self.write.changed())
    }

    /// What became of our hold.
    pub(super) fn hold(&self) -> Hold {
        let (Some(before), Some(after)) = (self.before, self.after()) else {
            return Hold::Unchanged;
        };
        match (is_held(before), is_held(after)) {
            (false, true) => Hold::Added,
            (true, false) => Hold::Removed,
            _ => Hold::Unchanged,
        }
    }

    fn what(&self) -> String {
        format!(
            "{} of {} {}",
            self.write.verb.as_str(),
            self.write.resource.resource,
            self.write.key
        )
    }
}

/// FOREIGN, and more than it asks for: not only foreign finalizers, labels and annotations but
/// every field that is not our own finalizer is as it was.
fn foreign(step: &Step<'_>) -> Verdict {
    let write = step.write;
    // Events and the admission policy's gate are Belayer's own objects.
    let own = match (write.verb, &*write.resource.resource) {
        (Verb::Create, "events") => true,
        (Verb::Patch, "configmaps") => &*write.key.name == "belayer-gate",
        _ => false,
    };
    if own {
        return Verdict::NotConcerned;
    }
    if !step.is_pod() || write.verb != Verb::Patch || !write.subresource.is_empty() {
        return Verdict::Broken(format!("{}: not a thing for Belayer to do", step.what()));
    }
    let Some(after) = step.after() else {
        return Verdict::NotConcerned;
    };
    let Some(before) = step.before else {
        return Verdict::Broken(format!("{}: of a pod that nobody created", step.what()));
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

/// An object without our finalizer and without what the server counts by.
fn without_ours(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
            finalizers.retain(|finalizer| finalizer != HOLD);
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }
    object
}

/// NO-LATE-HOLD: neither done nor tried with the right version, which the server refuses by 422.
fn no_late_hold(step: &Step<'_>) -> Verdict {
    if step.write.outcome == Outcome::Refused(422)
        && step.write.body.as_deref().is_some_and(is_held)
    {
        return Verdict::Broken(format!("{}: refused by the server as invalid", step.what()));
    }
    match (step.hold(), step.before) {
        (Hold::Added, Some(pod)) if is_deleting(pod) => Verdict::Broken(format!(
            "{} was held though it was being deleted",
            called(pod)
        )),
        (Hold::Added, _) => Verdict::Kept,
        _ => Verdict::NotConcerned,
    }
}

/// IDENTITY: every patch says which object, at which version, it is about; and that one it hit.
fn identity(step: &Step<'_>) -> Verdict {
    if !step.is_pod() || step.write.verb != Verb::Patch {
        return Verdict::NotConcerned;
    }
    let named = |pointer| {
        step.write
            .body
            .as_deref()
            .map_or("", |body| text(body, pointer))
    };
    let (uid, version) = (named("/metadata/uid"), named("/metadata/resourceVersion"));
    if uid.is_empty() || version.is_empty() {
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

/// EVIDENCE: at the moment a hold was taken off, the record held a reason to.
fn evidence(step: &Step<'_>) -> Verdict {
    let (Hold::Removed, Some(pod)) = (step.hold(), step.before) else {
        return Verdict::NotConcerned;
    };
    if step.past.why_may_go(pod).is_some() {
        return Verdict::Kept;
    }
    if step.past.is_by_hand(pod) {
        return Verdict::ByHand;
    }
    Verdict::Broken(format!(
        "{} was let go before its result was taken",
        called(pod)
    ))
}
