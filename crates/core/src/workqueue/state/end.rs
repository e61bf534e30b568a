//! The end of the work on a key, and of the queue.

use std::time::Duration;

use super::running::Rerun;
use super::{Completion, Finished, Phase, State, When};
use crate::workqueue::clock::Tick;
use crate::workqueue::table::Place;

/// How many entries that are not needed any more may wait for their removal.
const REMOVAL_BATCH: usize = 64;

impl<K> State<K> {
    /// The work on a key ended.
    pub(in crate::workqueue) fn finish(
        &mut self,
        index: u32,
        completion: Completion,
        now: Tick,
    ) -> Finished<K> {
        self.release_due(now);
        let mut delay = Duration::ZERO;
        let rerun_at = match completion {
            Completion::Done => None,
            Completion::Succeeded => {
                self.table.entry_mut(index).failures = 0;
                None
            }
            Completion::Again(when) => {
                self.table.entry_mut(index).failures = 0;
                Some(when)
            }
            Completion::Failed { backoff, draw } => {
                delay = self.fail(index, backoff, draw, now);
                Some(When::At(now.after(delay)))
            }
        };
        if let Some(when) = rerun_at
            && self.phase == Phase::Open
        {
            let priority = self.table.entry(index).priority;
            self.merge(index, priority, when, now);
        }
        let entry = self.table.entry_mut(index);
        if let Place::Processing { run } = std::mem::replace(&mut entry.place, Place::Idle)
            && let Some(run) = self.running.end(run)
        {
            if let Some(durations) = &mut self.durations {
                durations.worked.push(now.since(run.started));
            }
            match run.rerun {
                Rerun::No => {}
                Rerun::Ready { priority, since } => {
                    self.reruns[priority.index()] -= 1;
                    self.push_ready(index, priority, since);
                }
                Rerun::Delayed { priority, due } => {
                    self.enqueue(index, priority, When::At(due), now);
                }
            }
        }
        let dropped = self.drop_unneeded(index);
        if self.phase == Phase::Draining && self.closed() {
            self.phase = Phase::ShutDown;
        }
        Finished { dropped, delay }
    }

    /// Removes an entry that is not needed any more, now or with the next batch.
    pub(super) fn drop_unneeded(&mut self, index: u32) -> Vec<K> {
        if !self.is_unneeded(index) {
            return Vec::new();
        }
        self.unneeded.push(index);
        let quiet = self.ready_len() + self.running.len() + self.delays.len() == 0;
        if quiet || self.unneeded.len() >= REMOVAL_BATCH {
            self.sweep()
        } else {
            Vec::new()
        }
    }

    fn is_unneeded(&self, index: u32) -> bool {
        let entry = self.table.entry(index);
        entry.key.is_some() && entry.failures == 0 && matches!(entry.place, Place::Idle)
    }

    fn sweep(&mut self) -> Vec<K> {
        let unneeded = self.still_unneeded();
        self.unneeded.clear();
        self.table.remove(&unneeded)
    }

    pub(super) fn still_unneeded(&self) -> Vec<u32> {
        let mut unneeded = self.unneeded.clone();
        unneeded.sort_unstable();
        unneeded.dedup();
        unneeded.retain(|index| self.is_unneeded(*index));
        unneeded
    }

    /// Changes the phase towards the end and returns the keys that will not be worked on any more,
    /// to be dropped outside of the lock.
    pub(in crate::workqueue) fn close(&mut self, phase: Phase) -> Vec<K> {
        match (self.phase, phase) {
            (Phase::ShutDown, _) | (_, Phase::Open) | (Phase::Draining, Phase::Draining) => {
                return Vec::new();
            }
            _ => {}
        }
        self.phase = phase;
        let mut removed = self.delays.clear();
        self.cancel_reruns();
        if phase == Phase::ShutDown {
            for ready in &mut self.ready {
                while let Some(index) = ready.front() {
                    ready.remove(&mut self.table.entries, index);
                    removed.push(index);
                }
            }
        }
        if self.closed() {
            self.phase = Phase::ShutDown;
        }
        // Swept before the others are removed: no entry may be listed twice.
        let mut dropped = self.sweep();
        dropped.extend(self.table.remove(&removed));
        dropped
    }

    /// Cancels the reruns that a closing queue will not hand out.
    fn cancel_reruns(&mut self) {
        let draining = self.phase == Phase::Draining;
        for rerun in self.running.reruns() {
            match std::mem::replace(rerun, Rerun::No) {
                Rerun::Ready { priority, since } if draining => {
                    *rerun = Rerun::Ready { priority, since }
                }
                Rerun::Ready { priority, .. } => self.reruns[priority.index()] -= 1,
                Rerun::No | Rerun::Delayed { .. } => {}
            }
        }
    }
}
