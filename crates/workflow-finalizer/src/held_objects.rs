//! Held workflows: how many are held, wait, and are unselected. Kept up to date by
//! every event, before the event's key is queued.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::{ObjectKey, Uid};
use belayer_holds::selection::{Guard, MassRelease, MaxUnselected, UnselectedBy};

/// What is noted about a held workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldWorkflow {
    /// Its identity.
    pub uid: Uid,
    /// Whether a rule selects it.
    pub selected: Selected,
    /// Its deletion timestamp.
    pub deleting: Option<Timestamp>,
}

/// Whether a rule selects a held workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// One does.
    Yes,
    /// None does (rule 1 of the table), for this reason.
    No(UnselectedBy),
}

/// The numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Held workflows.
    pub held: usize,
    /// Held workflows that nothing selects and that are not being deleted.
    pub unselected: usize,
    /// Held workflows that are being deleted.
    pub waiting: usize,
}

/// Counts held workflows.
#[derive(Debug)]
pub struct HeldObjects {
    max_unselected: MaxUnselected,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    workflows: HashMap<ObjectKey, HeldWorkflow>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    counts: Counts,
    guard: Guard,
}

impl Inner {
    fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            workflows: HashMap::new(),
            waiting: BTreeSet::new(),
            counts: Counts::default(),
            guard: Guard::new(max_unselected),
        }
    }
}

impl HeldObjects {
    /// Nothing is held yet.
    pub fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            max_unselected,
            inner: Mutex::new(Inner::new(max_unselected)),
        }
    }

    /// Notes what `key` is now; `None` if it is not held any more.
    ///
    /// The reason why a workflow is unselected stays the one with which that began, whatever changes later.
    pub fn note(&self, key: &ObjectKey, workflow: Option<HeldWorkflow>) {
        let mut inner = self.inner.lock();
        let known = inner.workflows.get(key);
        let workflow = workflow.map(|now| HeldWorkflow {
            selected: match (known.map(|known| known.selected), now.selected) {
                (Some(Selected::No(since)), Selected::No(_)) => Selected::No(since),
                (_, selected) => selected,
            },
            ..now
        });
        if known == workflow.as_ref() {
            return;
        }
        let namespace = key.shared_namespace();
        if let Some(before) = inner.workflows.remove(key) {
            inner.guard.remove(namespace, before.unselected());
            inner.counts.held -= 1;
            inner.counts.unselected -= before.counts_as_unselected();
            if let Some(since) = before.deleting {
                inner.counts.waiting -= 1;
                inner.waiting.remove(&(since, key.clone()));
            }
        }
        if let Some(now) = workflow {
            inner.guard.add(namespace, now.unselected());
            inner.counts.held += 1;
            inner.counts.unselected += now.counts_as_unselected();
            if let Some(since) = now.deleting {
                inner.counts.waiting += 1;
                inner.waiting.insert((since, key.clone()));
            }
            inner.workflows.insert(key.clone(), now);
        }
    }

    /// Forgets everything: the kind is not served any more.
    pub fn clear(&self) {
        *self.inner.lock() = Inner::new(self.max_unselected);
    }

    /// The numbers now.
    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.inner.lock().waiting.first().map(|(since, _)| *since)
    }

    /// Whether this workflow may be released because nothing selects it.
    pub fn mass_release(&self, key: &ObjectKey) -> MassRelease {
        let mut inner = self.inner.lock();
        let known = inner.workflows.get(key);
        let by = known.and_then(HeldWorkflow::unselected);
        let namespace = key.shared_namespace();
        by.map_or(MassRelease::Within, |by| inner.guard.of(namespace, by))
    }

    /// What is kept: over the cluster, and in each namespace that keeps its own.
    pub fn exceeded(&self) -> (MassRelease, BTreeMap<Arc<str>, MassRelease>) {
        self.inner.lock().guard.exceeded()
    }

    /// How many unselected workflows are kept.
    pub fn kept(&self) -> usize {
        self.inner.lock().guard.kept()
    }

    /// The held workflows that are being deleted, the oldest deletion first.
    pub fn waiting(&self) -> Vec<(ObjectKey, HeldWorkflow)> {
        let inner = self.inner.lock();
        let held = |(_, key): &(Timestamp, ObjectKey)| {
            let workflow = inner.workflows.get(key)?.clone();
            Some((key.clone(), workflow))
        };
        inner.waiting.iter().filter_map(held).collect()
    }

    /// The keys of held workflows that nothing selects, sorted.
    pub fn unselected(&self) -> Vec<ObjectKey> {
        let inner = self.inner.lock();
        let mut keys: Vec<_> = inner
            .workflows
            .iter()
            .filter(|(_, workflow)| workflow.counts_as_unselected() == 1)
            .map(|(key, _)| key.clone())
            .collect();
        keys.sort();
        keys
    }
}

impl HeldWorkflow {
    /// Why, if nothing selects it. The release of one that is being deleted depends only on its pods.
    fn unselected(&self) -> Option<UnselectedBy> {
        match (self.selected, self.deleting) {
            (Selected::No(by), None) => Some(by),
            _ => None,
        }
    }

    fn counts_as_unselected(&self) -> usize {
        usize::from(self.unselected().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(selected: Selected, deleting: Option<i64>) -> Option<HeldWorkflow> {
        Some(HeldWorkflow {
            uid: Uid::new("u"),
            selected,
            deleting: deleting.map(|second| Timestamp::from_second(second).unwrap()),
        })
    }

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("a", format!("w-{n}"))
    }

    #[test]
    fn more_unselected_workflows_than_the_limit_are_kept() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        let unselected = Selected::No(UnselectedBy::Labels);
        for n in 0..21 {
            assert_eq!(held_objects.kept(), 0);
            held_objects.note(&key(n), held(unselected, None));
        }
        assert_eq!(held_objects.kept(), 21);
        assert_ne!(held_objects.mass_release(&key(0)), MassRelease::Within);
        held_objects.note(&key(0), held(unselected, Some(5)));
        assert_eq!(
            held_objects.mass_release(&key(1)),
            MassRelease::Within,
            "one that is being deleted goes another way"
        );
        assert_eq!(held_objects.unselected().len(), 20);
    }

    /// T4: those of one namespace keep nothing in another.
    #[test]
    fn t4_labels_of_one_namespace_keep_no_workflow_elsewhere() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        for n in 0..500 {
            held_objects.note(&key(n), held(Selected::No(UnselectedBy::Labels), None));
        }
        let other = ObjectKey::new("b", "w");
        held_objects.note(&other, held(Selected::No(UnselectedBy::Labels), None));
        assert_eq!(held_objects.mass_release(&other), MassRelease::Within);
        assert_ne!(held_objects.mass_release(&key(1)), MassRelease::Within);
    }

    #[test]
    fn those_that_wait_are_known_the_oldest_first() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        held_objects.note(&key(1), held(Selected::Yes, Some(20)));
        held_objects.note(&key(2), held(Selected::Yes, Some(10)));
        let waiting: Vec<_> = held_objects
            .waiting()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(waiting, [key(2), key(1)]);
        held_objects.note(&key(2), None);
        assert_eq!(held_objects.counts().waiting, 1);
        assert_eq!(
            held_objects.oldest_waiting(),
            Some(Timestamp::from_second(20).unwrap())
        );
        held_objects.clear();
        assert_eq!(held_objects.counts(), Counts::default());
    }
}
