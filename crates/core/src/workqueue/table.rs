//! The keys of the queue: a slab of entries, found by key through a hash table of their indices.
//!
//! All other parts of the queue (ready lists, delays, running work) refer to entries by index, so a
//! key is hashed once, before the lock is taken, and compared once.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table};

use super::clock::Tick;
use super::priority::Priority;

/// No entry: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// A slab that has grown beyond this many entries frees its memory when it becomes empty twice in a
/// row with little use in between: after a burst, but not between the peaks of a steady load.
const KEEP_CAPACITY: usize = 4096;

/// The hash of a key. 32 bits distinguish a million keys except for about a hundred pairs, and keep
/// a table slot at eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    /// Spread over 64 bits: the table takes its bucket from the low bits and its tag from the high
    /// ones.
    const fn spread(self) -> u64 {
        (self.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Hashes keys, outside the lock.
#[derive(Debug, Default)]
pub(super) struct Hasher(DefaultHashBuilder);

impl Hasher {
    pub(super) fn hash<K: Hash>(&self, key: &K) -> KeyHash {
        let hash = self.0.hash_one(key);
        KeyHash((hash ^ (hash >> 32)) as u32)
    }
}

/// Where a key is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In no list; only its failures are kept.
    Idle,
    /// In the ready list of its priority.
    Ready { since: Tick },
    /// Among the delays, at this position of the heap.
    Delayed { position: u32 },
    /// Handed out: the work on it is in this slot of the running work.
    Processing { run: u32 },
}

/// One key.
#[derive(Debug)]
pub(super) struct Entry<K> {
    /// `None` only while the entry is free.
    pub(super) key: Option<K>,
    hash: KeyHash,
    pub(super) priority: Priority,
    pub(super) place: Place,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Neighbours in the list the entry is in; a free entry's `next` is the next free one.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Backoff ceiling of the last failure, in nanoseconds.
    pub(super) ceiling: u64,
    /// The end of the shortest delay after the last failure.
    pub(super) not_before: Tick,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: KeyHash,
    index: u32,
}

#[derive(Debug)]
pub(super) struct Table<K> {
    slots: HashTable<Slot>,
    pub(super) entries: Vec<Entry<K>>,
    free: u32,
    /// The maximum number of entries in use since the table was last empty.
    peak: usize,
}

/// The result of [`Table::find_or_insert`].
pub(super) enum Found<K> {
    /// The key has an entry; the given key is returned, to be dropped outside of the lock.
    Known(u32, K),
    New(u32),
}

impl<K> Table<K> {
    pub(super) fn new() -> Self {
        Self {
            slots: HashTable::new(),
            entries: Vec::new(),
            free: NONE,
            peak: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn entry(&self, index: u32) -> &Entry<K> {
        &self.entries[index as usize]
    }

    pub(super) fn entry_mut(&mut self, index: u32) -> &mut Entry<K> {
        &mut self.entries[index as usize]
    }

    pub(super) fn find(&self, hash: KeyHash, key: &K) -> Option<u32>
    where
        K: Eq,
    {
        let same = |slot: &Slot| {
            slot.hash == hash && self.entries[slot.index as usize].key.as_ref() == Some(key)
        };
        self.slots.find(hash.spread(), same).map(|slot| slot.index)
    }

    /// A new entry is [`Place::Idle`].
    pub(super) fn find_or_insert(&mut self, hash: KeyHash, key: K, priority: Priority) -> Found<K>
    where
        K: Eq,
    {
        let entries = &mut self.entries;
        let same = |slot: &Slot| {
            slot.hash == hash && entries[slot.index as usize].key.as_ref() == Some(&key)
        };
        let vacant = match self
            .slots
            .entry(hash.spread(), same, |slot| slot.hash.spread())
        {
            hash_table::Entry::Occupied(slot) => return Found::Known(slot.get().index, key),
            hash_table::Entry::Vacant(vacant) => vacant,
        };
        let entry = Entry {
            key: Some(key),
            hash,
            priority,
            place: Place::Idle,
            failures: 0,
            prev: NONE,
            next: NONE,
            ceiling: 0,
            not_before: Tick::default(),
        };
        let index = if self.free == NONE {
            // Four billion keys do not fit into memory.
            let index = entries.len() as u32;
            entries.push(entry);
            index
        } else {
            let index = self.free;
            let slot = &mut entries[index as usize];
            self.free = slot.next;
            *slot = entry;
            index
        };
        vacant.insert(Slot { hash, index });
        self.peak = self.peak.max(self.slots.len());
        Found::New(index)
    }

    /// Removes entries, each listed once, and returns their keys, to be dropped outside of the
    /// lock.
    ///
    /// Many are removed at once, and all are looked up before the first is removed: in a large
    /// table each lookup is a cache miss, and independent ones overlap. One by one, removal took a
    /// third of the time of a queue with a backlog.
    pub(super) fn remove(&mut self, indices: &[u32]) -> Vec<K> {
        let find = |index: &u32| {
            let hash = self.entry(*index).hash.spread();
            self.slots
                .find_bucket_index(hash, |slot| slot.index == *index)
        };
        let buckets: Vec<_> = indices.iter().map(find).collect();
        let mut keys = Vec::with_capacity(indices.len());
        for (index, bucket) in indices.iter().zip(buckets) {
            let entry = &mut self.entries[*index as usize];
            keys.extend(entry.key.take());
            entry.next = self.free;
            self.free = *index;
            if let Some(Ok(slot)) = bucket.map(|bucket| self.slots.get_bucket_entry(bucket)) {
                slot.remove();
            }
        }
        if self.slots.is_empty() {
            self.ran_empty();
        }
        keys
    }

    fn ran_empty(&mut self) {
        if self.entries.capacity() > KEEP_CAPACITY && self.peak < self.entries.capacity() / 4 {
            *self = Self::new();
        }
        self.peak = 0;
    }
}
