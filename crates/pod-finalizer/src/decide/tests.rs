//! Tests of the decision table, by rule.

mod boundaries;
mod case;
mod reach;
mod reported;

use rstest::rstest;

use super::*;
use crate::argo::NodeState;
pub(super) use case::{Case, pod};

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

/// The expected decision of a case.
#[derive(Debug, PartialEq, Eq)]
enum Expect {
    Nothing(&'static Rule),
    Hold(&'static Rule),
    Record(&'static Rule),
    RecordAsItIs(&'static Rule),
    Delete(&'static Rule),
    Release(&'static Rule, &'static str),
    /// Keeps the pod, and requires a live read at once.
    Ask(&'static Rule),
    /// Keeps the pod; live reads are delayed.
    Keep(&'static Rule),
}

fn outcome(decision: &PodDecision) -> Expect {
    use belayer_holds::decision::Evidence as _;
    let row = decision.row;
    let asks_now = decision
        .missing
        .iter()
        .any(|missing| matches!(missing, Missing::Answer { after, .. } if after.is_zero()));
    match &decision.write {
        Some(Write::AddHold) => Expect::Hold(row),
        Some(Write::Release(evidence)) => Expect::Release(row, evidence.name()),
        Some(Write::Step(Recorded::IfFinal)) => Expect::Record(row),
        Some(Write::Step(Recorded::AsItIs)) => Expect::RecordAsItIs(row),
        Some(Write::Delete(_)) => Expect::Delete(row),
        None if asks_now => Expect::Ask(row),
        None if decision.missing.is_empty() => Expect::Nothing(row),
        None => Expect::Keep(row),
    }
}

#[rstest]
#[case::row_01_a_pod_not_in_the_cache_is_left_alone(pod().absent(), Expect::Nothing(row::NOT_OURS))]
#[case::row_01_not_selected_and_not_held_is_left_alone(pod().unselected(), Expect::Nothing(row::NOT_OURS))]
#[case::row_01_ignored_namespace_and_not_held_is_left_alone(pod().ignored(), Expect::Nothing(row::NOT_OURS))]
#[case::row_02_the_admin_asks(pod().held().admin_asked(), Expect::Release(row::ADMIN_ASKED, "AdminAsked"))]
#[case::row_02_takes_precedence_over_all_others(
    pod().held().admin_asked().owner_gone().namespace_deleting(),
    Expect::Release(row::ADMIN_ASKED, "AdminAsked")
)]
#[case::row_03_the_namespace_is_being_deleted(
    pod().held().namespace_deleting().namespace_confirmed(),
    Expect::Release(row::NAMESPACE_TERMINATING, "NamespaceTerminating")
)]
#[case::row_03_a_cached_namespace_is_no_proof(pod().held().namespace_deleting(), Expect::Ask(row::NAMESPACE_TERMINATING))]
#[case::row_03_a_read_begun_before_the_pod_was_seen_is_no_proof(
    pod().held().namespace_deleting().namespace_confirmed().seen_after_the_reads(),
    Expect::Ask(row::NAMESPACE_TERMINATING)
)]
#[case::row_03_a_successor_of_that_name_keeps_its_pods(
    pod().held().namespace_deleting().namespace_lives(),
    Expect::Keep(row::NAMESPACE_TERMINATING)
)]
#[case::row_03_a_read_older_than_the_cache_is_repeated_at_once(
    pod().held().namespace_lives().namespace_deleting_since(),
    Expect::Ask(row::NAMESPACE_TERMINATING)
)]
#[case::row_04_not_selected_any_more(pod().held().unselected(), Expect::Release(row::UNSELECTED, "Unselected"))]
#[case::row_04_too_many_at_once_are_kept(pod().held().unselected().mass_release(), Expect::Keep(row::UNSELECTED))]
#[case::a4_too_many_at_once_do_not_keep_one_whose_result_was_read(
    pod().held().consumed().unselected_and_owned().mass_release(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::a4_nor_one_whose_owner_is_gone(
    pod().held().unselected_and_owned().mass_release().owner_absent().owner_gone(),
    Expect::Release(row::OWNER_GONE, "OwnerGone")
)]
#[case::a4_nor_one_whose_owner_is_being_deleted(
    pod().held().unselected_and_owned().mass_release().owner_deleting(),
    Expect::Release(row::OWNER_DELETING, "OwnerDeleting")
)]
#[case::a4_nor_one_whose_owner_has_finished(
    pod().held().unselected_and_owned().mass_release().owner_finished().owner_finished_live(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::a4_nor_one_whose_node_is_fulfilled(
    pod().held().deleting("11:59:59").unselected_and_owned().mass_release().node(&["node-1"]),
    Expect::Release(row::NODE_FULFILLED, "Consumed")
)]
#[case::a4_an_owner_that_is_missing_is_asked_for(
    pod().held().unselected_and_owned().mass_release().owner_absent(),
    Expect::Ask(row::UNSELECTED)
)]
#[case::a4_a_living_owner_is_no_evidence(
    pod().held().unselected_and_owned().mass_release(),
    Expect::Keep(row::UNSELECTED)
)]
#[case::a4_within_the_limit_it_is_released_as_unselected(
    pod().held().consumed().unselected_and_owned(),
    Expect::Release(row::UNSELECTED, "Unselected")
)]
#[case::row_04_an_ignored_namespace_is_confirmed(pod().held().ignored(), Expect::Ask(row::UNSELECTED))]
#[case::row_04_an_ignored_namespace_releases(
    pod().held().ignored().ignored_confirmed(),
    Expect::Release(row::UNSELECTED, "Unselected")
)]
#[case::row_05_an_owner_missing_from_the_cache_is_asked_for(pod().held().owner_absent(), Expect::Ask(row::OWNER_GONE))]
#[case::row_05_an_unknown_owner_is_not_an_absent_one(pod().held().owner_unknown(), Expect::Ask(row::OWNER_GONE))]
#[case::row_05_the_owner_is_gone(pod().held().owner_absent().owner_gone(), Expect::Release(row::OWNER_GONE, "OwnerGone"))]
#[case::row_05_an_owner_gone_stays_gone(
    pod().held().owner_absent().owner_gone().seen_after_the_reads(),
    Expect::Release(row::OWNER_GONE, "OwnerGone")
)]
#[case::row_05_a_version_not_served_is_no_evidence(
    pod().held().owner_unknown().owner_not_served(),
    Expect::Keep(row::OWNER_GONE)
)]
#[case::row_05_a_living_owner_keeps_its_pods(pod().held().owner_absent().owner_lives(), Expect::Keep(row::OWNER_GONE))]
#[case::row_06_the_owner_is_being_deleted(
    pod().held().owner_deleting(),
    Expect::Release(row::OWNER_DELETING, "OwnerDeleting")
)]
#[case::row_06_also_by_a_live_look(
    pod().held().owner_unknown().owner_deleting_live(),
    Expect::Release(row::OWNER_DELETING, "OwnerDeleting")
)]
#[case::row_07_an_ended_pod_is_recorded_first(pod().held().ended().captured(), Expect::Record(row::CAPTURE))]
#[case::row_07_also_if_the_consumer_was_quicker(
    pod().held().ended().captured().consumed(),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_not_one_that_runs(pod().held().captured(), Expect::Keep(row::KEEP))]
