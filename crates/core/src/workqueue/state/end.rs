//! How work on a key ends, and how the queue does.

use std::time::Duration;

use super::{Finished, Phase, State, Verdict, When};
use crate::workqueue::clock::Tick;
use crate::workqueue::running::Rerun;
use crate::workqueue::table::Place;

/// How many entries that are not needed any more may wait for their removal.
const REMOVE_AT_ONCE: usize = 64;

impl<K> State<K> {
    /// The work on a key ended.
    pub(in crate::workqueue) fn finish(
        &mut self,
        index: u32,
        verdict: Verdict,
        now: Tick,
    ) -> Finished<K> {
        self.release_due(now);
        let mut delay = Duration::ZERO;
        let asked = match verdict {
            Verdict::Done => None,
            Verdict::Succeeded => {
                self.table.entry_mut(index).failures = 0;
                None
            }
            Verdict::Again(when) => {
                self.table.entry_mut(index).failures = 0;
                Some(when)
            }
            Verdict::Failed { backoff, draw } => {
                delay = self.fail(index, backoff, draw);
                Some(When::At(now.after(delay)))
            }
        };
        if let Some(when) = asked
            && self.phase == Phase::Open
        {
            let band = self.table.entry(index).band;
            self.merge(index, band, when, now);
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
                Rerun::Ready { band, since } => {
                    self.reruns[band.index()] -= 1;
                    self.push_ready(index, band, since);
                }
                Rerun::Delayed { band, due } => self.enqueue(index, band, When::At(due), now),
            }
        }
        let dropped = self.drop_unneeded(index);
        if self.phase == Phase::Draining && self.closed() {
            self.phase = Phase::ShutDown;
        }
        Finished { dropped, delay }
    }

    /// Removes an entry that is not needed any more, now or a little later.
    pub(super) fn drop_unneeded(&mut self, index: u32) -> Vec<K> {
        if !self.is_unneeded(index) {
            return Vec::new();
        }
        self.unneeded.push(index);
        let quiet = self.ready_len() + self.running.len() + self.delays.len() == 0;
        if quiet || self.unneeded.len() >= REMOVE_AT_ONCE {
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

    /// Changes the phase towards the end and lets go of what will not be worked on any more, to be
    /// dropped outside the lock.
    pub(in crate::workqueue) fn close(&mut self, phase: Phase) -> Vec<K> {
        match (self.phase, phase) {
            (Phase::ShutDown, _) | (_, Phase::Open) | (Phase::Draining, Phase::Draining) => {
                return Vec::new();
            }
            _ => {}
        }
        self.phase = phase;
        let mut let_go = self.delays.clear();
        self.let_go_of_reruns();
        if phase == Phase::ShutDown {
            for ready in &mut self.ready {
                while let Some(index) = ready.front() {
                    ready.remove(&mut self.table.entries, index);
                    let_go.push(index);
                }
            }
        }
        if self.closed() {
            self.phase = Phase::ShutDown;
        }
        // Swept before these are removed: none of them may be named twice.
        let mut dropped = self.sweep();
        dropped.extend(self.table.remove(&let_go));
        dropped
    }

    /// Lets go of what a closing queue will not hand out after the work in progress.
    fn let_go_of_reruns(&mut self) {
        let draining = self.phase == Phase::Draining;
        for rerun in self.running.reruns() {
            match std::mem::replace(rerun, Rerun::No) {
                Rerun::Ready { band, since } if draining => *rerun = Rerun::Ready { band, since },
                Rerun::Ready { band, .. } => self.reruns[band.index()] -= 1,
                Rerun::No | Rerun::Delayed { .. } => {}
            }
        }
    }
}
