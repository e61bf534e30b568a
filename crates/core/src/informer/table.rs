use std::collections::BTreeSet;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::moment::Moment;
use crate::object::ObjectKey;
use crate::slim::Slim;

/// An object in a store.
pub struct Stored<K> {
    /// The object.
    pub object: Arc<K>,
    /// When the store first held this UID.
    pub first_seen: Moment,
    /// When the store first held this UID with a deletion timestamp.
    pub deletion_seen: Option<Moment>,
}

impl<K> Clone for Stored<K> {
    fn clone(&self) -> Self {
        Self {
            object: Arc::clone(&self.object),
            ..*self
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Stored<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("object", &self.object)
            .field("first_seen", &self.first_seen)
            .field("deletion_seen", &self.deletion_seen)
            .finish()
    }
}

impl<K> std::ops::Deref for Stored<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K: Slim> Stored<K> {
    /// An object that comes into the store now.
    pub(super) fn fresh(object: Arc<K>, now: Moment) -> Self {
        let deletion_seen = object.meta().is_deleting().then_some(now);
        Self {
            object,
            first_seen: now,
            deletion_seen,
        }
    }

    /// The next state of this UID.
    pub(super) fn followed_by(&self, object: Arc<K>, now: Moment) -> Self {
        let deletion_seen = self
            .deletion_seen
            .or_else(|| object.meta().is_deleting().then_some(now));
        Self {
            object,
            first_seen: self.first_seen,
            deletion_seen,
        }
    }
}

/// Shows the values under which an object is found.
type Values<K> = dyn Fn(&K, &mut dyn FnMut(Arc<str>)) + Send + Sync;

/// What an index is called and what it finds objects by.
pub(super) struct IndexDefinition<K> {
    pub(super) name: &'static str,
    pub(super) values: Box<Values<K>>,
}

/// Objects by key and by the values of the indexes.
///
/// Every object has a slot; the key table and the indexes hold slot numbers only, so that no key
/// is stored twice. Nothing iterates over a hash table: order is that of the slots.
pub(super) struct Table<K> {
    definitions: Arc<[IndexDefinition<K>]>,
    slots: Vec<Option<Stored<K>>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    /// One per definition.
    indexes: Vec<HashTable<Entry>>,
    hasher: DefaultHashBuilder,
}

struct Entry {
    value: Arc<str>,
    slots: Slots,
}

/// Most values lead to one object, some to thousands.
enum Slots {
    One(u32),
    Many(BTreeSet<u32>),
}

impl Slots {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(slots) => slots.len(),
        }
    }

    fn insert(&mut self, slot: u32) {
        match self {
            Self::One(have) if *have == slot => {}
            Self::One(have) => *self = Self::Many(BTreeSet::from([*have, slot])),
            Self::Many(slots) => {
                slots.insert(slot);
            }
        }
    }

    /// Whether none is left.
    fn remove(&mut self, slot: u32) -> bool {
        match self {
            Self::One(have) => *have == slot,
            Self::Many(slots) => {
                slots.remove(&slot);
                slots.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(slot) => (Some(*slot), None),
            Self::Many(slots) => (None, Some(slots)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

impl<K: Slim> Table<K> {
    pub(super) fn new(definitions: Arc<[IndexDefinition<K>]>) -> Self {
        let indexes = definitions.iter().map(|_| HashTable::new()).collect();
        Self {
            definitions,
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            indexes,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// An empty table with the same indexes.
    pub(super) fn empty_like(&self) -> Self {
        Self::new(Arc::clone(&self.definitions))
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Stored<K>> {
        self.at(self.slot(key)?)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Stored<K>> {
        let slot = self.slot(key)?;
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// In the order in which they came, except that slots of objects that went are used again.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stored<K>> {
        self.slots.iter().flatten()
    }

    /// As [`Table::iter`]. What is changed must not change key or index values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stored<K>> {
        self.slots.iter_mut().flatten()
    }

    /// Those with `value` in the index at `index`, in slot order.
    pub(super) fn find(&self, index: usize, value: &str) -> impl Iterator<Item = &Stored<K>> {
        let slots = self.entry(index, value).map(|entry| &entry.slots);
        slots
            .into_iter()
            .flat_map(Slots::iter)
            .filter_map(|slot| self.at(slot))
    }

    pub(super) fn count(&self, index: usize, value: &str) -> usize {
        self.entry(index, value)
            .map_or(0, |entry| entry.slots.len())
    }

    /// The place of the index called `name`.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.definitions
            .iter()
            .position(|definition| definition.name == name)
    }

    /// How many values an index holds.
    #[cfg(test)]
    pub(super) fn values(&self, index: usize) -> usize {
        self.indexes[index].len()
    }

    /// Puts an object in the place of its key and hands back what was there.
    pub(super) fn insert(&mut self, stored: Stored<K>) -> Option<Stored<K>> {
        if let Some(slot) = self.slot(stored.key()) {
            self.reindex(slot, &stored.object);
            return self.slots[slot as usize].replace(stored);
        }
        let object = Arc::clone(&stored.object);
        let slot = self.take_slot(stored)?;
        let Self {
            hasher,
            slots,
            by_key,
            ..
        } = self;
        let hash = hasher.hash_one(object.key());
        by_key.insert_unique(hash, slot, |slot| hash_slot(hasher, slots, *slot));
        for (value, index) in self.values_of(&object) {
            self.link(index, value, slot);
        }
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Stored<K>> {
        let hash = self.hasher.hash_one(key);
        let slots = &self.slots;
        let found = self
            .by_key
            .find_entry(hash, |slot| is_at(slots, *slot, key))
            .ok()?;
        let (slot, _) = found.remove();
        let stored = self.slots.get_mut(slot as usize)?.take()?;
        for (value, index) in self.values_of(&stored.object) {
            self.unlink(index, &value, slot);
        }
        self.free.push(slot);
        Some(stored)
    }

    fn at(&self, slot: u32) -> Option<&Stored<K>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn slot(&self, key: &ObjectKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.by_key
            .find(hash, |slot| is_at(&self.slots, *slot, key))
            .copied()
    }

    /// `None` when four billion objects are stored: the new one is dropped.
    fn take_slot(&mut self, stored: Stored<K>) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(stored);
            return Some(slot);
        }
        let slot = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Some(stored));
        Some(slot)
    }

    /// Each value once, with the index it belongs to.
    fn values_of(&self, object: &K) -> Vec<(Arc<str>, usize)> {
        let mut values = Vec::new();
        for (index, definition) in self.definitions.iter().enumerate() {
            (definition.values)(object, &mut |value| values.push((value, index)));
        }
        values.sort();
        values.dedup();
        values
    }

    fn reindex(&mut self, slot: u32, new: &K) {
        if self.definitions.is_empty() {
            return;
        }
        let new = self.values_of(new);
        let old = self
            .at(slot)
            .map(|old| self.values_of(&old.object))
            .unwrap_or_default();
        for (value, index) in old.iter().filter(|value| new.binary_search(value).is_err()) {
            self.unlink(*index, value, slot);
        }
        for (value, index) in new.iter().filter(|value| old.binary_search(value).is_err()) {
            self.link(*index, Arc::clone(value), slot);
        }
    }

    fn entry(&self, index: usize, value: &str) -> Option<&Entry> {
        let hash = self.hasher.hash_one(value);
        self.indexes
            .get(index)?
            .find(hash, |entry| *entry.value == *value)
    }

    fn link(&mut self, index: usize, value: Arc<str>, slot: u32) {
        let Self {
            hasher, indexes, ..
        } = self;
        let Some(entries) = indexes.get_mut(index) else {
            return;
        };
        let hash = hasher.hash_one(&*value);
        match entries.find_mut(hash, |entry| entry.value == value) {
            Some(entry) => entry.slots.insert(slot),
            None => {
                let entry = Entry {
                    value,
                    slots: Slots::One(slot),
                };
                entries.insert_unique(hash, entry, |entry| hasher.hash_one(&*entry.value));
            }
        }
    }

    fn unlink(&mut self, index: usize, value: &str, slot: u32) {
        let hash = self.hasher.hash_one(value);
        let Some(entries) = self.indexes.get_mut(index) else {
            return;
        };
        let Ok(mut found) = entries.find_entry(hash, |entry| *entry.value == *value) else {
            return;
        };
        if found.get_mut().slots.remove(slot) {
            found.remove();
        }
    }
}

fn is_at<K: Slim>(slots: &[Option<Stored<K>>], slot: u32, key: &ObjectKey) -> bool {
    slots
        .get(slot as usize)
        .and_then(Option::as_ref)
        .is_some_and(|have| have.key() == key)
}

fn hash_slot<K: Slim>(hasher: &DefaultHashBuilder, slots: &[Option<Stored<K>>], slot: u32) -> u64 {
    let stored = slots.get(slot as usize).and_then(Option::as_ref);
    stored.map_or(0, |stored| hasher.hash_one(stored.key()))
}
