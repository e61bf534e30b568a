//! What stores and facts say about one workflow at one moment. Built without I/O.

use std::time::Duration;

use jiff::Timestamp;

use belayer_core::facts::LiveAnswer;
use belayer_core::moment::LogicalTime;
use belayer_holds::namespace::NamespaceView;
use belayer_holds::selection::MassRelease;

use crate::look::{PodsQuery, PodsState};

/// Everything that [`crate::decide`] reads.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The workflow; `None` if it is not in the cache.
    pub workflow: Option<WorkflowView>,
    /// Whether unselected workflows may be released.
    pub mass_release: MassRelease,
    /// How often a deletion that waits is looked at without any event.
    pub resync: Duration,
}

/// One workflow.
#[derive(Debug, Clone)]
pub struct WorkflowView {
    /// Whether our hold is on it.
    pub held: Held,
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
}

/// Whether our hold is on a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// The deletion of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`.
    pub since: Timestamp,
    /// When this process first saw it.
    pub seen: LogicalTime,
}

/// Whether a rule selects a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// One does.
    Yes,
    /// None does, by labels or by namespace names.
    No,
    /// Its namespace carries the label that says to leave it alone.
    Ignored,
}

/// The workflow's pods.
#[derive(Debug, Clone)]
pub struct PodsView {
    /// What to ask about them.
    pub question: PodsQuery,
    /// How many of its UID carry the pod-status hold, by the index; `None` while that cannot be said.
    pub held: Option<usize>,
    /// What the last live list found.
    pub fact: Option<LiveAnswer<PodsState>>,
}
