//! The rules of the hold.

mod live_reads;

use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::decision::Evidence as _;
use belayer_holds::owner::GoneProof;
use belayer_holds::selection::Selection;
use rstest::rstest;

use super::*;
use crate::api::{self, Policy, Status};
use crate::config::Settings;
use crate::proof::{FirstSeen, MayHaveRun, NeverRan};
use crate::reason::Class;
use crate::snapshot::Rejection;

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
        held: true,
        selection: Selection::Yes,
        ..PodView::of(&pod, &Settings::default(), FirstSeen::Earlier)
    }
}

fn unheld(pod: PodView) -> PodView {
    PodView { held: false, ..pod }
}

fn deleting(pod: PodView) -> PodView {
    PodView {
        deleting: true,
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
    rejected_with(NeverRan::prove(&failed, FirstSeen::Rejected), pod)
}

fn rejected_with(never_ran: Result<NeverRan, MayHaveRun>, pod: PodView) -> PodView {
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

fn release_requested(pod: PodView) -> PodView {
    PodView {
        release_requested: true,
        ..pod
    }
}

fn recreation_ended(pod: PodView) -> PodView {
    PodView {
        recreation_ended: true,
        ..pod
    }
}

fn of_attempt(attempt: u32, pod: PodView) -> PodView {
    PodView {
        uid: Uid::new("u-2"),
        origin: Some(Origin {
            record: "web-u-1".into(),
            record_uid: Uid::new("r-1"),
            attempt,
            annotated: true,
        }),
        ..pod
    }
}

fn record(phase: Phase) -> ObservedRecord {
    ObservedRecord::Found(Box::new(Record {
        created: None,
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

fn being_deleted(mut observed: ObservedRecord) -> ObservedRecord {
    if let ObservedRecord::Found(record) = &mut observed {
        record.meta.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
    }
    observed
}

fn without_status() -> ObservedRecord {
    let mut observed = record(Phase::Rejected);
    if let ObservedRecord::Found(record) = &mut observed {
        record.status = Status::default();
    }
    observed
}

fn snapshot(pod: PodView, record: ObservedRecord) -> HoldSnapshot {
    HoldSnapshot {
        pod,
        first_seen: LogicalTime::BEGINNING,
        record,
        cancelled: false,
        created_in_vain: false,
        to_report: false,
        live_record: None,
        namespace: None,
        owner: None,
    }
}

/// Its owner is being deleted.
fn owner_deleting(snapshot: HoldSnapshot) -> HoldSnapshot {
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

/// A record whose status names the pod `u-2`.
fn naming_the_pod(phase: Phase) -> ObservedRecord {
    let ObservedRecord::Found(mut record) = record(phase) else {
        return ObservedRecord::Unknown;
    };
    record.status.pod_uid = Some("u-2".into());
    ObservedRecord::Found(record)
}

fn absent(pod: PodView) -> HoldSnapshot {
    snapshot(pod, ObservedRecord::Absent)
}

/// The write of a decision: the name of the evidence, `hold`, or empty.
fn summary(decision: &HoldDecision) -> &'static str {
    match &decision.write {
        Some(Write::AddHold) => "hold",
        Some(Write::Release(evidence)) => evidence.name(),
        Some(Write::Delete(_)) => "delete",
        Some(Write::Step(())) => "another write",
        None => "",
    }
}

#[rstest]
#[case::row_01_not_selected(absent(unheld(unselected(pod()))), row::NOT_OURS, "")]
#[case::row_01_started_already(absent(unheld(started(pod()))), row::NOT_OURS, "")]
#[case::row_01_no_hold_is_added_late(absent(unheld(deleting(pod()))), row::NOT_OURS, "")]
#[case::row_01_its_recreation_ended(
    absent(unheld(recreation_ended(rejected(pod())))),
    row::NOT_OURS,
    ""
)]
#[case::row_01_its_record_has_ended(
    snapshot(unheld(pod()), record(Phase::Ended)),
    row::NOT_OURS,
    ""
)]
#[case::row_01_the_kind_is_not_served(
    snapshot(unheld(pod()), ObservedRecord::NotServed),
    row::NOT_OURS,
    ""
)]
#[case::row_01_may_have_run(
    absent(unheld(rejected_with(Err(MayHaveRun::NotHeld), pod()))),
    row::NOT_OURS,
    ""
)]
#[case::row_02_the_admin_asked(absent(release_requested(pod())), row::ADMIN_ASKED, "AdminAsked")]
#[case::row_02_not_while_the_cached_record_is_older_than_the_attempt(
    snapshot(of_attempt(3, release_requested(pod())), record(Phase::Recreated)),
    row::KEEP,
    ""
)]
#[case::row_02_not_before_its_record_names_it(
    snapshot(of_attempt(2, release_requested(pod())), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::row_02_a_recreated_pod_whose_record_names_it(
    snapshot(
        of_attempt(2, release_requested(pod())),
        naming_the_pod(Phase::Recreated)
    ),
    row::ADMIN_ASKED,
    "AdminAsked"
)]
#[case::row_02_not_if_it_would_run_again(
    snapshot(release_requested(deleting(started(pod()))), record(Phase::Deleting)),
    row::KEEP,
    ""
)]
#[case::row_02_its_record_cannot_be_read(
    snapshot(of_attempt(2, release_requested(pod())), ObservedRecord::Unknown),
    row::ADMIN_ASKED,
    "AdminAsked"
)]
#[case::row_02_no_record_can_create_it(
    snapshot(of_attempt(2, release_requested(pod())), ObservedRecord::NotServed),
    row::ADMIN_ASKED,
    "AdminAsked"
)]
#[case::row_03_new(absent(unheld(pod())), row::ADD_HOLD, "hold")]
#[case::row_03_first_seen_rejected(absent(unheld(rejected(pod()))), row::ADD_HOLD, "hold")]
#[case::row_05_the_record_of_a_recreated_pod_has_ended(
    snapshot(of_attempt(2, started(pod())), record(Phase::Started)),
    row::RECORD_ENDED,
    "RecordEnded"
)]
#[case::row_05_an_old_leaders_pod_is_deleted_first(
    snapshot(of_attempt(2, pod()), record(Phase::Ended)),
    row::KEEP,
    ""
)]
#[case::row_07_an_old_leaders_pod_after_the_end(
    snapshot(deleting(of_attempt(2, pod())), record(Phase::Ended)),
    row::LEFTOVER,
    "Leftover"
)]
#[case::row_05_not_before_it_is_annotated(
    snapshot(rejected(pod()), record(Phase::Exhausted)),
    row::KEEP,
    ""
)]
#[case::row_05_annotated(
    snapshot(recreation_ended(rejected(pod())), record(Phase::Exhausted)),
    row::RECORD_ENDED,
    "RecordEnded"
)]
#[case::row_06_belayer_deleted_it(
    snapshot(deleting(rejected(pod())), record(Phase::Deleting)),
    row::RECREATING,
    "Recreating"
)]
#[case::row_06_not_before_its_deletion(
    snapshot(rejected(pod()), record(Phase::Deleting)),
    row::KEEP,
    ""
)]
#[case::row_06_not_if_it_ran_after_all(
    snapshot(deleting(started(pod())), record(Phase::Deleting)),
    row::KEEP,
    ""
)]
#[case::row_06_not_if_a_recreated_pod_ran_after_all(
    snapshot(
        PodView { uid: Uid::new("u-1"), ..of_attempt(2, deleting(started(pod()))) },
        record(Phase::Deleting)
    ),
    row::KEEP,
    ""
)]
#[case::row_06_a_record_that_is_being_deleted_creates_nothing(
    snapshot(deleting(started(pod())), being_deleted(record(Phase::Deleting))),
    row::RECREATING,
    "Recreating"
)]
#[case::row_08_not_if_it_ran_and_its_record_has_not_ended(
    snapshot(deleting(started(pod())), record(Phase::Rejected)),
    row::KEEP,
    ""
)]
#[case::row_08_not_if_a_recreated_pod_ran_and_its_record_has_not_ended(
    snapshot(
        of_attempt(2, deleting(started(pod()))),
        naming_the_pod(Phase::Recreated)
    ),
    row::KEEP,
    ""
)]
#[case::row_08_deleted_before_the_intent(
    snapshot(deleting(rejected(pod())), record(Phase::Rejected)),
    row::DELETED,
    "DeletedFirst"
)]
#[case::row_08_not_before_the_first_status(
    snapshot(deleting(rejected(pod())), without_status()),
    row::KEEP,
    ""
)]
#[case::row_07_of_an_older_attempt(
    snapshot(of_attempt(1, deleting(pod())), record(Phase::Creating)),
    row::LEFTOVER,
    "Leftover"
)]
#[case::row_07_given_up(
    snapshot(of_attempt(2, deleting(pod())), record(Phase::Waiting)),
    row::LEFTOVER,
    "Leftover"
)]
#[case::row_07_not_while_the_cached_record_is_older_than_the_attempt(
    snapshot(of_attempt(3, deleting(pod())), record(Phase::Waiting)),
    row::KEEP,
    ""
)]
#[case::row_07_not_of_the_current_attempt(
    snapshot(of_attempt(2, deleting(pod())), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::row_07_not_if_it_runs(
    snapshot(of_attempt(1, deleting(started(pod()))), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::row_13_not_while_the_cached_record_is_older_than_the_attempt(
    owner_deleting(snapshot(of_attempt(3, pod()), record(Phase::Recreated))),
    row::KEEP,
    ""
)]
#[case::row_08_deleted_by_a_user(absent(deleting(pod())), row::DELETED, "DeletedFirst")]
#[case::row_08_rejected_and_deleted_by_a_user(
    absent(deleting(rejected(pod()))),
    row::DELETED,
    "DeletedFirst"
)]
#[case::row_09_started(absent(started(pod())), row::STARTED, "Started")]
#[case::row_09_not_before_its_record_shows_the_start(
    snapshot(of_attempt(2, started(pod())), record(Phase::Recreated)),
    row::KEEP,
    ""
)]
#[case::row_10_it_may_have_run(
    absent(rejected_with(Err(MayHaveRun::StartedEarlier), pod())),
    row::ENDED,
    "Ended"
)]
#[case::row_11_not_selected_any_more(absent(unselected(pod())), row::UNSELECTED, "Unselected")]
#[case::row_11_not_before_it_is_annotated(HoldSnapshot { cancelled: true, ..absent(rejected(pod())) }, row::KEEP, "")]
#[case::row_11_the_record_was_deleted(HoldSnapshot { cancelled: true, ..absent(rejected(recreation_ended(pod()))) }, row::UNSELECTED, "Unselected")]
#[case::row_11_annotated_by_an_earlier_process(
    absent(rejected(recreation_ended(pod()))),
    row::UNSELECTED,
    "Unselected"
)]
#[case::a7_row_01_no_hold_for_a_deleted_owner(
    owner_deleting(absent(unheld(pod()))),
    row::NOT_OURS,
    ""
)]
#[case::a7_row_11_a_recreated_pod_is_not_selected_any_more(
    snapshot(of_attempt(2, unselected(pod())), naming_the_pod(Phase::Recreated)),
    row::UNSELECTED,
    "Unselected"
)]
#[case::a7_row_13_its_owner_is_being_deleted(
    owner_deleting(absent(pod())),
    row::OWNER_ENDS,
    "OwnerDeleting"
)]
#[case::a7_row_13_rejected(
    owner_deleting(absent(rejected(pod()))),
    row::OWNER_ENDS,
    "OwnerDeleting"
)]
#[case::a7_row_13_recreated(
    owner_deleting(snapshot(of_attempt(2, pod()), naming_the_pod(Phase::Recreated))),
    row::OWNER_ENDS,
    "OwnerDeleting"
)]
#[case::a7_row_13_not_before_its_record_names_it(
    owner_deleting(snapshot(of_attempt(2, pod()), record(Phase::Creating))),
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
#[case::r5_row_02_not_before_its_record_names_it(
    snapshot(of_attempt(2, release_requested(pod())), record(Phase::Creating)),
    row::KEEP,
    ""
)]
#[case::r5_row_02_its_record_names_it(
    snapshot(
        of_attempt(2, release_requested(pod())),
        naming_the_pod(Phase::Recreated)
    ),
    row::ADMIN_ASKED,
    "AdminAsked"
)]
#[case::r5_row_03_recreated_and_released_by_a_drain(
    snapshot(
        unheld(of_attempt(2, rejected(pod()))),
        naming_the_pod(Phase::Recreated)
    ),
    row::ADD_HOLD,
    "hold"
)]
#[case::row_12_until_it_starts(absent(pod()), row::KEEP, "")]
#[case::row_12_until_it_is_recorded(absent(rejected(pod())), row::KEEP, "")]
#[case::row_12_unknown_is_not_absent(
    snapshot(deleting(pod()), ObservedRecord::Unknown),
    row::KEEP,
    ""
)]
fn rows(#[case] snapshot: HoldSnapshot, #[case] row: &'static Rule, #[case] expected: &str) {
    let decision = decide(&snapshot, Timestamp::UNIX_EPOCH);
    assert_eq!((decision.row, summary(&decision)), (row, expected));
}

