//! The identity of an object, and the deadline of its termination.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use belayer_core::object::{ObjectKey, Uid};

/// The identity of an object: its name and its UID.
///
/// Work is serialised by the key and identified by the UID: two successive objects of one name have
/// two identities, and the second has to wait for the first.
///
/// The [crate's example](crate) has two objects of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Distinguishes it from its predecessors and successors of that name.
    pub uid: Uid,
}

impl Identity {
    /// The object with this name and this UID.
    pub fn new(key: ObjectKey, uid: Uid) -> Self {
        Self { key, uid }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.uid)
    }
}

/// Until when a termination may be graceful; after that it has to be quick.
///
/// A deadline only shrinks: the earlier of two counts, and no deadline is the latest. The deadline
/// is passed to the work. Nothing else happens when it expires: unfinished work is retried, however
/// late it is.
///
/// ```
/// use std::time::Duration;
/// use belayer_lifecycles::Deadline;
///
/// let deadline = Deadline::within(Duration::from_secs(30));
/// assert!(deadline.remaining() <= Some(Duration::from_secs(30)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline.
    pub const NONE: Self = Self(None);

    /// A deadline at `instant`.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// A grace period from now on, as in Kubernetes. One beyond the range of the clock means no
    /// deadline.
    #[must_use]
    pub fn within(grace: Duration) -> Self {
        Self(Instant::now().checked_add(grace))
    }

    /// The point in time; `None` if there is no deadline.
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// The time until the deadline: 0 after it has expired, `None` if there is none.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.0
            .map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Waits until the deadline has expired; never returns if there is none.
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
            (Some(one), Some(another)) => one.cmp(&another),
            // No deadline is the latest, but `None` is less than any `Some`.
            (one, another) => another.is_some().cmp(&one.is_some()),
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
    async fn no_deadline_is_the_latest() {
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
    async fn the_remaining_time_is_never_negative() {
        let deadline = Deadline::within(Duration::from_secs(10));
        assert_eq!(deadline.remaining(), Some(Duration::from_secs(10)));
        deadline.passed().await;
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(deadline.remaining(), Some(Duration::ZERO));
        assert_eq!(Deadline::NONE.remaining(), None);
    }
}
