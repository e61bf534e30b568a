//! The state of one workflow, from stores and live reads, at one point in time. Built without I/O.
//! The rules of [`row`](crate::row) read it.

use std::time::Duration;

use jiff::Timestamp;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::queries::LiveAnswer;
use belayer_holds::namespace::NamespaceView;
use belayer_holds::selection::{MassRelease, Selection};

use crate::evidence::KeptRunning;
use crate::pods_query::{PodsQuery, PodsState};

/// Everything that [`crate::decide`] reads. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The workflow; `None` if it is not in the cache.
    pub workflow: Option<WorkflowView>,
    /// Whether unselected workflows may be released.
    pub mass_release: MassRelease,
    /// How often a waiting deletion is checked again without an event.
    pub resync: Duration,
}

/// One workflow. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct WorkflowView {
    /// Its identity.
    pub uid: Uid,
    /// Whether Belayer holds it.
    pub held: bool,
    /// Its deletion, if that has begun.
    pub deletion: Option<Deletion>,
    /// When this process first saw this UID.
    pub first_seen: LogicalTime,
    /// Whether a rule selects it.
    pub selection: Selection,
    /// Its namespace.
    pub namespace: NamespaceView,
    /// Its pods.
    pub pods: PodsView,
    /// Why Argo goes on running it although it is being deleted.
    pub kept_running: Option<KeptRunning>,
    /// Whether it is held until it is archived, and is not archived yet.
    pub is_to_be_archived: bool,
}

/// The deletion of a workflow. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`.
    pub since: Timestamp,
    /// When this process first saw it.
    pub seen: LogicalTime,
}

/// The workflow's pods. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct PodsView {
    /// The query for the live list of them.
    pub query: PodsQuery,
    /// How many pods of its UID are held, from the index; `None` while the store is not synced.
    pub held: Option<usize>,
    /// The last live list.
    pub answer: Option<LiveAnswer<PodsState>>,
}
