//! Keys that are being processed, apart from the table: a few slots that are reused and stay in the
//! cache.

use std::time::Duration;

use super::clock::Tick;
use super::priority::Priority;
use super::state::When;

/// How a key is to run again that was added while it was being processed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rerun {
    /// Nothing.
    No,
    /// As soon as its work ends.
    Ready { priority: Priority, since: Tick },
    /// At this time.
    Delayed { priority: Priority, due: Tick },
}

/// The work on one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) started: Tick,
    pub(super) rerun: Rerun,
}

/// All work in progress. A run keeps its slot until it ends.
#[derive(Debug, Default)]
pub(super) struct Running {
    slots: Vec<Option<Run>>,
    free: Vec<u32>,
}

impl Running {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the slot of the new run.
    pub(super) fn begin(&mut self, now: Tick) -> u32 {
        let run = Some(Run {
            started: now,
            rerun: Rerun::No,
        });
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = run;
                slot
            }
            None => {
                self.slots.push(run);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// `None` if the slot is empty.
    pub(super) fn end(&mut self, slot: u32) -> Option<Run> {
        let run = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(run)
    }

    /// How the key of this run is to run again. `None` if the slot is empty.
    pub(super) fn rerun(&mut self, slot: u32) -> Option<&mut Rerun> {
        let run = self.slots[slot as usize].as_mut()?;
        Some(&mut run.rerun)
    }

    pub(super) fn reruns(&mut self) -> impl Iterator<Item = &mut Rerun> {
        self.slots.iter_mut().flatten().map(|run| &mut run.rerun)
    }

    /// The sum of the ages of all runs, and the longest. Computed on demand, because it is rarely
    /// needed and there are no more runs than workers.
    pub(super) fn ages(&self, now: Tick) -> (Duration, Duration) {
        let ages = || self.slots.iter().flatten().map(|run| run.started);
        let sum = ages().fold(0_u64, |sum, started| sum.saturating_add(now.since(started)));
        let longest = ages().map(|started| now.since(started)).max().unwrap_or(0);
        (Duration::from_nanos(sum), Duration::from_nanos(longest))
    }
}

impl Rerun {
    pub(super) fn merge(self, priority: Priority, when: When, now: Tick) -> Self {
        match (self, when) {
            (Self::No, When::Now) => Self::Ready {
                priority,
                since: now,
            },
            (Self::No, When::At(due)) => Self::Delayed { priority, due },
            (
                Self::Ready {
                    priority: old,
                    since,
                },
                _,
            ) => Self::Ready {
                priority: old.highest(priority),
                since,
            },
            (Self::Delayed { priority: old, .. }, When::Now) => Self::Ready {
                priority: old.highest(priority),
                since: now,
            },
            (Self::Delayed { priority: old, due }, When::At(other)) => Self::Delayed {
                priority: old.highest(priority),
                due: due.min(other),
            },
        }
    }
}
