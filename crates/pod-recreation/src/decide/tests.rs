//! Rows of the state machine, in the order of its steps.

pub(crate) mod case;

use belayer_core::object::{ObjectKey, ResourceVersion};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::decision::Row;
use belayer_holds::holding::Holding;
use rstest::rstest;

use super::*;
use crate::api::{Condition, ConditionStatus, ConditionType, OnWipeTimeout, Policy, Wipe};
use crate::config::Settings;
use crate::proof::{FirstSight, MayHaveRun, NeverRan};
use crate::reason::Class;
use crate::snapshot::{Deletion, Hold, Mark, Rejection, Selection};

use case::*;

const TTL: Duration = Duration::from_secs(3_600);

/// What a verdict does, in a word or two.
fn told(verdict: &Verdict) -> String {
    let phase = |step: &Step| {
        let phase = format!("{:?}", step.next.phase.unwrap());
        if step.gone.is_some() {
            phase + " if gone"
        } else {
            phase
        }
    };
    match &verdict.effect {
        None if verdict.again.is_some() => "waits".to_owned(),
        None => "nothing".to_owned(),
        Some(Effect::CreateRecord { .. }) => "record".to_owned(),
        Some(Effect::Status(step)) => phase(step),
        Some(Effect::Intend { step, .. }) => format!("try, {}", phase(step)),
        Some(Effect::Reserve { step, .. }) => format!("reserve {}", step.next.attempts),
        Some(Effect::DeletePod { pod }) => format!("delete {pod}"),
        Some(Effect::CreatePod { attempt }) => format!("create {attempt}"),
        Some(Effect::LookAtNode { node, .. }) => format!("look at {node}"),
        Some(Effect::Mark { .. }) => "mark".to_owned(),
        Some(Effect::DeleteRecord) => "delete record".to_owned(),
    }
}

const NOW: i64 = 1_010;

