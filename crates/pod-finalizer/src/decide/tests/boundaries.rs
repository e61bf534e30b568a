//! The exact times: when a decision is repeated, and which live reads are too early.

use rstest::rstest;

use super::*;
use belayer_holds::decision::Evidence as _;

fn seconds(after: Option<Duration>) -> Option<u64> {
    after.map(|after| after.as_secs())
}

#[rstest]
#[case::a_second_before("11:59:51", Some(1), false)]
#[case::at_the_time("11:59:50", Some(600), true)]
fn a_deletion_that_waits_is_reported_after_ten_seconds(
    #[case] deleted: &str,
    #[case] again: Option<u64>,
    #[case] is_reported: bool,
) {
    let case = pod().held().unselected_and_owned().mass_release();
    let decision = decide(&case.deleting(deleted).0, now());
    let mut notices = decision.notices.iter();
    let reported = notices.any(|notice| notice.reason == "DeletionWaits");
    let found = (seconds(decision.requeue_after), reported);
    assert_eq!(found, (again, is_reported), "{decision:?}");
}

#[test]
fn a_deletion_that_waits_is_reported_before_release_after_ends() {
    let case = pod().held().ended().release_after(60 * MINUTE);
    let decision = decide(&case.deleting("11:59:51").0, now());
    assert_eq!(seconds(decision.requeue_after), Some(1));
}

/// When an outcome that could not be recorded is tried again. The wall clock may be behind the time of the last try.
#[rstest]
#[case::just_tried(pod().not_final("12:00:00"), Expect::Keep(row::KEEP), Some(30))]
#[case::later(pod().not_final("11:59:50"), Expect::Keep(row::KEEP), Some(20))]
#[case::due(pod().not_final("11:59:30"), Expect::Record(row::CAPTURE), None)]
#[case::tried_in_the_future(pod().not_final("12:00:01"), Expect::Record(row::CAPTURE), None)]
#[case::just_refused(pod().refused("12:00:00"), Expect::Keep(row::KEEP), Some(600))]
#[case::refused_before(pod().refused("11:59:50"), Expect::Keep(row::KEEP), Some(590))]
#[case::refused_in_the_future(pod().refused("12:00:01"), Expect::Record(row::CAPTURE), None)]
fn a12_an_outcome_is_recorded_when_it_is_due(
    #[case] case: Case,
    #[case] expected: Expect,
    #[case] again: Option<u64>,
) {
    let decision = decide(&case.held().ended().captured().0, now());
    assert_eq!(outcome(&decision), expected);
    if again.is_some() {
        assert_eq!(seconds(decision.requeue_after), again);
    }
}

#[test]
fn a_refused_record_is_not_reported_where_none_is_to_be_written() {
    let decision = decide(&pod().held().ended().refused("11:59:00").0, now());
    let mut notices = decision.notices.iter();
    assert!(!notices.any(|notice| notice.reason == "OutcomeNotRecorded"));
}

#[test]
fn a_pod_whose_record_is_refused_waits_for_its_record() {
    let pod = pod().held().ended().captured().deleting("10:00:00");
    let decision = decide(&pod.refused("11:59:00").0, now());
    let messages = decision.missing_messages().join("; ");
    assert!(messages.contains("cannot be recorded"), "{messages}");
    assert!(!messages.contains("consumer"), "{messages}");
}

/// A live read that began at the logical time at which the pod was seen is too early.
#[rstest]
#[case::of_the_namespace(pod().held().namespace_deleting().namespace_confirmed())]
#[case::of_a_finished_owner(pod().held().owner_finished().owner_finished_live())]
#[case::of_the_status(pod().held().ended().deleting("11:59:59").node(&["node-1"]))]
#[case::of_a_retried_workflow(pod().held().deleting("11:59:59").of_earlier_run())]
fn a_live_read_begins_after_the_pod_was_seen(#[case] case: Case) {
    let is_released = |case: &Case| decide(&case.0, now()).write.is_some();
    assert!(is_released(&case));
    let case = case.seen_when_the_read_began();
    assert!(!is_released(&case));
    assert!(matches!(outcome(&decide(&case.0, now())), Expect::Ask(_)));
}

#[test]
fn a2_the_node_is_read_after_its_loss_was_suspected() {
    let case = pod().held().deleting("11:59:59").by_pod_gc();
    let case = case
        .node_is(NodeState::Ready)
        .suspected_when_the_read_began();
    assert_eq!(
        outcome(&decide(&case.0, now())),
        Expect::Ask(row::NODE_LOST)
    );
}

/// A4: no informer has the owner's kind. Only for a pod that is being deleted the status is read all the same.
#[rstest]
#[case::being_deleted(pod().deleting("11:59:59"), Expect::Release(row::NODE_FULFILLED, "Consumed"))]
#[case::only_ended(pod(), Expect::Ask(row::OWNER_GONE))]
fn a4_a_status_without_a_cached_owner(#[case] case: Case, #[case] expected: Expect) {
    let case = case.held().ended().owner_unknown().node(&["node-1"]);
    assert_eq!(outcome(&decide(&case.0, now())), expected);
}

/// Releases of pods whose result was not read are counted by namespace as well.
#[rstest]
#[case::consumed(pod().held().consumed(), false)]
#[case::owner_gone(pod().held().owner_absent().owner_gone(), false)]
#[case::ended_by_its_deletion(pod().held().ended().deleting("11:59:59").by_its_deletion(), true)]
#[case::retried(pod().held().deleting("11:59:59").of_earlier_run(), true)]
fn releases_of_unread_results_are_counted_by_namespace(#[case] case: Case, #[case] expected: bool) {
    let decision = decide(&case.0, now());
    let Some(Write::Release(evidence)) = decision.write else {
        panic!("no release: {decision:?}");
    };
    assert_eq!(evidence.is_traced(), expected);
}

/// The label of the cache may be that of an earlier namespace of the same name.
#[test]
fn a_namespace_that_a_live_read_does_not_find_ignored_keeps_its_pods() {
    let decision = decide(&pod().held().ignored().ignored_before().0, now());
    assert_eq!(
        (decision.row, decision.write.is_none()),
        (row::UNSELECTED, true),
        "{decision:?}"
    );
}

/// The profile of a held pod has been set to `observe`. Where only a record releases it, the record is written all the same.
#[rstest]
#[case::row_07_of_a_held_pod(pod().held(), Expect::Record(row::CAPTURE))]
#[case::row_07_not_of_an_unheld_one(pod(), Expect::Keep(row::ADD_HOLD))]
#[case::row_11_it_is_released(pod().held().written(), Expect::Release(row::CAPTURED, "Captured"))]
fn observing_records_what_only_a_record_releases(#[case] case: Case, #[case] expected: Expect) {
    let case = case.ended().captured().read_as_record().observed();
    assert_eq!(outcome(&decide(&case.0, now())), expected);
}
