use crate::informer::Stored;

/// Objects by number, in chunks: growing moves nothing and leaves no half-empty vector behind,
/// which would waste about thirty megabytes for a million objects.
pub(super) struct Slab<K> {
    chunks: Vec<Vec<Option<Stored<K>>>>,
    free: Vec<u32>,
}

/// Small, so that a store of a few objects is small too.
const FIRST_CHUNK: usize = 4;

/// The number of slots of a chunk.
const CHUNK: usize = 1024;

impl<K> Slab<K> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Stored<K>> {
        let (chunk, at) = place(slot);
        self.chunks.get(chunk)?.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Stored<K>> {
        let (chunk, at) = place(slot);
        self.chunks.get_mut(chunk)?.get_mut(at)?.as_mut()
    }

    /// Returns the slot; `None` if there are four billion objects: then the object is dropped.
    pub(super) fn insert(&mut self, stored: Stored<K>) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            let (chunk, at) = place(slot);
            *self.chunks.get_mut(chunk)?.get_mut(at)? = Some(stored);
            return Some(slot);
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            let capacity = if self.chunks.is_empty() {
                FIRST_CHUNK
            } else {
                CHUNK
            };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut()?;
        let slot = u32::try_from(full + last.len()).ok()?;
        last.push(Some(stored));
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Stored<K>> {
        let (chunk, at) = place(slot);
        let stored = self.chunks.get_mut(chunk)?.get_mut(at)?.take()?;
        self.free.push(slot);
        Some(stored)
    }

    /// In the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stored<K>> {
        self.chunks.iter().flatten().flatten()
    }

    /// In the order of the slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stored<K>> {
        self.chunks.iter_mut().flatten().flatten()
    }
}

const fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot / CHUNK, slot % CHUNK)
}
