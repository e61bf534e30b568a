//! What becomes of single objects: pods, workflows and claims, alive or gone.

use std::time::{Duration, Instant};

use belayer_workload::names;
use serde_json::Value;

use super::{OURS, neighbour};

/// What the kubelet's words begin with when it rejects a pod.
const REJECTED: &str = "Pod was rejected";

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    There,
    Terminating,
    Gone,
}

/// Whether a hold of ours is on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    NotYet,
    On,
    Off,
}

/// What every object has, and when that changed.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) now: Now,
    pub(super) hold: Hold,
    /// From its creation to our hold.
    pub(super) held_after: Option<Duration>,
    /// How long it stood Terminating until our hold was off.
    pub(super) waited: Option<Duration>,
    /// When it was gone.
    pub(super) gone: Option<Instant>,
    created: Instant,
    deleted: Option<Instant>,
}

impl Life {
    /// An object that is new.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        Self {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            now: Now::There,
            hold: Hold::NotYet,
            held_after: None,
            waited: None,
            gone: None,
            created: at,
            deleted: None,
        }
    }

    /// Takes in its next state.
    pub(super) fn note(&mut self, object: &Value, now: Now, at: Instant) {
        // The last state of what is gone still shows the finalizer that was taken off last.
        let held = now != Now::Gone && has_finalizer(object, OURS);
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
            Now::There => {}
            Now::Terminating => {
                self.deleted.get_or_insert(at);
            }
            Now::Gone => {
                self.gone.get_or_insert(at);
            }
        }
        self.now = now;
    }

    /// Held, and somebody waits for it to be let go.
    pub(super) fn is_waiting(&self) -> bool {
        self.hold == Hold::On && self.now == Now::Terminating
    }

    /// Held, or on its way out: not at rest.
    pub(super) fn is_unsettled(&self) -> bool {
        self.hold == Hold::On || self.now == Now::Terminating
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
    pub(super) life: Life,
    /// Name of its workflow; empty if it has none.
    pub(super) workflow: String,
    /// Whether a finalizer of the other operator is on it.
    pub(super) kept_by_neighbour: bool,
    /// Whether it has succeeded or failed.
    pub(super) ended: bool,
    /// When it was first seen running.
    pub(super) started: Option<Instant>,
    /// What its node said when it rejected it, and when that was.
    pub(super) rejected: Option<(String, Instant)>,
}

impl Pod {
    /// A pod that is new.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        let labels = object.pointer("/metadata/labels");
        let workflow = labels.and_then(|labels| labels.get(names::WORKFLOW)?.as_str());
        Self {
            uid: text(object, "/metadata/uid").to_owned(),
            life: Life::new(object, at),
            workflow: workflow.unwrap_or_default().to_owned(),
            kept_by_neighbour: false,
            ended: false,
            started: None,
            rejected: None,
        }
    }

    /// Takes in its next state.
    pub(super) fn note(&mut self, object: &Value, now: Now, at: Instant) {
        self.life.note(object, now, at);
        self.kept_by_neighbour = has_finalizer(object, neighbour::DOMAIN);
        let phase = text(object, "/status/phase");
        self.ended = matches!(phase, "Succeeded" | "Failed");
        if matches!(phase, "Running" | "Succeeded") {
            self.started.get_or_insert(at);
        }
        let words = text(object, "/status/message");
        if phase == "Failed" && words.starts_with(REJECTED) && self.rejected.is_none() {
            self.rejected = Some((words.to_owned(), at));
        }
    }

    /// Held, or too late to be: its result is taken, or it is deleted.
    pub(super) fn had_its_chance(&self) -> bool {
        self.life.held_after.is_some() || self.ended || self.life.now != Now::There
    }
}

/// A workflow.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) life: Life,
    /// Whether its status says that it is over.
    pub(super) finished: bool,
}

impl Flow {
    /// A workflow that is new.
    pub(super) fn new(object: &Value, at: Instant) -> Self {
        Self {
            life: Life::new(object, at),
            finished: false,
        }
    }

    /// Takes in its next state.
    pub(super) fn note(&mut self, object: &Value, now: Now, at: Instant) {
        self.life.note(object, now, at);
        self.finished = object.pointer("/status/finishedAt").is_some();
    }

    /// Neither finished nor gone.
    pub(super) fn is_open(&self) -> bool {
        match self.life.now {
            Now::There => !self.finished,
            Now::Terminating => true,
            Now::Gone => false,
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
    fn a_pods_life_is_followed_from_creation_to_its_end() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let first = pod(&[], &phase("Pending"));
        let mut one = Pod::new(&first, start);
        one.note(&first, Now::There, start);
        one.note(
            &pod(&[POD_STATUS_HOLD], &phase("Running")),
            Now::There,
            after(5),
        );
        let ended = pod(&[POD_STATUS_HOLD], &phase("Succeeded"));
        one.note(&ended, Now::Terminating, after(100));
        assert!(one.life.is_waiting() && one.started.is_some() && one.ended);
        one.note(&ended, Now::Gone, after(400));
        assert_eq!((one.life.hold, one.life.now), (Hold::Off, Now::Gone));
        assert_eq!(one.life.held_after, Some(Duration::from_millis(5)));
        assert_eq!(one.life.waited, Some(Duration::from_millis(300)));
        assert_eq!(one.life.gone, Some(after(400)));
        assert_eq!(
            (one.workflow.as_str(), &*one.life.key()),
            ("web", "a/web-0")
        );
    }

    #[test]
    fn a_rejection_is_remembered_in_the_nodes_words() {
        let now = Instant::now();
        let words = json!({"phase": "Failed", "message": "Pod was rejected: no room"});
        let mut one = Pod::new(&pod(&[], &words), now);
        one.note(&pod(&[], &words), Now::There, now);
        assert_eq!(one.rejected.unwrap().0, "Pod was rejected: no room");
        let failed = json!({"phase": "Failed", "message": "exit code 1"});
        let mut other = Pod::new(&pod(&[], &failed), now);
        other.note(&pod(&[], &failed), Now::There, now);
        assert!(other.rejected.is_none() && other.started.is_none());
    }

    #[test]
    fn finalizers_of_others_are_no_holds() {
        let now = Instant::now();
        let claim = |finalizer: &str| json!({"metadata": {"finalizers": [finalizer]}});
        let mut life = Life::new(&claim("kubernetes.io/pvc-protection"), now);
        life.note(&claim("kubernetes.io/pvc-protection"), Now::There, now);
        assert_eq!(life.hold, Hold::NotYet);
        life.note(&claim(PVC_PROTECTION_HOLD), Now::There, now);
        assert_eq!(life.hold, Hold::On);
    }
}
