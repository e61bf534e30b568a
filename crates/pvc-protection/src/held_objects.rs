//! Counts of PVCs: how many are held, how many wait for their deletion, and since when.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::ObjectKey;

/// Counts held and waiting claims. Kept up to date by every event of the claims.
#[derive(Debug, Default)]
pub struct HeldObjects(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The entry of each PVC that is not free.
    noted: HashMap<ObjectKey, Entry>,
    held: usize,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
}

/// What is noted about a PVC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It is not held, or not there any more.
    Free,
    /// It is held.
    Held {
        /// Its deletion timestamp.
        deleting: Option<Timestamp>,
    },
    /// It is not held by us, but its deletion waits for Kubernetes' own controller.
    Waits {
        /// Its deletion timestamp.
        since: Timestamp,
    },
}

impl Entry {
    /// Since when its deletion waits, if it does.
    fn waits(self) -> Option<Timestamp> {
        match self {
            Self::Free => None,
            Self::Held { deleting } => deleting,
            Self::Waits { since } => Some(since),
        }
    }

    fn is_held(self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

impl HeldObjects {
    /// Notes what `key` is now; says what it was.
    pub fn note(&self, key: &ObjectKey, entry: Entry) -> Entry {
        let mut inner = self.0.lock();
        let before = match entry {
            Entry::Free => inner.noted.remove(key),
            entry => inner.noted.insert(key.clone(), entry),
        }
        .unwrap_or(Entry::Free);
        if let Some(since) = before.waits() {
            inner.waiting.remove(&(since, key.clone()));
        }
        if let Some(since) = entry.waits() {
            inner.waiting.insert((since, key.clone()));
        }
        inner.held = inner.held + usize::from(entry.is_held()) - usize::from(before.is_held());
        before
    }

    /// How many claims are held.
    pub fn held(&self) -> usize {
        self.0.lock().held
    }

    /// How many claims are noted whose deletion waits.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.0.lock().waiting.first().map(|(since, _)| *since)
    }

    /// All claims whose deletion waits, the longest waiting first.
    pub fn list_waiting(&self) -> Vec<(Timestamp, ObjectKey)> {
        self.0.lock().waiting.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_once_however_often_they_are_noted() {
        let held_objects = HeldObjects::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        let at = |second| Timestamp::from_second(second).ok();
        for _ in 0..2 {
            held_objects.note(&key("a"), Entry::Held { deleting: None });
            held_objects.note(&key("b"), Entry::Held { deleting: at(20) });
            held_objects.note(&key("c"), Entry::Held { deleting: at(10) });
        }
        assert_eq!((held_objects.held(), held_objects.waiting()), (3, 2));
        assert_eq!(held_objects.oldest_waiting(), at(10));
        held_objects.note(&key("c"), Entry::Free);
        held_objects.note(&key("a"), Entry::Held { deleting: at(30) });
        held_objects.note(&key("x"), Entry::Free);
        assert_eq!((held_objects.held(), held_objects.waiting()), (2, 2));
        assert_eq!(held_objects.oldest_waiting(), at(20));
        assert_eq!(held_objects.list_waiting().len(), 2);
        let since = Timestamp::UNIX_EPOCH;
        held_objects.note(&key("b"), Entry::Waits { since });
        assert_eq!((held_objects.held(), held_objects.waiting()), (1, 2));
    }
}
