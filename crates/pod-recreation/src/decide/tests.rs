//! The rules of the state machine, in the order of its steps.

pub(crate) mod case;
mod details;
mod names;
mod namespaces;
mod ran_once;
mod wipes;

use belayer_core::object::{ObjectKey, ResourceVersion};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::decision::Rule;
use belayer_holds::holding::Holding;
use belayer_holds::selection::Selection;
use rstest::rstest;

use super::*;
use crate::api::{Condition, ConditionStatus, ConditionType, OnWipeTimeout, Policy, Wipe};
use crate::config::Settings;
use crate::proof::{FirstSeen, MayHaveRun, NeverRan};
use crate::reason::Class;
use crate::snapshot::{Origin, Rejection};

use case::*;

const TTL: Duration = Duration::from_secs(3_600);

/// A short text for the step of a decision.
fn summary(decision: &RecordDecision) -> String {
    let phase = |step: &StatusWrite| {
        let phase = format!("{:?}", step.next.phase.unwrap());
        phase
            + match step.precondition {
                Precondition::None => "",
                Precondition::Gone(_) => " if gone",
                Precondition::NameTaken => " if the name is taken",
                Precondition::Unchanged => " if unchanged",
                Precondition::Ignored => " if ignored",
            }
    };
    match &decision.effect {
        None if decision.again.is_some() => "waits".to_owned(),
        None => "nothing".to_owned(),
        Some(Effect::CreateRecord { .. }) => "record".to_owned(),
        Some(Effect::Status(step)) => phase(step),
        Some(Effect::Intend { step, .. }) => format!("try, {}", phase(step)),
        Some(Effect::Reserve { step, .. }) => format!("reserve {}", step.next.attempts),
        Some(Effect::DeletePod { pod }) => format!("delete {pod}"),
        Some(Effect::CreatePod { attempt }) => format!("create {attempt}"),
        Some(Effect::ReadNode { node, .. }) => format!("read {node}"),
        Some(Effect::RequestWipe { node, pod }) => format!("wipe {node} of {pod}"),
        Some(Effect::AnnotatePod { .. }) => "annotate".to_owned(),
        Some(Effect::DeleteRecord) => "delete record".to_owned(),
    }
}

const NOW: i64 = 1_010;

