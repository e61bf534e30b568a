//! Rows of the table of the hold.

use belayer_core::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::decision::Evidence as _;
use belayer_holds::owner::GoneProof;
use rstest::rstest;

use super::*;
use crate::api::{self, Policy, Status};
use crate::config::Settings;
use crate::proof::{FirstSight, MayHaveRun, NeverRan};
use crate::reason::Class;
use crate::snapshot::{Asks, Deletion, Rejection};

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new("yard", name),
        Uid::new(uid),
        ResourceVersion::new(1),
    )
}

fn pod() -> PodView {
    let pod = Pod::new(meta("web", "u-1"));
    PodView {
        hold: Hold::On,
        selection: Selection::Eligible,
        ..PodView::of(&pod, &Settings::default(), FirstSight::Earlier)
    }
}

fn unheld(pod: PodView) -> PodView {
    PodView {
        hold: Hold::Off,
        ..pod
    }
}

fn deleting(pod: PodView) -> PodView {
    PodView {
        deletion: Deletion::Asked,
        ..pod
    }
}

fn started(pod: PodView) -> PodView {
    PodView {
        state: PodState::Started,
        ..pod
    }
}

fn unselected(pod: PodView) -> PodView {
    PodView {
        selection: Selection::No,
        ..pod
    }
}

fn rejected(pod: PodView) -> PodView {
    let failed = Pod {
        phase: belayer_core::slim::Phase::Failed,
        ..Pod::new(meta("web", "x"))
    };
    refused(NeverRan::prove(&failed, FirstSight::Rejected), pod)
}

fn refused(never_ran: Result<NeverRan, MayHaveRun>, pod: PodView) -> PodView {
    PodView {
        state: PodState::Rejected(Rejection {
            reason: "OutOfcpu".into(),
            message: None,
            class: Class::Race,
            never_ran,
        }),
        ..pod
    }
}

fn asking(asks: Asks, pod: PodView) -> PodView {
    PodView { asks, ..pod }
}

fn marked(attempt: u32, pod: PodView) -> PodView {
    PodView {
        uid: Uid::new("u-2"),
        mark: Some(Mark {
            record: "web-u-1".into(),
            record_uid: Uid::new("r-1"),
            attempt,
        }),
        ..pod
    }
}

fn record(phase: Phase) -> RecordSight {
    RecordSight::Found(Box::new(Record {
        meta: meta("web-u-1", "r-1"),
        pod_name: "web".into(),
        first_uid: "u-1".into(),
        policy: Policy::default(),
        status: Status {
            phase: Some(phase),
            attempts: 2,
            rejected_uid: Some("u-1".into()),
            ..Status::default()
        },
    }))
}

fn see(pod: PodView, record: RecordSight) -> HoldSnapshot {
    HoldSnapshot {
        pod,
        first_seen: LogicalTime::BEGINNING,
        record,
        cancelled: Asked::No,
        to_report: Asked::No,
        look: None,
        owner: None,
    }
}

/// Whose owner is being deleted.
fn orphaned(snapshot: HoldSnapshot) -> HoldSnapshot {
    let owner = ObjectMeta {
        deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
        ..meta("run", "o-1")
    };
    HoldSnapshot {
        owner: Some(ObservedOwner::scripted(owner, None)),
        ..snapshot
    }
}

fn of_owner(state: Option<OwnerState>, snapshot: HoldSnapshot) -> HoldSnapshot {
    HoldSnapshot {
        owner: Some(ObservedOwner::scripted(meta("run", "o-1"), state)),
        ..snapshot
    }
}

/// A record that knows of the pod `u-2`.
fn knowing(phase: Phase) -> RecordSight {
    let RecordSight::Found(mut record) = record(phase) else {
        return RecordSight::Unknown;
    };
    record.status.pod_uid = Some("u-2".into());
    RecordSight::Found(record)
}

fn absent(pod: PodView) -> HoldSnapshot {
    see(pod, RecordSight::Absent)
}

const RELEASE: Asks = Asks {
    release: Asked::Yes,
    wipe: Asked::No,
    leave: Asked::No,
};
const LEAVE: Asks = Asks {
    release: Asked::No,
    wipe: Asked::No,
    leave: Asked::Yes,
};

/// What a decision does: the evidence, `hold`, or nothing.
fn told(decision: &HoldDecision) -> &'static str {
    match &decision.write {
        Some(Write::AddHold) => "hold",
        Some(Write::Release(evidence)) => evidence.name(),
        Some(Write::Step(()) | Write::Delete(_)) => "another write",
        None => "",
    }
}

