//! Our own writes are not news: after a write at version N a key waits until the cache has seen N.
//!
//! A stale cache would otherwise decide the same write a second time. The rule is that of
//! KEP-5647, kept per key. Waiting must never cost LIVENESS, so a key is also freed when its
//! object is deleted, when a relist comes back at a lower version (a restored etcd), and when
//! the event it waits for was skipped as bad.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::object::{ObjectKey, ResourceVersion};

/// The versions of our own writes that the cache has not seen yet, and the keys that wait.
#[derive(Debug, Default)]
pub struct OwnWrites {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    written: HashMap<ObjectKey, Own>,
    /// The same by version, so that a rising watermark forgets what it has passed.
    by_version: BTreeMap<ResourceVersion, Vec<ObjectKey>>,
}

#[derive(Debug, Clone, Copy)]
struct Own {
    version: ResourceVersion,
    parked: Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parked {
    Yes,
    No,
}

impl OwnWrites {
    /// Notes that a write of ours to `key` was answered with `version`.
    pub fn wrote(&self, key: &ObjectKey, version: ResourceVersion) {
        let mut inner = self.inner.lock();
        let mut parked = Parked::No;
        if let Some(earlier) = inner.written.get(key).copied() {
            if earlier.version >= version {
                return;
            }
            parked = earlier.parked;
            inner.unlist(key, earlier.version);
        }
        inner.written.insert(key.clone(), Own { version, parked });
        inner
            .by_version
            .entry(version)
            .or_default()
            .push(key.clone());
    }

    /// Whether `key` has to wait for a cache that has seen `watermark`. If so the key is parked:
    /// [`OwnWrites::seen`] or one of the other ways out hands it back.
    #[must_use]
    pub fn park(&self, key: &ObjectKey, watermark: ResourceVersion) -> bool {
        match self.inner.lock().written.get_mut(key) {
            Some(own) if own.version > watermark => {
                own.parked = Parked::Yes;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The cache has seen everything up to `watermark`: the keys that waited for it.
    pub fn seen(&self, watermark: ResourceVersion) -> Vec<ObjectKey> {
        let mut inner = self.inner.lock();
        if inner
            .by_version
            .first_key_value()
            .is_none_or(|(version, _)| *version > watermark)
        {
            return Vec::new();
        }
        let later = ResourceVersion::new(watermark.get().saturating_add(1));
        let unseen = inner.by_version.split_off(&later);
        let seen = std::mem::replace(&mut inner.by_version, unseen);
        let mut freed = Vec::new();
        for key in seen.into_values().flatten() {
            if inner
                .written
                .remove(&key)
                .is_some_and(|own| own.parked == Parked::Yes)
            {
                freed.push(key);
            }
        }
        freed
    }

    /// The object of `key` is gone, or its event was skipped as bad: it waits for nothing.
    /// Whether it was parked.
    pub fn forget(&self, key: &ObjectKey) -> bool {
        let mut inner = self.inner.lock();
        let Some(own) = inner.written.remove(key) else {
            return false;
        };
        inner.unlist(key, own.version);
        own.parked == Parked::Yes
    }

    /// Versions went backwards, or an unreadable event may have been anybody's: every key that
    /// was parked, in order.
    pub fn forget_all(&self) -> Vec<ObjectKey> {
        let mut inner = self.inner.lock();
        inner.by_version.clear();
        let mut freed: Vec<ObjectKey> = inner
            .written
            .drain()
            .filter(|(_, own)| own.parked == Parked::Yes)
            .map(|(key, _)| key)
            .collect();
        freed.sort();
        freed
    }

    /// How many writes the cache has not seen yet.
    pub fn len(&self) -> usize {
        self.inner.lock().written.len()
    }

    /// Whether the cache has seen all of them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
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
        let own = OwnWrites::default();
        own.wrote(&key(), v(10));
        assert!(own.park(&key(), v(9)));
        assert!(own.seen(v(9)).is_empty());
        assert_eq!(own.seen(v(10)), [key()]);
        assert!(!own.park(&key(), v(10)));
        assert!(own.is_empty());
    }

    #[test]
    fn the_highest_write_counts() {
        let own = OwnWrites::default();
        own.wrote(&key(), v(10));
        own.wrote(&key(), v(8));
        assert!(own.park(&key(), v(9)));
    }

    #[test]
    fn a_key_that_parks_twice_is_freed_once() {
        let own = OwnWrites::default();
        own.wrote(&key(), v(10));
        assert!(own.park(&key(), v(1)));
        assert!(own.park(&key(), v(2)));
        assert_eq!(own.seen(v(11)), [key()]);
    }

    #[test]
    fn a_deleted_object_frees_its_key() {
        let own = OwnWrites::default();
        own.wrote(&key(), v(10));
        assert!(own.park(&key(), v(9)));
        assert!(own.forget(&key()));
        assert!(!own.forget(&key()));
        assert!(own.seen(v(20)).is_empty());
    }

    #[test]
    fn a_relist_at_a_lower_version_frees_every_key() {
        let own = OwnWrites::default();
        own.wrote(&key(), v(10));
        assert!(own.park(&key(), v(9)));
        assert_eq!(own.forget_all(), [key()]);
        assert!(!own.park(&key(), v(3)));
    }
}
