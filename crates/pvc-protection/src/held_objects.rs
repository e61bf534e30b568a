//! PVCs that are held, or whose deletion waits.

use jiff::Timestamp;

use belayer_holds::held_objects::{self, Noted};

/// The recorded state of a PVC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It is held.
    Held {
        /// Its deletion timestamp.
        deleting: Option<Timestamp>,
    },
    /// Belayer does not hold it, but its deletion waits for Kubernetes' own controller.
    Waits {
        /// Its deletion timestamp.
        since: Timestamp,
    },
}

/// Counts held and waiting PVCs.
pub(crate) type HeldObjects = held_objects::HeldObjects<Entry>;

impl Noted for Entry {
    fn waits_since(&self) -> Option<Timestamp> {
        match *self {
            Self::Held { deleting } => deleting,
            Self::Waits { since } => Some(since),
        }
    }

    fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_core::object::ObjectKey;

    #[test]
    fn pvcs_are_counted_once_however_often_they_are_noted() {
        let held_objects = HeldObjects::default();
        let numbers = || {
            let counts = held_objects.counts();
            (counts.held, counts.waiting)
        };
        let key = |name: &str| ObjectKey::new("shop", name);
        let at = |second| Timestamp::from_second(second).ok();
        for _ in 0..2 {
            held_objects.note(&key("a"), Some(Entry::Held { deleting: None }));
            held_objects.note(&key("b"), Some(Entry::Held { deleting: at(20) }));
            held_objects.note(&key("c"), Some(Entry::Held { deleting: at(10) }));
        }
        assert_eq!(numbers(), (3, 2));
        assert_eq!(held_objects.oldest_waiting(), at(10));
        held_objects.note(&key("c"), None);
        held_objects.note(&key("a"), Some(Entry::Held { deleting: at(30) }));
        held_objects.note(&key("x"), None);
        assert_eq!(numbers(), (2, 2));
        assert_eq!(held_objects.oldest_waiting(), at(20));
        assert_eq!(held_objects.waiting().len(), 2);
        let since = Timestamp::UNIX_EPOCH;
        held_objects.note(&key("b"), Some(Entry::Waits { since }));
        assert_eq!(numbers(), (1, 2));
    }
}
