//! Counts of held, waiting and unselected pods, and the resulting states of the backlog limit and the mass-release
//! limit.
//!
//! Every event updates the counts before the event's key is enqueued, so that a decision sees the counts after its
//! event.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::ObjectKey;
use belayer_holds::gate::GateObject;
use belayer_holds::held_objects::{self, Noted};
use belayer_holds::selection::{Exceeded, UnselectedBy};

use crate::backlog::{Backlog, Limits, Opened};
use crate::profile::MaxUnselected;
use crate::snapshot::BacklogLimit;

/// The recorded state of a held pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPod {
    /// Why no profile selects it, if none does: rule 4 of the table releases it.
    pub unselected: Option<UnselectedBy>,
    /// Whether its phase is terminal.
    pub ended: bool,
    /// Its deletion timestamp.
    pub deleting: Option<Timestamp>,
    /// Whether the status of its owner is too large to be read: then it does not count as backlog (T3).
    pub status_too_large: bool,
}

impl Noted for HeldPod {
    /// Since when it counts as backlog, if it does.
    fn waits_since(&self) -> Option<Timestamp> {
        self.deleting.filter(|_| !self.status_too_large)
    }

    fn unselected(&self) -> Option<UnselectedBy> {
        self.unselected
    }

    fn set_unselected(&mut self, by: UnselectedBy) {
        self.unselected = Some(by);
    }
}

/// Counts held pods, and decides by them whether the backlog limit is reached.
#[derive(Debug)]
pub struct HeldPods {
    pods: held_objects::HeldObjects<HeldPod>,
    /// Held while a pod is recorded.
    backlog: Mutex<Backlog>,
}

impl Deref for HeldPods {
    type Target = held_objects::HeldObjects<HeldPod>;

    fn deref(&self) -> &Self::Target {
        &self.pods
    }
}

/// The limits that are exceeded now: where Belayer adds no finalizers, and where unselected pods stay held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveLimits {
    /// The backlog limit of the whole cluster.
    pub backlog: BacklogLimit,
    /// The closed namespaces, with the pods that wait there.
    pub closed: BTreeMap<Arc<str>, usize>,
    /// Where unselected pods stay held.
    pub kept: Exceeded,
}

impl HeldPods {
    /// Creates it with these limits and no held pods.
    pub fn new(max_unselected: MaxUnselected, limits: Limits) -> Self {
        Self {
            pods: held_objects::HeldObjects::new(max_unselected),
            backlog: Mutex::new(Backlog::new(limits)),
        }
    }

    /// Records the current value of `key`; `None` if it is not held any more.
    pub fn note(&self, key: &ObjectKey, pod: Option<HeldPod>) {
        self.note_with(&mut self.backlog.lock(), key, pod);
    }

    /// Records whether the status of a held pod's owner is too large to be read.
    pub fn note_status(&self, key: &ObjectKey, too_large: bool) {
        let mut backlog = self.backlog.lock();
        let known = self.pods.get(key);
        if let Some(pod) = known.filter(|pod| pod.status_too_large != too_large) {
            let pod = HeldPod {
                status_too_large: too_large,
                ..pod
            };
            self.note_with(&mut backlog, key, Some(pod));
        }
    }

    fn note_with(&self, backlog: &mut Backlog, key: &ObjectKey, pod: Option<HeldPod>) {
        let waits = |pod: HeldPod| pod.waits_since();
        let was = self.pods.note(key, pod).and_then(waits);
        match (was, pod.and_then(waits)) {
            (None, Some(_)) => backlog.add(key.shared_namespace()),
            (Some(_), None) => backlog.remove(key.shared_namespace()),
            _ => {}
        }
    }

    /// The limits of waiting pods above which Belayer adds no finalizers.
    pub fn limits(&self) -> Limits {
        self.backlog.lock().limits()
    }

    /// How many waiting pods count towards the limit of the whole cluster.
    pub fn backlog(&self) -> usize {
        self.backlog.lock().sum()
    }

    /// The state of the backlog limit for pods of this namespace.
    pub fn backlog_limit(&self, namespace: &str) -> BacklogLimit {
        self.backlog.lock().limit(namespace)
    }

    /// Takes over the gates that an earlier leader closed.
    pub fn adopt_closed(&self, gate: &GateObject) {
        let all = gate.is_closed_by_backlog();
        self.backlog.lock().adopt(gate.closed_by_backlog(), all);
    }

    /// Opens what may open again, and returns what has opened and what is limited now. To be called once all pods are known.
    pub(crate) fn settle(&self) -> (Opened, ActiveLimits) {
        let opened = self.backlog.lock().settle();
        (opened, self.active_limits())
    }

