//! What stores and facts say about one pod at one moment. Built without I/O.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::facts::LiveAnswer;
use belayer_core::moment::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::slim::ObjectMeta;
use belayer_holds::namespace::NamespaceView;
use belayer_holds::owner::{OwnerQuery, OwnerState};

pub use belayer_holds::selection::MassRelease;

use crate::argo::ArgoPod;
use crate::cleanup::{PodEnd, PodGc, WorkflowEnd};
use crate::outcome::RecordState;
use crate::profile::Profile;
use crate::status::{NodeRef, StatusQuery, StatusState};

/// Everything that [`crate::decide`] reads.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The pod; `None` if it is not in the cache.
    pub pod: Option<PodView>,
    /// Whether new holds are added.
    pub gate: Gate,
    /// Whether unselected pods may be released.
    pub mass_release: MassRelease,
    /// How often a held pod is looked at without any event.
    pub resync: Duration,
}

/// The backlog gate: closed while too many pods that are being deleted are still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// New holds are added.
    Open,
    /// No new hold is added; releases go on.
    Closed,
    /// No new hold is added in the pod's namespace; releases go on.
    NamespaceClosed,
}

/// One pod.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Its identity.
    pub uid: Uid,
    /// Whether our hold is on it.
    pub held: Held,
    /// Its deletion timestamp: when its grace runs out.
    pub deleting: Option<Timestamp>,
    /// Whether its phase is terminal.
    pub ended: Ended,
    /// When this process first saw this UID.
    pub first_seen: LogicalTime,
    /// Whether the annotation asks for its release.
    pub admin_asked: AdminAsked,
    /// Finalizers of other systems on it that its profile adopts.
    pub adopted: Box<[Arc<str>]>,
    /// Which profile selects it.
    pub selection: Selection,
    /// What is known of the record of its outcome.
    pub record: RecordState,
    /// Its node in its owner's status, if it names one.
    pub node: Option<NodeView>,
    /// When it asks to be deleted.
    pub cleanup: Option<CleanupView>,
    /// What rows 16 to 18 read; `None` unless its controller is a Workflow of Argo, whatever its
    /// profile says.
    pub argo: Option<ArgoPod>,
    /// Its namespace.
    pub namespace: NamespaceView,
    /// Its owner, as its profile wants one.
    pub owner: Owner,
    /// Further profiles by which it is judged, whose owner kind is that of its controller: if no profile selects it
    /// (A4), or if it is a pod of Argo Workflows and its profile waits for a record to be read (A1). What is evidence
    /// by one of them is evidence for this pod.
    pub judges: Box<[Judge]>,
}

/// A profile by which a pod is judged, whether it selects the pod or not.
#[derive(Debug, Clone)]
pub struct Judge {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Whether the pod's labels say that its result was taken.
    pub consumed: ConsumedLabel,
}

/// A pod's node in its owner's status.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Which node.
    pub node: NodeRef,
    /// What to ask about the owner's status.
    pub question: StatusQuery,
    /// As the last live look saw it.
    pub fact: Option<LiveAnswer<StatusState>>,
}

/// When a pod asks to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupView {
    /// By its annotation.
    pub gc: PodGc,
    /// What became of it.
    pub pod: PodEnd,
    /// What became of its workflow, by the workflow's labels in the cache; a workflow that is
    /// gone is for the decision to know.
    pub workflow: WorkflowEnd,
    /// Since when its deletion is known to be due, but for the delay.
    pub due_since: Option<Timestamp>,
}

/// Whether our hold is on the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// Whether the pod's phase is terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Succeeded or failed.
    Yes,
    /// Still to run, running, or unknown.
    No,
}

/// Whether the pod's annotation asks for its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminAsked {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// Which profile a pod belongs to.
#[derive(Debug, Clone)]
pub enum Selection {
    /// The first that matches, and whether the pod's labels say that its result was taken.
    By {
        /// The profile.
        profile: Arc<Profile>,
        /// By the pod's own labels.
        consumed: ConsumedLabel,
    },
    /// None: by labels, by namespace names, or because it is of a kind never selected.
    None,
    /// None, because its namespace carries the label that says to leave it alone.
    Ignored,
}

/// Whether the pod's own labels say that its result was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumedLabel {
    /// They do.
    Yes,
    /// They do not.
    No,
}

/// The pod's owner.
#[derive(Debug, Clone)]
pub enum Owner {
    /// The profile asks for none, or no profile selects the pod.
    NotRequired,
    /// The profile asks for one and the pod has none of that kind.
    Missing,
    /// The controller owner reference, of the kind the profile names.
    Known(Box<OwnerView>),
}

/// An owner that a pod refers to.
#[derive(Debug, Clone)]
pub struct OwnerView {
    /// What to ask about it.
    pub question: OwnerQuery,
    /// As the informer has the object of that name.
    pub cached: CachedOwner,
    /// As the last live look saw it.
    pub fact: Option<LiveAnswer<OwnerState>>,
}

/// What the informer of the owner's kind says.
#[allow(clippy::large_enum_variant, reason = "it lives for one decision")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedOwner {
    /// The informer is not synced: the kind may not be served. Never taken for absent.
    Unknown,
    /// Synced, and there is no object of that name and UID.
    Absent,
    /// The very object.
    Present(ObjectMeta),
}
