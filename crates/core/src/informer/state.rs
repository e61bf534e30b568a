use std::sync::Arc;

use tokio::time::Instant;

use crate::object::ResourceVersion;

/// How an informer is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InformerState {
    /// Nothing has been heard yet.
    Starting,
    /// The first list is in, its events have been handled, and the server answers.
    Synced,
    /// The server does not know the kind: a CRD that is not installed. Asked again and again.
    NotServed,
    /// The server cannot be reached or refuses. The store, if it was complete, keeps answering
    /// from what it knows.
    Failing {
        /// Since when.
        since: Instant,
        /// The last error, in words.
        reason: Arc<str>,
    },
    /// The informer was stopped; nothing will change any more.
    Stopped,
}

/// Why waiting for a version was in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The store went back to an older version (a restored etcd): the version may never come.
    #[error("the server's data went back to an older version")]
    Regressed,
    /// The informer was stopped.
    #[error("the informer was stopped")]
    Stopped,
}

/// How far a store has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) resource_version: ResourceVersion,
    /// How often the version went back.
    pub(super) regressions: u64,
    /// How many lists have been taken.
    pub(super) lists: u64,
    pub(super) complete: bool,
    pub(super) stopped: bool,
}

impl Progress {
    pub(super) fn ever_complete(&self) -> bool {
        self.lists > 0
    }
}
