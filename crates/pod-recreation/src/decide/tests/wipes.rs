//! The request of a wipe, and its report (rules R6, R7 and T6).

use belayer_holds::node_wipe::{Report, WipeState};

use super::*;

fn required(record: impl Into<Option<Record>>) -> Record {
    let mut record = wipe(OnWipeTimeout::Fail, record.into().unwrap());
    record.status.set(
        ConditionType::PodRejected,
        ConditionStatus::True,
        ("OutOfcpu", ""),
        at(NOW),
    );
    record
}

fn rejected_record(attempts_made: u32) -> Record {
    required(attempts(attempts_made, record(Some(Phase::Rejected))))
}

fn not_requested(record: Record, pod: impl Into<Option<PodView>>) -> RecordSnapshot {
    RecordSnapshot {
        wipe: ObservedWipe::NotRequested,
        ..snapshot(record, pod)
    }
}

fn reported(state: WipeState) -> ObservedWipe {
    ObservedWipe::Requested(Some(Report {
        state,
        reason: "NotComplete".into(),
        message: "/ws/u-1/mnt is a mount in use".into(),
        paths: Vec::new(),
    }))
}

/// Before anything else: whatever ends the record, the list has the pod.
#[rstest]
#[case::to_recreate(not_requested(rejected_record(0), rejected_pod("u-1")))]
#[case::exhausted(not_requested(rejected_record(3), rejected_pod("u-1")))]
#[case::deleted_by_its_user(not_requested(rejected_record(0), being_deleted(rejected_pod("u-1"))))]
#[case::gone(not_requested(rejected_record(0), None))]
#[case::not_selected(not_requested(rejected_record(0), PodView { selection: Selection::No, ..rejected_pod("u-1") }))]
fn r6_a_wipe_is_requested_before_the_record_can_end(#[case] snapshot: RecordSnapshot) {
    let decision = decide(&snapshot, at(NOW));
    assert_eq!(decision.row.name, row::WIPING.name);
    assert_eq!(summary(&decision), "wipe node-1 of u-1");
}

#[rstest]
#[case::requested(ObservedWipe::Requested(None))]
#[case::the_kind_is_not_served(ObservedWipe::NotServed)]
fn r6_then_the_record_ends_at_once(#[case] wipe: ObservedWipe) {
    let snapshot = RecordSnapshot {
        wipe,
        ..snapshot(rejected_record(3), rejected_pod("u-1"))
    };
    let decision = decide(&snapshot, at(NOW));
    assert_eq!(decision.row.name, row::EXHAUSTED.name);
}

#[test]
fn r6_a_request_that_is_denied_keeps_no_pod_for_ever() {
    let decision = decide(
        &not_requested(rejected_record(3), rejected_pod("u-1")),
        at(NOW + 60),
    );
    assert_eq!(decision.row.name, row::EXHAUSTED.name);
}

#[test]
fn r6_a_rejected_pod_that_is_deleted_before_it_is_recorded_is_wiped_first() {
    let first = required(record(None));
    let decision = decide(
        &not_requested(first, being_deleted(rejected_pod("u-1"))),
        at(NOW),
    );
    assert_eq!(summary(&decision), "Rejected");
    let again = required(recreated_as("u-2", record(Some(Phase::Recreated))));
    let decision = decide(
        &not_requested(again, being_deleted(rejected_pod("u-2"))),
        at(NOW),
    );
    assert_eq!(summary(&decision), "Rejected");
}

#[rstest]
#[case::waiting(Phase::Waiting)]
#[case::started(Phase::Started)]
#[case::exhausted(Phase::Exhausted)]
#[case::ended(Phase::Ended)]
fn r6_the_report_becomes_a_condition_in_every_phase(#[case] phase: Phase) {
    let record = required(record(Some(phase)));
    let left = RecordSnapshot {
        wipe: reported(WipeState::NotWiped),
        ..snapshot(record.clone(), None)
    };
    let decision = decide(&left, at(NOW));
    let Some(Effect::Status(step)) = decision.effect else {
        panic!("{decision:?}");
    };
    assert_eq!(step.next.phase, Some(phase));
    let condition = step.next.condition(ConditionType::StateWiped).unwrap();
    assert_eq!(condition.message, "/ws/u-1/mnt is a mount in use");
    assert_eq!(condition.status, ConditionStatus::False);

    // It is written once, and a complete wipe is final.
    let written = Record {
        status: *step.next,
        ..record
    };
    let same = RecordSnapshot {
        wipe: reported(WipeState::NotWiped),
        ..snapshot(written.clone(), None)
    };
    assert_ne!(decide(&same, at(NOW)).row.name, row::WIPING.name);
    let done = RecordSnapshot {
        wipe: reported(WipeState::Wiped),
        ..snapshot(written, None)
    };
    let Some(Effect::Status(step)) = decide(&done, at(NOW)).effect else {
        panic!("not written");
    };
    assert!(step.next.is_true(ConditionType::StateWiped));
    let wiped = Record {
        status: *step.next,
        ..required(super::record(Some(phase)))
    };
    let late = RecordSnapshot {
        wipe: reported(WipeState::NotWiped),
        ..snapshot(wiped, None)
    };
    assert_ne!(decide(&late, at(NOW)).row.name, row::WIPING.name);
}

