//! Keys that are being processed, apart from the table: a few slots that are reused and stay in the
//! cache.

use std::time::Duration;

use super::When;
use crate::workqueue::clock::Tick;
use crate::workqueue::priority::Priority;

/// How a key is to run again that was added while it was being processed.
#[derive(Debug, Clone, Copy)]
pub(in crate::workqueue) enum Rerun {
    /// Nothing.
    No,
    /// As soon as its work ends.
    Ready { priority: Priority, since: Tick },
    /// At this time.
    Delayed { priority: Priority, due: Tick },
}

/// The work on one key.
#[derive(Debug, Clone, Copy)]
pub(in crate::workqueue) struct Run {
    pub(in crate::workqueue) started: Tick,
    pub(in crate::workqueue) rerun: Rerun,
}

/// All work in progress. A run keeps its slot until it ends.
#[derive(Debug, Default)]
pub(in crate::workqueue) struct Running {
    slots: Vec<Option<Run>>,
    free: Vec<u32>,
}

impl Running {
    pub(in crate::workqueue) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the slot of the new run.
    pub(in crate::workqueue) fn begin(&mut self, now: Tick) -> u32 {
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
    pub(in crate::workqueue) fn end(&mut self, slot: u32) -> Option<Run> {
        let run = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(run)
    }

    /// How the key of this run is to run again. `None` if the slot is empty.
    pub(in crate::workqueue) fn rerun(&mut self, slot: u32) -> Option<&mut Rerun> {
        let run = self.slots[slot as usize].as_mut()?;
        Some(&mut run.rerun)
    }

    pub(in crate::workqueue) fn reruns(&mut self) -> impl Iterator<Item = &mut Rerun> {
        self.slots.iter_mut().flatten().map(|run| &mut run.rerun)
    }

    /// The sum of the ages of all runs, and the longest. Computed on demand, because it is rarely
    /// needed and there are no more runs than workers.
    pub(in crate::workqueue) fn ages(&self, now: Tick) -> (Duration, Duration) {
        let ages = || self.slots.iter().flatten().map(|run| run.started);
        let sum = ages().fold(0_u64, |sum, started| sum.saturating_add(now.since(started)));
        let longest = ages().map(|started| now.since(started)).max().unwrap_or(0);
        (Duration::from_nanos(sum), Duration::from_nanos(longest))
    }
}

impl Rerun {
    pub(in crate::workqueue) fn merge(self, priority: Priority, when: When, now: Tick) -> Self {
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
