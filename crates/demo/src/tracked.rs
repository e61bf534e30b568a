//! The lifecycle of single objects: pods, workflows and PVCs, including removed ones.

use std::time::{Duration, Instant};

use belayer_workload::names;
use serde_json::Value;

use super::{BELAYERS, other_operator};

/// Prefix of a kubelet's message when it rejects a pod.
const REJECTED: &str = "Pod was rejected";

/// Whether an object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    Exists,
    Terminating,
    Gone,
}

/// Whether an object has a hold of Belayer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    NotYet,
    On,
    Off,
}

/// The state of an object, with the times of its changes.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) now: Existence,
    pub(super) hold: Hold,
    /// From its creation to the hold.
    pub(super) held_after: Option<Duration>,
    /// From its deletion to the release of the hold.
    pub(super) waited: Option<Duration>,
    /// When it was removed.
    pub(super) gone: Option<Instant>,
    created: Instant,
    deleted: Option<Instant>,
}

impl Tracked {
    /// A new object.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        Self {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            now: Existence::Exists,
            hold: Hold::NotYet,
            held_after: None,
            waited: None,
            gone: None,
            created: at,
            deleted: None,
        }
    }

    /// Updates it with its next state.
    pub(super) fn note(&mut self, object: &Value, now: Existence, at: Instant) {
        // The last state of a removed object still has the finalizer that was removed last.
        let held = now != Existence::Gone && has_finalizer(object, BELAYERS);
        match (self.hold, held) {
            (Hold::NotYet | Hold::Off, true) => {
                self.hold = Hold::On;
                self.held_after
                    .get_or_insert(at.duration_since(self.created));
            }
            (Hold::On, false) => {
                self.hold = Hold::Off;
                self.waited = self.deleted.map(|deleted| at.duration_since(deleted));
            }
            _ => {}
        }
        match now {
            Existence::Exists => {}
            Existence::Terminating => {
                self.deleted.get_or_insert(at);
            }
            Existence::Gone => {
                self.gone.get_or_insert(at);
            }
        }
        self.now = now;
    }

    /// Terminating, with a hold.
    pub(super) fn is_waiting(&self) -> bool {
        self.hold == Hold::On && self.now == Existence::Terminating
    }

    /// With a hold, or Terminating.
    pub(super) fn is_unsettled(&self) -> bool {
        self.hold == Hold::On || self.now == Existence::Terminating
    }

    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A pod.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) object: Tracked,
    /// Name of its workflow; empty if it has none.
    pub(super) workflow: String,
    /// Whether it has a finalizer of the other operator.
    pub(super) has_other_finalizer: bool,
    /// Whether its phase is `Succeeded` or `Failed`.
    pub(super) ended: bool,
    /// When it was first seen running.
    pub(super) started: Option<Instant>,
    /// The message of its rejection, and when it was first seen.
    pub(super) rejected: Option<(String, Instant)>,
}

impl Pod {
    /// A new pod.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        let labels = object.pointer("/metadata/labels");
        let workflow = labels.and_then(|labels| labels.get(names::WORKFLOW)?.as_str());
        Self {
            uid: text(object, "/metadata/uid").to_owned(),
            object: Tracked::new(object, at),
            workflow: workflow.unwrap_or_default().to_owned(),
            has_other_finalizer: false,
            ended: false,
            started: None,
            rejected: None,
        }
    }

    /// Updates it with its next state.
    pub(super) fn note(&mut self, object: &Value, now: Existence, at: Instant) {
        self.object.note(object, now, at);
        self.has_other_finalizer = has_finalizer(object, other_operator::DOMAIN);
        let phase = text(object, "/status/phase");
        self.ended = matches!(phase, "Succeeded" | "Failed");
        if matches!(phase, "Running" | "Succeeded") {
            self.started.get_or_insert(at);
        }
        let message = text(object, "/status/message");
        if phase == "Failed" && message.starts_with(REJECTED) && self.rejected.is_none() {
            self.rejected = Some((message.to_owned(), at));
        }
    }

    /// It has or had a hold, or it ended or was deleted before it could get one.
    pub(super) fn is_past_hold(&self) -> bool {
        self.object.held_after.is_some() || self.ended || self.object.now != Existence::Exists
    }
}