#[rstest]
#[case::step_1_a_rejected_pod_gets_a_record(
    snapshot(None, rejected_pod("u-1")),
    row::REJECTED,
    "record"
)]
#[case::step_1_not_for_a_deleted_pod(
    snapshot(None, being_deleted(rejected_pod("u-1"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_not_for_a_pod_that_may_have_run(
    snapshot(None, with(Class::Race, Err(MayHaveRun::StartedEarlier), pod("u-1"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_not_for_a_permanent_reason(
    snapshot(None, with(Class::Permanent, never_ran(), pod("u-1"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_not_for_a_recreated_pod_without_its_record(
    snapshot(None, of_attempt(1, rejected_pod("u-2"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_a_cancelled_pod_is_annotated(RecordSnapshot { cancelled: true, ..snapshot(None, rejected_pod("u-1")) }, row::MARK, "annotate")]
#[case::step_1_a_record_of_a_pod_that_is_not_selected(
    snapshot(record(None), PodView { selection: Selection::No, ..rejected_pod("u-1") }),
    row::REPORTED,
    "Ended if unchanged"
)]
#[case::step_1_the_record_begins(
    snapshot(record(None), rejected_pod("u-1")),
    row::BEGIN,
    "Rejected"
)]
#[case::step_1_a_restored_record_is_ignored(snapshot(record(None), None), row::ORPHAN, "waits")]
#[case::step_1_a_record_of_another_pod_is_ignored(
    snapshot(record(None), rejected_pod("u-9")),
    row::ORPHAN,
    "waits"
)]
#[case::r9_an_ignored_record_is_kept_for_its_ttl(
    snapshot(created_at(NOW - 3_599, record(None)), None),
    row::ORPHAN,
    "waits"
)]
#[case::r9_an_ignored_record_is_deleted(
    snapshot(created_at(NOW - 3_600, record(None)), None),
    row::EXPIRED,
    "delete record"
)]
#[case::r9_not_while_its_pod_exists(
    snapshot(created_at(NOW - 3_600, record(None)), rejected_pod("u-1")),
    row::BEGIN,
    "Rejected"
)]
#[case::step_1_a_record_of_a_deleted_pod(
    snapshot(record(None), being_deleted(rejected_pod("u-1"))),
    row::CANCELLED,
    "Ended"
)]
#[case::step_2_attempts_left(
    snapshot(attempts(2, record(Some(Phase::Rejected))), rejected_pod("u-1")),
    row::INTEND,
    "try, Deleting"
)]
#[case::step_2_no_attempts_left(
    snapshot(attempts(3, record(Some(Phase::Rejected))), rejected_pod("u-1")),
    row::EXHAUSTED,
    "Exhausted"
)]
#[case::step_3_the_node_must_be_wiped(
    snapshot(
        wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected))),
        rejected_pod("u-1")
    ),
    row::WIPING,
    "read node-1"
)]
#[case::step_4_a_deletion_by_another_client_cancels(
    snapshot(record(Some(Phase::Rejected)), being_deleted(rejected_pod("u-1"))),
    row::CANCELLED,
    "Ended"
)]
#[case::step_4_a_new_leader_whose_store_is_behind_the_record_waits(
    snapshot(record(Some(Phase::Rejected)), pod("u-1")),
    row::NOTHING,
    "waits"
)]
#[case::step_4_absent_only_by_a_live_read(
    snapshot(record(Some(Phase::Rejected)), None),
    row::CANCELLED,
    "Ended if gone"
)]
#[case::step_4_it_has_run(
    snapshot(record(Some(Phase::Rejected)), started(pod("u-1"))),
    row::REPORTED,
    "Ended"
)]
#[case::r3_an_admin_requests_its_release(
    snapshot(record(Some(Phase::Rejected)), PodView { release_requested: true, ..rejected_pod("u-1") }),
    row::CANCELLED,
    "Ended if unchanged"
)]
#[case::r3_its_annotation_ends_it(
    snapshot(record(Some(Phase::Rejected)), PodView { recreation_ended: true, held: false, ..rejected_pod("u-1") }),
    row::CANCELLED,
    "Ended if unchanged"
)]
#[case::step_4_denied_for_an_hour(snapshot(denied_since(NOW - 3_600, record(Some(Phase::Rejected))), rejected_pod("u-1")), row::DENIED, "Ended")]
#[case::step_4_denied_for_less_than_an_hour(snapshot(denied_since(NOW - 3_599, record(Some(Phase::Rejected))), rejected_pod("u-1")), row::INTEND, "try, Deleting")]
#[case::step_5_it_is_deleted_by_uid(
    snapshot(record(Some(Phase::Deleting)), rejected_pod("u-1")),
    row::DELETE,
    "delete u-1"
)]
#[case::step_5_it_has_run(
    snapshot(record(Some(Phase::Deleting)), started(being_deleted(pod("u-1")))),
    row::REPORTED,
    "Ended"
)]
#[case::step_5_its_address_shows_that_it_ran(
    snapshot(
        record(Some(Phase::Deleting)),
        being_deleted(with(Class::Race, Err(MayHaveRun::HasAddress), pod("u-1")))
    ),
    row::REPORTED,
    "Ended"
)]
#[case::step_5_a_missing_proof_does_not_show_that(
    snapshot(
        record(Some(Phase::Deleting)),
        with(Class::Race, Err(MayHaveRun::StartedEarlier), pod("u-1"))
    ),
    row::DELETE,
    "delete u-1"
)]
#[case::step_5_it_waits_for_finalizers_of_others(
    snapshot(record(Some(Phase::Deleting)), being_deleted(rejected_pod("u-1"))),
    row::DELETE,
    "waits"
)]
#[case::step_5_the_name_is_free(
    snapshot(record(Some(Phase::Deleting)), None),
    row::FREE,
    "Waiting if gone"
)]
#[case::step_5_another_pod_has_the_name(
    snapshot(record(Some(Phase::Deleting)), pod("u-9")),
    row::CANCELLED,
    "Ended if the name is taken"
)]
#[case::step_5_a_store_that_has_the_first_pod_waits(
    snapshot(second_rejection(Phase::Deleting), pod("u-1")),
    row::NOTHING,
    "waits"
)]
#[case::step_5_a_store_that_has_an_earlier_pod_proves_nothing(
    snapshot(second_rejection(Phase::Deleting), of_attempt(1, pod("u-9"))),
    row::FREE,
    "Waiting if gone"
)]
#[case::step_7_a_store_that_has_the_first_pod_waits(
    snapshot(second_rejection(Phase::Creating), pod("u-1")),
    row::NOTHING,
    "waits"
)]
#[case::step_6_the_pause_runs(snapshot(deleted_at(NOW - 14, record(Some(Phase::Waiting))), None), row::BACKOFF, "waits")]
#[case::step_7_the_attempt_is_reserved(snapshot(deleted_at(NOW - 17, record(Some(Phase::Waiting))), None), row::RESERVE, "reserve 1")]
#[case::step_7_another_client_wrote_more_attempts_than_allowed(
    snapshot(deleted_at(NOW, attempts(99, record(Some(Phase::Waiting)))), None),
    row::EXHAUSTED,
    "Exhausted"
)]
#[case::step_7_a_later_pause_is_longer(snapshot(deleted_at(NOW - 17, attempts(1, record(Some(Phase::Waiting)))), None), row::BACKOFF, "waits")]
#[case::step_7_another_pod_takes_the_name_in_the_pause(
    snapshot(deleted_at(NOW, record(Some(Phase::Waiting))), pod("u-9")),
    row::CANCELLED,
    "Ended if the name is taken"
)]
#[case::step_7_the_pod_of_an_old_attempt_is_deleted(
    snapshot(
        deleted_at(NOW, attempts(1, record(Some(Phase::Waiting)))),
        of_attempt(1, pod("u-9"))
    ),
    row::OLD_ATTEMPT,
    "delete u-9"
)]
#[case::step_7_the_pod_of_an_old_attempt_that_runs_is_kept(
    snapshot(
        deleted_at(NOW, attempts(1, record(Some(Phase::Waiting)))),
        started(of_attempt(1, pod("u-9")))
    ),
    row::RECREATED,
    "Recreated"
)]
#[case::step_7_the_pod_is_created(
    snapshot(attempts(2, record(Some(Phase::Creating))), None),
    row::CREATE,
    "create 2"
)]
#[case::step_7_the_cache_still_has_the_rejected_pod(
    snapshot(attempts(2, record(Some(Phase::Creating))), rejected_pod("u-1")),
    row::NOTHING,
    "waits"
)]
#[case::step_7_denied_for_an_hour(snapshot(denied_since(NOW - 3_600, record(Some(Phase::Creating))), None), row::DENIED, "Ended if gone")]
#[case::step_7_another_pod_has_the_name(
    snapshot(attempts(1, record(Some(Phase::Creating))), pod("u-9")),
    row::CANCELLED,
    "Ended if the name is taken"
)]
#[case::step_8_the_pod_of_an_older_attempt_is_deleted(
    snapshot(attempts(2, record(Some(Phase::Creating))), of_attempt(1, pod("u-9"))),
    row::OLD_ATTEMPT,
    "delete u-9"
)]
#[case::step_8_its_deletion_is_not_complete(
    snapshot(
        attempts(2, record(Some(Phase::Creating))),
        being_deleted(of_attempt(1, pod("u-9")))
    ),
    row::OLD_ATTEMPT,
    "waits"
)]
#[case::step_9_the_pod_exists(
    snapshot(attempts(1, record(Some(Phase::Creating))), of_attempt(1, pod("u-2"))),
    row::RECREATED,
    "Recreated"
)]
#[case::step_9_nothing_to_do_until_it_starts(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        of_attempt(1, pod("u-2"))
    ),
    row::NOTHING,
    "waits"
)]
#[case::step_9_it_has_started(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        started(of_attempt(1, pod("u-2")))
    ),
    row::POD_STARTED,
    "Started"
)]
#[case::step_9_started_and_being_deleted(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        being_deleted(started(pod("u-2")))
    ),
    row::POD_STARTED,
    "Started"
)]
#[case::step_9_rejected_again(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        of_attempt(1, rejected_pod("u-2"))
    ),
    row::REJECTED_AGAIN,
    "Rejected"
)]
#[case::step_9_rejected_for_a_permanent_reason(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        with(Class::Permanent, never_ran(), pod("u-2"))
    ),
    row::REPORTED,
    "Ended if unchanged"
)]
#[case::step_9_it_may_have_run(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        with(Class::Race, Err(MayHaveRun::HasAddress), pod("u-2"))
    ),
    row::REPORTED,
    "Ended"
)]
#[case::step_9_the_user_deletes_it(
    snapshot(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        being_deleted(pod("u-2"))
    ),
    row::CANCELLED,
    "Ended"
)]
#[case::step_9_it_does_not_exist(
    snapshot(recreated_as("u-2", record(Some(Phase::Recreated))), None),
    row::CANCELLED,
    "Ended if gone"
)]
#[case::ended_the_rejected_pod_is_annotated(
    snapshot(ended_at(NOW, record(Some(Phase::Exhausted))), rejected_pod("u-1")),
    row::MARK,
    "annotate"
)]
#[case::ended_a_pod_that_an_old_leader_created_is_deleted(
    snapshot(ended_at(NOW, record(Some(Phase::Ended))), of_attempt(2, pod("u-9"))),
    row::IN_VAIN,
    "delete u-9"
)]
#[case::ended_a_pod_that_runs_is_kept(
    snapshot(
        ended_at(NOW, record(Some(Phase::Ended))),
        started(of_attempt(2, pod("u-9")))
    ),
    row::NOTHING,
    "waits"
)]
#[case::ended_the_pod_that_the_record_names_is_kept(
    snapshot(
        recreated_as("u-2", ended_at(NOW, record(Some(Phase::Exhausted)))),
        of_attempt(2, rejected_pod("u-2"))
    ),
    row::NOTHING,
    "waits"
)]
#[case::ended_the_record_is_kept(snapshot(ended_at(NOW - 3_599, record(Some(Phase::Started))), None), row::NOTHING, "waits")]
#[case::ended_the_record_is_deleted(snapshot(ended_at(NOW - 3_600, record(Some(Phase::Started))), None), row::EXPIRED, "delete record")]
#[case::an_unknown_pod_is_not_absent(RecordSnapshot { pod: ObservedPod::Unknown, ..snapshot(attempts(1, record(Some(Phase::Creating))), None) }, row::NOTHING, "waits")]
fn steps(#[case] snapshot: RecordSnapshot, #[case] row: &'static Rule, #[case] expected: &str) {
    let decision = decide(&snapshot, at(NOW));
    assert_eq!((decision.row, summary(&decision).as_str()), (row, expected));
}

