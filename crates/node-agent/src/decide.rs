//! Decides whether a pod's directories on this node are removed now: a pure table.

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::{Phase, Pod};
use belayer_holds::names::WIPE_ANNOTATION;

use crate::record::WipeRequest;

/// The pod that a record names by UID, as the cache or a live read shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodState {
    /// The cache is not synced.
    Unknown,
    /// This node has no pod with this UID.
    Gone,
    /// A pod with this UID exists, but its name or namespace is not the record's.
    OtherName,
    /// A pod with this UID exists, on another node.
    OtherNode,
    /// The pod exists on this node.
    Here {
        /// Whether the pod requests a wipe in case its node rejects it.
        asks: bool,
        /// How far the pod has come.
        state: State,
    },
}

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It may start, or has started and not ended.
    Alive,
    /// It failed, and no container of it is known to have started.
    Rejected,
    /// As `Rejected`, and its deletion was requested.
    RejectedAndDeleted,
    /// It ended otherwise, is being deleted, or a container of it has started.
    Other,
}

impl PodState {
    /// State of `pod` for a record that names this UID, key and node.
    pub fn of(pod: Option<&Pod>, key: &ObjectKey, uid: &Uid, node: &str) -> Self {
        match pod.filter(|pod| pod.meta.uid == *uid) {
            None => Self::Gone,
            Some(pod) if pod.meta.key != *key => Self::OtherName,
            Some(pod) if pod.node_name.as_deref() != Some(node) => Self::OtherNode,
            Some(pod) => Self::Here {
                asks: asks(pod),
                state: state(pod),
            },
        }
    }
}

/// Whether a pod requests a wipe in case its node rejects it.
pub fn asks(pod: &Pod) -> bool {
    pod.meta.annotations.get(WIPE_ANNOTATION) == Some("true")
}

/// How far a pod has come.
pub fn state(pod: &Pod) -> State {
    match (pod.phase, pod.started, pod.meta.is_deleting()) {
        (Phase::Failed, false, false) => State::Rejected,
        (Phase::Failed, false, true) => State::RejectedAndDeleted,
        (Phase::Pending | Phase::Running | Phase::Unknown, _, false) => State::Alive,
        _ => State::Other,
    }
}

/// Input of the decision, taken once all programs run for a pod have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The pod.
    pub pod: PodState,
    /// What the records request for it.
    pub request: WipeRequest,
    /// Whether this process began its wipe before.
    pub progress: Progress,
}

/// Whether a wipe has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not in this process.
    None,
    /// It began and did not complete.
    Begun,
}

/// The decision for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Remove the pod's directories, after a live read has confirmed the decision.
    Wipe,
    /// Wait for a change of a store.
    Wait,
    /// Nothing is left to do.
    Finish,
    /// Do not wipe although the record requests it; report the reason in the record.
    Refuse(&'static str),
}

/// The pod has no wipe annotation.
const NOT_ASKED: &str =
    "the pod does not request a wipe: it has no annotation belayer.dev/wipe=true";

/// The UID belongs to another pod: a client that may write a record's status can name any UID (rule T1).
/// The message does not name the pod that has it.
const NOT_ITS_POD: &str = "the record's pod never had this UID";

/// The pod is on another node.
const NOT_HERE: &str = "the pod is not on this node";

/// The pod may have run, so its files may be needed (invariant RAN-ONCE).
const MAY_HAVE_RUN: &str = "the pod may have run";

