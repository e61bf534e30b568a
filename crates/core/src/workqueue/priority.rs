//! Priorities, and the turns that prevent starvation of lower priorities.

use std::time::Duration;

use super::clock::{Tick, nanos};

/// How urgent a key is. Keys of a higher priority are served first; within a priority the order is
/// FIFO.
///
/// The order of the variants is the order of service: `Release` is the highest priority.
///
/// The [module's example](crate::workqueue) has three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Priority {
    /// A deletion waits for a finalizer of the controller's until this key is worked on.
    Release,
    /// An ordinary change.
    Normal,
    /// No change is known: the initial list and the periodic resync.
    Resync,
}

impl Priority {
    /// Every priority, the highest first.
    pub const ALL: [Self; 3] = [Self::Release, Self::Normal, Self::Resync];

    /// The value of the `priority` label in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The more urgent of the two, which merged adds keep.
    #[must_use]
    pub fn highest(self, other: Self) -> Self {
        self.min(other)
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// When a waiting key of a lower priority gets a turn although keys of higher priorities wait.
///
/// Priority is strict until the oldest key of a lower priority has waited longer than allowed. From
/// then on one turn in [`one_in`](Self::one_in) goes to an overdue priority (alternating if both
/// are overdue). So a steady stream of urgent keys slows the others down without starving them, and
/// a large overdue backlog (the resync of a big cluster) does not starve the urgent ones.
///
/// Part of the [`Options`](crate::workqueue::Options).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ageing {
    /// How long a [`Priority::Normal`] key may wait behind higher priorities. Default: 10 s.
    pub normal: Duration,
    /// How long a [`Priority::Resync`] key may wait behind higher priorities. Default: 60 s.
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

/// Chooses the priority of the next key.
#[derive(Debug)]
pub(super) struct PriorityChoice {
    /// Allowed wait by priority, in nanoseconds.
    limits: [u64; 3],
    one_in: u32,
    /// Turns since the last overdue key was served.
    since_overdue: u32,
    /// The priority of that key.
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

    /// The priority to serve, with its head. `head` returns the first key of a priority and since
    /// when it is ready.
    pub(super) fn choose<T>(
        &mut self,
        head: impl Fn(Priority) -> Option<(T, Tick)>,
        now: Tick,
    ) -> Option<(Priority, (T, Tick))> {
        let best = Priority::ALL
            .into_iter()
            .find_map(|priority| Some((priority, head(priority)?)))?;
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

    /// The overdue priority below `best`; of two, the one that was not served last time.
    fn overdue_below<T>(
        &self,
        best: Priority,
        head: impl Fn(Priority) -> Option<(T, Tick)>,
        now: Tick,
    ) -> Option<(Priority, (T, Tick))> {
        let mut overdue = Priority::ALL
            .into_iter()
            .filter(|priority| *priority > best)
            .filter_map(|priority| {
                let (key, since) = head(priority)?;
                (now.since(since) > self.limits[priority.index()])
                    .then_some((priority, (key, since)))
            });
        match (overdue.next(), overdue.next()) {
            (Some(first), Some(second)) if first.0 == self.last_overdue => Some(second),
            (first, _) => first,
        }
    }
}