#[rstest]
#[case::step_1_a_rejected_pod_gets_a_record(see(None, refused("u-1")), row::REJECTED, "record")]
#[case::step_1_not_one_being_deleted(see(None, gone_soon(refused("u-1"))), row::NOTHING, "nothing")]
#[case::step_1_not_one_that_may_have_run(
    see(None, with(Class::Race, Err(MayHaveRun::StartedEarlier), pod("u-1"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_not_one_of_a_permanent_reason(
    see(None, with(Class::Permanent, never_ran(), pod("u-1"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_not_one_of_a_chain_without_its_record(
    see(None, marked(1, refused("u-2"))),
    row::NOTHING,
    "nothing"
)]
#[case::step_1_one_that_was_cancelled_is_told(Snapshot { cancelled: Asked::Yes, ..see(None, refused("u-1")) }, row::MARK, "mark")]
#[case::step_1_a_record_of_a_pod_that_nothing_selects(
    see(record(None), PodView { selection: Selection::No, ..refused("u-1") }),
    row::REPORTED,
    "Ended"
)]
#[case::step_1_the_record_begins(see(record(None), refused("u-1")), row::BEGIN, "Rejected")]
#[case::step_1_a_restored_record_is_ignored(see(record(None), None), row::ORPHAN, "nothing")]
#[case::step_1_a_record_of_another_pod_is_ignored(
    see(record(None), refused("u-9")),
    row::ORPHAN,
    "nothing"
)]
#[case::step_1_deleted_meanwhile(
    see(record(None), gone_soon(refused("u-1"))),
    row::CANCELLED,
    "Ended"
)]
#[case::step_2_budget_left(
    see(attempts(2, record(Some(Phase::Rejected))), refused("u-1")),
    row::INTEND,
    "try, Deleting"
)]
#[case::step_2_three_means_three(
    see(attempts(3, record(Some(Phase::Rejected))), refused("u-1")),
    row::EXHAUSTED,
    "Exhausted"
)]
#[case::step_3_the_node_is_to_be_wiped(
    see(
        wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected))),
        refused("u-1")
    ),
    row::WIPING,
    "look at node-1"
)]
#[case::step_4_somebody_elses_delete_cancels(
    see(record(Some(Phase::Rejected)), gone_soon(refused("u-1"))),
    row::CANCELLED,
    "Ended"
)]
#[case::step_4_gone_by_a_live_look_only(
    see(record(Some(Phase::Rejected)), None),
    row::CANCELLED,
    "Ended if gone"
)]
#[case::step_4_found_to_have_run(
    see(record(Some(Phase::Rejected)), started(pod("u-1"))),
    row::REPORTED,
    "Ended"
)]
#[case::step_4_refused_for_an_hour(see(denied_since(NOW - 3_600, record(Some(Phase::Rejected))), refused("u-1")), row::DENIED, "Ended")]
#[case::step_4_refused_for_less(see(denied_since(NOW - 3_599, record(Some(Phase::Rejected))), refused("u-1")), row::INTEND, "try, Deleting")]
#[case::step_5_it_is_deleted_by_uid(
    see(record(Some(Phase::Deleting)), refused("u-1")),
    row::DELETE,
    "delete u-1"
)]
#[case::step_5_foreign_finalizers_are_waited_for(
    see(record(Some(Phase::Deleting)), gone_soon(refused("u-1"))),
    row::DELETE,
    "nothing"
)]
#[case::step_5_the_name_is_free(
    see(record(Some(Phase::Deleting)), None),
    row::FREE,
    "Waiting if gone"
)]
#[case::step_5_a_stranger_has_the_name(
    see(record(Some(Phase::Deleting)), pod("u-9")),
    row::CANCELLED,
    "Ended"
)]
#[case::step_6_the_backoff_runs(see(deleted_at(NOW - 14, record(Some(Phase::Waiting))), None), row::BACKOFF, "waits")]
#[case::step_7_the_attempt_is_reserved(see(deleted_at(NOW - 17, record(Some(Phase::Waiting))), None), row::RESERVE, "reserve 1")]
#[case::step_7_a_later_pause_is_longer(see(deleted_at(NOW - 17, attempts(1, record(Some(Phase::Waiting)))), None), row::BACKOFF, "waits")]
#[case::step_7_a_stranger_in_the_pause(
    see(deleted_at(NOW, record(Some(Phase::Waiting))), pod("u-9")),
    row::CANCELLED,
    "Ended"
)]
#[case::step_7_an_old_attempt_goes(
    see(
        deleted_at(NOW, attempts(1, record(Some(Phase::Waiting)))),
        marked(1, pod("u-9"))
    ),
    row::OLD_ATTEMPT,
    "delete u-9"
)]
#[case::step_7_an_old_attempt_that_runs_is_taken(
    see(
        deleted_at(NOW, attempts(1, record(Some(Phase::Waiting)))),
        started(marked(1, pod("u-9")))
    ),
    row::RECREATED,
    "Recreated"
)]
#[case::step_7_the_pod_is_created(
    see(attempts(2, record(Some(Phase::Creating))), None),
    row::CREATE,
    "create 2"
)]
#[case::step_7_not_found_by_a_slow_cache(
    see(attempts(2, record(Some(Phase::Creating))), refused("u-1")),
    row::NOTHING,
    "waits"
)]
#[case::step_7_refused_for_an_hour(see(denied_since(NOW - 3_600, record(Some(Phase::Creating))), None), row::DENIED, "Ended if gone")]
#[case::step_7_a_stranger_was_faster(
    see(attempts(1, record(Some(Phase::Creating))), pod("u-9")),
    row::CANCELLED,
    "Ended"
)]
#[case::step_8_an_older_attempt_goes(
    see(attempts(2, record(Some(Phase::Creating))), marked(1, pod("u-9"))),
    row::OLD_ATTEMPT,
    "delete u-9"
)]
#[case::step_8_and_is_waited_for(
    see(
        attempts(2, record(Some(Phase::Creating))),
        gone_soon(marked(1, pod("u-9")))
    ),
    row::OLD_ATTEMPT,
    "nothing"
)]
#[case::step_9_the_pod_is_there(
    see(attempts(1, record(Some(Phase::Creating))), marked(1, pod("u-2"))),
    row::RECREATED,
    "Recreated"
)]
#[case::step_9_nothing_to_do_until_it_starts(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        marked(1, pod("u-2"))
    ),
    row::NOTHING,
    "nothing"
)]
#[case::step_9_it_has_started(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        started(marked(1, pod("u-2")))
    ),
    row::POD_STARTED,
    "Started"
)]
#[case::step_9_started_and_being_deleted(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        gone_soon(started(pod("u-2")))
    ),
    row::POD_STARTED,
    "Started"
)]
#[case::step_9_rejected_again(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        marked(1, refused("u-2"))
    ),
    row::REJECTED_AGAIN,
    "Rejected"
)]
#[case::step_9_rejected_for_good(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        with(Class::Permanent, never_ran(), pod("u-2"))
    ),
    row::REPORTED,
    "Ended"
)]
#[case::step_9_it_may_have_run(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        with(Class::Race, Err(MayHaveRun::HasAddress), pod("u-2"))
    ),
    row::REPORTED,
    "Ended"
)]
#[case::step_9_the_user_deletes_it(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        gone_soon(pod("u-2"))
    ),
    row::CANCELLED,
    "Ended"
)]
#[case::step_9_it_is_gone(
    see(recreated_as("u-2", record(Some(Phase::Recreated))), None),
    row::CANCELLED,
    "Ended if gone"
)]
#[case::the_end_the_users_pod_is_told(
    see(ended_at(NOW, record(Some(Phase::Exhausted))), refused("u-1")),
    row::MARK,
    "mark"
)]
#[case::the_end_a_pod_that_an_old_leader_created_goes(
    see(ended_at(NOW, record(Some(Phase::Ended))), marked(2, pod("u-9"))),
    row::IN_VAIN,
    "delete u-9"
)]
#[case::the_end_one_that_runs_stays(
    see(
        ended_at(NOW, record(Some(Phase::Ended))),
        started(marked(2, pod("u-9")))
    ),
    row::NOTHING,
    "waits"
)]
#[case::the_end_the_pod_that_is_known_stays(
    see(
        recreated_as("u-2", ended_at(NOW, record(Some(Phase::Exhausted)))),
        marked(2, refused("u-2"))
    ),
    row::NOTHING,
    "waits"
)]
#[case::the_end_is_kept_for_a_while(see(ended_at(NOW - 3_599, record(Some(Phase::Started))), None), row::NOTHING, "waits")]
#[case::the_end_of_the_record(see(ended_at(NOW - 3_600, record(Some(Phase::Started))), None), row::EXPIRED, "delete record")]
#[case::an_unknown_pod_is_not_an_absent_one(Snapshot { pod: Sight::Unknown, ..see(attempts(1, record(Some(Phase::Creating))), None) }, row::NOTHING, "waits")]
#[case::a_namespace_that_goes_takes_all_with_it(Snapshot { namespace: NamespaceSight::Terminating, ..see(record(Some(Phase::Creating)), None) }, row::NOTHING, "nothing")]
fn steps(#[case] snapshot: Snapshot, #[case] row: Row, #[case] expected: &str) {
    let verdict = decide(&snapshot, at(NOW));
    assert_eq!((verdict.row, told(&verdict).as_str()), (row, expected));
}