#[rstest]
#[case::row_01_not_selected(absent(unheld(unselected(pod()))), row::NOT_OURS, "")]
#[case::row_01_started_already(absent(unheld(started(pod()))), row::NOT_OURS, "")]
#[case::row_01_no_hold_is_added_late(absent(unheld(deleting(pod()))), row::NOT_OURS, "")]
#[case::row_01_left_alone(absent(unheld(asking(LEAVE, rejected(pod())))), row::NOT_OURS, "")]
#[case::row_01_its_record_is_over(see(unheld(pod()), record(Phase::Ended)), row::NOT_OURS, "")]
#[case::row_01_the_kind_is_not_served(
    see(unheld(pod()), RecordSight::NotServed),
    row::NOT_OURS,
    ""
)]
#[case::row_01_may_have_run(
    absent(unheld(refused(Err(MayHaveRun::NotHeld), pod()))),
    row::NOT_OURS,
    ""
)]
#[case::row_02_the_admin_asked(absent(asking(RELEASE, pod())), row::ADMIN_ASKED, "AdminAsked")]
#[case::row_03_new(absent(unheld(pod())), row::ADD_HOLD, "hold")]
#[case::row_03_first_seen_rejected(absent(unheld(rejected(pod()))), row::ADD_HOLD, "hold")]
#[case::row_05_a_chain_is_over(
    see(marked(2, started(pod())), record(Phase::Started)),
    row::RECORD_ENDED,
    "RecordEnded"
)]
#[case::row_05_an_old_leaders_pod_is_deleted_first(
    see(marked(2, pod()), record(Phase::Ended)),
    row::KEEP,
    ""
)]
#[case::row_07_an_old_leaders_pod_after_the_end(
    see(deleting(marked(2, pod())), record(Phase::Ended)),
    row::LEFTOVER,
    "Leftover"
)]
#[case::row_05_first_it_is_told(see(rejected(pod()), record(Phase::Exhausted)), row::KEEP, "")]
#[case::row_05_told(
    see(asking(LEAVE, rejected(pod())), record(Phase::Exhausted)),
    row::RECORD_ENDED,
    "RecordEnded"
)]
#[case::row_06_we_deleted_it(
    see(deleting(rejected(pod())), record(Phase::Deleting)),
    row::RECREATING,
    "Recreating"
)]
#[case::row_06_not_before(see(rejected(pod()), record(Phase::Deleting)), row::KEEP, "")]
#[case::row_08_deleted_before_the_intent(
    see(deleting(rejected(pod())), record(Phase::Rejected)),
    row::DELETED,
    "DeletedFirst"
)]
#[case::row_07_of_an_older_attempt(
    see(marked(1, deleting(pod())), record(Phase::Creating)),
    row::LEFTOVER,
    "Leftover"
)]
#[case::row_07_of_this_attempt_it_is_counted_first(
    see(marked(2, deleting(pod())), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::row_07_running_it_is_counted_first(
    see(marked(1, deleting(started(pod()))), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::row_08_deleted_first(absent(deleting(pod())), row::DELETED, "DeletedFirst")]
#[case::row_08_rejected_and_deleted_first(
    absent(deleting(rejected(pod()))),
    row::DELETED,
    "DeletedFirst"
)]
#[case::row_09_started(absent(started(pod())), row::STARTED, "Started")]
#[case::row_09_a_chain_waits_for_its_record(
    see(marked(2, started(pod())), record(Phase::Recreated)),
    row::KEEP,
    ""
)]
#[case::row_10_it_may_have_run(
    absent(refused(Err(MayHaveRun::StartedEarlier), pod())),
    row::ENDED,
    "Ended"
)]
#[case::row_11_the_user_changed_their_mind(
    absent(unselected(pod())),
    row::UNSELECTED,
    "Unselected"
)]
#[case::row_11_the_record_was_deleted_first_it_is_told(HoldSnapshot { cancelled: Asked::Yes, ..absent(rejected(pod())) }, row::KEEP, "")]
#[case::row_11_the_record_was_deleted(HoldSnapshot { cancelled: Asked::Yes, ..absent(rejected(asking(LEAVE, pod()))) }, row::UNSELECTED, "Unselected")]
#[case::row_11_told_by_an_earlier_process(
    absent(rejected(asking(LEAVE, pod()))),
    row::UNSELECTED,
    "Unselected"
)]
#[case::a7_row_01_no_hold_for_a_deleted_owner(orphaned(absent(unheld(pod()))), row::NOT_OURS, "")]
#[case::a7_row_11_what_is_not_selected_goes_in_a_chain_too(
    see(marked(2, unselected(pod())), knowing(Phase::Recreated)),
    row::UNSELECTED,
    "Unselected"
)]
#[case::a7_row_13_its_owner_is_being_deleted(
    orphaned(absent(pod())),
    row::OWNER_ENDS,
    "OwnerDeleting"
)]
#[case::a7_row_13_rejected(orphaned(absent(rejected(pod()))), row::OWNER_ENDS, "OwnerDeleting")]
#[case::a7_row_13_in_a_chain(
    orphaned(see(marked(2, pod()), knowing(Phase::Recreated))),
    row::OWNER_ENDS,
    "OwnerDeleting"
)]
#[case::a7_row_13_not_before_its_record_knows_of_it(
    orphaned(see(marked(2, pod()), record(Phase::Creating))),
    row::KEEP,
    ""
)]
#[case::a7_row_13_its_owner_is_gone(
    of_owner(Some(OwnerState::Gone(GoneProof::scripted())), absent(pod())),
    row::OWNER_ENDS,
    "OwnerGone"
)]
#[case::a7_row_12_its_owner_lives(of_owner(None, absent(pod())), row::KEEP, "")]
#[case::a7_row_12_unknown_is_not_gone(
    of_owner(Some(OwnerState::Unknown("x".into())), absent(pod())),
    row::KEEP,
    ""
)]
#[case::r5_row_02_not_before_its_record_knows_of_it(
    see(marked(2, asking(RELEASE, pod())), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::r5_row_02_its_record_knows_of_it(
    see(marked(2, asking(RELEASE, pod())), knowing(Phase::Recreated)),
    row::ADMIN_ASKED,
    "AdminAsked"
)]
#[case::r5_row_03_drained_and_back_in_a_chain(
    see(unheld(marked(2, rejected(pod()))), knowing(Phase::Recreated)),
    row::ADD_HOLD,
    "hold"
)]
#[case::row_12_until_it_starts(absent(pod()), row::KEEP, "")]
#[case::row_12_until_it_is_recorded(absent(rejected(pod())), row::KEEP, "")]
#[case::row_12_unknown_is_not_absent(see(deleting(pod()), RecordSight::Unknown), row::KEEP, "")]
fn rows(#[case] snapshot: HoldSnapshot, #[case] row: Row, #[case] expected: &str) {
    let decision = decide(&snapshot, Timestamp::UNIX_EPOCH);
    assert_eq!((decision.row, told(&decision)), (row, expected));
}

