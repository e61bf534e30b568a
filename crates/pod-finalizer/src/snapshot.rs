//! The state of one pod, from stores and live reads, at one point in time. Built without I/O. The
//! rules of [`row`](crate::row) read it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ResourceVersion, Uid};
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::namespace::NamespaceView;
use belayer_holds::owner::{OwnerQuery, OwnerState};

pub use belayer_holds::selection::MassRelease;

pub use crate::argo::ArgoPod;
use crate::cleanup::{PodEnd, PodGc, WorkflowEnd};
use crate::outcome::RecordState;
use crate::profile::Profile;
use crate::status::{NodeRef, StatusQuery, StatusState};

/// Everything that [`crate::decide`] reads. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The pod; `None` if it is not in the cache.
    pub pod: Option<PodView>,
    /// Whether Belayer adds finalizers to new pods.
    pub backlog: BacklogLimit,
    /// Whether unselected pods may be released.
    pub mass_release: MassRelease,
    /// How often a held pod is checked again without an event.
    pub resync: Duration,
}

/// The backlog limit: reached while too many pods that are being deleted are still held. The rules
/// of [`row`](crate::row) read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BacklogLimit {
    /// Belayer adds finalizers.
    #[default]
    NotReached,
    /// Belayer adds no finalizers; releases continue.
    Reached,
    /// Belayer adds no finalizers in the pod's namespace; releases continue.
    ReachedInNamespace,
}

/// How long a process has seen a deletion wait, by its monotonic clock. The rules of
/// [`row`](crate::row) read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Since it first looked, without the rest of the grace period.
    pub waited: Duration,
    /// How long the deletion had waited before, by the wall clock at the first look.
    pub before: Duration,
}

/// One pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Its identity.
    pub uid: Uid,
    /// Its version.
    pub version: ResourceVersion,
    /// Whether Belayer holds it.
    pub held: bool,
    /// Its deletion timestamp: the end of its grace period.
    pub deleting: Option<Timestamp>,
    /// How long this process has seen it wait for `releaseAfter`; `None` if it is not watched for that.
    pub watched: Option<Watched>,
    /// Whether its phase is terminal: succeeded or failed.
    pub ended: bool,
    /// Whether it is being deleted without a grace period: by force, or because its kubelet has shut it down.
    pub shut_down: bool,
    /// When this process first saw this UID.
    pub first_seen: LogicalTime,
    /// Whether its annotation `belayer.dev/release` requires its release.
    pub admin_asked: bool,
    /// Whether it has the annotation that pod-recreation writes on the pods that it creates.
    pub recreated: bool,
    /// Finalizers of other controllers on it that its profile adopts.
    pub adopted: Box<[Arc<str>]>,
    /// Which profile selects it.
    pub selection: Selection,
    /// The state of its PodOutcome.
    pub record: RecordState,
    /// Its node in its owner's status, if it names one.
    pub node: Option<NodeView>,
    /// When its annotation requires its deletion.
    pub cleanup: Option<CleanupView>,
    /// The input of rules 16 to 18; `None` unless its controller is an Argo Workflow, whatever its profile.
    pub argo: Option<ArgoPod>,
    /// Its namespace.
    pub namespace: NamespaceView,
    /// Its owner, as its profile requires.
    pub owner: Owner,
    /// Further profiles that apply to it, because their owner kind is that of its controller: if no profile selects it
    /// (A4), or if it is a pod of Argo Workflows and its profile releases on a PodOutcome (A1). Evidence by one of them
    /// is evidence for this pod.
    pub deciding_profiles: Box<[DecidingProfile]>,
}

/// A profile that applies to a pod, whether it selects the pod or not. The rules of
/// [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct DecidingProfile {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Whether the pod's labels show that its result was read.
    pub consumed: bool,
}

/// A pod's node in its owner's status. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Which node.
    pub node: NodeRef,
    /// The query for the owner's status.
    pub query: StatusQuery,
    /// The last live read.
    pub answer: Option<LiveAnswer<StatusState>>,
}

/// When a pod's annotation requires its deletion. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupView {
    /// By its annotation.
    pub gc: PodGc,
    /// How it ended.
    pub pod: PodEnd,
    /// How its workflow ended, by the workflow's labels in the cache. Only the decision detects a workflow that is gone.
    pub workflow: WorkflowEnd,
    /// How long this process has known that its deletion is due, before the delay.
    pub due_for: Option<Duration>,
}

/// Which profile selects a pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub enum Selection {
    /// The first profile that matches.
    By {
        /// The profile.
        profile: Arc<Profile>,
        /// Whether the pod's labels show that its result was read.
        consumed: bool,
    },
    /// No profile, by labels or namespace names, or because such pods are never selected (mirror pods).
    None,
    /// No profile, because its namespace has the label `belayer.dev/ignore`.
    Ignored,
}

/// The pod's owner. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub enum Owner {
    /// The profile requires none, or no profile selects the pod.
    NotRequired,
    /// The profile requires one, and the pod has none of that kind.
    Missing,
    /// The controller owner reference, of the kind the profile names.
    Known(Box<OwnerView>),
}

/// An owner that a pod refers to. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct OwnerView {
    /// The query for it.
    pub query: OwnerQuery,
    /// The object of that name in the informer's store.
    pub cached: CachedOwner,
    /// The last live read.
    pub answer: Option<LiveAnswer<OwnerState>>,
}

/// The owner in the informer's store. The rules of [`row`](crate::row) read it.
#[allow(clippy::large_enum_variant, reason = "it lives for one decision")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedOwner {
    /// The informer is not synced: the kind may not be served. Never treated as absent.
    Unknown,
    /// Synced, and no object has that name and UID.
    Absent,
    /// The object with that name and UID.
    Present(ObjectMeta),
}
