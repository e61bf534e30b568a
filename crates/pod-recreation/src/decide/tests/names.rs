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

/// The first record has re-created pod `u-2`. A client removed the annotations of that pod, and it got a second record. Only one
/// of the two goes on.
#[rstest]
#[case::the_first_has_deleted_the_pod(Phase::Deleting, "u-2", 0, (false, true))]
#[case::the_first_waits_for_its_attempt(Phase::Waiting, "u-2", 0, (false, true))]
#[case::the_first_has_not_deleted_the_pod(Phase::Rejected, "u-2", 0, (true, false))]
#[case::the_first_has_ended(Phase::Ended, "u-2", 0, (true, false))]
#[case::the_second_has_reserved_an_attempt(Phase::Waiting, "u-2", 1, (true, false))]
#[case::the_second_is_of_another_pod(Phase::Waiting, "u-9", 0, (true, false))]
fn of_two_records_of_a_pod_one_goes_on(
    #[case] phase: Phase,
    #[case] second_pod: &str,
    #[case] attempts: u32,
    #[case] yields: (bool, bool),
) {
    let mut first = record(Some(phase));
    first.status.rejected_uid = Some("u-2".to_owned());
    let mut second = record(Some(Phase::Waiting));
    second.first_uid = second_pod.to_owned();
    second.status.rejected_uid = Some(second_pod.to_owned());
    second.status.attempts = attempts;
    let found = (
        yields_to(&first, &second, true),
        yields_to(&second, &first, false),
    );
    assert_eq!(found, yields);
}

/// A request that was given up created a pod long after its record had ended (seed 80,004,051). Once Belayer has deleted it the name is free.
#[rstest]
#[case::while_it_is_held(true, pod("u-9"), row::NOTHING, "waits")]
#[case::while_it_is_deleted(true, being_deleted(pod("u-9")), row::NOTHING, "waits")]
#[case::unless_it_stays(false, pod("u-9"), row::CANCELLED, "Ended if the name is taken")]
#[case::unless_it_runs(
    true,
    started(pod("u-9")),
    row::CANCELLED,
    "Ended if the name is taken"
)]
fn step_7_a_pod_of_another_record_is_waited_for(
    #[case] held: bool,
    #[case] pod: PodView,
    #[case] row: &'static Rule,
    #[case] step: &str,
    #[values(Phase::Deleting, Phase::Waiting, Phase::Creating)] phase: Phase,
) {
    let pod = of_attempt(1, pod);
    let origin = pod.origin.map(|origin| Origin {
        record_uid: Uid::new("r-9"),
        ..origin
    });
    let pod = PodView {
        origin,
        held,
        ..pod
    };
    let record = deleted_at(NOW, attempts(1, record(Some(phase))));
    steps(snapshot(record, pod), row, step);
}
