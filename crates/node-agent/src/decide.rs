//! Whether a node is to be wiped of a pod now: a pure table.

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::{Phase, Pod};
use belayer_holds::names::WIPE_ANNOTATION;

use crate::record::Wish;

/// The pod that a record asks about, by its UID, as a cache or a live look shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Nobody can say.
    Unknown,
    /// There is no pod of that UID, as far as this node can have anything of it.
    Gone,
    /// There is, but it is not the record's: it has another name, or is in another namespace.
    Stranger,
    /// There is, but it is not on this node.
    Elsewhere,
    /// There is.
    Here {
        /// Whether it asks for a wipe.
        asks: Asks,
        /// How far it has come.
        state: State,
    },
}

/// Whether a pod asks to be wiped if its node rejects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// By annotation.
    Yes,
    /// It does not.
    No,
}

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It may start, or may have started and not ended.
    Alive,
    /// It failed, and no container of it is known to have started.
    Rejected,
    /// The same, and its deletion was asked for.
    RejectedAndDeleted,
    /// It ended otherwise, or is being deleted, or a container of it has started.
    Other,
}

impl Sight {
    /// What `pod` shows of the pod with this UID, of which a record says that it had this name on this
    /// node.
    pub fn of(pod: Option<&Pod>, key: &ObjectKey, uid: &Uid, node: &str) -> Self {
        match pod.filter(|pod| pod.meta.uid == *uid) {
            None => Self::Gone,
            Some(pod) if pod.meta.key != *key => Self::Stranger,
            Some(pod) if pod.node_name.as_deref() != Some(node) => Self::Elsewhere,
            Some(pod) => Self::Here {
                asks: asks(pod),
                state: state(pod),
            },
        }
    }
}

/// Whether a pod asks to be wiped.
pub fn asks(pod: &Pod) -> Asks {
    if pod.meta.annotations.get(WIPE_ANNOTATION) == Some("true") {
        Asks::Yes
    } else {
        Asks::No
    }
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

/// What is known when the work of a pod has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The pod.
    pub pod: Sight,
    /// What the records say about it.
    pub wish: Wish,
    /// Whether its wipe has begun before, in this process.
    pub progress: Progress,
}

/// Whether a wipe has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not in this process.
    None,
    /// It has, and did not come to its end.
    Begun,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The node is to be wiped of it, after a live look at the pod.
    Wipe,
    /// Until a store says something else.
    Wait,
    /// Nothing is left to do.
    Finish,
    /// It is not wiped, although the record asks for it; told in the record.
    Refuse(&'static str),
}

/// Why a pod that is there is not wiped.
const NOT_ASKED: &str = "the pod does not ask for a wipe";

/// Why a pod of somebody else is not wiped: whoever may write a record's status can name any UID
/// (row T1). The pod that has it is not named here.
const NOT_ITS_POD: &str = "the record's pod never had this UID";

/// Why a pod of another node is not wiped.
const NOT_HERE: &str = "the pod is not on this node";

/// Why a pod that may have run is not wiped: what it wrote may be wanted (invariant RAN-ONCE).
const MAY_HAVE_RUN: &str = "the pod is not known never to have run";

