//! R5: a pod that may have run is never created again, not even by or after a drain.

use super::*;

fn unheld(pod: PodView) -> PodView {
    PodView { held: false, ..pod }
}

fn ignored(pod: PodView) -> PodView {
    PodView {
        selection: Selection::Ignored,
        ..pod
    }
}

fn unselected(pod: PodView) -> PodView {
    PodView {
        selection: Selection::No,
        ..pod
    }
}

fn reserved_before(mut record: Record) -> Record {
    record.status.conditions.clear();
    record
}

fn creating(attempt: u32) -> Record {
    attempts(attempt, record(Some(Phase::Creating)))
}

fn draining(snapshot: RecordSnapshot) -> RecordSnapshot {
    RecordSnapshot {
        holding: Holding::Draining,
        ..snapshot
    }
}

#[rstest]
#[case::an_absent_pod_was_never_created(snapshot(creating(1), None), row::CREATE, "create 1")]
#[case::its_pod_was_seen(RecordSnapshot { created: Some(1), ..snapshot(creating(1), None) }, row::HOLD_LOST, "Ended if gone")]
#[case::the_pod_of_an_earlier_attempt_was_seen(RecordSnapshot { created: Some(1), ..snapshot(creating(2), None) }, row::CREATE, "create 2")]
#[case::reserved_by_an_earlier_version(
    snapshot(reserved_before(creating(1)), None),
    row::HOLD_LOST,
    "Ended if gone"
)]
#[case::its_existing_pod_is_recorded(
    snapshot(reserved_before(creating(1)), of_attempt(1, pod("u-2"))),
    row::RECREATED,
    "Recreated"
)]
#[case::no_pause_during_a_drain(
    draining(snapshot(deleted_at(NOW, record(Some(Phase::Waiting))), None)),
    row::RESERVE,
    "reserve 1"
)]
#[case::a_pod_without_its_hold_waits_for_it(
    snapshot(record(Some(Phase::Rejected)), unheld(rejected_pod("u-1"))),
    row::NOTHING,
    "waits"
)]
#[case::not_selected_any_more(
    snapshot(record(Some(Phase::Rejected)), unselected(rejected_pod("u-1"))),
    row::REPORTED,
    "Ended if unchanged"
)]
#[case::its_namespace_is_ignored(
    snapshot(record(Some(Phase::Rejected)), ignored(rejected_pod("u-1"))),
    row::REPORTED,
    "Ended if ignored"
)]
#[case::the_namespace_of_a_recreated_pod_is_ignored(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        ignored(of_attempt(1, rejected_pod("u-2")))
    ),
    row::REPORTED,
    "Ended if ignored"
)]
#[case::a_recreated_pod_is_not_selected_any_more(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        unselected(of_attempt(1, rejected_pod("u-2")))
    ),
    row::REPORTED,
    "Ended if unchanged"
)]
fn r5_a_pod_that_may_have_run_is_never_created_again(
    #[case] snapshot: RecordSnapshot,
    #[case] row: &'static Rule,
    #[case] expected: &str,
) {
    let decision = decide(&snapshot, at(NOW));
    assert_eq!((decision.row, &*summary(&decision)), (row, expected));
    let notice = match &decision.effect {
        Some(Effect::Status(step)) => &step.notice,
        _ => &decision.notice,
    };
    assert_eq!(
        decision.row == row::HOLD_LOST
            || decision.row == row::REPORTED
            || decision.row == row::RECREATED,
        notice.is_some()
    );
}

#[test]
fn r5_a_reservation_sets_the_condition_hold_kept() {
    let waiting = snapshot(
        reserved_before(deleted_at(0, record(Some(Phase::Waiting)))),
        None,
    );
    let Some(Effect::Reserve { step, .. }) = decide(&waiting, at(NOW)).effect else {
        panic!("not reserved");
    };
    assert!(step.next.is_true(ConditionType::HoldKept));
}

/// While Belayer is draining, pods that exist only in their record are created, and no re-creation begins.
#[rstest]
#[case::a_record(snapshot(None, rejected_pod("u-1")), Progress::Starts)]
#[case::an_intent(
    snapshot(record(Some(Phase::Rejected)), rejected_pod("u-1")),
    Progress::Starts
)]
#[case::its_deletion(
    snapshot(record(Some(Phase::Deleting)), rejected_pod("u-1")),
    Progress::Starts
)]
#[case::a_reservation(
    snapshot(deleted_at(0, record(Some(Phase::Waiting))), None),
    Progress::Completes
)]
#[case::a_create(snapshot(creating(1), None), Progress::Completes)]
#[case::the_pod_of_an_old_attempt(
    snapshot(creating(2), of_attempt(1, pod("u-2"))),
    Progress::Completes
)]
#[case::an_existing_pod(snapshot(creating(1), of_attempt(1, pod("u-2"))), Progress::None)]
fn r5_steps_during_a_drain(#[case] snapshot: RecordSnapshot, #[case] progress: Progress) {
    let decision = decide(&snapshot, at(NOW));
    assert_eq!(decision.progress(), progress);
    for (holding, allowed) in [
        (Holding::Allowed, true),
        (Holding::Draining, progress != Progress::Starts),
        (Holding::Leaving, progress == Progress::None),
        (Holding::Unknown, progress == Progress::None),
    ] {
        assert_eq!(decision.is_allowed(holding), allowed, "{holding:?}");
    }
}

/// R3: what the kubelet writes into a pod whose rejection is recorded ends nothing, unless it shows a start.
#[rstest]
#[case::the_end_of_a_container(MayHaveRun::ContainerEnded, row::INTEND)]
#[case::a_later_write(MayHaveRun::StartedEarlier, row::INTEND)]
#[case::its_hold_was_removed(MayHaveRun::NotHeld, row::INTEND)]
#[case::a_container(MayHaveRun::ContainerStarted, row::REPORTED)]
#[case::an_address(MayHaveRun::HasAddress, row::REPORTED)]
#[case::an_earlier_version(MayHaveRun::SeenStarted, row::REPORTED)]
fn r3_a_recorded_rejection_is_refuted_by_a_start_only(
    #[case] why: MayHaveRun,
    #[case] row: &'static Rule,
) {
    let pod = with(Class::Race, Err(why), pod("u-1"));
    let rejected = record(Some(Phase::Rejected));
    let decision = decide(&snapshot(rejected, pod.clone()), at(NOW));
    assert_eq!(decision.row, row);
    let again = recreated_as("u-1", record(Some(Phase::Recreated)));
    assert_eq!(decide(&snapshot(again, pod), at(NOW)).row, row::REPORTED);
}