fn second_rejection(phase: Phase) -> Record {
    let mut record = attempts(1, record(Some(phase)));
    record.status.rejected_uid = Some("u-2".into());
    record
}

#[test]
fn that_another_pod_has_the_name_is_confirmed_by_a_live_read() {
    for phase in [Phase::Deleting, Phase::Waiting, Phase::Creating] {
        let decision = decide(&snapshot(second_rejection(phase), pod("u-9")), at(NOW));
        let Some(Effect::Status(step)) = decision.effect else {
            panic!("{decision:?}");
        };
        assert_eq!(step.precondition, Precondition::NameTaken);
    }
}

/// Nothing but the record has the pod, and no user has cancelled its re-creation.
#[rstest]
#[case::while_it_existed_only_in_the_record(Phase::Creating, None, row::NOTHING)]
#[case::and_a_user_has_created_it(Phase::Creating, Some(pod("u-9")), row::EXPIRED)]
#[case::while_the_rejected_pod_existed(Phase::Rejected, None, row::EXPIRED)]
fn a_record_that_ended_denied_is_kept_if_only_it_has_the_pod(
    #[case] phase: Phase,
    #[case] later: Option<PodView>,
    #[case] row: &'static Rule,
) {
    let mut record = denied_since(NOW - 3_600, record(Some(phase)));
    let pod = (phase == Phase::Rejected).then(|| rejected_pod("u-1"));
    let Some(Effect::Status(step)) = decide(&snapshot(record.clone(), pod), at(NOW)).effect else {
        panic!("not ended");
    };
    let message = step.next.message.as_deref().unwrap_or_default();
    assert_eq!(message.contains(".spec.pod"), phase == Phase::Creating);
    assert!(message.ends_with("quota"), "{message}");
    record.status = *step.next;
    let snapshot = RecordSnapshot {
        watched: Some(TTL * 100),
        ..snapshot(record, later)
    };
    let decision = decide(&snapshot, at(TOMORROW));
    assert_eq!((decision.row, decision.again), (row, None));
}

