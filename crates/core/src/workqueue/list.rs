//! A FIFO list linked through the entries of the table: push, remove and pop cost O(1), also in the
//! middle, so a change of a key's priority needs no search.

use super::table::{Entry, NONE};

#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn front(&self) -> Option<u32> {
        if self.head == NONE {
            None
        } else {
            Some(self.head)
        }
    }

    pub(super) fn push_back<K>(&mut self, entries: &mut [Entry<K>], index: u32) {
        let entry = &mut entries[index as usize];
        entry.prev = self.tail;
        entry.next = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => entries[tail as usize].next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// The entry must be in this list.
    pub(super) fn remove<K>(&mut self, entries: &mut [Entry<K>], index: u32) {
        let entry = &entries[index as usize];
        let (prev, next) = (entry.prev, entry.next);
        match prev {
            NONE => self.head = next,
            prev => entries[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => entries[next as usize].prev = prev,
        }
        self.len -= 1;
    }
}