fn look(state: Option<OwnerState>, begun: LogicalTime) -> HoldSnapshot {
    let reference = OwnerReference {
        api_version: "belayer.dev/v1alpha1".into(),
        kind: api::KIND.into(),
        name: "web-u-1".into(),
        uid: Uid::new("r-1"),
    };
    let query = OwnerQuery::new(api::resource(), &"yard".into(), &reference);
    let answer = state.map(|state| LiveAnswer::scripted(state, begun));
    HoldSnapshot {
        look: Some((query, answer)),
        ..absent(marked(1, pod()))
    }
}

#[test]
fn row_04_a_record_is_gone_by_a_live_look_only() {
    let gone = || Some(OwnerState::Gone(GoneProof::scripted()));
    let asked = decide(&look(None, LogicalTime::BEGINNING), Timestamp::UNIX_EPOCH);
    assert!(matches!(asked.missing[0], Missing::Answer { .. }));
    let fresh = decide(&look(gone(), LogicalTime::now()), Timestamp::UNIX_EPOCH);
    assert_eq!(told(&fresh), "RecordGone");
    let stale = HoldSnapshot {
        first_seen: LogicalTime::now(),
        ..look(gone(), LogicalTime::BEGINNING)
    };
    assert_eq!(told(&decide(&stale, Timestamp::UNIX_EPOCH)), "");
}

#[test]
fn a_pod_that_is_recreated_loses_all_our_holds() {
    use belayer_holds::decision::Reach;
    let snapshot = see(deleting(rejected(pod())), record(Phase::Deleting));
    let Some(Write::Release(evidence)) = decide(&snapshot, Timestamp::UNIX_EPOCH).write else {
        panic!("not released");
    };
    assert_eq!(evidence.reach(), Reach::AllOfOurs);
}
