use crate::object::{ObjectKey, ResourceVersion};

use super::Stored;

/// A change of a store. The store already contains it when a handler is called.
/// [`Handler::on`] receives it.
#[derive(Debug)]
pub enum Event<K> {
    /// An object that was not in the store, or not under this UID.
    Added {
        /// The object.
        object: Stored<K>,
        /// Whether it came with the first list, so it did not change just now.
        initial: bool,
    },
    /// An object changed in a field that decisions read. Changes of other fields are stored without
    /// an event of their own (they raise [`Event::Advanced`] like any other), unless the informer reports
    /// [each version](super::InformerBuilder::each_version).
    Updated {
        /// The state before.
        old: Stored<K>,
        /// The state after; the UID is the same.
        new: Stored<K>,
    },
    /// An object was deleted from the API: its last finalizer was removed. (A deletion that still
    /// waits for finalizers is an update that sets the deletion timestamp.)
    Deleted {
        /// The last state known.
        last: Stored<K>,
        /// Whether `last` is the state in which it was deleted; false if the deletion was missed
        /// and only the absence was seen.
        final_state_known: bool,
    },
    /// An object, or an event about one, that cannot be decoded. The stored state stays. A
    /// component that waits for this object's next version must not wait for the store.
    Skipped {
        /// The object's key, if at least that could be decoded.
        key: Option<ObjectKey>,
    },
    /// The store is now at this version.
    Advanced {
        /// The watermark.
        resource_version: ResourceVersion,
    },
    /// The store is now complete: after the first list, and after the list that followed
    /// [`Event::Unserved`]. Comes after the objects of that list.
    Synced,
    /// A later list is complete; comes after its events.
    Relisted {
        /// Whether the list is older than the store: the server's data were restored from a backup.
        /// Versions recorded before are no longer valid.
        regressed: bool,
    },
    /// The server does not serve the kind (any more). The store returns "unknown" until it does.
    Unserved,
}

impl<K> Event<K> {
    /// The object in its current state, if it changed just now: it did not come with the first list
    /// and was not deleted.
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

/// Receives every event of a store, in order.
///
/// Closures implement it.
///
/// ```
/// use std::sync::Arc;
/// use belayer_core::{Event, Handler, OwnerMeta, Slim as _};
///
/// let print: Arc<dyn Handler<OwnerMeta>> = Arc::new(|event: &Event<OwnerMeta>| match event {
///     Event::Added { object, .. } => println!("{} was added", object.object.key()),
///     Event::Updated { new, .. } => println!("{} changed", new.object.key()),
///     Event::Deleted { last, .. } => println!("{} was deleted", last.object.key()),
///     _ => {}
/// });
/// # drop(print);
/// ```
pub trait Handler<K>: Send + Sync {
    /// Called by the informer's task without a lock. It must not block. It is called for every
    /// event of the kind: select the relevant ones and enqueue a key.
    fn on(&self, event: &Event<K>);
}

impl<K, F: Fn(&Event<K>) + Send + Sync> Handler<K> for F {
    fn on(&self, event: &Event<K>) {
        self(event);
    }
}
