//! The census of held claims: how many are held, how many of those wait for their deletion, and
//! since when.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::object::ObjectKey;

/// Counts held claims. Kept up to date by every event of the claims.
#[derive(Debug, Default)]
pub struct Census(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The deletion timestamp of each held claim.
    held: HashMap<ObjectKey, Option<Timestamp>>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
}

/// What the census notes about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It is not held, or not there any more.
    Free,
    /// It is held.
    Held {
        /// Its deletion timestamp.
        deleting: Option<Timestamp>,
    },
}

impl Census {
    /// Notes what `key` is now; says what it was.
    pub fn note(&self, key: &ObjectKey, entry: Entry) -> Entry {
        let mut inner = self.0.lock();
        let before = match entry {
            Entry::Held { deleting } => inner.held.insert(key.clone(), deleting),
            Entry::Free => inner.held.remove(key),
        };
        if let Some(Some(since)) = before {
            inner.waiting.remove(&(since, key.clone()));
        }
        if let Entry::Held {
            deleting: Some(since),
        } = entry
        {
            inner.waiting.insert((since, key.clone()));
        }
        before.map_or(Entry::Free, |deleting| Entry::Held { deleting })
    }

    /// How many claims are held.
    pub fn held(&self) -> usize {
        self.0.lock().held.len()
    }

    /// How many of them are being deleted.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.0.lock().waiting.first().map(|(since, _)| *since)
    }

    /// All held claims that are being deleted, the longest waiting first.
    pub fn list_waiting(&self) -> Vec<(Timestamp, ObjectKey)> {
        self.0.lock().waiting.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_once_however_often_they_are_noted() {
        let census = Census::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        let at = |second| Timestamp::from_second(second).ok();
        for _ in 0..2 {
            census.note(&key("a"), Entry::Held { deleting: None });
            census.note(&key("b"), Entry::Held { deleting: at(20) });
            census.note(&key("c"), Entry::Held { deleting: at(10) });
        }
        assert_eq!((census.held(), census.waiting()), (3, 2));
        assert_eq!(census.oldest_waiting(), at(10));
        census.note(&key("c"), Entry::Free);
        census.note(&key("a"), Entry::Held { deleting: at(30) });
        census.note(&key("x"), Entry::Free);
        assert_eq!((census.held(), census.waiting()), (2, 2));
        assert_eq!(census.oldest_waiting(), at(20));
        assert_eq!(census.list_waiting().len(), 2);
    }
}
