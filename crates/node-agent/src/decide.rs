//! Decides whether a pod's directories on this node are removed now: a pure table.

use belayer_core::slim::{Phase, Pod};
use belayer_holds::names::WIPE_ANNOTATION;

/// What the `NodeWipe` of this node requests for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WipeRequest {
    /// The store is not synced.
    Unknown,
    /// No wipe.
    None,
    /// A wipe.
    Wanted,
    /// A wipe, which is complete.
    Done,
}

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It may start, or has started and not ended.
    Alive,
    /// It failed, and no container of it is known to have started.
    Rejected,
    /// It ended otherwise, is being deleted, or a container of it has started.
    Other,
}

/// Whether a pod requests a wipe in case its node rejects it.
pub(crate) fn asks(pod: &Pod) -> bool {
    pod.meta.annotations.get(WIPE_ANNOTATION) == Some("true")
}

/// How far a pod has come.
pub(crate) fn state(pod: &Pod) -> State {
    match (pod.phase, pod.started, pod.meta.is_deleting()) {
        (Phase::Failed, false, false) => State::Rejected,
        (Phase::Pending | Phase::Running | Phase::Unknown, _, false) => State::Alive,
        _ => State::Other,
    }
}

/// Whether handlers may begin for a pod: no container of it is known to have started.
pub(crate) fn is_starting(pod: &Pod) -> bool {
    state(pod) == State::Alive && !pod.started
}

/// Input of the decision, taken once all programs run for a pod have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// What is requested for it.
    pub request: WipeRequest,
    /// Whether it is rejected and asks for a wipe, so that the request follows. Only known if pods are watched.
    pub request_follows: bool,
}

/// The decision for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Remove the pod's directories, after a live read has confirmed the decision.
    Wipe,
    /// Wait for a change of a store.
    Wait,
    /// Nothing is left to do.
    Finish,
}

/// Decides for one pod. Call it once all programs run for the pod have ended.
pub(crate) fn decide(snapshot: &Snapshot) -> Decision {
    match snapshot.request {
        WipeRequest::Wanted => Decision::Wipe,
        WipeRequest::Unknown => Decision::Wait,
        WipeRequest::None if snapshot.request_follows => Decision::Wait,
        // Without an entry the wipe is not wanted any more, even if it has begun.
        WipeRequest::None | WipeRequest::Done => Decision::Finish,
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
    use belayer_core::slim::ObjectMeta;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::wanted(WipeRequest::Wanted, false, Decision::Wipe)]
    #[case::wanted_of_a_rejected_pod(WipeRequest::Wanted, true, Decision::Wipe)]
    #[case::unknown(WipeRequest::Unknown, false, Decision::Wait)]
    #[case::the_request_follows(WipeRequest::None, true, Decision::Wait)]
    #[case::not_wanted(WipeRequest::None, false, Decision::Finish)]
    #[case::done(WipeRequest::Done, true, Decision::Finish)]
    fn each_decision(
        #[case] request: WipeRequest,
        #[case] request_follows: bool,
        #[case] expected: Decision,
    ) {
        let snapshot = Snapshot {
            request,
            request_follows,
        };
        assert_eq!(decide(&snapshot), expected);
    }

    #[rstest]
    #[case::starting(Phase::Pending, false, State::Alive, true)]
    #[case::an_init_container_has_started(Phase::Pending, true, State::Alive, false)]
    #[case::running(Phase::Running, true, State::Alive, false)]
    #[case::rejected(Phase::Failed, false, State::Rejected, false)]
    #[case::failed_after_its_start(Phase::Failed, true, State::Other, false)]
    #[case::succeeded(Phase::Succeeded, true, State::Other, false)]
    fn how_far_a_pod_has_come(
        #[case] phase: Phase,
        #[case] started: bool,
        #[case] expected: State,
        #[case] handlers_may_begin: bool,
    ) {
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", "web"),
            Uid::new("u-1"),
            ResourceVersion::new(7),
        );
        let mut pod = Pod::new(meta);
        pod.phase = phase;
        pod.started = started;
        assert_eq!(state(&pod), expected);
        assert_eq!(is_starting(&pod), handlers_may_begin);
        assert!(!asks(&pod));
    }
}
