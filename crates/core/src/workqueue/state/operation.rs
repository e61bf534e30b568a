//! Operations on the state that another thread may apply than the one that submitted them.

use super::{Completion, State, When};
use crate::workqueue::clock::Tick;
use crate::workqueue::priority::Priority;
use crate::workqueue::table::KeyHash;

/// An operation without a result.
#[derive(Debug)]
pub(in crate::workqueue) enum Operation<K> {
    /// A key is added.
    Add {
        hash: KeyHash,
        key: K,
        priority: Priority,
        when: When,
        now: Tick,
    },
    /// The work on a key ended.
    Finish {
        index: u32,
        completion: Completion,
        now: Tick,
    },
}

impl<K: Eq> State<K> {
    /// One by one: if comparing keys panics, the other operations are still there.
    pub(in crate::workqueue) fn apply_pending(&mut self, dropped: &mut Vec<K>) {
        while let Some(operation) = self.pending.pop_front() {
            self.apply(operation, dropped);
        }
    }

    /// Keys that are pushed to `dropped` are dropped without the lock.
    pub(in crate::workqueue) fn apply(&mut self, operation: Operation<K>, dropped: &mut Vec<K>) {
        match operation {
            Operation::Add {
                hash,
                key,
                priority,
                when,
                now,
            } => dropped.extend(self.add(hash, key, priority, when, now)),
            Operation::Finish {
                index,
                completion,
                now,
            } => dropped.extend(self.finish(index, completion, now).dropped),
        }
    }
}
