//! After this process writes an object at version N, its key waits until the cache has seen N.
//!
//! Otherwise a stale cache would lead to the same write a second time. This is the rule of
//! KEP-5647, applied per key. Waiting must not violate LIVENESS, so a key is also freed when its
//! object is deleted, when a relist returns a lower version (a restored etcd), and when the event
//! it waits for was skipped as invalid.
//!
//! A write that removes the last finalizer of a deleted object removes the object. The server answers it
//! with the version before, so such a key waits until the cache no longer contains that version. It is free again if the
//! cache still has the object after half a minute. An answer that still has the finalizer is no such removal: an admission
//! webhook has put it back, and nothing is recorded here.
//!
//! ```
//! use belayer_core::{ObjectKey, OwnWrites, ResourceVersion};
//!
//! let (own, key) = (OwnWrites::default(), ObjectKey::new("shop", "web-0"));
//! own.wrote(&key, ResourceVersion::new(8));
//! // The cache is at version 7: the key must not be decided on it.
//! assert!(own.must_wait_for(&key, ResourceVersion::new(7)));
//! assert_eq!(own.seen(ResourceVersion::new(8)), [key]);
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::{ObjectKey, ResourceVersion};

/// How long the event of a removed object is waited for.
const REMOVED_WITHIN: Duration = Duration::from_secs(30);

/// The versions of this process's writes that the cache has not seen yet, and the keys that wait
/// for them. The [module's example](self) has a write that the cache has not seen.
#[derive(Debug, Default)]
pub struct OwnWrites {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    written: HashMap<ObjectKey, OwnWrite>,
    /// The keys by version, so that a rising watermark removes the entries it has passed.
    by_version: BTreeMap<ResourceVersion, Vec<ObjectKey>>,
    /// The last versions of objects that a write of this process's has removed.
    removed: HashMap<ObjectKey, ResourceVersion>,
    /// When each of them was removed, the first one first; also those of which the cache has seen the end.
    removals: VecDeque<(Instant, ObjectKey, ResourceVersion)>,
}

#[derive(Debug, Clone, Copy)]
struct OwnWrite {
    version: ResourceVersion,
    waiting: bool,
}

impl OwnWrites {
    /// Records that the server answered a write of this process's to `key` with `version`.
    pub fn wrote(&self, key: &ObjectKey, version: ResourceVersion) {
        let mut inner = self.inner.lock();
        let mut waiting = false;
        if let Some(earlier) = inner.written.get(key).copied() {
            if earlier.version >= version {
                return;
            }
            waiting = earlier.waiting;
            inner.unlist(key, earlier.version);
        }
        inner
            .written
            .insert(key.clone(), OwnWrite { version, waiting });
        inner
            .by_version
            .entry(version)
            .or_default()
            .push(key.clone());
    }

