use crate::object::{ObjectKey, ResourceVersion};

use super::Stored;

/// What happened to a store. When a handler hears of it, the store already holds it.
#[derive(Debug)]
pub enum Event<K> {
    /// An object that was not there, or not under this UID.
    Added {
        /// The object.
        object: Stored<K>,
        /// Whether it came with the first list: nothing happened to it just now.
        initial: bool,
    },
    /// An object changed in a field that decisions read. Changes of other fields are stored but
    /// not told (they raise [`Event::Advanced`] like any other).
    Updated {
        /// Before.
        old: Stored<K>,
        /// After; the UID is the same.
        new: Stored<K>,
    },
    /// An object is gone from the API: its last finalizer is off. (A deletion that still waits for
    /// finalizers is an update that sets the deletion timestamp.)
    Deleted {
        /// The last state known.
        last: Stored<K>,
        /// Whether `last` is the state in which it was deleted. It is not when the deletion was
        /// missed and only the absence was seen.
        final_state_known: bool,
    },
    /// An object, or an event about one, that cannot be read. What was stored stays. Whoever waits
    /// for this object's next version must not wait for the store.
    Skipped {
        /// Whose it was, if at least that could be read.
        key: Option<ObjectKey>,
    },
    /// The store is as of this version.
    Advanced {
        /// The watermark.
        resource_version: ResourceVersion,
    },
    /// The store has become complete: after the first list, and after the list that followed
    /// [`Event::Unserved`]. Comes after that list's objects.
    Synced,
    /// A later list is in; comes after its events.
    Relisted {
        /// Whether it is older than what was known: the server's data were restored. Versions
        /// remembered from before mean nothing any more.
        regressed: bool,
    },
    /// The server does not know the kind (any more). The store answers "unknown" until it does.
    Unserved,
}

impl<K> Event<K> {
    /// The object as it is now, if something has just happened to it: it did not come with the first
    /// list, and it is not gone.
    pub fn news(&self) -> Option<&Stored<K>> {
        match self {
            Self::Added {
                object,
                initial: false,
            } => Some(object),
            Self::Updated { new, .. } => Some(new),
            _ => None,
        }
    }
}

/// Told of every event of a store, in order.
pub trait Handler<K>: Send + Sync {
    /// Called by the informer's task with no lock held. It must not block, and it is called for
    /// every event of the kind: pick out what matters and queue a key.
    fn on(&self, event: &Event<K>);
}

impl<K, F: Fn(&Event<K>) + Send + Sync> Handler<K> for F {
    fn on(&self, event: &Event<K>) {
        self(event);
    }
}
