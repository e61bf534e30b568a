//! The census of held pods: how many are held, wait, are unselected, and make up the backlog.
//!
//! It is kept up to date by every event, before the event's key is queued, so that a decision
//! finds the numbers its event made.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::ObjectKey;

use crate::profile::MaxUnselected;
use crate::snapshot::{Gate, MassRelease};

/// What the census notes about a held pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPod {
    /// Whether a profile selects it.
    pub selected: Selected,
    /// Whether it is ended or being deleted: part of the backlog.
    pub backlog: Backlog,
    /// Its deletion timestamp.
    pub deleting: Option<Timestamp>,
}

/// Whether a profile selects a held pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// One does.
    Yes,
    /// None does (row 4 of the table).
    No,
}

/// Whether a held pod is ended or being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backlog {
    /// It is.
    Part,
    /// It is not.
    NotYet,
}

/// The numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Held pods.
    pub held: usize,
    /// Held pods that no profile selects.
    pub unselected: usize,
    /// Held pods that are ended or being deleted.
    pub backlog: usize,
    /// Held pods that are being deleted.
    pub waiting: usize,
}

/// Counts held pods, and opens and closes the backlog gate by them.
#[derive(Debug)]
pub struct Census {
    max_unselected: MaxUnselected,
    backlog_threshold: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    pods: HashMap<ObjectKey, HeldPod>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    counts: Counts,
    gate: Gate,
}

impl Census {
    /// An empty census. The gate closes above `backlog_threshold` pods and opens below half of it.
    pub fn new(max_unselected: MaxUnselected, backlog_threshold: usize) -> Self {
        let inner = Inner {
            pods: HashMap::new(),
            waiting: BTreeSet::new(),
            counts: Counts::default(),
            gate: Gate::Open,
        };
        Self {
            max_unselected,
            backlog_threshold,
            inner: Mutex::new(inner),
        }
    }

    /// Notes what `key` is now; `None` if it is not held any more. Says where the gate is.
    pub fn note(&self, key: &ObjectKey, pod: Option<HeldPod>) -> Gate {
        let mut inner = self.inner.lock();
        let before = match pod {
            Some(pod) => inner.pods.insert(key.clone(), pod),
            None => inner.pods.remove(key),
        };
        if before == pod {
            return inner.gate;
        }
        if let Some(before) = before {
            inner.counts.subtract(before);
            if let Some(deleting) = before.deleting {
                inner.waiting.remove(&(deleting, key.clone()));
            }
        }
        if let Some(pod) = pod {
            inner.counts.add(pod);
            if let Some(deleting) = pod.deleting {
                inner.waiting.insert((deleting, key.clone()));
            }
        }
        inner.gate = match inner.gate {
            Gate::Open if inner.counts.backlog > self.backlog_threshold => Gate::Closed,
            Gate::Closed if inner.counts.backlog * 2 < self.backlog_threshold => Gate::Open,
            // A threshold of nothing at all opens once nothing is left.
            Gate::Closed if inner.counts.backlog == 0 => Gate::Open,
            unchanged => unchanged,
        };
        inner.gate
    }

    /// The numbers now.
    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.inner.lock().waiting.first().map(|(since, _)| *since)
    }

    /// Where the backlog gate is.
    pub fn gate(&self) -> Gate {
        self.inner.lock().gate
    }

    /// Whether unselected pods may be released.
    pub fn mass_release(&self) -> MassRelease {
        let Counts {
            held, unselected, ..
        } = self.counts();
        if self.max_unselected.allows(unselected, held) {
            MassRelease::Within
        } else {
            MassRelease::Exceeded { unselected, held }
        }
    }

    /// All held pods, sorted by key: for `/debug/holds`.
    pub fn list(&self) -> Vec<(ObjectKey, HeldPod)> {
        let mut all: Vec<_> = self
            .inner
            .lock()
            .pods
            .iter()
            .map(|(k, p)| (k.clone(), *p))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// The keys of held pods that no profile selects, sorted.
    pub fn unselected(&self) -> Vec<ObjectKey> {
        let unselected = |(key, pod): (&ObjectKey, &HeldPod)| {
            (pod.selected == Selected::No).then(|| key.clone())
        };
        let mut keys: Vec<_> = self
            .inner
            .lock()
            .pods
            .iter()
            .filter_map(unselected)
            .collect();
        keys.sort();
        keys
    }
}

impl Counts {
    fn add(&mut self, pod: HeldPod) {
        self.held += 1;
        self.unselected += usize::from(pod.selected == Selected::No);
        self.backlog += usize::from(pod.backlog == Backlog::Part);
        self.waiting += usize::from(pod.deleting.is_some());
    }

    fn subtract(&mut self, pod: HeldPod) {
        self.held -= 1;
        self.unselected -= usize::from(pod.selected == Selected::No);
        self.backlog -= usize::from(pod.backlog == Backlog::Part);
        self.waiting -= usize::from(pod.deleting.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: HeldPod = HeldPod {
        selected: Selected::Yes,
        backlog: Backlog::Part,
        deleting: None,
    };

    fn census(backlog_threshold: usize) -> Census {
        Census::new(MaxUnselected::default(), backlog_threshold)
    }

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("a", format!("pod-{n}"))
    }

    #[test]
    fn the_gate_closes_above_the_threshold_and_opens_below_half_of_it() {
        let census = census(10);
        for n in 0..10 {
            assert_eq!(census.note(&key(n), Some(ENDED)), Gate::Open);
        }
        assert_eq!(census.note(&key(10), Some(ENDED)), Gate::Closed);
        for n in 5..11 {
            assert_eq!(census.note(&key(n), None), Gate::Closed, "{n}");
        }
        assert_eq!(census.counts().backlog, 5);
        assert_eq!(census.note(&key(4), None), Gate::Open);
    }

    #[test]
    fn running_pods_are_no_backlog() {
        let census = census(0);
        assert_eq!(
            census.note(
                &key(1),
                Some(HeldPod {
                    backlog: Backlog::NotYet,
                    ..ENDED
                })
            ),
            Gate::Open
        );
        assert_eq!(census.note(&key(1), Some(ENDED)), Gate::Closed);
        assert_eq!(census.note(&key(1), None), Gate::Open);
    }

    #[test]
    fn more_unselected_pods_than_the_limit_are_kept() {
        let census = census(1000);
        let unselected = HeldPod {
            selected: Selected::No,
            ..ENDED
        };
        for n in 0..20 {
            census.note(&key(n), Some(unselected));
        }
        assert_eq!(census.mass_release(), MassRelease::Within);
        census.note(&key(20), Some(unselected));
        assert_eq!(
            census.mass_release(),
            MassRelease::Exceeded {
                unselected: 21,
                held: 21
            }
        );
        for n in 21..300 {
            census.note(&key(n), Some(ENDED));
        }
        assert_eq!(
            census.mass_release(),
            MassRelease::Within,
            "21 of 300 are less than a tenth"
        );
        assert_eq!(census.unselected().len(), 21);
    }

    #[test]
    fn the_oldest_waiting_pod_is_known() {
        let census = census(1000);
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        census.note(
            &key(1),
            Some(HeldPod {
                deleting: at(20),
                ..ENDED
            }),
        );
        census.note(
            &key(2),
            Some(HeldPod {
                deleting: at(10),
                ..ENDED
            }),
        );
        assert_eq!(census.oldest_waiting(), at(10));
        census.note(&key(2), None);
        assert_eq!(census.oldest_waiting(), at(20));
        assert_eq!(census.counts().waiting, 1);
    }
}