    /// Whether `key` must wait because the cache has seen only `watermark`. If so, the key is
    /// recorded as waiting, and [`OwnWrites::seen`], [`OwnWrites::forget`] or
    /// [`OwnWrites::forget_all`] returns it later.
    #[must_use]
    pub fn must_wait_for(&self, key: &ObjectKey, watermark: ResourceVersion) -> bool {
        match self.inner.lock().written.get_mut(key) {
            Some(own_write) if own_write.version > watermark => {
                own_write.waiting = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Records that a write of this process's has removed the object, whose last version was `version`.
    pub fn removed(&self, key: &ObjectKey, version: ResourceVersion) {
        let mut inner = self.inner.lock();
        inner.removed.insert(key.clone(), version);
        inner
            .removals
            .push_back((Instant::now(), key.clone(), version));
    }

    /// Whether the cached `version` of an object is the last one of an object that a write of this process's has
    /// removed. Its deletion will come as an event.
    #[must_use]
    pub fn has_removed(&self, key: &ObjectKey, version: ResourceVersion) -> bool {
        let mut inner = self.inner.lock();
        let Some(last) = inner.removed.get(key).copied() else {
            return false;
        };
        if last != version {
            inner.removed.remove(key);
        }
        last == version
    }

    /// The cache has seen everything up to `watermark`. Returns the keys that waited for it, and those of objects
    /// that a write should have removed half a minute ago.
    pub fn seen(&self, watermark: ResourceVersion) -> Vec<ObjectKey> {
        let mut inner = self.inner.lock();
        let mut ready = inner.not_removed();
        if inner
            .by_version
            .first_key_value()
            .is_none_or(|(version, _)| *version > watermark)
        {
            return ready;
        }
        let later = ResourceVersion::new(watermark.get().saturating_add(1));
        let unseen = inner.by_version.split_off(&later);
        let seen = std::mem::replace(&mut inner.by_version, unseen);
        for key in seen.into_values().flatten() {
            if inner
                .written
                .remove(&key)
                .is_some_and(|own_write| own_write.waiting)
            {
                ready.push(key);
            }
        }
        ready
    }

    /// Removes `key`, because its object was deleted or its event was skipped as invalid. Returns
    /// whether it was waiting.
    pub fn forget(&self, key: &ObjectKey) -> bool {
        let mut inner = self.inner.lock();
        let was_removed = inner.removed.remove(key).is_some();
        let Some(own_write) = inner.written.remove(key) else {
            return was_removed;
        };
        inner.unlist(key, own_write.version);
        own_write.waiting || was_removed
    }

    /// Removes all keys, because versions went backwards or an invalid event may have belonged to
    /// any object. Returns the keys that were waiting, sorted.
    pub fn forget_all(&self) -> Vec<ObjectKey> {
        let mut inner = self.inner.lock();
        inner.by_version.clear();
        inner.removals.clear();
        let removed: Vec<ObjectKey> = inner.removed.drain().map(|(key, _)| key).collect();
        let mut ready: Vec<ObjectKey> = inner
            .written
            .drain()
            .filter(|(_, own_write)| own_write.waiting)
            .map(|(key, _)| key)
            .chain(removed)
            .collect();
        ready.sort();
        ready
    }

    /// The number of writes that the cache has not seen yet.
    pub fn len(&self) -> usize {
        let inner = self.inner.lock();
        inner.written.len() + inner.removed.len()
    }

    /// Whether the cache has seen all writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Removes the objects whose end the cache has not seen in time. Returns their keys.
    fn not_removed(&mut self) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some((since, ..)) = self.removals.front()
            && since.elapsed() >= REMOVED_WITHIN
            && let Some((_, key, version)) = self.removals.pop_front()
        {
            if self.removed.get(&key) == Some(&version) {
                self.removed.remove(&key);
                tracing::warn!(
                    object = %key,
                    "the cache still has the object although its last finalizer was removed 30 seconds ago: the watch \
                     may be late; trying again"
                );
                keys.push(key);
            }
        }
        keys
    }

    fn unlist(&mut self, key: &ObjectKey, version: ResourceVersion) {
        let Some(keys) = self.by_version.get_mut(&version) else {
            return;
        };
        keys.retain(|listed| listed != key);
        if keys.is_empty() {
            self.by_version.remove(&version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(version: u64) -> ResourceVersion {
        ResourceVersion::new(version)
    }

    fn key() -> ObjectKey {
        ObjectKey::new("a", "b")
    }

    #[test]
    fn a_key_waits_until_the_cache_has_seen_its_write() {
        let own_write = OwnWrites::default();
        own_write.wrote(&key(), v(10));
        assert!(own_write.must_wait_for(&key(), v(9)));
        assert!(own_write.seen(v(9)).is_empty());
        assert_eq!(own_write.seen(v(10)), [key()]);
        assert!(!own_write.must_wait_for(&key(), v(10)));
        assert!(own_write.is_empty());
    }

    #[test]
    fn a_key_waits_for_its_highest_write() {
        let own_write = OwnWrites::default();
        own_write.wrote(&key(), v(10));
        own_write.wrote(&key(), v(8));
        assert!(own_write.must_wait_for(&key(), v(9)));
    }

    #[test]
    fn a_key_that_waits_twice_is_returned_once() {
        let own_write = OwnWrites::default();
        own_write.wrote(&key(), v(10));
        assert!(own_write.must_wait_for(&key(), v(1)));
        assert!(own_write.must_wait_for(&key(), v(2)));
        assert_eq!(own_write.seen(v(11)), [key()]);
    }

    #[test]
    fn a_deleted_object_ends_the_wait_of_its_key() {
        let own_write = OwnWrites::default();
        own_write.wrote(&key(), v(10));
        assert!(own_write.must_wait_for(&key(), v(9)));
        assert!(own_write.forget(&key()));
        assert!(!own_write.forget(&key()));
        assert!(own_write.seen(v(20)).is_empty());
    }

    #[test]
    fn a_removed_object_waits_for_its_own_event() {
        let own_writes = OwnWrites::default();
        own_writes.removed(&key(), v(10));
        assert!(own_writes.seen(v(12)).is_empty());
        assert!(own_writes.has_removed(&key(), v(10)));
        assert!(!own_writes.has_removed(&ObjectKey::new("a", "c"), v(10)));
        assert_eq!(own_writes.len(), 1);
        assert!(own_writes.forget(&key()));
        assert!(!own_writes.has_removed(&key(), v(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_still_there_is_tried_again() {
        let own_writes = OwnWrites::default();
        own_writes.removed(&key(), v(10));
        own_writes.removed(&ObjectKey::new("a", "gone"), v(10));
        assert!(own_writes.forget(&ObjectKey::new("a", "gone")));
        tokio::time::advance(REMOVED_WITHIN / 2).await;
        assert!(own_writes.seen(v(12)).is_empty());
        tokio::time::advance(REMOVED_WITHIN / 2).await;
        assert_eq!(own_writes.seen(v(12)), [key()]);
        assert!(!own_writes.has_removed(&key(), v(10)));
        assert!(own_writes.is_empty());
    }

    #[test]
    fn a_later_version_shows_that_it_was_not_removed() {
        let own_writes = OwnWrites::default();
        own_writes.removed(&key(), v(10));
        assert!(!own_writes.has_removed(&key(), v(11)));
        assert!(own_writes.is_empty());
        own_writes.removed(&key(), v(10));
        assert_eq!(own_writes.forget_all(), [key()]);
        assert!(own_writes.is_empty());
    }

    #[test]
    fn a_relist_at_a_lower_version_ends_every_wait() {
        let own_write = OwnWrites::default();
        own_write.wrote(&key(), v(10));
        assert!(own_write.must_wait_for(&key(), v(9)));
        assert_eq!(own_write.forget_all(), [key()]);
        assert!(!own_write.must_wait_for(&key(), v(3)));
    }
}
