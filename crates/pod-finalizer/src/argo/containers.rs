//! Which containers of a step determine its result for Argo.
//!
//! Argo's main container is the one called `main`. In a container set the main containers are its members; the
//! template, which Argo writes into the pod, contains their names. If the pod does not contain its template, every
//! container but Argo's own may be a member.

use belayer_core::slim::{Container, ContainerKind, ContainerSet, ContainerState, Phase, Pod};

/// Argo's main container where a step is not a container set.
pub(crate) const MAIN: &str = "main";

/// Argo's own containers, which save what the main containers made: `wait`, and from 4.0 on
/// `supervisor` where a pod has no init container of Argo's.
const SAVERS: &[&str] = &["wait", "supervisor"];

/// Whether a kubelet or a virtual node has written a status of this pod.
///
/// Each status of a kubelet has a start time, also that of a pod that it rejects; a virtual node may write only
/// a reason and a message. Pod garbage collection, which marks pods Failed that are being deleted on a
/// node that is out of service, changes nothing but the phase, and adds at most a condition.
pub(super) fn is_reported(pod: &Pod) -> bool {
    let unstarted = pod.unstarted.as_ref();
    let failure = pod.failure.as_ref();
    unstarted.is_none_or(|before| before.kubelet_reported)
        || pod.reason.is_some()
        || failure.is_some_and(|now| now.start_time.is_some() || now.message.is_some())
        || !pod.containers().is_empty()
}

/// The containers of a step by the role that they have for Argo.
pub(super) struct Containers<'a> {
    /// Init containers but Argo's own, without native sidecars.
    pub(super) init: Vec<&'a Container>,
    /// Native sidecars but Argo's own: they keep running, and their exit code is no result.
    pub(super) sidecars: Vec<&'a Container>,
    /// `main`, or the members of a container set. If no container has such a name, all but Argo's own.
    pub(super) main: Vec<&'a Container>,
    /// Argo's own, also as a native sidecar: Argo judges them by their names.
    pub(super) savers: Vec<&'a Container>,
    /// All others: sidecars, or members of a container set if [`Members::Unknown`].
    pub(super) others: Vec<&'a Container>,
    members: Members,
}

/// Whether it is known which containers Argo reads the result from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    /// They are the main containers; all others are sidecars.
    Known,
    /// Every container but Argo's own may be one.
    Unknown,
}