/// Decides, when everything that ran for a pod has ended.
pub fn decide(snapshot: &Snapshot) -> Decision {
    match (snapshot.progress, snapshot.wish, snapshot.pod) {
        (_, Wish::Wanted, Sight::Stranger) => Decision::Refuse(NOT_ITS_POD),
        (_, Wish::Wanted, Sight::Elsewhere) => Decision::Refuse(NOT_HERE),
        (_, _, Sight::Stranger | Sight::Elsewhere) => Decision::Finish,
        // What was begun is brought to its end: a half-wiped directory is of use to nobody.
        (Progress::Begun, _, _) => Decision::Wipe,
        (_, Wish::Done, _) => Decision::Finish,
        (_, _, Sight::Unknown) => Decision::Wait,
        // Its record may be on its way.
        (
            _,
            Wish::None,
            Sight::Here {
                asks: Asks::Yes,
                state: State::Rejected,
            },
        ) => Decision::Wait,
        (_, Wish::None, _) => Decision::Finish,
        // Nobody is left to whom its directories could belong.
        (_, Wish::Wanted, Sight::Gone) => Decision::Wipe,
        (_, Wish::Wanted, Sight::Here { asks: Asks::No, .. }) => Decision::Refuse(NOT_ASKED),
        (_, Wish::Wanted, Sight::Here { state, .. }) => match state {
            State::Rejected | State::RejectedAndDeleted => Decision::Wipe,
            // The record has seen more than this cache.
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

    const REJECTED: Sight = here(State::Rejected);

    const fn here(state: State) -> Sight {
        Sight::Here {
            asks: Asks::Yes,
            state,
        }
    }

    const fn unasked(state: State) -> Sight {
        Sight::Here {
            asks: Asks::No,
            state,
        }
    }

    #[rstest]
    #[case::a_rejected_pod_is_wiped_when_its_record_asks(REJECTED, Wish::Wanted, Decision::Wipe)]
    #[case::a_record_that_has_not_come_yet_is_waited_for(REJECTED, Wish::None, Decision::Wait)]
    #[case::what_is_done_is_done(REJECTED, Wish::Done, Decision::Finish)]
    #[case::a_pod_that_is_deleted_meanwhile_is_wiped(
        here(State::RejectedAndDeleted),
        Wish::Wanted,
        Decision::Wipe
    )]
    #[case::a_rejected_pod_that_its_user_deletes_is_not_waited_for(
        here(State::RejectedAndDeleted),
        Wish::None,
        Decision::Finish
    )]
    #[case::a_pod_that_is_gone_already_is_wiped(Sight::Gone, Wish::Wanted, Decision::Wipe)]
    #[case::a_pod_that_is_gone_and_nobody_asks(Sight::Gone, Wish::None, Decision::Finish)]
    #[case::unknown_is_not_absent(Sight::Unknown, Wish::Wanted, Decision::Wait)]
    #[case::unknown_is_not_finished(Sight::Unknown, Wish::None, Decision::Wait)]
    #[case::a_pod_that_lives_is_never_wiped(here(State::Alive), Wish::Wanted, Decision::Wait)]
    #[case::a_pod_that_ran_is_never_wiped(
        here(State::Other),
        Wish::Wanted,
        Decision::Refuse(MAY_HAVE_RUN)
    )]
    #[case::a_pod_that_ended_otherwise(here(State::Other), Wish::None, Decision::Finish)]
    #[case::a_pod_that_does_not_ask_is_never_wiped(
        unasked(State::Rejected),
        Wish::Wanted,
        Decision::Refuse(NOT_ASKED)
    )]
    #[case::a_pod_that_does_not_ask_is_not_waited_for(
        unasked(State::Rejected),
        Wish::None,
        Decision::Finish
    )]
    #[case::t1_a_pod_of_somebody_else_is_never_wiped(
        Sight::Stranger,
        Wish::Wanted,
        Decision::Refuse(NOT_ITS_POD)
    )]
    #[case::t1_nor_waited_for(Sight::Stranger, Wish::None, Decision::Finish)]
    #[case::t1_a_pod_of_another_node_is_never_wiped(
        Sight::Elsewhere,
        Wish::Wanted,
        Decision::Refuse(NOT_HERE)
    )]
    fn table(#[case] pod: Sight, #[case] wish: Wish, #[case] expected: Decision) {
        let snapshot = Snapshot {
            pod,
            wish,
            progress: Progress::None,
        };
        assert_eq!(decide(&snapshot), expected);
        let begun = Snapshot {
            progress: Progress::Begun,
            ..snapshot
        };
        let finished = match pod {
            Sight::Stranger | Sight::Elsewhere => expected,
            _ => Decision::Wipe,
        };
        assert_eq!(decide(&begun), finished, "what was begun is finished");
    }

    #[rstest]
    #[case::pending(Phase::Pending, false, State::Alive)]
    #[case::running(Phase::Running, true, State::Alive)]
    #[case::rejected(Phase::Failed, false, State::Rejected)]
    #[case::failed_after_a_start(Phase::Failed, true, State::Other)]
    #[case::succeeded(Phase::Succeeded, true, State::Other)]
    #[case::succeeded_without_a_container_in_sight(Phase::Succeeded, false, State::Other)]
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
            Sight::of(
                Some(&pod),
                &ObjectKey::new("shop", name),
                &Uid::new(uid),
                node,
            )
        };
        assert_eq!(seen("web", "u-2", "n"), Sight::Gone);
        assert_eq!(seen("web", "u-1", "n"), unasked(expected));
        assert_eq!(seen("mine", "u-1", "n"), Sight::Stranger, "row T1");
        assert_eq!(seen("web", "u-1", "m"), Sight::Elsewhere, "row T1");
    }
}
