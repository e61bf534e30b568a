//! Keys that are not due yet: a binary heap that stores the position in each entry, so that moving
//! a key to an earlier time or removing it costs O(log n) and leaves no stale items.

use super::clock::Tick;
use super::table::{Entry, Place};

#[derive(Debug, Clone, Copy)]
struct Delay {
    due: Tick,
    /// Keys due at the same time keep the order in which they were added.
    order: u64,
    index: u32,
}

impl Delay {
    fn before(&self, other: &Self) -> bool {
        (self.due, self.order) < (other.due, other.order)
    }
}

#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Delay>,
    added: u64,
}

impl Delays {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the first key is due.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.heap.first().map(|delay| delay.due)
    }

    pub(super) fn due(&self, position: u32) -> Tick {
        self.heap[position as usize].due
    }

    pub(super) fn push<K>(&mut self, entries: &mut [Entry<K>], index: u32, due: Tick) {
        self.added += 1;
        self.heap.push(Delay {
            due,
            order: self.added,
            index,
        });
        self.rise(entries, self.heap.len() - 1);
    }

    /// Removes the first key if it is due.
    pub(super) fn pop_due<K>(
        &mut self,
        entries: &mut [Entry<K>],
        now: Tick,
    ) -> Option<(u32, Tick)> {
        let first = *self.heap.first().filter(|delay| delay.due <= now)?;
        self.remove(entries, 0);
        Some((first.index, first.due))
    }

    /// Removes all keys and returns their indices. The caller removes the entries.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.heap.drain(..).map(|delay| delay.index).collect()
    }

    pub(super) fn remove<K>(&mut self, entries: &mut [Entry<K>], position: u32) {
        let position = position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let settled = self.rise(entries, position);
            self.sink(entries, settled);
        }
    }

    fn rise<K>(&mut self, entries: &mut [Entry<K>], mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if !self.heap[position].before(&self.heap[parent]) {
                break;
            }
            self.heap.swap(position, parent);
            self.set_position(entries, position);
            position = parent;
        }
        self.set_position(entries, position);
        position
    }

    fn sink<K>(&mut self, entries: &mut [Entry<K>], mut position: usize) {
        loop {
            let left = 2 * position + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].before(&self.heap[left]) {
                right
            } else {
                left
            };
            if !self.heap[child].before(&self.heap[position]) {
                break;
            }
            self.heap.swap(position, child);
            self.set_position(entries, position);
            position = child;
        }
        self.set_position(entries, position);
    }

    fn set_position<K>(&self, entries: &mut [Entry<K>], position: usize) {
        let index = self.heap[position].index as usize;
        entries[index].place = Place::Delayed {
            position: position as u32,
        };
    }
}
