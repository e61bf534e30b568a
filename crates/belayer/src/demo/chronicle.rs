//! What is in the cluster right now, followed live: for the counters and for knowing when a
//! chapter is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belayer_sandbox::workload::{WORKFLOWS, names};
use belayer_sandbox::{Cluster, EventType, Gvr, StoreEvent};
use parking_lot::Mutex;
use serde_json::Value;

use super::{HOLD, neighbour};

/// A pod of the workload, alive or gone.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Name of its workflow.
    pub(super) workflow: String,
    pub(super) now: Now,
    /// Whether our hold is on it.
    pub(super) hold: Hold,
    /// Whether a finalizer of the other operator is on it.
    pub(super) kept_by_neighbour: bool,
    /// Whether it has succeeded or failed.
    pub(super) ended: bool,
    created: Instant,
    deleted: Option<Instant>,
    /// From its creation to our hold.
    pub(super) held_after: Option<Duration>,
    /// How long it stood Terminating until our hold was off.
    pub(super) waited: Option<Duration>,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    There,
    Terminating,
    Gone,
}

/// Whether our hold is on a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    NotYet,
    On,
    Off,
}

/// A workflow, alive or gone.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) now: Now,
    /// Whether its status says that it is over.
    pub(super) finished: bool,
}

impl Pod {
    /// Held, and somebody waits for it to be let go.
    pub(super) fn is_waiting(&self) -> bool {
        self.hold == Hold::On && self.now == Now::Terminating
    }

    /// Held, or too late to be: its result is taken, or it is deleted.
    pub(super) fn had_its_chance(&self) -> bool {
        self.held_after.is_some() || self.ended || self.now != Now::There
    }

    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods there have been.
    pub(super) pods: usize,
    /// Those that our hold is on.
    pub(super) held: usize,
    /// Those that are Terminating, and held.
    pub(super) waiting: usize,
    /// Those that are gone.
    pub(super) vanished: usize,
}

/// Everything of the workload that there is and was. Cheap to clone; the clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Chronicle {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By UID.
    pods: BTreeMap<String, Pod>,
    /// By UID.
    flows: BTreeMap<String, Flow>,
    /// By name.
    namespaces: BTreeMap<String, Now>,
    changes: u64,
}

impl Chronicle {
    /// Follows the cluster from now on, as long as it exists.
    pub(super) fn follow(cluster: &Cluster) -> Self {
        let chronicle = Self::default();
        let mut events = cluster.subscribe(None, cluster.version());
        let writer = chronicle.clone();
        tokio::spawn(async move {
            while let Ok(event) = events.next().await {
                writer.note(&event, Instant::now());
            }
        });
        chronicle
    }

    fn note(&self, event: &StoreEvent, at: Instant) {
        let mut inner = self.inner.lock();
        let (group, resource) = (&event.resource.group, &event.resource.resource);
        let now = match event.event_type {
            EventType::Deleted => Now::Gone,
            _ if event
                .object
                .pointer("/metadata/deletionTimestamp")
                .is_some() =>
            {
                Now::Terminating
            }
            _ => Now::There,
        };
        let is = |gvr: &Gvr| *group == *gvr.group && *resource == *gvr.resource;
        if is(&Gvr::PODS) {
            inner.note_pod(&event.object, now, at);
        } else if is(&WORKFLOWS) {
            inner.note_flow(&event.object, now);
        } else if is(&Gvr::NAMESPACES) {
            inner
                .namespaces
                .insert(text(&event.object, "/metadata/name"), now);
        } else {
            return;
        }
        inner.changes += 1;
    }

    /// The counters.
    pub(super) fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        let mut counts = Counts {
            pods: inner.pods.len(),
            ..Counts::default()
        };
        for pod in inner.pods.values() {
            match pod.now {
                Now::Gone => counts.vanished += 1,
                Now::Terminating if pod.hold == Hold::On => {
                    counts.held += 1;
                    counts.waiting += 1;
                }
                _ if pod.hold == Hold::On => counts.held += 1,
                _ => {}
            }
        }
        counts
    }

    /// The pods for which `which` is true, in the order of their UIDs.
    pub(super) fn pods(&self, which: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        self.inner
            .lock()
            .pods
            .values()
            .filter(|pod| which(pod))
            .cloned()
            .collect()
    }

    /// How many pods there are for which `which` is true.
    pub(super) fn count(&self, which: impl Fn(&Pod) -> bool) -> usize {
        self.inner
            .lock()
            .pods
            .values()
            .filter(|pod| which(pod))
            .count()
    }

    /// How many workflows there are for which `which` is true.
    pub(super) fn count_flows(&self, which: impl Fn(&Flow) -> bool) -> usize {
        self.inner
            .lock()
            .flows
            .values()
            .filter(|flow| which(flow))
            .count()
    }

    /// Whether a namespace is there.
    pub(super) fn namespace(&self, name: &str) -> Now {
        self.inner
            .lock()
            .namespaces
            .get(name)
            .copied()
            .unwrap_or(Now::Gone)
    }

    /// How many changes there have been.
    pub(super) fn changes(&self) -> u64 {
        self.inner.lock().changes
    }

    /// How many namespaces are Terminating.
    pub(super) fn terminating_namespaces(&self) -> usize {
        self.inner
            .lock()
            .namespaces
            .values()
            .filter(|now| **now == Now::Terminating)
            .count()
    }
}

