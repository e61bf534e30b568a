use std::collections::BTreeSet;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::slab::Slab;

/// Emits the values under which an object is found.
pub(super) type Values<K> = dyn Fn(&K, &mut dyn FnMut(&str)) + Send + Sync;

/// The name of an index and its values.
pub(in crate::informer) struct IndexDefinition<K> {
    pub(in crate::informer) name: &'static str,
    pub(in crate::informer) values: Box<Values<K>>,
}

impl<K> IndexDefinition<K> {
    /// Whether the object has the value `wanted`.
    fn has_value(&self, object: &K, wanted: &str) -> bool {
        let mut found = false;
        (self.values)(object, &mut |value| found |= value == wanted);
        found
    }

    /// The values, sorted and without duplicates.
    pub(super) fn values_of(&self, object: &K) -> Vec<String> {
        let mut values = Vec::new();
        (self.values)(object, &mut |value| values.push(value.to_owned()));
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// Slots by the values of their objects.
///
/// Values are not stored: an entry has the hash of its value, and the value itself is computed from
/// its first object.
pub(super) struct Index {
    entries: HashTable<Entry>,
}

struct Entry {
    hash: u64,
    slots: Slots,
}

impl Index {
    pub(super) const fn new() -> Self {
        Self {
            entries: HashTable::new(),
        }
    }

    /// The number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The slots of a value.
    pub(super) fn find<K>(&self, value: &Value<'_, K>) -> Option<&Slots> {
        let entry = self.entries.find(value.hash, |entry| value.is_of(entry))?;
        Some(&entry.slots)
    }

    /// Adds a slot whose object has the value.
    pub(super) fn link<K>(&mut self, value: &Value<'_, K>, slot: u32) {
        match self
            .entries
            .find_mut(value.hash, |entry| value.is_of(entry))
        {
            Some(entry) => entry.slots.insert(slot),
            None => {
                let entry = Entry {
                    hash: value.hash,
                    slots: Slots::One(slot),
                };
                self.entries
                    .insert_unique(value.hash, entry, |entry| entry.hash);
            }
        }
    }

    /// Removes a slot whose object still has the value. An entry without slots is removed.
    pub(super) fn unlink<K>(&mut self, value: &Value<'_, K>, slot: u32) {
        let found = self
            .entries
            .find_entry(value.hash, |entry| value.is_of(entry));
        if let Ok(mut found) = found
            && found.get_mut().slots.remove(slot)
        {
            found.remove();
        }
    }
}

/// A value of one index, with what is needed to find its entry.
pub(super) struct Value<'a, K> {
    text: &'a str,
    hash: u64,
    slab: &'a Slab<K>,
    definition: &'a IndexDefinition<K>,
}

impl<'a, K> Value<'a, K> {
    pub(super) fn new(
        text: &'a str,
        hasher: &DefaultHashBuilder,
        slab: &'a Slab<K>,
        definition: &'a IndexDefinition<K>,
    ) -> Self {
        Self {
            text,
            hash: hasher.hash_one(text),
            slab,
            definition,
        }
    }

    fn is_of(&self, entry: &Entry) -> bool {
        entry.hash == self.hash
            && entry
                .slots
                .first()
                .and_then(|slot| self.slab.get(slot))
                .is_some_and(|stored| self.definition.has_value(&stored.object, self.text))
    }
}

/// The slots of one value. Most values have one object, some have thousands.
pub(super) enum Slots {
    One(u32),
    /// Boxed, because an entry with one slot, the usual case, is then half as large.
    #[allow(clippy::box_collection, reason = "an entry of one is half as large")]
    Many(Box<BTreeSet<u32>>),
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(slots) => slots.len(),
        }
    }

    fn first(&self) -> Option<u32> {
        match self {
            Self::One(slot) => Some(*slot),
            Self::Many(slots) => slots.first().copied(),
        }
    }

    fn insert(&mut self, slot: u32) {
        match self {
            Self::One(have) if *have == slot => {}
            Self::One(have) => *self = Self::Many(Box::new(BTreeSet::from([*have, slot]))),
            Self::Many(slots) => {
                slots.insert(slot);
            }
        }
    }

    /// Removes a slot; returns whether none is left.
    fn remove(&mut self, slot: u32) -> bool {
        match self {
            Self::One(have) => *have == slot,
            Self::Many(slots) => {
                slots.remove(&slot);
                slots.is_empty()
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(slot) => (Some(*slot), None),
            Self::Many(slots) => (None, Some(slots)),
        };
        let many = many.into_iter().flat_map(|slots| slots.iter());
        one.into_iter().chain(many.copied())
    }
}
