//! What a decision contains beside its step: how long it waits, its Event, its counter, and the final status.

use super::*;
use crate::api::Growth;

#[rstest]
#[case::r9_an_ignored_record_until_its_ttl(
    snapshot(created_at(NOW - 3_599, record(None)), None),
    row::ORPHAN,
    1
)]
#[case::a_pod_that_is_not_seen_rejected_yet(snapshot(record(None), pod("u-1")), row::ORPHAN, 60)]
#[case::the_rest_of_the_pause(
    RecordSnapshot {
        watched: Some(Duration::from_secs(4)),
        ..snapshot(deleted_at(NOW - 4, fixed_pause(record(Some(Phase::Waiting)))), None)
    },
    row::BACKOFF,
    11
)]
#[case::an_ended_record_until_its_ttl(
    snapshot(ended_at(NOW - 3_599, record(Some(Phase::Started))), None),
    row::NOTHING,
    1
)]
#[case::a_wipe_until_the_node_is_read_again(
    snapshot(
        wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected))),
        rejected_pod("u-1")
    ),
    row::WIPING,
    10
)]
#[case::a_wipe_until_its_timeout(
    RecordSnapshot {
        watched: Some(Duration::from_secs(115)),
        ..snapshot(wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected))), rejected_pod("u-1"))
    },
    row::WIPING,
    5
)]
fn how_long_it_waits(
    #[case] snapshot: RecordSnapshot,
    #[case] row: &'static Rule,
    #[case] seconds: u64,
) {
    let decision = decide(&snapshot, at(NOW));
    let waits = (decision.row, decision.again);
    assert_eq!(waits, (row, Some(Duration::from_secs(seconds))));
}

fn fixed_pause(mut record: Record) -> Record {
    record.policy.backoff = Some(Growth {
        jitter: 0.0,
        ..Growth::default()
    });
    record
}

/// The pauses of many records spread over what `jitter` permits.
#[test]
fn r10_the_pause_differs_between_records() {
    let pause = |uid: String| {
        let mut record = deleted_at(NOW, record(Some(Phase::Waiting)));
        record.meta = meta("web-u-1", &uid);
        let decision = decide(&snapshot(record, None), at(NOW));
        assert_eq!(decision.row, row::BACKOFF);
        decision.again.unwrap().as_secs_f64()
    };
    let uid = |number: u128| {
        let random = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        format!("{random:032x}")
    };
    let pauses: Vec<f64> = (0..200).map(|number| pause(uid(number))).collect();
    assert_eq!(pause(uid(7)), pauses[7], "it is constant for a record");
    let (least, most) = (15.0, 15.0 * (1.0 + Growth::default().jitter));
    assert!(
        pauses.iter().all(|pause| (least..=most).contains(pause)),
        "{pauses:?}"
    );
    let quarter = (most - least) / 4.0;
    for number in 0..4 {
        let from = least + quarter * f64::from(number);
        let inside = pauses
            .iter()
            .filter(|pause| (from..from + quarter).contains(*pause));
        assert!(
            inside.count() > 25,
            "few pauses from {from:.1} s: {pauses:?}"
        );
    }
}

#[rstest]
#[case::it_has_started(snapshot(record(None), started(pod("u-1"))), "Ended")]
#[case::it_has_ended(
    snapshot(record(None), PodView { state: PodState::Ended, ..pod("u-1") }),
    "Ended if unchanged"
)]
fn step_1_a_record_of_a_pod_that_was_not_rejected_ends(
    #[case] snapshot: RecordSnapshot,
    #[case] expected: &str,
) {
    let decision = decide(&snapshot, at(NOW));
    assert_eq!(
        (decision.row, &*summary(&decision)),
        (row::REPORTED, expected)
    );
}

#[test]
fn r9_an_ignored_record_is_reported() {
    let decision = decide(&snapshot(record(None), None), at(NOW));
    assert_eq!(decision.notice.unwrap().reason, "Ignored");
}

#[test]
fn a_recreated_pod_is_counted_and_reported_with_its_attempt() {
    let created = attempts(2, record(Some(Phase::Creating)));
    let decision = decide(&snapshot(created, of_attempt(2, pod("u-2"))), at(NOW));
    let Some(Effect::Status(step)) = decision.effect else {
        panic!("{decision:?}");
    };
    assert_eq!(step.outcome, Some("recreated"));
    let message = step.notice.unwrap().message;
    assert!(message.ends_with(", attempt 2 of 3"), "{message}");
    let condition = step.next.condition(ConditionType::Recreated).unwrap();
    assert_eq!(condition.message, "attempt 2 of 3");
}

/// The final status has the time, the message and every condition.
#[rstest]
#[case::started(
    snapshot(recreated_as("u-2", record(Some(Phase::Recreated))), started(of_attempt(1, pod("u-2")))),
    "started",
    "the re-created pod has started",
    [true, false]
)]
#[case::exhausted(
    snapshot(attempts(3, record(Some(Phase::Rejected))), rejected_pod("u-1")),
    "exhausted",
    "its node rejected the pod, and the limit of 3 re-creations is reached",
    [false, true]
)]
#[case::cancelled(
    snapshot(record(Some(Phase::Rejected)), being_deleted(rejected_pod("u-1"))),
    "cancelled",
    "not re-created: the rejected pod was deleted",
    [false, false]
)]
fn the_final_status(
    #[case] snapshot: RecordSnapshot,
    #[case] outcome: &str,
    #[case] why: &str,
    #[case] conditions: [bool; 2],
) {
    let mut snapshot = snapshot;
    let record = snapshot.record.as_mut().unwrap();
    let reserved = ("Reserved", "its pod keeps its finalizer");
    let kept = (ConditionType::HoldKept, ConditionStatus::True);
    record.status.set(kept.0, kept.1, reserved, at(0));
    let decision = decide(&snapshot, at(NOW));
    let Some(Effect::Status(step)) = decision.effect else {
        panic!("{decision:?}");
    };
    assert_eq!(step.outcome, Some(outcome));
    assert_eq!(step.notice.unwrap().message, why);
    let status = *step.next;
    assert_eq!(status.message.as_deref(), Some(why));
    assert_eq!(status.finished_at, Some(at(NOW)));
    let is_true = [ConditionType::Started, ConditionType::Exhausted].map(|of| status.is_true(of));
    assert_eq!(is_true, conditions);
    assert!(!status.is_true(ConditionType::PodRejected));
    let kept = status.condition(ConditionType::HoldKept).unwrap();
    assert_eq!((kept.status, &*kept.message), (ConditionStatus::False, why));
}

/// Without `wipe: Required` a rejection says nothing about a wipe.
#[rstest]
#[case::not_required(Wipe::None, false)]
#[case::required(Wipe::Required, true)]
fn a_rejection_waits_for_a_wipe_only_if_one_is_required(#[case] policy: Wipe, #[case] waits: bool) {
    let mut first = record(None);
    first.policy.wipe = policy;
    let status = next(&snapshot(first, rejected_pod("u-1")), NOW);
    let condition = status.condition(ConditionType::StateWiped);
    assert_eq!(condition.is_some(), waits);
}

/// R6: the wipe of a record that requires none is not requested, whatever the list says.
#[test]
fn r6_a_wipe_that_is_not_required_is_not_requested() {
    let snapshot = RecordSnapshot {
        wipe: ObservedWipe::NotRequested,
        ..snapshot(record(Some(Phase::Rejected)), rejected_pod("u-1"))
    };
    assert_eq!(summary(&decide(&snapshot, at(NOW))), "try, Deleting");
}