#[case::row_07_not_while_the_owner_is_being_deleted(
    pod().held().ended().captured().owner_deleting(),
    Expect::Release(row::OWNER_DELETING, "OwnerDeleting")
)]
#[case::row_07_not_where_it_is_off(pod().held().ended(), Expect::Keep(row::KEEP))]
#[case::row_07_not_by_observing(pod().held().ended().captured().observed(), Expect::Keep(row::KEEP))]
#[case::row_07_a_refusal_stops_no_row_below(
    pod().held().ended().captured().refused("11:59:00").consumed(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::row_07_a_refusal_alone_keeps(
    pod().held().ended().captured().refused("11:59:00"),
    Expect::Keep(row::KEEP)
)]
#[case::row_07_a_refusal_is_tried_again(
    pod().held().ended().captured().refused("11:00:00"),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_a_pod_that_ended_unheld_is_recorded_as_it_is(pod().ended().captured(), Expect::Record(row::CAPTURE))]
#[case::row_07_a12_an_outcome_that_is_not_final_blocks_no_row(
    pod().held().ended().captured().not_final("11:59:50"),
    Expect::Keep(row::KEEP)
)]
#[case::row_07_a12_it_is_checked_again(
    pod().held().ended().captured().not_final("11:59:30"),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_l9_at_once_if_the_clock_has_jumped_back(
    pod().held().ended().captured().not_final("13:00:00"),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_l9_and_a_refusal_is_tried_again(
    pod().held().ended().captured().refused("13:00:00"),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_a12_at_once_if_the_pod_has_changed(
    pod().held().ended().captured().not_final("11:59:50").changed(),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_a12_it_is_recorded_as_it_is_before_a_release(
    pod().held().ended().captured().not_final("11:59:50").consumed(),
    Expect::RecordAsItIs(row::CAPTURE)
)]
#[case::row_07_a12_also_of_a_pod_that_has_not_ended(
    pod().held().captured().consumed(),
    Expect::RecordAsItIs(row::CAPTURE)
)]
#[case::row_07_a12_a_pod_that_is_not_held_is_recorded_at_its_end(
    pod().captured().consumed(),
    Expect::Nothing(row::ADD_HOLD)
)]
#[case::row_07_a12_a_record_of_a_running_pod_is_replaced_when_it_has_ended(
    pod().ended().captured().recorded_as_it_is().changed(),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_a12_and_then_released(
    pod().held().ended().captured().recorded_as_it_is().consumed(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::row_07_a12_a_pod_that_was_deleted_by_force_may_never_end(
    pod().held().deleting("11:59:59").captured().read_as_record().shut_down(),
    Expect::Record(row::CAPTURE)
)]
#[case::row_07_a12_one_that_was_not_may_still_end(
    pod().held().deleting("11:59:59").captured().read_as_record(),
    Expect::Keep(row::KEEP)
)]
#[case::row_11_a12_a_record_that_is_not_final_is_no_evidence(
    pod().held().ended().captured().read_as_record().recorded_as_it_is(),
    Expect::Keep(row::KEEP)
)]
#[case::row_08_no_owner_where_one_is_required(pod().held().ownerless(), Expect::Release(row::NO_OWNER, "NoOwner"))]
#[case::row_09_the_consumer_has_labelled_the_pod(pod().held().consumed(), Expect::Release(row::CONSUMED, "Consumed"))]
#[case::row_09_a_finished_owner_is_confirmed(pod().held().owner_finished(), Expect::Ask(row::CONSUMED))]
#[case::row_09_the_owner_has_finished(
    pod().held().owner_finished().owner_finished_live(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::row_09_a_read_begun_before_the_pod_was_seen_is_no_proof(
    pod().held().owner_finished().owner_finished_live().seen_after_the_reads(),
    Expect::Ask(row::CONSUMED)
)]
#[case::row_09_a_retried_owner_keeps_its_new_pods(pod().held().owner_finished().owner_lives(), Expect::Keep(row::CONSUMED))]
#[case::row_10_its_node_is_fulfilled(
    pod().held().deleting("11:59:59").node(&["node-1"]),
    Expect::Release(row::NODE_FULFILLED, "Consumed")
)]
#[case::row_10_an_ended_pod_as_well(
    pod().held().ended().node(&["node-1"]),
    Expect::Release(row::NODE_FULFILLED, "Consumed")
)]
#[case::row_10_not_a_running_one(pod().held().node(&["node-1"]), Expect::Keep(row::KEEP))]
#[case::row_10_another_node_is_no_evidence(
    pod().held().deleting("11:59:59").node(&["node-2"]),
    Expect::Keep(row::KEEP)
)]
#[case::row_10_a_deletion_asks_at_once(
    pod().held().deleting("11:59:59").node_unasked(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_10_an_end_gives_the_label_time(
    pod().held().ended().node_unasked(),
    Expect::Keep(row::NODE_FULFILLED)
)]
#[case::row_10_a_read_begun_before_the_pod_was_seen_is_no_proof(
    pod().held().deleting("11:59:59").node(&["node-1"]).seen_after_the_reads(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_10_a_workflow_that_changed_since_is_asked_again(
    pod().held().deleting("11:59:59").node(&[]).owner_changed(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_10_a_read_without_its_node_is_no_answer(
    pod().held().deleting("11:59:59").nodes_of_others(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_10_a_status_that_is_too_large_is_no_evidence(pod().held().deleting("11:59:59").status_too_large(), Expect::Keep(row::NODE_FULFILLED))]
#[case::row_10_an_offloaded_status_is_no_evidence(
    pod().held().deleting("11:59:59").node_offloaded(),
    Expect::Keep(row::NODE_FULFILLED)
)]
#[case::row_11_the_record_is_written(pod().held().ended().captured().read_as_record().written(), Expect::Release(row::CAPTURED, "Captured"))]
#[case::row_11_gets_no_hold_again(pod().ended().captured().read_as_record().written(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_11_a1_a_record_that_no_consumer_reads_releases_nothing(pod().held().ended().captured().written(), Expect::Keep(row::KEEP))]
#[case::row_11_a1_nor_an_argo_pod_whatever_its_profile(
    pod().held().ended().captured().read_as_record().of_argo().written(),
    Expect::Keep(row::KEEP)
)]
#[case::row_11_a_record_of_a_pod_that_runs_releases_nothing(pod().held().captured().read_as_record().written(), Expect::Keep(row::KEEP))]
#[case::row_11_nor_does_it_keep_the_hold_off(pod().captured().read_as_record().written(), Expect::Hold(row::ADD_HOLD))]
#[case::row_11_the_node_of_a_pod_that_has_not_ended_is_lost(
    pod().held().deleting("11:59:59").captured().read_as_record().shut_down().written(),
    Expect::Release(row::CAPTURED, "Captured")
)]
#[case::row_12_a_running_pod_is_kept(pod().held(), Expect::Keep(row::KEEP))]
#[case::row_12_an_ended_pod_is_kept(pod().held().ended(), Expect::Keep(row::KEEP))]
#[case::row_12_a_deleted_pod_is_kept(pod().held().ended().deleting("11:59:59"), Expect::Keep(row::KEEP))]
#[case::row_12_age_is_no_evidence(pod().held().ended().deleting("01:00:00"), Expect::Keep(row::KEEP))]
#[case::row_13_a_new_pod_is_held(pod(), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_an_ended_pod_is_held_too(pod().ended(), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_not_one_that_would_be_released_at_once(pod().consumed(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_not_one_of_a_deleting_owner(pod().owner_deleting(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_not_one_that_the_admin_releases(pod().admin_asked(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_not_one_without_an_owner(pod().ownerless(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_an_absent_owner_is_asked_for_first(pod().owner_absent(), Expect::Ask(row::OWNER_GONE))]
#[case::row_13_not_one_whose_owner_is_gone(pod().owner_absent().owner_gone(), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_one_whose_owner_exists(pod().owner_absent().owner_lives(), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_one_whose_owner_is_unknown(pod().owner_unknown().owner_not_served(), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_the_status_of_an_ended_pod_is_asked_for_first(
    pod().ended().node_unasked(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_13_not_one_whose_node_is_fulfilled(pod().ended().node(&["node-1"]), Expect::Nothing(row::ADD_HOLD))]
