use std::sync::Arc;

use jiff::Timestamp;

use super::{ContainerSet, ObjectMeta, Slim, Transition, limits};

/// `status.phase` of a pod. Part of [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// At least one container runs or is starting.
    Running,
    /// All containers ended with exit code 0.
    Succeeded,
    /// All containers ended, at least one with a failure; or the pod was rejected, evicted or lost.
    Failed,
    /// The node cannot be reached, or the value is unknown to this version.
    Unknown,
}

impl Phase {
    /// From the API's text; an unknown value is [`Phase::Unknown`], an empty one is `Pending`.
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

/// A pod: the fields that the decisions of any component read.
///
/// ```
/// use belayer_core::slim::json::SlimJson as _;
/// use belayer_core::slim::{Phase, Pod};
/// use belayer_core::{DecodeContext, DecodeError};
///
/// let json = r#"{"metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"4"},
///     "spec":{"nodeName":"node-1"},"status":{"phase":"Running"}}"#;
/// let json = serde_json::from_str(json).map_err(DecodeError::from)?;
/// let pod = Pod::from_json(&json, &DecodeContext::default())?;
/// assert_eq!((pod.phase, pod.node_name.as_deref()), (Phase::Running, Some("node-1")));
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: ObjectMeta,
    /// `spec.nodeName`: the node that the pod is bound to.
    pub node_name: Option<Arc<str>>,
    /// Names of the PVCs that its volumes refer to; not all, if it [may use any](Pod::may_use_any_pvc).
    pub pvcs: Box<[Arc<str>]>,
    /// Names of the PVCs of its generic ephemeral volumes, `<pod>-<volume>`. A PVC of that name
    /// belongs to the pod only if the pod is its controller owner.
    pub ephemeral_pvcs: Box<[Arc<str>]>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.reason`.
    pub reason: Option<Arc<str>>,
    /// Whether the pod has an IP. That of a pod with `hostNetwork` does not count: it is the IP of the node, which the kubelet
    /// writes without having started anything.
    pub has_ip: bool,
    /// Whether any container, including init and ephemeral ones, is known to have started.
    pub started: bool,
    /// Kept only while the phase is `Failed`.
    pub failure: Option<Box<Failure>>,
    /// Kept only while the pod is being deleted.
    pub shutdown: Option<Box<Shutdown>>,
    /// Kept only while the pod has not run: `None` once any version in the store showed that a
    /// container started, an IP, or that the sandbox was ready.
    pub unstarted: Option<Box<Unstarted>>,
}

/// Fields of a failed pod. Only rules about failures read them, so other pods do not take memory
/// for them. Part of [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// `status.message`.
    pub message: Option<Arc<str>>,
    /// `status.startTime`: when the kubelet accepted the pod. [`Timestamp::MIN`] if it cannot be represented (T9).
    pub start_time: Option<Timestamp>,
    /// The kubelet's last write of the status, from `managedFields`; a heartbeat, so
    /// [`Slim::differs`] ignores it.
    pub status_written: Option<Timestamp>,
    /// The last write of the field managers that own finalizers, from `managedFields`: none was added later. `None` if that
    /// is unknown. [`Slim::differs`] ignores it.
    pub finalizers_written: Option<Timestamp>,
    /// `metadata.creationTimestamp`: no node had the pod before.
    pub created: Option<Timestamp>,
    /// Whether a container has ended or has an ID. A kubelet rejects a pod with a status without containers; it
    /// writes the end of containers that it has lost without a start time.
    pub has_container: bool,
    /// Whether a container has an ID: the container runtime created it.
    pub has_container_id: bool,
}

/// Fields of a pod that is being deleted. Only the rules that decide whether its deletion ended it
/// read them, so other pods do not take memory for them. Part of [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Its containers as the kubelet reports them: init containers first, without ephemeral ones.
    pub containers: Box<[Container]>,
    /// Whether the condition `DisruptionTarget` has the reason `DeletionByPodGC`: pod garbage
    /// collection deletes the pod because its node does not exist, or because it was never bound to
    /// an existing one.
    pub by_pod_gc: bool,
    /// Which of the containers are members of a container set of Argo Workflows.
    pub container_set: ContainerSet,
    /// What the store contained of the pod before its deletion.
    pub before: BeforeDeletion,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
}

/// What the store contained of a pod when its deletion began. Part of
/// [`Shutdown`](crate::slim::Shutdown).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BeforeDeletion {
    /// Nothing: the first version with a deletion timestamp came by a list, or after missed
    /// versions. A container that has ended in it ended before the deletion or because of it.
    #[default]
    Unknown,
    /// The version directly before the first one with a deletion timestamp. What has ended in the
    /// first one had ended before the deletion.
    Watched,
    /// A version without a deletion timestamp in which the pod had ended.
    Ended,
}

/// A container of a pod that is being deleted. Part of [`Shutdown`](crate::slim::Shutdown).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it runs before the others or alongside them.
    pub kind: ContainerKind,
    /// Its state in this version.
    pub state: ContainerState,
    /// Whether it is known to have started.
    pub started: bool,
    /// Whether a version of the pod *with* a deletion timestamp was seen in which this container
    /// had not terminated or was not reported, so it ended after the deletion. Kept as long as the store contains the
    /// pod; `false` proves nothing, because that version may have been missed.
    pub unfinished_at_deletion: bool,
}

impl Container {
    /// A container as in one version of its pod, which is being deleted.
    pub fn new(name: Arc<str>, kind: ContainerKind, state: ContainerState, started: bool) -> Self {
        Self {
            name,
            kind,
            state,
            started,
            unfinished_at_deletion: !matches!(state, ContainerState::Terminated { .. }),
        }
    }
}

/// The list of the pod that a container belongs to. Part of [`Container`](crate::slim::Container).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// `initContainers`, without native sidecars.
    Init,
    /// `initContainers` with the restart policy `Always`: a native sidecar, which runs beside the main containers.
    Sidecar,
    /// `containers`.
    Main,
}

/// The state of a container. Part of [`Container`](crate::slim::Container).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// It waits to be started, or has no reported state.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Terminated {
        /// Its exit code.
        exit_code: i32,
        /// Whether its end has a time. Without one the end was not observed: the kubelet or pod
        /// garbage collection only assumes it.
        finished: bool,
    },
}

/// Fields of a pod that has not run. Part of [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unstarted {
    /// Whether every version since the first one was seen.
    pub continuity: Continuity,
    /// When the scheduler bound it: the last `lastTransitionTime` of a true condition
    /// `PodScheduled`, which the kubelet drops when it rejects the pod. [`Timestamp::MIN`] if it
    /// cannot be parsed.
    pub scheduled: Option<Timestamp>,
    /// Whether a kubelet had written a status (`startTime`) into a version that had not failed.
    pub kubelet_reported: bool,
    /// Whether a version that had not failed was in the store.
    pub seen_before_failure: bool,
}

/// Whether the store has seen every version of an object since the first one. Part of
/// [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Continuity {
    /// Each came as the event of a watch. Neither the watch cache nor etcd omits one.
    #[default]
    Unbroken,
    /// Some may have been missed: a list contained a later one, or one could not be decoded.
    Broken,
}

impl Pod {
    /// A pending pod with metadata only.
    pub fn new(meta: ObjectMeta) -> Self {
        Self {
            meta,
            node_name: None,
            pvcs: Box::default(),
            ephemeral_pvcs: Box::default(),
            phase: Phase::Pending,
            reason: None,
            has_ip: false,
            started: false,
            failure: None,
            shutdown: None,
            unstarted: Some(Box::default()),
        }
    }

    /// Whether it is bound to a node: only then can a kubelet use its volumes.
    pub fn is_bound(&self) -> bool {
        self.node_name.is_some()
    }

    /// Whether it refers to so many PVCs that their names are not kept: then it may use any PVC of its namespace.
    pub fn may_use_any_pvc(&self) -> bool {
        self.pvcs
            .first()
            .is_some_and(|first| **first == *limits::ANY_PVC)
    }

    /// Whether it is shut down: being deleted, with a grace period of zero. The kubelet reports
    /// that when nothing of the pod runs any more.
    pub fn is_shut_down(&self) -> bool {
        self.meta.is_deleting() && self.meta.deletion_grace_period == Some(0)
    }

    /// `status.message` of a failed pod.
    pub fn message(&self) -> Option<&Arc<str>> {
        self.failure.as_ref()?.message.as_ref()
    }

    /// The containers of a pod that is being deleted; empty for other pods.
    pub fn containers(&self) -> &[Container] {
        self.shutdown.as_ref().map_or(&[], |of| &of.containers)
    }

    /// Whether all versions of a pod that has not run were seen; `None` if it has run.
    pub fn continuity(&self) -> Option<Continuity> {
        Some(self.unstarted.as_ref()?.continuity)
    }

    /// Whether it was seen before it failed, and every version since shows that no container has started.
    pub fn is_known_unstarted(&self) -> bool {
        let unstarted = self.unstarted.as_ref();
        unstarted.is_some_and(|of| of.seen_before_failure && of.continuity == Continuity::Unbroken)
    }

    /// Whether the pod has ended: its phase is terminal.
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

impl Default for Unstarted {
    /// Seen for the first time, so its past is unknown.
    fn default() -> Self {
        Self {
            continuity: Continuity::Unbroken,
            scheduled: None,
            kubelet_reported: false,
            seen_before_failure: true,
        }
    }
}

impl Shutdown {
    /// `was_ended`: whether the phase of the previous version was terminal.
    fn inherit(&mut self, previous: &Self, was_ended: bool) {
        self.before = previous.before;
        // A kubelet that restarts may write a terminal phase without containers for a pod that has run.
        let is_whole = !was_ended
            && !previous
                .containers
                .iter()
                .any(|container| *container.name == *limits::OTHER_CONTAINERS);
        for container in &mut self.containers {
            let same = |c: &&Container| c.name == container.name && c.kind == container.kind;
            let before = previous.containers.iter().find(same);
            // A container that the previous version does not report had not ended in it.
            container.unfinished_at_deletion |=
                before.map_or(is_whole, |c| c.unfinished_at_deletion);
        }
    }
}

impl Unstarted {
    fn inherit(&mut self, previous: &Self, transition: Transition) {
        if previous.continuity == Continuity::Broken || transition == Transition::Missed {
            self.continuity = Continuity::Broken;
        }
        self.scheduled = self.scheduled.or(previous.scheduled);
        self.kubelet_reported |= previous.kubelet_reported;
        self.seen_before_failure |= previous.seen_before_failure;
    }
}

impl Slim for Pod {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
            || self.node_name != older.node_name
            || self.pvcs != older.pvcs
            || self.ephemeral_pvcs != older.ephemeral_pvcs
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
            || self.shutdown != older.shutdown
            || self.continuity() != older.continuity()
    }

    fn appear(&mut self, transition: Transition) {
        if let (Some(unstarted), Transition::Missed) = (&mut self.unstarted, transition) {
            unstarted.continuity = Continuity::Broken;
        }
    }

    fn inherit(&mut self, previous: &Self, transition: Transition) {
        match (&mut self.shutdown, &previous.shutdown) {
            (Some(now), Some(before)) => now.inherit(before, previous.is_ended()),
            (Some(now), None) if previous.is_ended() => now.before = BeforeDeletion::Ended,
            (Some(now), None) if transition == Transition::Watched => {
                now.before = BeforeDeletion::Watched;
            }
            _ => {}
        }
        match (&mut self.unstarted, &previous.unstarted) {
            (Some(now), Some(before)) => now.inherit(before, transition),
            // The pod has run: a later version that does not show that does not change it.
            (_, None) => self.unstarted = None,
            (None, Some(_)) => {}
        }
    }
}
/// The first containers of a pod that is being deleted. If there are more, one that waits stands for the rest, so that
/// those that are kept never prove that all have ended.
pub(super) fn first_containers(mut all: Vec<Container>) -> Box<[Container]> {
    if all.len() > limits::CONTAINERS {
        all.truncate(limits::CONTAINERS);
        all.push(Container::new(
            limits::OTHER_CONTAINERS.into(),
            ContainerKind::Main,
            ContainerState::Waiting,
            false,
        ));
    }
    all.into()
}