/// Decides for one pod. Call it once all programs run for the pod have ended.
pub fn decide(snapshot: &Snapshot) -> Decision {
    match (snapshot.progress, snapshot.request, snapshot.pod) {
        (_, WipeRequest::Wanted, PodState::OtherName) => Decision::Refuse(NOT_ITS_POD),
        (_, WipeRequest::Wanted, PodState::OtherNode) => Decision::Refuse(NOT_HERE),
        (_, _, PodState::OtherName | PodState::OtherNode) => Decision::Finish,
        // A wipe that began is completed: a half-removed directory is useless.
        (Progress::Begun, _, _) => Decision::Wipe,
        (_, WipeRequest::Done, _) => Decision::Finish,
        (_, _, PodState::Unknown) => Decision::Wait,
        // Its record may not have arrived yet.
        (
            _,
            WipeRequest::None,
            PodState::Here {
                asks: true,
                state: State::Rejected,
            },
        ) => Decision::Wait,
        (_, WipeRequest::None, _) => Decision::Finish,
        // No pod can own the directories any more.
        (_, WipeRequest::Wanted, PodState::Gone) => Decision::Wipe,
        (_, WipeRequest::Wanted, PodState::Here { asks: false, .. }) => Decision::Refuse(NOT_ASKED),
        (_, WipeRequest::Wanted, PodState::Here { state, .. }) => match state {
            State::Rejected | State::RejectedAndDeleted => Decision::Wipe,
            // The record is newer than this cache.
            State::Alive => Decision::Wait,
            State::Other => Decision::Refuse(MAY_HAVE_RUN),
        },
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::object::ResourceVersion;
    use belayer_core::slim::ObjectMeta;
    use rstest::rstest;

    use super::*;

    const REJECTED: PodState = here(State::Rejected);

    const fn here(state: State) -> PodState {
        PodState::Here { asks: true, state }
    }

    const fn unasked(state: State) -> PodState {
        PodState::Here { asks: false, state }
    }

    #[rstest]
    #[case::a_rejected_pod_is_wiped_when_its_record_asks(
        REJECTED,
        WipeRequest::Wanted,
        Decision::Wipe
    )]
    #[case::a_rejected_pod_waits_for_its_record(REJECTED, WipeRequest::None, Decision::Wait)]
    #[case::a_complete_wipe_is_not_repeated(REJECTED, WipeRequest::Done, Decision::Finish)]
    #[case::a_rejected_pod_under_deletion_is_wiped(
        here(State::RejectedAndDeleted),
        WipeRequest::Wanted,
        Decision::Wipe
    )]
    #[case::a_rejected_pod_under_deletion_without_a_request_is_finished(
        here(State::RejectedAndDeleted),
        WipeRequest::None,
        Decision::Finish
    )]
    #[case::a_deleted_pod_is_wiped(PodState::Gone, WipeRequest::Wanted, Decision::Wipe)]
    #[case::a_deleted_pod_without_a_request_is_finished(
        PodState::Gone,
        WipeRequest::None,
        Decision::Finish
    )]
    #[case::unknown_is_not_absent(PodState::Unknown, WipeRequest::Wanted, Decision::Wait)]
    #[case::unknown_is_not_finished(PodState::Unknown, WipeRequest::None, Decision::Wait)]
    #[case::a_pod_that_may_start_is_never_wiped(
        here(State::Alive),
        WipeRequest::Wanted,
        Decision::Wait
    )]
    #[case::a_pod_that_ran_is_never_wiped(
        here(State::Other),
        WipeRequest::Wanted,
        Decision::Refuse(MAY_HAVE_RUN)
    )]
    #[case::a_pod_that_ended_otherwise(here(State::Other), WipeRequest::None, Decision::Finish)]
    #[case::a_pod_without_the_annotation_is_never_wiped(
        unasked(State::Rejected),
        WipeRequest::Wanted,
        Decision::Refuse(NOT_ASKED)
    )]
    #[case::a_pod_without_the_annotation_is_finished(
        unasked(State::Rejected),
        WipeRequest::None,
        Decision::Finish
    )]
    #[case::t1_a_pod_of_another_name_is_never_wiped(
        PodState::OtherName,
        WipeRequest::Wanted,
        Decision::Refuse(NOT_ITS_POD)
    )]
    #[case::t1_a_pod_of_another_name_is_finished(
        PodState::OtherName,
        WipeRequest::None,
        Decision::Finish
    )]
    #[case::t1_a_pod_of_another_node_is_never_wiped(
        PodState::OtherNode,
        WipeRequest::Wanted,
        Decision::Refuse(NOT_HERE)
    )]
    fn table(#[case] pod: PodState, #[case] request: WipeRequest, #[case] expected: Decision) {
        let snapshot = Snapshot {
            pod,
            request,
            progress: Progress::None,
        };
        assert_eq!(decide(&snapshot), expected);
        let begun = Snapshot {
            progress: Progress::Begun,
            ..snapshot
        };
        let finished = match pod {
            PodState::OtherName | PodState::OtherNode => expected,
            _ => Decision::Wipe,
        };
        assert_eq!(decide(&begun), finished, "a wipe that began is completed");
    }

    #[rstest]
    #[case::pending(Phase::Pending, false, State::Alive)]
    #[case::running(Phase::Running, true, State::Alive)]
    #[case::rejected(Phase::Failed, false, State::Rejected)]
    #[case::failed_after_a_start(Phase::Failed, true, State::Other)]
    #[case::succeeded(Phase::Succeeded, true, State::Other)]
    #[case::succeeded_without_container_statuses(Phase::Succeeded, false, State::Other)]
    fn states(#[case] phase: Phase, #[case] started: bool, #[case] expected: State) {
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", "web"),
            Uid::new("u-1"),
            ResourceVersion::new(1),
        );
        let mut pod = Pod::new(meta);
        pod.phase = phase;
        pod.started = started;
        assert_eq!(state(&pod), expected);
        pod.node_name = Some("n".into());
        let seen = |name: &str, uid: &str, node: &str| {
            PodState::of(
                Some(&pod),
                &ObjectKey::new("shop", name),
                &Uid::new(uid),
                node,
            )
        };
        assert_eq!(seen("web", "u-2", "n"), PodState::Gone);
        assert_eq!(seen("web", "u-1", "n"), unasked(expected));
        assert_eq!(seen("mine", "u-1", "n"), PodState::OtherName, "rule T1");
        assert_eq!(seen("web", "u-1", "m"), PodState::OtherNode, "rule T1");
    }
}