/// A workflow.
#[derive(Debug, Clone)]
pub(super) struct Workflow {
    pub(super) object: Tracked,
    /// Whether its status has a finish time.
    pub(super) finished: bool,
}

impl Workflow {
    /// A new workflow.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        Self {
            object: Tracked::new(object, at),
            finished: false,
        }
    }

    /// Updates it with its next state.
    pub(super) fn note(&mut self, object: &Value, now: Existence, at: Instant) {
        self.object.note(object, now, at);
        self.finished = object.pointer("/status/finishedAt").is_some();
    }

    /// Neither finished nor removed.
    pub(super) fn is_open(&self) -> bool {
        match self.object.now {
            Existence::Exists => !self.finished,
            Existence::Terminating => true,
            Existence::Gone => false,
        }
    }
}

fn has_finalizer(object: &Value, domain: &str) -> bool {
    let all = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .any(|name| name.starts_with(domain))
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_holds::names::{POD_STATUS_HOLD, PVC_PROTECTION_HOLD};
    use serde_json::json;

    fn pod(finalizers: &[&str], status: &Value) -> Value {
        json!({
            "metadata": {
                "namespace": "a", "name": "web-0", "uid": "u-1", "finalizers": finalizers,
                "labels": { (names::WORKFLOW): "web" },
            },
            "status": status,
        })
    }

    fn phase(phase: &str) -> Value {
        json!({ "phase": phase })
    }

    #[test]
    fn a_pod_is_followed_from_its_creation_to_its_removal() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let first = pod(&[], &phase("Pending"));
        let mut one = Pod::new(&first, start);
        one.note(&first, Existence::Exists, start);
        one.note(
            &pod(&[POD_STATUS_HOLD], &phase("Running")),
            Existence::Exists,
            after(5),
        );
        let ended = pod(&[POD_STATUS_HOLD], &phase("Succeeded"));
        one.note(&ended, Existence::Terminating, after(100));
        assert!(one.object.is_waiting() && one.started.is_some() && one.ended);
        one.note(&ended, Existence::Gone, after(400));
        assert_eq!(
            (one.object.hold, one.object.now),
            (Hold::Off, Existence::Gone)
        );
        assert_eq!(one.object.held_after, Some(Duration::from_millis(5)));
        assert_eq!(one.object.waited, Some(Duration::from_millis(300)));
        assert_eq!(one.object.gone, Some(after(400)));
        assert_eq!(
            (one.workflow.as_str(), &*one.object.key()),
            ("web", "a/web-0")
        );
    }

    #[test]
    fn a_rejection_is_recorded_with_the_nodes_message() {
        let now = Instant::now();
        let message = json!({"phase": "Failed", "message": "Pod was rejected: no room"});
        let mut one = Pod::new(&pod(&[], &message), now);
        one.note(&pod(&[], &message), Existence::Exists, now);
        assert_eq!(one.rejected.unwrap().0, "Pod was rejected: no room");
        let failed = json!({"phase": "Failed", "message": "exit code 1"});
        let mut other = Pod::new(&pod(&[], &failed), now);
        other.note(&pod(&[], &failed), Existence::Exists, now);
        assert!(other.rejected.is_none() && other.started.is_none());
    }

    #[test]
    fn finalizers_of_others_are_not_holds() {
        let now = Instant::now();
        let pvc = |finalizer: &str| json!({"metadata": {"finalizers": [finalizer]}});
        let mut object = Tracked::new(&pvc("kubernetes.io/pvc-protection"), now);
        object.note(&pvc("kubernetes.io/pvc-protection"), Existence::Exists, now);
        assert_eq!(object.hold, Hold::NotYet);
        object.note(&pvc(PVC_PROTECTION_HOLD), Existence::Exists, now);
        assert_eq!(object.hold, Hold::On);
    }
}
