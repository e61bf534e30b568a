//! Whether a pod that is being deleted was ended by its deletion, or had ended by itself before.
//!
//! The order of the watched versions decides, not timestamps: the deletion timestamp is the time of the
//! request plus the grace period, the kubelet resets it, and clocks differ.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use belayer_core::logical_time::LogicalTime;
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::{BeforeDeletion, Phase, Pod};

use super::containers::{Containers, is_reported};
use crate::status::StatusState;

/// The reasons for which a node fails a pod that Argo may replace (`failedPodRestart`, 4.0) if its main container has not
/// started. Argo creates the next pod only when this one is gone, and shows that only in the workflow's status.
const REPLACED: [&str; 4] = [
    "Evicted",
    "NodeShutdown",
    "NodeAffinity",
    "UnexpectedAdmissionError",
];

/// The pod was deleted before it had a result: without Belayer it would be gone, and Argo would find
/// a pod that was deleted.
///
/// Proven by the versions of the pod that this process watched, or by the pod's status if that of its workflow cannot be
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedByDeletion(How);

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    /// It was deleted before any container of it had started.
    NeverStarted,
    /// This container had not ended when the deletion was seen, and the step did not succeed.
    Unfinished(Arc<str>),
    /// Its node failed it for this reason, and its status shows no start of a main container.
    FailedByNode(Arc<str>),
}

/// Whether a pod that is being deleted may have a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its deletion ended it: there is no result.
    ByDeletion(EndedByDeletion),
    /// There may be a result, or there will be one.
    Held(Held),
}

/// Why a pod that is being deleted may have a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It is not being deleted.
    NotDeleted,
    /// Its main container or Argo's own has not ended: it may yet succeed.
    Running,
    /// A main or init container had failed before the deletion.
    Failed,
    /// It had ended before the deletion.
    Ended,
    /// Its phase is Succeeded, or its main container and Argo's own have exited with 0, or one of a container
    /// set has and the pod does not show which containers are members.
    Succeeded,
    /// It ended by itself or by its deletion: the version that shows which was missed by a restart or a new
    /// list. Or its node rejected it, and the versions that show whether it had run before were missed.
    Undecided,
}

impl EndedByDeletion {
    /// Returns the proof if `pod` provides it.
    pub fn prove(pod: &Pod) -> Option<Self> {
        match Ending::of(pod) {
            Ending::ByDeletion(proof) => Some(proof),
            Ending::Held(_) => None,
        }
    }

    /// Returns the proof for a deleted pod that has nothing to be read but the reason why its node failed it, if `status`,
    /// read after the pod was first seen at `pod_seen`, will not show whether Argo has read that or replaces the pod.
    pub fn prove_failed_by_node(
        pod: &Pod,
        status: &LiveAnswer<StatusState>,
        pod_seen: LogicalTime,
    ) -> Option<Self> {
        let is_hidden = matches!(
            status.answer(),
            StatusState::TooLarge(_) | StatusState::Offloaded(_)
        );
        if !is_hidden || status.begun() <= pod_seen {
            return None;
        }
        let reason = pod.reason.as_ref()?;
        let is_replaced =
            pod.meta.is_deleting() && pod.phase == Phase::Failed && REPLACED.contains(&&**reason);
        let containers = Containers::of(pod);
        let is_unread =
            is_replaced && containers.are_over(pod) && !containers.may_have_begun_main();
        is_unread.then(|| Self(How::FailedByNode(Arc::clone(reason))))
    }
}

impl fmt::Display for EndedByDeletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            How::NeverStarted => f.write_str("no container had started"),
            How::Unfinished(name) => write!(f, "container {name} had not ended"),
            How::FailedByNode(reason) => write!(
                f,
                "its node failed it ({reason}) before its main container had started, and the status of its workflow \
                 cannot be read"
            ),
        }
    }
}

impl Ending {
    /// Determines the ending as Argo's `inferFailedReason` does: by main containers, init containers and Argo's own,
    /// never by sidecars.
    pub(crate) fn of(pod: &Pod) -> Self {
        if !pod.meta.is_deleting() {
            return Self::Held(Held::NotDeleted);
        }
        let containers = Containers::of(pod);
        let before = pod.shutdown.as_ref().map(|of| of.before);
        let before = before.unwrap_or_default();
        if is_without_a_start(pod) && !containers.has_begun() {
            let had_ended = pod.is_bound() && before == BeforeDeletion::Ended;
            // A kubelet that restarts also rejects pods that have run.
            return if had_ended && !pod.is_known_unstarted() {
                Self::Held(Held::Undecided)
            } else {
                Self::by(How::NeverStarted)
            };
        }
        let has_failed = containers.has_failed();
        if has_failed && before != BeforeDeletion::Unknown {
            return Self::Held(Held::Failed);
        }
        let is_over = containers.are_over(pod);
        if is_over && (pod.phase == Phase::Succeeded || containers.may_be_a_success()) {
            return Self::Held(Held::Succeeded);
        }
        if has_failed {
            return Self::Held(Held::Undecided);
        }
        if !is_over {
            return Self::Held(Held::Running);
        }
        let unfinished = if containers.is_initialized() {
            containers.deciding().find(|one| one.unfinished_at_deletion)
        } else {
            let mut all = containers.init.iter().copied().chain(containers.deciding());
            all.find(|one| one.unfinished_at_deletion)
        };
        match unfinished {
            Some(container) => Self::by(How::Unfinished(Arc::clone(&container.name))),
            None => Self::Held(match before {
                BeforeDeletion::Ended if containers.has_begun() => Held::Ended,
                BeforeDeletion::Watched if containers.can_be_read() => Held::Ended,
                _ => Held::Undecided,
            }),
        }
    }

    fn by(how: How) -> Self {
        Self::ByDeletion(EndedByDeletion(how))
    }
}

/// Whether the phase, the binding and the status show that nothing has started. A pod that was never bound, or of
/// which no kubelet ever wrote a status, can only have been ended by pod garbage collection, which marks it Failed
/// once it is being deleted. A kubelet that restarts may also reject a pod that has run, and then writes a status
/// without containers: for a rejected pod its earlier versions are the proof.
fn is_without_a_start(pod: &Pod) -> bool {
    match pod.phase {
        Phase::Pending => true,
        Phase::Failed => !pod.is_bound() || !is_reported(pod) || pod.is_known_unstarted(),
        Phase::Running | Phase::Succeeded | Phase::Unknown => false,
    }
}

impl Held {
    /// The text for messages; `pod` is the pod that [`Ending::of`] was called with.
    pub(crate) fn message(self, pod: &Pod) -> Cow<'static, str> {
        let words = match self {
            Self::NotDeleted => "it is not being deleted",
            Self::Running => "it is still running, so it may still succeed",
            Self::Failed => {
                "one of its containers had failed before it was deleted, so it has a result"
            }
            Self::Ended => "it had ended before it was deleted, so it has a result",
            Self::Succeeded => return success(pod).into(),
            Self::Undecided if pod.is_ended() && !Containers::of(pod).has_begun() => {
                "undecided: it failed without a report of its containers before Belayer saw it, and a node that restarts \
                 also rejects pods that have run"
            }
            Self::Undecided => {
                "undecided: no watched version shows whether it ended by itself or by its deletion"
            }
        };
        words.into()
    }
}

fn success(pod: &Pod) -> String {
    let phase = (pod.phase == Phase::Succeeded).then(|| "its phase is Succeeded".to_owned());
    let mut shown = Containers::of(pod).exit_codes();
    shown.extend(phase);
    format!("it may have succeeded: {}", shown.join(", "))
}

#[cfg(test)]
mod tests;