impl<'a> Containers<'a> {
    /// The containers of a pod that is being deleted; empty for other pods.
    pub(super) fn of(pod: &'a Pod) -> Self {
        let (savers, rest): (Vec<_>, Vec<_>) = pod
            .containers()
            .iter()
            .partition(|container| SAVERS.contains(&&*container.name));
        let of_kind = |kind| move |container: &&Container| container.kind == kind;
        let (init, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(of_kind(ContainerKind::Init));
        let (sidecars, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(of_kind(ContainerKind::Sidecar));
        let set = pod.shutdown.as_ref().map(|of| &of.container_set);
        let (main, others): (Vec<&Container>, Vec<_>) =
            rest.iter().copied().partition(|container| match set {
                Some(ContainerSet::Of(members)) => members.contains(&container.name),
                _ => *container.name == *MAIN,
            });
        let (main, others, members) = match set {
            _ if main.is_empty() => (others, Vec::new(), Members::Unknown),
            Some(ContainerSet::Unknown) => (main, others, Members::Unknown),
            _ => (main, others, Members::Known),
        };
        Self {
            init,
            sidecars,
            main,
            savers,
            others,
            members,
        }
    }

    /// The containers that make the result, as far as that is known.
    fn makers(&self) -> impl Iterator<Item = &'a Container> + '_ {
        let named = self
            .main
            .iter()
            .filter(|container| self.members == Members::Known || *container.name == *MAIN);
        named.copied()
    }

    /// The containers that may be members of a container set although they are not known to be.
    fn perhaps(&self) -> &[&'a Container] {
        match self.members {
            Members::Known => &[],
            Members::Unknown => &self.others,
        }
    }

    /// The containers whose end is the end of the step: the main containers and Argo's own, which outlast
    /// all members of a set.
    pub(super) fn deciding(&self) -> impl Iterator<Item = &'a Container> + '_ {
        self.makers().chain(self.savers.iter().copied())
    }

    /// The containers that must have ended before the result of the step is known: the main containers and
    /// Argo's own.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &'a Container> + '_ {
        self.main.iter().chain(&self.savers).copied()
    }

    /// Whether any container of the step, any init container or any native sidecar has started.
    pub(super) fn has_begun(&self) -> bool {
        let before = self.init.iter().chain(&self.sidecars);
        let mut all = before.chain(&self.main).chain(&self.others);
        all.any(|container| container.started || has_ended(container))
    }

    /// Whether the status shows, or may hide, a start of a main container. A container that had not started ends with an
    /// exit code that the kubelet assumes, and without a time.
    pub(super) fn may_have_begun_main(&self) -> bool {
        let has_begun = |one: &&Container| {
            one.started
                || match one.state {
                    ContainerState::Waiting => false,
                    ContainerState::Running => true,
                    ContainerState::Terminated {
                        exit_code,
                        finished,
                    } => finished || exit_code == 0,
                }
        };
        let mut all = self.main.iter().chain(&self.others);
        // A name that is none of Kubernetes' stands for containers that are not kept.
        all.any(|one| one.name.starts_with('%'))
            || self.main.iter().chain(self.perhaps()).any(has_begun)
    }

    /// Whether the step itself has started, after its init containers.
    pub(super) fn is_initialized(&self) -> bool {
        let mut all = self.main.iter().chain(&self.savers).chain(&self.others);
        all.any(|container| container.started)
    }

    /// Whether main and Argo's own have ended, or will never start: the kubelet marks a pod Failed that it
    /// shut down before they started. Pod garbage collection does so too if the node is lost; that does not
    /// count.
    pub(super) fn are_over(&self, pod: &Pod) -> bool {
        let by_pod_gc = pod.shutdown.as_ref().is_some_and(|of| of.by_pod_gc)
            || pod.phase == Phase::Failed && !is_reported(pod);
        let shut_down_by_the_kubelet = pod.is_ended() && !by_pod_gc;
        if self.is_initialized() {
            let mut open = self.awaited().filter(|one| !has_ended(one));
            return open.all(|one| !is_running(one) && shut_down_by_the_kubelet);
        }
        shut_down_by_the_kubelet && !pod.containers().iter().any(is_running)
    }

    /// Whether main and Argo's own exist and have ended, so that their result can be read.
    pub(super) fn can_be_read(&self) -> bool {
        let mut deciding = self.deciding().peekable();
        deciding.peek().is_some() && deciding.all(has_ended)
    }

    /// Whether an init or a main container failed at a known time, and no version shows that the deletion came
    /// first. If it was before the deletion, its failure is a result. A sidecar has none.
    pub(super) fn has_failed(&self) -> bool {
        let mut all = self.init.iter().chain(&self.main).chain(self.perhaps());
        all.any(|container| has_failed(container) && !container.unfinished_at_deletion)
    }

    /// Whether Argo may call the step a success: main and wait exited with 0, whatever the phase and
    /// the sidecars.
    pub(super) fn may_be_a_success(&self) -> bool {
        let main = match self.members {
            Members::Known => self.main.iter().all(|container| has_succeeded(container)),
            Members::Unknown => self.main.iter().any(|container| has_succeeded(container)),
        };
        main && self.savers.iter().all(|container| has_succeeded(container))
    }

    /// The exit codes that determine the step's result for Argo, for messages: `container main exited with 0`.
    pub(super) fn exit_codes(&self) -> Vec<String> {
        let all = self.main.iter().chain(self.perhaps()).chain(&self.savers);
        all.filter_map(|container| match container.state {
            ContainerState::Terminated { exit_code, .. } => Some(format!(
                "container {} exited with {exit_code}",
                container.name
            )),
            ContainerState::Waiting | ContainerState::Running => None,
        })
        .collect()
    }
}

fn has_ended(container: &Container) -> bool {
    matches!(container.state, ContainerState::Terminated { .. })
}

fn is_running(container: &Container) -> bool {
    container.state == ContainerState::Running
}

fn has_succeeded(container: &Container) -> bool {
    matches!(
        container.state,
        ContainerState::Terminated { exit_code: 0, .. }
    )
}

/// An end without a time does not prove that the container ended by itself: nothing observed it.
fn has_failed(container: &Container) -> bool {
    matches!(
        container.state,
        ContainerState::Terminated { exit_code, finished: true } if exit_code != 0
    )
}
