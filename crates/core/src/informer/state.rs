use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::object::ResourceVersion;

/// A watch that was open for this time has worked, even if there was no event; a shorter one is not reopened at once. As
/// with client-go.
pub(super) const WORKS: Duration = Duration::from_secs(1);

/// The state of an informer. Returned by [`Store::state`](crate::informer::Store::state).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InformerState {
    /// No response has been received yet.
    Starting,
    /// The first list is complete, its events were handled, and the server answers.
    Synced,
    /// The server does not serve the kind, for example because a CRD is not installed. The informer
    /// retries.
    NotServed,
    /// The server cannot be reached or refuses requests. A store that was complete keeps answering
    /// from its content.
    Failing {
        /// The time of the first failure since a watch worked.
        since: Instant,
        /// The message of the last error.
        reason: Arc<str>,
    },
    /// The informer was stopped; the store does not change any more.
    Stopped,
}

/// Why a wait for a version failed. Returned by [`Store::synced`](crate::informer::Store::synced)
/// and [`Store::wait_for`](crate::informer::Store::wait_for).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The store went back to an older version (a restored etcd): the version may never be reached.
    #[error("the server's data went back to an older version")]
    Regressed,
    /// The informer was stopped.
    #[error("the informer was stopped")]
    Stopped,
}

/// The progress of a store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) resource_version: ResourceVersion,
    /// How often the version went back.
    pub(super) regressions: u64,
    /// How many lists were accepted.
    pub(super) lists: u64,
    pub(super) complete: bool,
    pub(super) stopped: bool,
}

impl Progress {
    pub(super) fn ever_complete(&self) -> bool {
        self.lists > 0
    }
}