    /// How things stand.
    pub fn active_limits(&self) -> ActiveLimits {
        let backlog = self.backlog.lock();
        ActiveLimits {
            backlog: backlog.cluster_limit(),
            closed: backlog.closed().into_iter().collect(),
            kept: self.pods.exceeded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::MassRelease;

    const RUNNING: HeldPod = HeldPod {
        unselected: None,
        ended: false,
        deleting: None,
        status_too_large: false,
    };

    fn held_objects(backlog_threshold: usize) -> HeldPods {
        HeldPods::new(MaxUnselected::default(), Limits::of(backlog_threshold))
    }

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("a", format!("pod-{n}"))
    }

    fn deleting(second: i64) -> HeldPod {
        HeldPod {
            deleting: Some(Timestamp::from_second(second).unwrap()),
            ..RUNNING
        }
    }

    #[test]
    fn the_gate_closes_above_the_limit_and_opens_below_half_of_it() {
        let held_objects = held_objects(10);
        for n in 0..10 {
            held_objects.note(&key(n), Some(deleting(1)));
            assert_eq!(held_objects.backlog_limit("a"), BacklogLimit::NotReached);
        }
        held_objects.note(&key(10), Some(deleting(1)));
        assert_eq!(
            held_objects.backlog_limit("a"),
            BacklogLimit::ReachedInNamespace
        );
        for n in 5..11 {
            held_objects.note(&key(n), None);
            assert_eq!(held_objects.settle().1.closed.len(), 1, "{n}");
        }
        assert_eq!(held_objects.counts().waiting, 5);
        held_objects.note(&key(4), None);
        assert_eq!(held_objects.settle().1, ActiveLimits::default());
    }

    /// T3: a user who makes a status unreadable must not close the gate for others.
    #[test]
    fn t3_what_waits_for_a_status_that_is_too_large_is_no_backlog() {
        let held_objects = held_objects(1);
        for n in 0..50 {
            held_objects.note(&key(n), Some(deleting(1)));
            held_objects.note_status(&key(n), true);
        }
        assert_eq!(held_objects.counts().waiting, 0);
        assert_eq!(held_objects.settle().1, ActiveLimits::default());
        held_objects.note_status(&key(0), false);
        assert_eq!(held_objects.counts().waiting, 1);
    }

    /// A5: an ended pod that is not being deleted does not count.
    #[test]
    fn a5_only_what_is_being_deleted_is_backlog() {
        let held_objects = held_objects(1);
        let ended = HeldPod {
            ended: true,
            ..RUNNING
        };
        for n in 0..50 {
            held_objects.note(&key(n), Some(ended));
        }
        assert_eq!(held_objects.backlog_limit("a"), BacklogLimit::NotReached);
        held_objects.note(&key(1), Some(deleting(1)));
        held_objects.note(&key(2), Some(deleting(1)));
        assert_eq!(
            held_objects.backlog_limit("a"),
            BacklogLimit::ReachedInNamespace
        );
        assert_eq!(held_objects.backlog_limit("b"), BacklogLimit::NotReached);
    }

    #[test]
    fn more_unselected_pods_than_the_limit_are_kept() {
        let held_objects = held_objects(1000);
        let unselected = HeldPod {
            unselected: Some(UnselectedBy::Labels),
            ..RUNNING
        };
        for n in 0..20 {
            held_objects.note(&key(n), Some(unselected));
        }
        assert_eq!(held_objects.mass_release(&key(0)), MassRelease::Within);
        held_objects.note(&key(20), Some(unselected));
        assert!(matches!(
            held_objects.mass_release(&key(0)),
            MassRelease::Exceeded {
                unselected: 21,
                held: 21,
                ..
            }
        ));
        assert_eq!(held_objects.kept(), 21);
        for n in 21..300 {
            held_objects.note(&key(n), Some(RUNNING));
        }
        assert_eq!(
            held_objects.mass_release(&key(0)),
            MassRelease::Within,
            "21 of 300 are less than a tenth"
        );
        assert_eq!(held_objects.unselected().len(), 21);
    }

    #[test]
    fn a4_why_a_pod_is_unselected_is_why_it_first_was() {
        let held_objects = held_objects(1000);
        let unselected = |by| HeldPod {
            unselected: Some(by),
            ..RUNNING
        };
        held_objects.note(&key(1), Some(unselected(UnselectedBy::Configuration)));
        held_objects.note(&key(1), Some(unselected(UnselectedBy::Labels)));
        let by_configuration = unselected(UnselectedBy::Configuration);
        assert_eq!(held_objects.list(), [(key(1), by_configuration)]);
        held_objects.note(&key(1), Some(RUNNING));
        held_objects.note(&key(1), Some(unselected(UnselectedBy::Labels)));
        assert_eq!(
            held_objects.list(),
            [(key(1), unselected(UnselectedBy::Labels))]
        );
    }

    #[test]
    fn the_oldest_waiting_pod_is_known() {
        let held_objects = held_objects(1000);
        held_objects.note(&key(1), Some(deleting(20)));
        held_objects.note(&key(2), Some(deleting(10)));
        assert_eq!(held_objects.oldest_waiting(), deleting(10).deleting);
        held_objects.note(&key(2), None);
        assert_eq!(held_objects.oldest_waiting(), deleting(20).deleting);
        assert_eq!(held_objects.counts().waiting, 1);
    }
}
