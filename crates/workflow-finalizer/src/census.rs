//! The census of held workflows: how many are held, wait, and are unselected. Kept up to date by
//! every event, before the event's key is queued.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::selection::{MassRelease, MaxUnselected};

/// What the census notes about a held workflow.
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
    /// None does (row 1 of the table).
    No,
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
pub struct Census {
    max_unselected: MaxUnselected,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    workflows: HashMap<ObjectKey, HeldWorkflow>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    counts: Counts,
}

impl Census {
    /// An empty census.
    pub fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            max_unselected,
            inner: Mutex::default(),
        }
    }

    /// Notes what `key` is now; `None` if it is not held any more.
    pub fn note(&self, key: &ObjectKey, workflow: Option<HeldWorkflow>) {
        let mut inner = self.inner.lock();
        if inner.workflows.get(key) == workflow.as_ref() {
            return;
        }
        if let Some(before) = inner.workflows.remove(key) {
            inner.counts.held -= 1;
            inner.counts.unselected -= before.counts_as_unselected();
            if let Some(since) = before.deleting {
                inner.counts.waiting -= 1;
                inner.waiting.remove(&(since, key.clone()));
            }
        }
        if let Some(now) = workflow {
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
        *self.inner.lock() = Inner::default();
    }

    /// The numbers now.
    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.inner.lock().waiting.first().map(|(since, _)| *since)
    }

    /// Whether unselected workflows may be released.
    pub fn mass_release(&self) -> MassRelease {
        let Counts {
            held, unselected, ..
        } = self.counts();
        self.max_unselected.mass_release(unselected, held)
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
    /// One that is being deleted goes by its pods, whatever selects it.
    fn counts_as_unselected(&self) -> usize {
        usize::from(self.selected == Selected::No && self.deleting.is_none())
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
        let census = Census::new(MaxUnselected::default());
        for n in 0..21 {
            assert_eq!(census.mass_release(), MassRelease::Within);
            census.note(&key(n), held(Selected::No, None));
        }
        let exceeded = MassRelease::Exceeded {
            unselected: 21,
            held: 21,
        };
        assert_eq!(census.mass_release(), exceeded);
        census.note(&key(0), held(Selected::No, Some(5)));
        assert_eq!(
            census.mass_release(),
            MassRelease::Within,
            "one that is being deleted goes another way"
        );
        assert_eq!(census.unselected().len(), 20);
    }

    #[test]
    fn those_that_wait_are_known_the_oldest_first() {
        let census = Census::new(MaxUnselected::default());
        census.note(&key(1), held(Selected::Yes, Some(20)));
        census.note(&key(2), held(Selected::Yes, Some(10)));
        let waiting: Vec<_> = census.waiting().into_iter().map(|(key, _)| key).collect();
        assert_eq!(waiting, [key(2), key(1)]);
        census.note(&key(2), None);
        assert_eq!(census.counts().waiting, 1);
        assert_eq!(
            census.oldest_waiting(),
            Some(Timestamp::from_second(20).unwrap())
        );
        census.clear();
        assert_eq!(census.counts(), Counts::default());
    }
}
