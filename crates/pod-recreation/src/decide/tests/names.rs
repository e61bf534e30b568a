//! Step 7 when a later pod had the name, and has a record.

use super::*;

#[rstest]
#[case::in_the_pause(deleted_at(NOW, record(Some(Phase::Waiting))))]
#[case::of_a_reserved_attempt(attempts(1, record(Some(Phase::Creating))))]
fn step_7_a_later_pod_of_the_name_ends_the_record(#[case] record: Record) {
    let snapshot = RecordSnapshot {
        replaced: true,
        ..snapshot(record, None)
    };
    steps(snapshot, row::CANCELLED, "Ended");
}
