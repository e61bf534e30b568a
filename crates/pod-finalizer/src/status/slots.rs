//! How many statuses are read at once, so that those of one namespace do not delay others (T3).

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Statuses of one namespace that are read at once. Further ones wait in a queue of their namespace, so that
/// the common queue has at most this many of each namespace.
const OF_ONE_NAMESPACE: usize = 4;

/// Statuses that are read at once. Each may be [`ANSWER_LIMIT`](super::ANSWER_LIMIT) large.
const IN_ALL: usize = 8;

/// Statuses that are unpacked at once: that takes CPU time.
const UNPACKED: usize = 2;

/// Hands out permits to read statuses.
#[derive(Debug)]
pub(super) struct Slots {
    namespaces: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
    all: Arc<Semaphore>,
    /// Permits to unpack a status.
    pub(super) unpack: Semaphore,
}

/// The permit to read one status, until it is dropped.
#[must_use]
pub(super) struct Slot {
    _all: Option<OwnedSemaphorePermit>,
    _namespace: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            namespaces: Mutex::default(),
            all: Arc::new(Semaphore::new(IN_ALL)),
            unpack: Semaphore::new(UNPACKED),
        }
    }

    /// Waits until a status of this namespace may be read. Cancel-safe.
    pub(super) async fn slot(&self, namespace: &Arc<str>) -> Slot {
        // No semaphore here is ever closed, so acquiring never fails.
        let of_namespace = self.of(namespace).acquire_owned().await.ok();
        Slot {
            _all: Arc::clone(&self.all).acquire_owned().await.ok(),
            _namespace: of_namespace,
        }
    }

    fn of(&self, namespace: &Arc<str>) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock();
        if let Some(known) = namespaces.get(namespace).and_then(Weak::upgrade) {
            return known;
        }
        // Removes namespaces of which no status is being read or waits.
        namespaces.retain(|_, semaphore| semaphore.strong_count() > 0);
        let new = Arc::new(Semaphore::new(OF_ONE_NAMESPACE));
        namespaces.insert(Arc::clone(namespace), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn t3_one_namespace_leaves_room_for_others() {
        let slots = Arc::new(Slots::new());
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut taken = Vec::new();
        for _ in 0..OF_ONE_NAMESPACE {
            taken.push(slots.slot(&one).await);
        }
        // A thousand more of it wait, and another namespace does not wait behind them.
        let waiting: Vec<_> = (0..1000)
            .map(|_| {
                let (slots, one) = (Arc::clone(&slots), Arc::clone(&one));
                tokio::spawn(async move { drop(slots.slot(&one).await) })
            })
            .collect();
        tokio::task::yield_now().await;
        let theirs = slots.slot(&other).await;
        drop(taken);
        for one in waiting {
            one.await.unwrap();
        }
        drop(theirs);
        let _ = slots.slot(&"third".into()).await;
        assert_eq!(
            slots.namespaces.lock().len(),
            1,
            "unused namespaces were not removed"
        );
    }
}