fn next(snapshot: &Snapshot, now: i64) -> Status {
    match decide(snapshot, at(now)).effect.unwrap() {
        Effect::Status(step) | Effect::Intend { step, .. } | Effect::Reserve { step, .. } => {
            *step.next
        }
        other => panic!("{other:?} writes no status"),
    }
}

#[test]
fn step_3_what_was_wiped_goes_on() {
    let mut wiped = wipe(OnWipeTimeout::Fail, record(Some(Phase::Rejected)));
    wiped.status.set(
        ConditionType::StateWiped,
        ConditionStatus::True,
        ("Wiped", ""),
        at(NOW),
    );
    let verdict = decide(&see(wiped, refused("u-1")), at(NOW));
    assert_eq!(told(&verdict), "try, Deleting");
}

#[rstest]
#[case::proceed(OnWipeTimeout::Proceed, "try, Deleting")]
#[case::fail(OnWipeTimeout::Fail, "Ended")]
fn step_3_after_the_time_out_the_policy_decides(
    #[case] policy: OnWipeTimeout,
    #[case] expected: &str,
) {
    let snapshot = see(wipe(policy, record(Some(Phase::Rejected))), refused("u-1"));
    let before = decide(&snapshot, at(1_119));
    assert_eq!(told(&before), "look at node-1");
    let after = decide(&snapshot, at(1_120));
    assert_eq!(told(&after), expected);
    let avoided = next(&snapshot, 1_120).avoid_nodes;
    assert_eq!(avoided.is_empty(), policy == OnWipeTimeout::Fail);
}

#[test]
fn a_reservation_counts_the_attempt_and_the_pod_is_counted_when_it_exists() {
    let waiting = see(deleted_at(0, record(Some(Phase::Waiting))), None);
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
    let there = next(&see(created, marked(1, pod("u-2"))), NOW);
    assert_eq!(
        (there.attempts, there.pod_recreated, there.pod_starts),
        (1, 1, 2)
    );
    assert_eq!(there.pod_uid.as_deref(), Some("u-2"));
    assert!(!there.is_true(ConditionType::PodRejected));
    assert!(there.is_true(ConditionType::Recreated));
}