#[test]
fn a_pod_to_recreate_loses_all_holds_of_belayer() {
    use belayer_holds::decision::Reach;
    let snapshot = snapshot(deleting(rejected(pod())), record(Phase::Deleting));
    let Some(Write::Release(evidence)) = decide(&snapshot, Timestamp::UNIX_EPOCH).write else {
        panic!("not released");
    };
    assert_eq!(evidence.reach(), Reach::AllHolds);
}

/// The record of such a pod is up to date: what it waits for is the record's own steps.
#[rstest]
#[case::the_first_pod(rejected(pod()), Phase::Rejected)]
#[case::before_its_deletion(rejected(pod()), Phase::Deleting)]
#[case::a_re_created_pod(
    PodView { uid: Uid::new("u-1"), ..of_attempt(2, rejected(pod())) },
    Phase::Rejected
)]
fn row_12_a_recorded_rejection_waits_for_the_steps_of_its_record(
    #[case] pod: PodView,
    #[case] phase: Phase,
) {
    let decision = decide(&snapshot(pod, record(phase)), Timestamp::UNIX_EPOCH);
    assert_eq!(decision.row.number, row::KEEP.number);
    assert_eq!(
        decision.missing[0].to_string(),
        "the steps of its record must end (see PodRecreation web-u-1)"
    );
}