/// L9: the times of the record are a day ahead or behind, or this process has not seen the record for long.
#[rstest]
#[case::a_pause_that_begins_tomorrow(
    14,
    deleted_at(TOMORROW, record(Some(Phase::Waiting))),
    row::BACKOFF
)]
#[case::a_pause_that_this_process_has_seen(
    17,
    deleted_at(TOMORROW, record(Some(Phase::Waiting))),
    row::RESERVE
)]
#[case::a_pause_that_another_leader_has_seen(0, deleted_at(NOW - 17, record(Some(Phase::Waiting))), row::RESERVE)]
#[case::denied_since_tomorrow(
    3_599,
    denied_since(TOMORROW, record(Some(Phase::Creating))),
    row::CREATE
)]
#[case::denied_for_an_hour(
    3_600,
    denied_since(TOMORROW, record(Some(Phase::Creating))),
    row::DENIED
)]
#[case::denied_since_yesterday(
    60,
    denied_since(YESTERDAY, record(Some(Phase::Creating))),
    row::CREATE
)]
#[case::ended_tomorrow(3_600, ended_at(TOMORROW, record(Some(Phase::Ended))), row::EXPIRED)]
#[case::created_tomorrow(3_600, created_at(TOMORROW, record(None)), row::EXPIRED)]
fn l9_what_this_process_has_seen_bounds_every_wait(
    #[case] watched: u64,
    #[case] record: Record,
    #[case] row: &'static Rule,
) {
    let snapshot = RecordSnapshot {
        watched: Some(Duration::from_secs(watched)),
        ..snapshot(record, None)
    };
    assert_eq!(decide(&snapshot, at(NOW)).row, row);
}