#[test]
fn a_rejection_that_avoids_its_node_remembers_it() {
    let mut avoiding = recreated_as("u-2", record(Some(Phase::Recreated)));
    avoiding.policy.avoid_rejected_node = true;
    avoiding.status.avoid_nodes = vec!["node-0".into()];
    let status = next(&see(avoiding, refused("u-2")), NOW);
    assert_eq!(status.avoid_nodes, ["node-0", "node-1"]);
    assert_eq!(status.rejected_uid.as_deref(), Some("u-2"));
    assert!(status.is_true(ConditionType::PodRejected));
}

fn unheld(pod: PodView) -> PodView {
    PodView {
        hold: Hold::Off,
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

fn drained(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        holding: Holding::Draining,
        ..snapshot
    }
}

#[rstest]
#[case::absent_is_never_created(see(creating(1), None), row::CREATE, "create 1")]
#[case::its_pod_was_seen(Snapshot { created: Some(1), ..see(creating(1), None) }, row::HOLD_LOST, "Ended if gone")]
#[case::that_of_an_earlier_attempt_was_seen(Snapshot { created: Some(1), ..see(creating(2), None) }, row::CREATE, "create 2")]
#[case::reserved_by_an_earlier_version(
    see(reserved_before(creating(1)), None),
    row::HOLD_LOST,
    "Ended if gone"
)]
#[case::whatever_its_age_its_pod_is_adopted(
    see(reserved_before(creating(1)), marked(1, pod("u-2"))),
    row::RECREATED,
    "Recreated"
)]
#[case::no_pause_for_whoever_drains(
    drained(see(deleted_at(NOW, record(Some(Phase::Waiting))), None)),
    row::RESERVE,
    "reserve 1"
)]
#[case::what_lost_its_hold_waits_for_it(
    see(record(Some(Phase::Rejected)), unheld(refused("u-1"))),
    row::NOTHING,
    "waits"
)]
#[case::not_selected_any_more(
    see(record(Some(Phase::Rejected)), unselected(refused("u-1"))),
    row::REPORTED,
    "Ended"
)]
#[case::not_selected_any_more_in_a_chain(
    see(
        recreated_as("u-2", record(Some(Phase::Recreated))),
        unselected(marked(1, refused("u-2")))
    ),
    row::REPORTED,
    "Ended"
)]
fn r5_a_pod_that_may_have_run_is_never_created_again(
    #[case] snapshot: Snapshot,
    #[case] row: Row,
    #[case] expected: &str,
) {
    let verdict = decide(&snapshot, at(NOW));
    assert_eq!((verdict.row, &*told(&verdict)), (row, expected));
    assert_eq!(
        verdict.row == row::HOLD_LOST
            || verdict.row == row::REPORTED
            || verdict.row == row::RECREATED,
        verdict.notice.is_some()
    );
}

#[test]
fn r5_a_reservation_says_that_its_hold_is_kept() {
    let waiting = see(
        reserved_before(deleted_at(0, record(Some(Phase::Waiting)))),
        None,
    );
    let Some(Effect::Reserve { step, .. }) = decide(&waiting, at(NOW)).effect else {
        panic!("not reserved");
    };
    assert!(step.next.is_true(ConditionType::HoldKept));
}

/// Drained, what is in its record alone is finished, and nothing is begun.
#[rstest]
#[case::a_record(see(None, refused("u-1")), Leads::Begins)]
#[case::an_intent(see(record(Some(Phase::Rejected)), refused("u-1")), Leads::Begins)]
#[case::its_deletion(see(record(Some(Phase::Deleting)), refused("u-1")), Leads::Begins)]
#[case::a_reservation(
    see(deleted_at(0, record(Some(Phase::Waiting))), None),
    Leads::Finishes
)]
#[case::a_create(see(creating(1), None), Leads::Finishes)]
#[case::what_is_in_the_way(see(creating(2), marked(1, pod("u-2"))), Leads::Finishes)]
#[case::an_adoption(see(creating(1), marked(1, pod("u-2"))), Leads::Nowhere)]
fn r5_what_is_done_while_drained(#[case] snapshot: Snapshot, #[case] leads: Leads) {
    let verdict = decide(&snapshot, at(NOW));
    assert_eq!(verdict.leads(), leads);
    for (holding, allowed) in [
        (Holding::Allowed, true),
        (Holding::Draining, leads != Leads::Begins),
        (Holding::Leaving, leads == Leads::Nowhere),
        (Holding::Unknown, leads == Leads::Nowhere),
    ] {
        assert_eq!(verdict.is_allowed(holding), allowed, "{holding:?}");
    }
}
