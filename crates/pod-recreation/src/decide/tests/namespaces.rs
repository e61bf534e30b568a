//! Records in a namespace that is being deleted. Its controller removes pods before it deletes records, so each pod must be
//! released although its record exists.

use super::*;

#[rstest]
#[case::no_record_is_created(snapshot(None, rejected_pod("u-1")), row::NOTHING, "nothing")]
#[case::the_first_status_is_written(
    snapshot(record(None), rejected_pod("u-1")),
    row::BEGIN,
    "Rejected"
)]
#[case::a_deleted_pod_ends_its_record(
    snapshot(record(None), being_deleted(rejected_pod("u-1"))),
    row::CANCELLED,
    "Ended"
)]
#[case::an_attempt_is_reserved(
    snapshot(deleted_at(0, record(Some(Phase::Waiting))), None),
    row::RESERVE,
    "reserve 1"
)]
#[case::the_api_server_decides_whether_its_pod_is_created(
    snapshot(attempts(1, record(Some(Phase::Creating))), None),
    row::CREATE,
    "create 1"
)]
#[case::a_pod_that_was_created_is_recorded(
    snapshot(
        attempts(1, record(Some(Phase::Creating))),
        being_deleted(of_attempt(1, pod("u-2")))
    ),
    row::RECREATED,
    "Recreated"
)]
#[case::a_deleted_pod_ends_its_re_creation(
    snapshot(
        recreated_as("u-2", attempts(1, record(Some(Phase::Recreated)))),
        being_deleted(of_attempt(1, pod("u-2")))
    ),
    row::CANCELLED,
    "Ended"
)]
fn a_terminating_namespace(
    #[case] snapshot: RecordSnapshot,
    #[case] row: &'static Rule,
    #[case] expected: &str,
) {
    let snapshot = RecordSnapshot {
        namespace_terminating: true,
        ..snapshot
    };
    let decision = decide(&snapshot, at(NOW));
    assert_eq!((decision.row, summary(&decision).as_str()), (row, expected));
}