const TOMORROW: i64 = NOW + 86_400;
const YESTERDAY: i64 = NOW - 86_400;

fn next(snapshot: &RecordSnapshot, now: i64) -> Status {
    match decide(snapshot, at(now)).effect.unwrap() {
        Effect::Status(step) | Effect::Intend { step, .. } | Effect::Reserve { step, .. } => {
            *step.next
        }
        other => panic!("{other:?} writes no status"),
    }
}

#[test]
fn step_3_a_wiped_node_continues() {
    let mut wiped = wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected)));
    wiped.status.set(
        ConditionType::StateWiped,
        ConditionStatus::True,
        ("Wiped", ""),
        at(NOW),
    );
    let decision = decide(&snapshot(wiped, rejected_pod("u-1")), at(NOW));
    assert_eq!(summary(&decision), "try, Deleting");
}

#[rstest]
#[case::proceed(OnWipeTimeout::Proceed, "try, Deleting")]
#[case::fail(OnWipeTimeout::Fail, "Ended")]
fn step_3_after_the_timeout_the_policy_decides(
    #[case] policy: OnWipeTimeout,
    #[case] expected: &str,
) {
    let snapshot = snapshot(
        wipe(policy, record(Some(Phase::Rejected))),
        rejected_pod("u-1"),
    );
    let before = decide(&snapshot, at(1_119));
    assert_eq!(summary(&before), "read node-1");
    let after = decide(&snapshot, at(1_120));
    assert_eq!(summary(&after), expected);
    let avoided = next(&snapshot, 1_120).avoid_nodes;
    assert_eq!(avoided.is_empty(), policy == OnWipeTimeout::Fail);
}

#[test]
fn a_reservation_counts_the_attempt_and_an_existing_pod_counts_as_created() {
    let waiting = snapshot(deleted_at(0, record(Some(Phase::Waiting))), None);
    let reserved = next(&waiting, NOW);
    assert_eq!(
        (
            reserved.attempts,
            reserved.pod_recreated,
            reserved.pod_starts
        ),
        (1, 0, 1)
    );
    let created = Record {
        status: reserved,
        ..record(None)
    };
    let there = next(&snapshot(created, of_attempt(1, pod("u-2"))), NOW);
    assert_eq!(
        (there.attempts, there.pod_recreated, there.pod_starts),
        (1, 1, 2)
    );
    assert_eq!(there.pod_uid.as_deref(), Some("u-2"));
    assert!(!there.is_true(ConditionType::PodRejected));
    assert!(there.is_true(ConditionType::Recreated));
}

#[test]
fn a_node_to_avoid_is_stored_in_the_status() {
    let mut avoiding = recreated_as("u-2", record(Some(Phase::Recreated)));
    avoiding.policy.avoid_rejected_node = true;
    avoiding.status.avoid_nodes = vec!["node-0".into()];
    let status = next(&snapshot(avoiding, rejected_pod("u-2")), NOW);
    assert_eq!(status.avoid_nodes, ["node-0", "node-1"]);
    assert_eq!(status.rejected_uid.as_deref(), Some("u-2"));
    assert!(status.is_true(ConditionType::PodRejected));
}