#[case::row_13_one_whose_node_is_not(pod().ended().node(&["node-2"]), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_a_busy_workflow_does_not_put_it_off(
    pod().ended().node(&["node-2"]).owner_changed(),
    Expect::Hold(row::ADD_HOLD)
)]
#[case::row_13_a_status_that_cannot_be_read_does_not_either(
    pod().ended().node_offloaded(),
    Expect::Hold(row::ADD_HOLD)
)]
#[case::row_13_a_running_pod_does_not_wait_for_it(pod().node_unasked(), Expect::Hold(row::ADD_HOLD))]
#[case::row_13_the_closed_gate_adds_nothing(pod().gate_closed(), Expect::Keep(row::ADD_HOLD))]
#[case::t4_nor_that_of_its_namespace(pod().namespace_closed(), Expect::Keep(row::ADD_HOLD))]
#[case::t4_nor_does_that_stop_a_release(pod().held().consumed().namespace_closed(), Expect::Release(row::CONSUMED, "Consumed"))]
#[case::row_13_observing_adds_nothing(pod().observed(), Expect::Keep(row::ADD_HOLD))]
#[case::row_14_too_late_for_a_hold(pod().deleting("11:59:59"), Expect::Nothing(row::TOO_LATE))]
#[case::row_15_let_go_and_due_is_deleted(
    pod().ended().consumed().gc("OnPodCompletion/0s"),
    Expect::Delete(row::CLEANUP)
)]
#[case::row_15_not_while_it_is_held(
    pod().held().ended().consumed().gc("OnPodCompletion/0s"),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::row_15_not_before_its_result_was_read(
    pod().ended().gc("OnPodCompletion/0s"),
    Expect::Hold(row::ADD_HOLD)
)]
#[case::row_15_the_delay_is_waited_for(
    pod().ended().consumed().gc("OnPodCompletion/30s").due_since("11:59:50"),
    Expect::Keep(row::CLEANUP)
)]
#[case::row_15_the_delay_is_over(
    pod().ended().consumed().gc("OnPodCompletion/30s").due_since("11:59:30"),
    Expect::Delete(row::CLEANUP)
)]
#[case::row_15_the_delay_begins_now(
    pod().ended().consumed().gc("OnPodCompletion/30s"),
    Expect::Keep(row::CLEANUP)
)]
#[case::row_15_its_workflow_runs(
    pod().ended().consumed().gc("OnWorkflowCompletion/0s"),
    Expect::Nothing(row::ADD_HOLD)
)]
#[case::row_15_orphans_too(
    pod().ended().ownerless().gc_orphan("OnWorkflowCompletion/0s"),
    Expect::Delete(row::CLEANUP)
)]
#[case::row_15_not_what_the_admin_let_go(
    pod().ended().admin_asked().gc("OnPodCompletion/0s"),
    Expect::Nothing(row::ADD_HOLD)
)]
#[case::row_15_a1_not_what_its_record_released(
    pod().ended().captured().read_as_record().written().gc("OnPodCompletion/0s"),
    Expect::Nothing(row::ADD_HOLD)
)]
#[case::row_15_a3_not_an_agent(
    pod().ended().agent().gc("OnPodCompletion/0s"),
    Expect::Nothing(row::NEVER_HELD)
)]
#[case::row_16_a3_an_agent_gets_no_hold(pod().agent(), Expect::Nothing(row::NEVER_HELD))]
#[case::row_16_a3_nor_does_one_that_only_others_hold(pod().agent().adopted(), Expect::Keep(row::KEEP))]
#[case::row_16_a3_nor_is_its_end_recorded(pod().agent().ended().captured(), Expect::Nothing(row::NEVER_HELD))]
#[case::row_16_a3_one_that_an_older_version_holds_is_released(
    pod().held().agent(),
    Expect::Release(row::NEVER_HELD, "NeverHeld")
)]
#[case::row_16_a3_outside_the_guard_against_mass_release(
    pod().held().agent().unselected().mass_release(),
    Expect::Release(row::NEVER_HELD, "NeverHeld")
)]
#[case::row_16_a3_after_the_rows_that_know_its_owner(
    pod().held().agent().owner_deleting(),
    Expect::Release(row::OWNER_DELETING, "OwnerDeleting")
)]
#[case::row_17_a6_its_deletion_ended_it(
    pod().held().ended().deleting("11:59:59").by_its_deletion(),
    Expect::Release(row::ENDED_BY_DELETION, "EndedByDeletion")
)]
#[case::row_17_a6_it_had_not_started(
    pod().held().deleting("11:59:59").never_started(),
    Expect::Release(row::ENDED_BY_DELETION, "EndedByDeletion")
)]
#[case::row_17_a6_without_a_live_read(
    pod().held().ended().deleting("11:59:59").by_its_deletion().node_unasked(),
    Expect::Release(row::ENDED_BY_DELETION, "EndedByDeletion")
)]
#[case::row_17_a4_outside_the_guard_against_mass_release(
    pod().held().ended().deleting("11:59:59").by_its_deletion().unselected_and_owned().mass_release(),
    Expect::Release(row::ENDED_BY_DELETION, "EndedByDeletion")
)]
#[case::row_18_a4_outside_the_guard_against_mass_release(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::OutOfService).unselected_and_owned().mass_release(),
    Expect::Release(row::NODE_LOST, "NodeLost")
)]
#[case::row_17_a6_not_while_it_runs(
    pod().held().deleting("11:59:59").by_its_deletion(),
    Expect::Keep(row::KEEP)
)]
#[case::row_17_a6_not_one_that_ended_by_itself(
    pod().held().ended().deleting("11:59:59"),
    Expect::Keep(row::KEEP)
)]
#[case::row_17_a6_not_where_the_profile_holds_it(
    pod().held().ended().deleting("11:59:59").by_its_deletion().held_though_deleted(),
    Expect::Keep(row::KEEP)
)]
#[case::row_17_a6_not_of_another_owner(
    pod().held().ended().deleting("11:59:59").not_of_argo(),
    Expect::Keep(row::KEEP)
)]
#[case::row_17_a6_not_what_only_others_hold(
    pod().adopted().ended().deleting("11:59:59").by_its_deletion(),
    Expect::Keep(row::KEEP)
)]
#[case::row_17_a6_after_the_rule_that_shows_the_result_was_read(
    pod().held().ended().deleting("11:59:59").by_its_deletion().consumed(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::row_17_a6_leads_to_no_cleanup(
    pod().ended().deleting("11:59:59").by_its_deletion().gc("OnPodCompletion/0s"),
    Expect::Nothing(row::TOO_LATE)
)]
#[case::row_18_a2_the_node_is_asked_for(
    pod().held().deleting("11:59:59").by_pod_gc(),
    Expect::Ask(row::NODE_LOST)
)]
#[case::row_18_a2_the_node_is_gone(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::Gone),
    Expect::Release(row::NODE_LOST, "NodeLost")
)]
#[case::row_18_a2_a_read_begun_before_the_deletion_was_seen_is_no_proof(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::Gone).node_read_too_early(),
    Expect::Ask(row::NODE_LOST)
)]
#[case::row_18_a2_the_node_is_out_of_service(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::OutOfService),
    Expect::Release(row::NODE_LOST, "NodeLost")
)]
#[case::row_18_a2_silence_alone_is_no_loss(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::NotReady),
    Expect::Keep(row::NODE_LOST)
)]
#[case::row_18_a2_silence_and_force_are(
    pod().held().deleting("11:59:59").forced().node_is(NodeState::NotReady),
    Expect::Release(row::NODE_LOST, "NodeLost")
)]
#[case::row_18_a2_force_alone_is_not(
    pod().held().deleting("11:59:59").forced().node_is(NodeState::Ready),
    Expect::Keep(row::NODE_LOST)
)]
#[case::row_18_a2_no_right_to_read_proves_nothing(
    pod().held().deleting("11:59:59").forced().node_is(NodeState::Unknown("403".into())),
    Expect::Keep(row::NODE_LOST)
)]
#[case::row_18_a2_the_delay_begins_with_the_proof(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::Gone).node_lost_delay(MINUTE),
    Expect::Keep(row::NODE_LOST)
)]
#[case::row_18_a2_the_delay_is_waited_for(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::Gone).node_lost_delay(MINUTE).lost_since("11:59:10"),
    Expect::Keep(row::NODE_LOST)
)]
#[case::row_18_a2_the_delay_is_over(
    pod().held().deleting("11:59:59").by_pod_gc().node_is(NodeState::Gone).node_lost_delay(MINUTE).lost_since("11:59:00"),
    Expect::Release(row::NODE_LOST, "NodeLost")
)]
#[case::row_18_a2_a12_what_is_known_is_recorded_first(
    pod().held().deleting("11:59:59").by_pod_gc().captured().node_is(NodeState::OutOfService),
    Expect::RecordAsItIs(row::CAPTURE)
)]
#[case::row_19_a11_its_workflow_was_retried(
    pod().held().deleting("11:59:59").of_earlier_run(),
    Expect::Release(row::EARLIER_RUN, "EarlierRun")
)]
#[case::row_19_a11_not_while_it_is_not_being_deleted(
    pod().held().ended().of_earlier_run(),
    Expect::Keep(row::KEEP)
)]
#[case::row_19_a11_a_read_begun_before_the_pod_was_seen_is_no_proof(
    pod().held().deleting("11:59:59").of_earlier_run().seen_after_the_reads(),
    Expect::Ask(row::NODE_FULFILLED)
)]
#[case::row_19_a11_leads_to_no_cleanup(
    pod().deleting("11:59:59").of_earlier_run().gc("OnPodCompletion/0s"),
    Expect::Nothing(row::TOO_LATE)
)]
#[case::adopted_alone_is_let_go_like_any_other(
    pod().adopted().consumed(),
    Expect::Release(row::CONSUMED, "Consumed")
)]
#[case::adopted_alone_gets_our_hold_as_well(pod().adopted(), Expect::Hold(row::ADD_HOLD))]
#[case::adopted_alone_and_deleting_is_kept_until_there_is_evidence(
    pod().adopted().deleting("11:59:59"),
    Expect::Keep(row::KEEP)
)]
#[case::the_closed_gate_stops_no_release(pod().held().consumed().gate_closed(), Expect::Release(row::CONSUMED, "Consumed"))]
#[case::observing_keeps_no_hold_of_earlier(pod().held().consumed().observed(), Expect::Release(row::CONSUMED, "Consumed"))]
fn table(#[case] snapshot: Case, #[case] expected: Expect) {
    assert_eq!(outcome(&decide(&snapshot.0, now())), expected);
}
