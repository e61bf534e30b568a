//! Priority bands and the turns that keep a lower band from starving.

use std::time::Duration;

use super::clock::{Tick, nanos};

/// How urgent a key is. Keys of a higher band are served first; inside a band order is FIFO.
///
/// The order of the variants is the order of service: `Release` is the highest band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something is blocked until this key is worked on: a deletion waits for our finalizer.
    Release,
    /// An ordinary change.
    Normal,
    /// Nothing is known to have changed: the initial list and the periodic resync.
    Resync,
}

impl Priority {
    /// Every band, the highest first.
    pub const ALL: [Self; 3] = [Self::Release, Self::Normal, Self::Resync];

    /// The value of the `priority` label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Normal => "normal",
            Self::Resync => "resync",
        }
    }

    /// The more urgent of the two: what merging duplicates keeps.
    #[must_use]
    pub fn highest(self, other: Self) -> Self {
        self.min(other)
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// When a waiting key of a lower band gets a turn although higher bands have work.
///
/// Priority is strict until the oldest key of a lower band has waited longer than its band allows.
/// From then on one turn in [`one_in`](Self::one_in) goes to an overdue band (to both in rotation if
/// both are overdue), so a steady stream of urgent keys slows the others down but can never shut
/// them out, and a huge overdue backlog (the resync of a big cluster) cannot shut out the urgent
/// ones either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ageing {
    /// How long a [`Priority::Normal`] key may wait behind higher bands. Default: 10 s.
    pub normal: Duration,
    /// How long a [`Priority::Resync`] key may wait behind higher bands. Default: 60 s.
    pub resync: Duration,
    /// One turn in this many goes to an overdue key. 0 switches ageing off. Default: 8.
    pub one_in: u32,
}

impl Default for Ageing {
    fn default() -> Self {
        Self {
            normal: Duration::from_secs(10),
            resync: Duration::from_secs(60),
            one_in: 8,
        }
    }
}

/// Decides whose turn it is.
#[derive(Debug)]
pub(super) struct PriorityChoice {
    /// Allowed wait by band, in nanoseconds.
    limits: [u64; 3],
    one_in: u32,
    /// PriorityChoice since an overdue key was last given one.
    since_overdue: u32,
    /// The band that got it.
    last_overdue: Priority,
}

impl PriorityChoice {
    pub(super) fn new(ageing: Ageing) -> Self {
        Self {
            limits: [0, nanos(ageing.normal), nanos(ageing.resync)],
            one_in: ageing.one_in,
            since_overdue: 0,
            last_overdue: Priority::Resync,
        }
    }

    /// The band to serve, with its head. `head` tells the first key of a band and since when it is
    /// ready.
    pub(super) fn choose<T>(
        &mut self,
        head: impl Fn(Priority) -> Option<(T, Tick)>,
        now: Tick,
    ) -> Option<(Priority, (T, Tick))> {
        let best = Priority::ALL
            .into_iter()
            .find_map(|band| Some((band, head(band)?)))?;
        if self.one_in > 0
            && self.since_overdue.saturating_add(1) >= self.one_in
            && let Some(overdue) = self.overdue_below(best.0, head, now)
        {
            self.since_overdue = 0;
            self.last_overdue = overdue.0;
            return Some(overdue);
        }
        self.since_overdue = self.since_overdue.saturating_add(1);
        Some(best)
    }

    /// The overdue band below `best`; of two, the one that was not served last time.
    fn overdue_below<T>(
        &self,
        best: Priority,
        head: impl Fn(Priority) -> Option<(T, Tick)>,
        now: Tick,
    ) -> Option<(Priority, (T, Tick))> {
        let mut overdue = Priority::ALL
            .into_iter()
            .filter(|band| *band > best)
            .filter_map(|band| {
                let (key, since) = head(band)?;
                (now.since(since) > self.limits[band.index()]).then_some((band, (key, since)))
            });
        match (overdue.next(), overdue.next()) {
            (Some(first), Some(second)) if first.0 == self.last_overdue => Some(second),
            (first, _) => first,
        }
    }
}
