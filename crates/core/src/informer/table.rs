mod index;
mod slab;

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::logical_time::LogicalTime;
use crate::object::ObjectKey;
use crate::slim::Slim;

pub(super) use index::IndexDefinition;
use index::{Index, Slots, Value};
use slab::Slab;

/// An object in a store. [`Store::lookup`](crate::informer::Store::lookup) returns it.
#[derive(Debug)]
pub struct Stored<K> {
    /// The object.
    pub object: Arc<K>,
    /// When the store first contained this UID. Seen anew once the server's data went back (a restored etcd): what was
    /// read before that says nothing about it.
    pub first_seen: LogicalTime,
    /// When the store first contained this UID with a deletion timestamp, also counted from then.
    pub deletion_seen: Option<LogicalTime>,
}

impl<K> Clone for Stored<K> {
    fn clone(&self) -> Self {
        Self {
            object: Arc::clone(&self.object),
            ..*self
        }
    }
}

impl<K> std::ops::Deref for Stored<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K: Slim> Stored<K> {
    /// An object that is new in the store, or that was read live now.
    pub fn fresh(object: Arc<K>, now: LogicalTime) -> Self {
        let deletion_seen = object.meta().is_deleting().then_some(now);
        Self {
            object,
            first_seen: now,
            deletion_seen,
        }
    }

    /// The next state of this UID.
    pub(super) fn followed_by(&self, object: Arc<K>, now: LogicalTime) -> Self {
        let is_deleting = object.meta().is_deleting();
        let deletion_seen = is_deleting.then(|| self.deletion_seen.unwrap_or(now));
        Self {
            object,
            first_seen: self.first_seen,
            deletion_seen,
        }
    }
}

/// Objects by key and by the values of the indexes.
///
/// Every object has a slot. The key table and the indexes contain only slot numbers, so that no key
/// and no value is stored twice. Iteration follows the slots, never a hash table, so its order is
/// deterministic.
pub(super) struct Table<K> {
    definitions: Arc<[IndexDefinition<K>]>,
    slab: Slab<K>,
    by_key: HashTable<u32>,
    /// One per definition.
    indexes: Vec<Index>,
    hasher: DefaultHashBuilder,
}

impl<K: Slim> Table<K> {
    pub(super) fn new(definitions: Arc<[IndexDefinition<K>]>) -> Self {
        let indexes = definitions.iter().map(|_| Index::new()).collect();
        Self {
            definitions,
            slab: Slab::new(),
            by_key: HashTable::new(),
            indexes,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// An empty table with the same indexes.
    pub(super) fn empty_like(&self) -> Self {
        Self::new(Arc::clone(&self.definitions))
    }

    /// Whether it has the same indexes.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.definitions, &other.definitions)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Stored<K>> {
        self.slab.get(self.slot(key)?)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Stored<K>> {
        self.slab.get_mut(self.slot(key)?)
    }

    /// In the order of insertion, except that free slots are reused.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stored<K>> {
        self.slab.iter()
    }

    /// As [`Table::iter`]. A change must not affect the key or index values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stored<K>> {
        self.slab.iter_mut()
    }

    /// The objects with `value` in the index at `index`, in slot order.
    pub(super) fn find(&self, index: usize, value: &str) -> impl Iterator<Item = &Stored<K>> {
        let slots = self.slots(index, value);
        slots
            .into_iter()
            .flat_map(Slots::iter)
            .filter_map(|slot| self.slab.get(slot))
    }

    pub(super) fn count(&self, index: usize, value: &str) -> usize {
        self.slots(index, value).map_or(0, Slots::len)
    }

    /// The position of the index `name`.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.definitions
            .iter()
            .position(|definition| definition.name == name)
    }

    /// The number of values in an index.
    #[cfg(test)]
    pub(super) fn values(&self, index: usize) -> usize {
        self.indexes[index].len()
    }

    /// Inserts an object under its key and returns the replaced one.
    pub(super) fn insert(&mut self, stored: Stored<K>) -> Option<Stored<K>> {
        if let Some(slot) = self.slot(stored.key()) {
            self.reindex(slot, &stored.object);
            return Some(std::mem::replace(self.slab.get_mut(slot)?, stored));
        }
        let object = Arc::clone(&stored.object);
        let slot = self.slab.insert(stored)?;
        let Self {
            definitions,
            slab,
            by_key,
            indexes,
            hasher,
        } = self;
        let hash = hasher.hash_one(object.key());
        by_key.insert_unique(hash, slot, |slot| hash_slot(hasher, slab, *slot));
        for (definition, index) in definitions.iter().zip(indexes) {
            (definition.values)(&object, &mut |value| {
                index.link(&Value::new(value, hasher, slab, definition), slot);
            });
        }
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Stored<K>> {
        let Self {
            definitions,
            slab,
            by_key,
            indexes,
            hasher,
        } = self;
        let hash = hasher.hash_one(key);
        let found = by_key
            .find_entry(hash, |slot| is_at(slab, *slot, key))
            .ok()?;
        let (slot, _) = found.remove();
        // Unlinks while the object is still in its slot: an index entry may derive its value from
        // it.
        let object = Arc::clone(&slab.get(slot)?.object);
        for (definition, index) in definitions.iter().zip(indexes) {
            (definition.values)(&object, &mut |value| {
                index.unlink(&Value::new(value, hasher, slab, definition), slot);
            });
        }
        slab.remove(slot)
    }

    fn slot(&self, key: &ObjectKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.by_key
            .find(hash, |slot| is_at(&self.slab, *slot, key))
            .copied()
    }

    fn slots(&self, index: usize, value: &str) -> Option<&Slots> {
        let definition = self.definitions.get(index)?;
        let value = Value::new(value, &self.hasher, &self.slab, definition);
        self.indexes.get(index)?.find(&value)
    }

    /// Must be called before the new object replaces the old one in its slot.
    fn reindex(&mut self, slot: u32, new: &K) {
        let Self {
            definitions,
            slab,
            indexes,
            hasher,
            ..
        } = self;
        let Some(old) = slab.get(slot) else { return };
        for (definition, index) in definitions.iter().zip(indexes) {
            let (old, new) = (definition.values_of(&old.object), definition.values_of(new));
            if old == new {
                continue;
            }
            for value in old.iter().filter(|value| !new.contains(value)) {
                index.unlink(&Value::new(value, hasher, slab, definition), slot);
            }
            for value in new.iter().filter(|value| !old.contains(value)) {
                index.link(&Value::new(value, hasher, slab, definition), slot);
            }
        }
    }
}

fn is_at<K: Slim>(slab: &Slab<K>, slot: u32, key: &ObjectKey) -> bool {
    slab.get(slot).is_some_and(|have| have.key() == key)
}

fn hash_slot<K: Slim>(hasher: &DefaultHashBuilder, slab: &Slab<K>, slot: u32) -> u64 {
    slab.get(slot)
        .map_or(0, |stored| hasher.hash_one(stored.key()))
}