#[test]
fn t6_an_unknown_list_is_not_an_empty_one() {
    let snapshot = RecordSnapshot {
        wipe: ObservedWipe::Unknown,
        ..snapshot(rejected_record(3), rejected_pod("u-1"))
    };
    assert_eq!(summary(&decide(&snapshot, at(NOW))), "waits");
}

/// R6: what a refused request leaves in the condition, with the write that follows.
#[rstest]
#[case::refused(ObservedWipe::NotRequested, 60, "refused")]
#[case::unknown(ObservedWipe::Unknown, 60, "could not read")]
#[case::not_served(ObservedWipe::NotServed, 0, "does not serve")]
fn r6_a_request_that_is_given_up_is_reported(
    #[case] wipe: ObservedWipe,
    #[case] after: i64,
    #[case] expected: &str,
) {
    let snapshot = RecordSnapshot {
        wipe,
        ..snapshot(rejected_record(3), rejected_pod("u-1"))
    };
    let status = next(&snapshot, NOW + after);
    let condition = status.condition(ConditionType::StateWiped).unwrap();
    assert_eq!(condition.reason, "NotRequested");
    assert!(condition.message.contains(expected), "{condition:?}");
    assert_eq!(condition.status, ConditionStatus::False);
}

/// L9 and R6: only the time counts for which this process has seen the record.
#[rstest]
#[case::after_an_outage(0, NOW + 3_600)]
#[case::the_clock_has_jumped(59, TOMORROW)]
fn r6_only_the_tries_of_this_process_count(#[case] watched: u64, #[case] now: i64) {
    let snapshot = RecordSnapshot {
        watched: Some(Duration::from_secs(watched)),
        ..not_requested(rejected_record(3), rejected_pod("u-1"))
    };
    let decision = decide(&snapshot, at(now));
    assert_eq!(summary(&decision), "wipe node-1 of u-1");
}

#[test]
fn r6_a_permanent_rejection_is_wiped_before_the_record_ends() {
    let pod = with(Class::Permanent, never_ran(), pod("u-2"));
    let again = required(recreated_as("u-2", record(Some(Phase::Recreated))));
    let decision = decide(&not_requested(again.clone(), pod.clone()), at(NOW));
    assert_eq!(summary(&decision), "Rejected");
    let Some(Effect::Status(step)) = decision.effect else {
        panic!("not written");
    };
    // The breakers and the budget do not count it.
    assert_eq!(step.outcome, None);
    let rejected = Record {
        status: *step.next,
        ..again
    };
    let decision = decide(&not_requested(rejected.clone(), pod.clone()), at(NOW));
    assert_eq!(summary(&decision), "wipe node-1 of u-2");
    let decision = decide(&snapshot(rejected, pod), at(NOW));
    assert_eq!(
        (decision.row, &*summary(&decision)),
        (row::REPORTED, "Ended if unchanged")
    );
}

/// The time for which the record is seen to wait begins anew with a denial.
#[test]
fn a_denial_does_not_restart_the_time_of_a_wipe() {
    let timed_out = wipe(OnWipeTimeout::Proceed, record(Some(Phase::Rejected)));
    let snapshot = |record, watched| RecordSnapshot {
        watched: Some(Duration::from_secs(watched)),
        ..snapshot(record, rejected_pod("u-1"))
    };
    let decision = decide(&snapshot(timed_out.clone(), 119), at(NOW));
    assert_eq!(decision.row.name, row::WIPING.name);
    let denied = denied_since(NOW, timed_out.clone());
    for (record, watched) in [(timed_out, 120), (denied, 0)] {
        let snapshot = snapshot(record, watched);
        assert_eq!(summary(&decide(&snapshot, at(NOW))), "try, Deleting");
        assert_eq!(next(&snapshot, NOW).avoid_nodes, ["node-1"]);
    }
}

/// A create is denied only after its wipe was given up.
#[test]
fn a_denial_does_not_restart_the_time_of_a_request() {
    let refused = |record| RecordSnapshot {
        wipe: ObservedWipe::NotRequested,
        watched: Some(Duration::ZERO),
        ..snapshot(record, rejected_pod("u-1"))
    };
    let decision = decide(&refused(rejected_record(3)), at(NOW));
    assert_eq!(decision.row.name, row::WIPING.name);
    let denied = denied_since(NOW, rejected_record(3));
    let decision = decide(&refused(denied), at(NOW));
    assert_eq!(decision.row.name, row::EXHAUSTED.name);
}

