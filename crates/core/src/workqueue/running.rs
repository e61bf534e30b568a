//! Keys that are being processed, apart from the table: a handful of places that are used again and
//! again and stay in the cache.

use std::time::Duration;

use super::clock::Tick;
use super::priority::Priority;
use super::state::When;

/// What was asked for a key while it was being processed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rerun {
    /// Nothing.
    No,
    /// To run again as soon as it is done.
    Ready { band: Priority, since: Tick },
    /// To run again at this time.
    Delayed { band: Priority, due: Tick },
}

/// The work on one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) started: Tick,
    pub(super) rerun: Rerun,
}

/// All work in progress. A run keeps its place until it ends.
#[derive(Debug, Default)]
pub(super) struct Running {
    places: Vec<Option<Run>>,
    free: Vec<u32>,
}

impl Running {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns the place of the new run.
    pub(super) fn begin(&mut self, now: Tick) -> u32 {
        let run = Some(Run {
            started: now,
            rerun: Rerun::No,
        });
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = run;
                place
            }
            None => {
                self.places.push(run);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// `None` where no run is.
    pub(super) fn end(&mut self, place: u32) -> Option<Run> {
        let run = self.places[place as usize].take()?;
        self.free.push(place);
        Some(run)
    }

    /// What was asked for the key of this run. `None` where no run is.
    pub(super) fn rerun(&mut self, place: u32) -> Option<&mut Rerun> {
        let run = self.places[place as usize].as_mut()?;
        Some(&mut run.rerun)
    }

    pub(super) fn reruns(&mut self) -> impl Iterator<Item = &mut Rerun> {
        self.places.iter_mut().flatten().map(|run| &mut run.rerun)
    }

    /// How long all the runs have been, summed up, and how long the longest has been. It is asked
    /// for now and then, and there are no more runs than workers: not worth keeping.
    pub(super) fn ages(&self, now: Tick) -> (Duration, Duration) {
        let ages = || self.places.iter().flatten().map(|run| run.started);
        let sum = ages().fold(0_u64, |sum, started| sum.saturating_add(now.since(started)));
        let longest = ages().map(|started| now.since(started)).max().unwrap_or(0);
        (Duration::from_nanos(sum), Duration::from_nanos(longest))
    }
}

impl Rerun {
    pub(super) fn merge(self, band: Priority, when: When, now: Tick) -> Self {
        match (self, when) {
            (Self::No, When::Now) => Self::Ready { band, since: now },
            (Self::No, When::At(due)) => Self::Delayed { band, due },
            (Self::Ready { band: old, since }, _) => Self::Ready {
                band: old.highest(band),
                since,
            },
            (Self::Delayed { band: old, .. }, When::Now) => Self::Ready {
                band: old.highest(band),
                since: now,
            },
            (Self::Delayed { band: old, due }, When::At(other)) => Self::Delayed {
                band: old.highest(band),
                due: due.min(other),
            },
        }
    }
}
