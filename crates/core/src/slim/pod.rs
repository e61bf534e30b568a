use std::sync::Arc;

use jiff::Timestamp;

use super::{ObjectMeta, Slim};

/// `status.phase` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// At least one container runs or starts.
    Running,
    /// All containers ended with code 0.
    Succeeded,
    /// All containers ended, one of them badly; or the pod was rejected, evicted or lost.
    Failed,
    /// The node cannot be reached, or a value unknown to this version.
    Unknown,
}

impl Phase {
    /// From the API's text; anything unknown is [`Phase::Unknown`], nothing is `Pending`.
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

/// A pod: the fields that any component's decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: ObjectMeta,
    /// `spec.nodeName`: the node it is bound to.
    pub node_name: Option<Arc<str>>,
    /// Names of the claims that its volumes refer to.
    pub claims: Box<[Arc<str>]>,
    /// Names of the claims of its generic ephemeral volumes, `<pod>-<volume>`. A claim of that name
    /// is the pod's only if the pod is its controller owner.
    pub ephemeral_claims: Box<[Arc<str>]>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.reason`.
    pub reason: Option<Arc<str>>,
    /// Whether the pod has an IP.
    pub has_ip: bool,
    /// Whether any container, init or ephemeral ones included, is known to have started at all.
    pub started: bool,
    /// What is kept only while the phase is `Failed`.
    pub failure: Option<Box<Failure>>,
}

/// What is kept of a pod only once it has failed: rules that judge a failure read it, and the many
/// pods that have not failed shall not pay for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// `status.message`.
    pub message: Option<Arc<str>>,
    /// `status.startTime`: when the kubelet took the pod.
    pub start_time: Option<Timestamp>,
    /// The kubelet's last write of the status, from `managedFields`; a heartbeat, so it is left
    /// out of [`Slim::differs`].
    pub status_written: Option<Timestamp>,
}

impl Pod {
    /// A pending pod about which nothing but its metadata is known.
    pub fn new(meta: ObjectMeta) -> Self {
        Self {
            meta,
            node_name: None,
            claims: Box::default(),
            ephemeral_claims: Box::default(),
            phase: Phase::Pending,
            reason: None,
            has_ip: false,
            started: false,
            failure: None,
        }
    }

    /// Whether it is bound to a node: only then can a kubelet use its volumes.
    pub fn is_bound(&self) -> bool {
        self.node_name.is_some()
    }

    /// Whether it is shut down: deleted, and no grace is left. So the kubelet reports a pod of which
    /// nothing runs any more.
    pub fn is_shut_down(&self) -> bool {
        self.meta.is_deleting() && self.meta.deletion_grace_period == Some(0)
    }

    /// `status.message` of a pod that has failed.
    pub fn message(&self) -> Option<&Arc<str>> {
        self.failure.as_ref()?.message.as_ref()
    }

    /// Whether the pod has ended: its phase is terminal.
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

impl Slim for Pod {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
            || self.node_name != older.node_name
            || self.claims != older.claims
            || self.ephemeral_claims != older.ephemeral_claims
            || self.phase != older.phase
            || self.reason != older.reason
            || self.has_ip != older.has_ip
            || self.started != older.started
            || match (&self.failure, &older.failure) {
                (None, None) => false,
                (Some(new), Some(old)) => {
                    (&new.message, new.start_time) != (&old.message, old.start_time)
                }
                (Some(_), None) | (None, Some(_)) => true,
            }
    }
}