impl Inner {
    fn note_pod(&mut self, object: &Value, now: Now, at: Instant) {
        let label = object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(names::WORKFLOW));
        let Some(workflow) = label.and_then(Value::as_str) else {
            return;
        };
        let pod = self
            .pods
            .entry(text(object, "/metadata/uid"))
            .or_insert_with(|| Pod {
                uid: text(object, "/metadata/uid"),
                namespace: text(object, "/metadata/namespace"),
                name: text(object, "/metadata/name"),
                workflow: workflow.to_owned(),
                now: Now::There,
                hold: Hold::NotYet,
                kept_by_neighbour: false,
                ended: false,
                created: at,
                deleted: None,
                held_after: None,
                waited: None,
            });
        let finalizers = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array);
        // The last state of what is gone still shows the finalizer that was taken off last.
        let held =
            now != Now::Gone && finalizers.is_some_and(|all| all.iter().any(|one| one == HOLD));
        match (pod.hold, held) {
            (Hold::NotYet | Hold::Off, true) => {
                pod.hold = Hold::On;
                pod.held_after.get_or_insert(at.duration_since(pod.created));
            }
            (Hold::On, false) => {
                pod.hold = Hold::Off;
                pod.waited = pod.deleted.map(|deleted| at.duration_since(deleted));
            }
            _ => {}
        }
        if now == Now::Terminating {
            pod.deleted.get_or_insert(at);
        }
        pod.kept_by_neighbour = finalizers.is_some_and(|all| all.iter().any(is_of_neighbour));
        pod.now = now;
        pod.ended = matches!(
            text(object, "/status/phase").as_str(),
            "Succeeded" | "Failed"
        );
    }

    fn note_flow(&mut self, object: &Value, now: Now) {
        let flow = Flow {
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
            now,
            finished: object.pointer("/status/finishedAt").is_some(),
        };
        self.flows.insert(text(object, "/metadata/uid"), flow);
    }
}

fn is_of_neighbour(finalizer: &Value) -> bool {
    finalizer
        .as_str()
        .is_some_and(|name| name.starts_with(neighbour::DOMAIN))
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(finalizers: &[&str], phase: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "a", "name": "web-0", "uid": "u-1", "finalizers": finalizers,
                "labels": { (names::WORKFLOW): "web" },
            },
            "status": { "phase": phase },
        })
    }

    #[test]
    fn a_pods_life_is_followed_from_creation_to_its_end() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut inner = Inner::default();
        inner.note_pod(&pod(&[], "Pending"), Now::There, start);
        inner.note_pod(&pod(&[HOLD], "Running"), Now::There, after(5));
        inner.note_pod(&pod(&[HOLD], "Succeeded"), Now::Terminating, after(100));
        let chronicle = Chronicle {
            inner: Arc::new(Mutex::new(inner)),
        };
        let waiting = Counts {
            pods: 1,
            held: 1,
            waiting: 1,
            vanished: 0,
        };
        assert_eq!(chronicle.counts(), waiting);
        chronicle
            .inner
            .lock()
            .note_pod(&pod(&[HOLD], "Succeeded"), Now::Gone, after(400));
        let pod = chronicle.pods(|_| true).remove(0);
        assert_eq!((pod.hold, pod.now, pod.ended), (Hold::Off, Now::Gone, true));
        assert_eq!(pod.held_after, Some(Duration::from_millis(5)));
        assert_eq!(pod.waited, Some(Duration::from_millis(300)));
        assert_eq!(
            chronicle.counts(),
            Counts {
                pods: 1,
                vanished: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn pods_of_no_workflow_are_not_part_of_the_story() {
        let mut inner = Inner::default();
        inner.note_pod(
            &json!({"metadata": {"uid": "u-2"}}),
            Now::There,
            Instant::now(),
        );
        assert!(inner.pods.is_empty());
    }
}
