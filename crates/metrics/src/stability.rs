//! Which metrics stay as they are.

use crate::table::{self as n, Metric};

/// What later versions promise about a metric. Part of a [`Metric`](crate::Metric).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Name, type and labels stay until the next major version; label values may be added.
    Stable,
    /// It may change or go in any version.
    Alpha,
}

impl Metric {
    /// What later versions promise about it.
    #[must_use]
    pub fn stability(&self) -> Stability {
        let begins = |prefix: &&str| self.name.starts_with(prefix);
        if CONVENTIONS.iter().any(begins) || STABLE.contains(&self.name) {
            Stability::Stable
        } else {
            Stability::Alpha
        }
    }
}

/// Names that other programs use as well.
const CONVENTIONS: [&str; 4] = ["workqueue_", "rest_client_", "leader_election_", "process_"];

/// Belayer's own metrics that stay. A new one is alpha.
const STABLE: [&str; 14] = [
    n::HOLDS,
    n::HOLDS_ADDED,
    n::RELEASES,
    n::RELEASE_DURATION,
    n::RELEASE_DENIED,
    n::WAITING,
    n::OLDEST_WAITING,
    n::MISSED_HOLDS,
    n::BACKLOG_GATE,
    n::INFORMER_OBJECTS,
    n::INFORMER_LAG,
    n::BUILD_INFO,
    n::CONFIG_RELOADS,
    n::CONFIG_GOOD,
];
