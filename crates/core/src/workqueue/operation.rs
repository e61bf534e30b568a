//! What is done to the state by whoever comes to it, not by who asked for it.

use super::clock::Tick;
use super::priority::Priority;
use super::state::{State, Verdict, When};
use super::table::KeyHash;

/// Something to do to the state whose result nobody waits for.
#[derive(Debug)]
pub(super) enum Operation<K> {
    /// A key is added.
    Add {
        hash: KeyHash,
        key: K,
        band: Priority,
        when: When,
        now: Tick,
    },
    /// The work on a key ended.
    Finish {
        index: u32,
        verdict: Verdict,
        now: Tick,
    },
}

impl<K: Eq> State<K> {
    /// One by one: should comparing keys panic, the others are still there for who comes next.
    pub(super) fn work_off(&mut self, dropped: &mut Vec<K>) {
        while let Some(operation) = self.tray.pop_front() {
            self.apply(operation, dropped);
        }
    }

    /// What is pushed to `dropped` is dropped without the lock.
    pub(super) fn apply(&mut self, operation: Operation<K>, dropped: &mut Vec<K>) {
        match operation {
            Operation::Add {
                hash,
                key,
                band,
                when,
                now,
            } => dropped.extend(self.add(hash, key, band, when, now)),
            Operation::Finish {
                index,
                verdict,
                now,
            } => dropped.extend(self.finish(index, verdict, now).dropped),
        }
    }
}
