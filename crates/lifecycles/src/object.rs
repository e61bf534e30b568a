//! What a lifecycle is about, and until when it has time to end.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use belayer_core::object::{ObjectKey, Uid};

/// One object: the name that it occupies and what identifies it.
///
/// Work is serialised by the key and identified by the UID: two objects of one name in a row are
/// two identities, and the second has to wait for the first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The name, in its namespace.
    pub key: ObjectKey,
    /// What tells it from its predecessors and successors of that name.
    pub uid: Uid,
}

impl Identity {
    /// The object that has this name and this UID.
    pub fn new(key: ObjectKey, uid: Uid) -> Self {
        Self { key, uid }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.uid)
    }
}

/// Until when a termination may take its time; after that it has to be quick rather than graceful.
///
/// A deadline only shrinks: the earlier of two is in force, and none at all is the latest. The
/// engine hands it to the work and does nothing by itself when it passes: work that is not done is
/// tried again, however late it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// As long as it takes.
    pub const NONE: Self = Self(None);

    /// This moment.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// From now on, a grace period in the Kubernetes sense. One beyond what the clock can express
    /// is none.
    #[must_use]
    pub fn within(grace: Duration) -> Self {
        Self(Instant::now().checked_add(grace))
    }

    /// The moment; `None` if there is none.
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// How long it is until then: 0 once it has passed, `None` if there is no deadline.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.0
            .map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Waits until it has passed; for ever if there is none.
    pub async fn passed(self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.0, other.0) {
            (Some(mine), Some(theirs)) => mine.cmp(&theirs),
            // None is later than any, and an absent one is less than any to `Option`.
            (mine, theirs) => theirs.is_some().cmp(&mine.is_some()),
        }
    }
}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_deadline_is_later_than_any() {
        let soon = Deadline::within(Duration::from_secs(1));
        let late = Deadline::within(Duration::from_secs(60));
        assert!(soon < late && late < Deadline::NONE);
        assert_eq!(Deadline::NONE.min(late), late);
        assert_eq!(soon.min(late), soon);
        assert_eq!(
            Deadline::NONE.cmp(&Deadline::NONE),
            std::cmp::Ordering::Equal
        );
        assert_eq!(Deadline::within(Duration::MAX), Deadline::NONE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_remains_never_falls_below_nothing() {
        let deadline = Deadline::within(Duration::from_secs(10));
        assert_eq!(deadline.remaining(), Some(Duration::from_secs(10)));
        deadline.passed().await;
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(deadline.remaining(), Some(Duration::ZERO));
        assert_eq!(Deadline::NONE.remaining(), None);
    }
}
