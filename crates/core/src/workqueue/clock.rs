//! Time inside the queue: nanoseconds since the queue was created, half the size of an `Instant`.

use std::time::Duration;

use tokio::time::Instant;

/// Longer delays are shortened to this, ten years, so that no sum can overflow.
const MAX_DELAY: Duration = Duration::from_secs(315_360_000);

/// A point in time, in nanoseconds since the queue was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(pub(super) u64);

impl Tick {
    /// Nanoseconds since `earlier`; 0 if it is not earlier (clocks are read before the lock is
    /// taken, so two times may be slightly out of order).
    pub(super) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(nanos(delay.min(MAX_DELAY))))
    }
}

/// Whole nanoseconds; a duration beyond 584 years counts as 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Converts tokio's clock (which tests can pause) into ticks and back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    epoch: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Tick {
        Tick(nanos(Instant::now().saturating_duration_since(self.epoch)))
    }

    pub(super) fn instant(&self, tick: Tick) -> Instant {
        self.epoch + Duration::from_nanos(tick.0)
    }
}