/// A wipe is requested once: neither after its report nor after a refusal, even if the list has no entry any more.
#[rstest]
#[case::wiped(ConditionStatus::True, "Wiped")]
#[case::refused(ConditionStatus::False, "Refused")]
fn r6_a_wipe_with_a_result_is_not_requested_again(
    #[case] status: ConditionStatus,
    #[case] reason: &str,
) {
    let mut record = rejected_record(3);
    let result = (reason, "");
    record
        .status
        .set(ConditionType::StateWiped, status, result, at(NOW));
    let decision = decide(&not_requested(record, rejected_pod("u-1")), at(NOW));
    assert_eq!(summary(&decision), "Exhausted");
}

/// A report that differs in its reason or in its message is written.
#[rstest]
#[case::the_same("NotComplete", "/ws/u-1/mnt is a mount in use", false)]
#[case::another_reason("Busy", "/ws/u-1/mnt is a mount in use", true)]
#[case::another_message("NotComplete", "/ws/u-1/mnt is read-only", true)]
fn r6_a_report_is_written_when_it_changes(
    #[case] reason: &str,
    #[case] message: &str,
    #[case] is_written: bool,
) {
    let mut record = required(record(Some(Phase::Ended)));
    let result = (reason, message);
    record.status.set(
        ConditionType::StateWiped,
        ConditionStatus::False,
        result,
        at(NOW),
    );
    let snapshot = RecordSnapshot {
        wipe: reported(WipeState::NotWiped),
        ..snapshot(record, None)
    };
    let decision = decide(&snapshot, at(NOW));
    assert_eq!(decision.row.name == row::WIPING.name, is_written);
}

/// What is written when a live read shows that a wipe cannot be requested, or need not.
#[rstest]
#[case::refused(crate::decide::wipe::refused_status(&rejected_record(1), (crate::decide::REFUSED, "why"), at(NOW)), ConditionStatus::False, "Refused")]
#[case::withdrawn(crate::decide::wipe::refused_status(&rejected_record(1), (crate::decide::WITHDRAWN, "why"), at(NOW)), ConditionStatus::False, "Withdrawn")]
#[case::no_node(crate::decide::wipe::node_gone_status(&rejected_record(1), at(NOW)), ConditionStatus::True, "NodeGone")]
fn r6_the_status_without_a_wipe(
    #[case] written: Status,
    #[case] status: ConditionStatus,
    #[case] reason: &str,
) {
    let condition = written.condition(ConditionType::StateWiped).unwrap();
    assert_eq!((condition.status, &*condition.reason), (status, reason));
    assert_eq!(written.phase, Some(Phase::Rejected));
    assert_eq!(written.attempts, 1);
}

/// R7: without the Event only an affinity that its user did not write shows that the pod never returns to the node.
#[rstest]
#[case::with_a_report("/ws/u-1/mnt is a mount in use", " (/ws/u-1/mnt is a mount in use)")]
#[case::without_a_text("", "")]
fn r7_a_wipe_that_timed_out_is_reported(#[case] message: &str, #[case] quoted: &str) {
    let mut record = wipe(OnWipeTimeout::Proceed, record(Some(Phase::Rejected)));
    let no = ConditionStatus::False;
    let because = ("NotComplete", message);
    record
        .status
        .set(ConditionType::StateWiped, no, because, at(1_100));
    let decision = decide(&snapshot(record, rejected_pod("u-1")), at(1_120));
    let Some(Effect::Intend { step, .. }) = decision.effect else {
        panic!("{decision:?}");
    };
    let expected = format!(
        "its directories on node node-1 were not removed within 120 s{quoted}: it is re-created, but never again on that node"
    );
    assert_eq!(step.notice, Some(Notice::warning("WipeTimedOut", expected)));
}

/// A wipe that is complete, not required, or not requested any more has no such Event. The node is not excluded, and nothing is
/// waited for.
#[rstest]
#[case::wiped(Some((ConditionStatus::True, "Wiped")), 9_999)]
#[case::not_required(None, 9_999)]
#[case::withdrawn(Some((ConditionStatus::False, "Withdrawn")), 1_001)]
fn r7_only_a_timeout_is_reported(
    #[case] condition: Option<(ConditionStatus, &str)>,
    #[case] now: i64,
) {
    let mut record = record(Some(Phase::Rejected));
    if let Some((status, reason)) = condition {
        record = wipe(OnWipeTimeout::Fail, record);
        let because = (reason, "");
        record
            .status
            .set(ConditionType::StateWiped, status, because, at(1_000));
    }
    let decision = decide(&snapshot(record, rejected_pod("u-1")), at(now));
    let Some(Effect::Intend { step, .. }) = decision.effect else {
        panic!("{decision:?}");
    };
    assert_eq!(step.notice, None);
    assert!(step.next.avoid_nodes.is_empty());
}
