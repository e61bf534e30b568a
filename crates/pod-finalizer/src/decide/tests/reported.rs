//! Tests of what a decision reports, and when it is repeated.

use belayer_core::events::Severity;

use super::*;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

#[test]
fn a6_an_undecided_deletion_reports_the_reason() {
    let decision = decide(&pod().held().deleting("11:59:59").0, now());
    let says = decision.missing_messages().join("; ");
    assert!(says.contains("may still succeed"), "{says}");
}

/// A12: an outcome that is not final delays no release, so a pod of Argo waits for its consumer all the same.
#[test]
fn a12_the_consumer_is_named_although_the_outcome_is_not_final() {
    let case = || {
        pod()
            .held()
            .ended()
            .deleting("11:59:59")
            .captured()
            .not_final("11:59:50")
    };
    let says = |case: Case| decide(&case.0, now()).missing_messages().join("; ");
    let of_argo = says(case());
    assert!(
        of_argo.starts_with("the consumer has to read the result"),
        "{of_argo}"
    );
    assert!(of_argo.contains("main runs"), "{of_argo}");
    // This consumer waits for the record itself.
    let by_record = says(case().read_as_record());
    assert_eq!(by_record, "main runs");
}

#[rstest]
#[case::once(1, 30)]
#[case::again(2, 60)]
#[case::for_long(40, 600)]
fn a_rejected_record_is_retried_with_backoff(#[case] times: u32, #[case] seconds: i64) {
    let looked_at = |waited: i64| {
        let case = pod().held().ended().captured().refused_before(times);
        let at = now() + jiff::SignedDuration::from_secs(waited);
        outcome(&decide(&case.0, at))
    };
    assert_eq!(looked_at(seconds - 1), Expect::Keep(row::KEEP));
    assert_eq!(looked_at(seconds), Expect::Record(row::CAPTURE));
}

#[test]
fn a_rejected_record_is_always_reported() {
    for case in [
        pod().held().ended().captured().refused("11:59:00"),
        pod()
            .held()
            .ended()
            .captured()
            .refused("11:59:00")
            .consumed(),
    ] {
        let notices = decide(&case.0, now()).notices;
        assert_eq!(notices[0].reason, "OutcomeNotRecorded");
        assert!(notices[0].message.contains("no quota"));
    }
}

#[test]
fn an_unchanged_workflow_is_not_read_again() {
    let decision = decide(
        &pod().held().deleting("11:59:59").node(&["node-2"]).0,
        now(),
    );
    let asks = |missing: &Missing<_>| matches!(missing, Missing::Answer { .. });
    assert!(!decision.missing.iter().any(asks), "{:?}", decision.missing);
    assert_eq!(
        decision.requeue_after,
        Some(REPORT_AFTER - Duration::from_secs(1))
    );
}

#[test]
fn release_after_is_off_by_default_and_warns() {
    let waiting = pod().held().ended().deleting("11:00:00");
    assert_eq!(outcome(&decide(&waiting.0, now())), Expect::Keep(row::KEEP));
    let limited = pod()
        .held()
        .ended()
        .deleting("11:00:00")
        .release_after(Duration::from_secs(1800));
    let decision = decide(&limited.0, now());
    assert_eq!(
        outcome(&decision),
        Expect::Release(row::KEEP, "ReleaseAfter")
    );
    assert_eq!(decision.notices[0].severity, Severity::Warning);
    let early = pod()
        .held()
        .ended()
        .deleting("11:00:00")
        .release_after(Duration::from_secs(3900));
    let decision = decide(&early.0, now());
    assert_eq!(outcome(&decision), Expect::Keep(row::KEEP));
    assert_eq!(decision.due, Some(Duration::from_secs(300)));
}

/// The pod was deleted an hour ago; its profile has `releaseAfter: 30m` (L9).
#[rstest]
#[case::a_day_ahead(DAY + HOUR, 0, 60, Some(29 * 60))]
#[case::a_day_ahead_at_the_end(DAY + HOUR, 0, 30 * 60, None)]
#[case::a_day_behind(-DAY, 0, 60, Some(29 * 60))]
#[case::a_day_behind_at_the_end(-DAY, 0, 30 * 60, None)]
#[case::ahead_at_the_start(DAY, DAY, 60, Some(9 * 60))]
#[case::behind_after_a_restart(HOUR - DAY, HOUR, 60, Some(29 * 60))]
#[case::a_restart(HOUR, HOUR, 10 * 60, None)]
#[case::no_jump(20 * 60, 0, 20 * 60, Some(10 * 60))]
fn l9_a_jump_releases_nothing(
    #[case] by_the_clock: i64,
    #[case] before: i64,
    #[case] waited: u64,
    #[case] left: Option<u64>,
) {
    let now = now();
    let deleted = now - jiff::SignedDuration::from_secs(by_the_clock);
    let secs = |secs: i64| Duration::from_secs(secs.unsigned_abs());
    let mut waiting = pod()
        .held()
        .ended()
        .deleting("11:00:00")
        .watched(secs(before), Duration::from_secs(waited))
        .release_after(Duration::from_mins(30));
    waiting.0.pod.as_mut().unwrap().deleting = Some(deleted);
    let decision = decide(&waiting.0, now);
    match left {
        None => assert_eq!(
            outcome(&decision),
            Expect::Release(row::KEEP, "ReleaseAfter")
        ),
        Some(left) => {
            assert_eq!(outcome(&decision), Expect::Keep(row::KEEP));
            assert_eq!(decision.due, Some(Duration::from_secs(left)));
            let by_the_clock = elapsed(deleted, now);
            let until = until_limit(
                waiting.0.pod.as_ref().unwrap(),
                Duration::from_mins(30),
                by_the_clock,
            );
            assert_eq!(until, Duration::from_secs(left));
        }
    }
}

#[test]
fn a_waiting_deletion_is_reported_after_its_grace_period() {
    let fresh = decide(&pod().held().ended().deleting("11:59:58").0, now());
    assert!(fresh.notices.is_empty());
    assert_eq!(
        fresh.requeue_after,
        Some(REPORT_AFTER - Duration::from_secs(2))
    );
    let old = decide(&pod().held().ended().deleting("11:59:00").0, now());
    assert_eq!(old.notices[0].reason, "DeletionWaits");
    assert!(
        old.notices[0].message.contains("read the result"),
        "{}",
        old.notices[0].message
    );
}

#[test]
fn t3_a_status_that_is_too_large_is_reported() {
    let case = pod().held().deleting("11:59:59").status_too_large();
    let decision = decide(&case.0, now());
    let [notice] = &*decision.notices else {
        panic!("{:?}", decision.notices);
    };
    assert_eq!(notice.reason, "WorkflowStatusTooLarge");
    assert!(notice.message.contains("300 MiB"), "{}", notice.message);
}

#[test]
fn a2_a_node_that_is_ready_is_reported_and_read_again_soon() {
    let case = pod()
        .held()
        .deleting("11:59:00")
        .forced()
        .node_is(NodeState::Ready);
    let decision = decide(&case.0, now());
    let again = decision.missing.iter().find_map(|missing| match missing {
        Missing::Answer { after, .. } => Some(*after),
        Missing::Event(_) => None,
    });
    assert_eq!(again, Some(Duration::from_secs(5)));
    let [event] = &*decision.notices else {
        panic!("{:?}", decision.notices);
    };
    assert!(event.message.contains("its node is ready"), "{event:?}");
    assert!(!event.message.contains("to be found out"), "{event:?}");
}

/// After a restart it is unknown whether the pod ended before its deletion.
#[test]
fn a6_a_pod_whose_order_was_not_watched_is_undecided() {
    let ended = || pod().held().ended().deleting("11:59:00");
    let says = |case: Case| decide(&case.0, now()).missing_messages().join("; ");
    let released = says(ended());
    assert!(released.contains("undecided"), "{released}");
    assert!(!released.contains("had failed before"), "{released}");
    assert!(!released.contains("deletedWhileRunning"), "{released}");
    let held = says(ended().held_though_deleted());
    assert!(held.contains("undecided"), "{held}");
    assert!(held.contains("deletedWhileRunning: hold"), "{held}");
}

#[test]
fn adopted_finalizers_are_removed_only_with_a_release() {
    let decision = decide(&pod().held().adopted().consumed().0, now());
    assert_eq!(*decision.adopted, ["theirs.io/status".into()]);
    let decision = decide(&pod().held().consumed().0, now());
    assert!(decision.adopted.is_empty());
}

#[test]
fn a6_without_a_result_other_finalizers_stay() {
    let cases = [
        pod().held().agent().adopted(),
        pod()
            .held()
            .adopted()
            .ended()
            .deleting("11:59:59")
            .by_its_deletion(),
        pod()
            .held()
            .adopted()
            .deleting("11:59:59")
            .by_pod_gc()
            .node_is(NodeState::Gone),
        pod().held().adopted().deleting("11:59:59").of_earlier_run(),
    ];
    for case in cases {
        let decision = decide(&case.0, now());
        assert!(
            matches!(decision.write, Some(Write::Release(_))),
            "{decision:?}"
        );
        assert!(decision.adopted.is_empty(), "{decision:?}");
    }
}

#[test]
fn an_inconclusive_read_is_repeated_later() {
    let decision = decide(&pod().held().owner_unknown().owner_not_served().0, now());
    let asked = decision.missing.iter().find_map(|missing| match missing {
        Missing::Answer { after, .. } => Some(*after),
        Missing::Event(_) => None,
    });
    assert_eq!(asked, Some(RECHECK));
}

#[test]
fn existing_evidence_does_not_wait_for_missing_evidence() {
    let decision = decide(
        &pod()
            .held()
            .namespace_deleting()
            .owner_absent()
            .owner_gone()
            .0,
        now(),
    );
    assert_eq!(
        outcome(&decision),
        Expect::Release(row::OWNER_GONE, "OwnerGone")
    );
}

/// Without a cache of the owner's kind nothing else shows that it is gone later.
#[test]
fn a16_an_owner_that_argo_keeps_running_is_read_again() {
    let case = pod().held().owner_unknown();
    let Case(snapshot) = case.owner_deleting_live_but_kept_running();
    let decision = decide(&snapshot, now());
    assert_eq!(decision.write, None);
    let again = decision.missing.iter().any(|missing| {
        matches!(missing, Missing::Answer { query: PodQuery::Owner(_), after } if *after == RECHECK)
    });
    assert!(again, "{:?}", decision.missing);
}

/// Why a pod whose node may be lost is still held.
#[rstest]
#[case::no_permission(NodeState::Unknown("403".into()), "could not check whether its node is lost: 403")]
#[case::silent(NodeState::NotReady, "its node is not ready; that proves")]
fn a2_a_node_that_is_not_known_to_be_lost_is_reported(
    #[case] state: NodeState,
    #[case] expected: &str,
) {
    let case = pod().held().deleting("11:59:00").by_pod_gc().node_is(state);
    let says = decide(&case.0, now()).missing_messages().join("; ");
    assert!(says.contains(expected), "{says}");
}

/// What the consumer of an ended pod has not shown yet.
#[rstest]
#[case::its_node(pod().node(&[]), Some("does not show its node node-1 as fulfilled"))]
#[case::no_node(pod(), Some("it names no node of its workflow"))]
#[case::no_status(pod().without_owner_status(), None)]
#[case::no_owner(pod().ownerless(), None)]
fn the_missing_result_is_explained(#[case] case: Case, #[case] expected: Option<&str>) {
    let view = case.held().ended().0.pod.unwrap();
    let Selection::By { profile, .. } = &view.selection else {
        panic!("the case is selected");
    };
    let says = status::message(&view, profile);
    match (says, expected) {
        (Some(says), Some(expected)) => assert!(says.contains(expected), "{says}"),
        (says, expected) => assert_eq!(says.as_deref(), expected),
    }
}

/// Rule 14: what would have released a pod that was not held and is gone.
#[rstest]
#[case::before_its_end(pod().deleting("11:59:59"), Some("EndedByDeletion"))]
#[case::by_its_deletion(pod().ended().deleting("11:59:59").by_its_deletion(), Some("EndedByDeletion"))]
#[case::held_in_any_case(pod().deleting("11:59:59").held_though_deleted(), None)]
#[case::by_itself(pod().ended().deleting("11:59:59"), None)]
#[case::of_another_owner(pod().deleting("11:59:59").not_of_argo(), None)]
fn what_would_have_released_a_pod_that_is_gone(#[case] case: Case, #[case] expected: Option<&str>) {
    assert_eq!(unread::unread(&case.0.pod.unwrap()), expected);
}

#[test]
fn a_lost_node_would_have_released_a_pod_that_is_gone() {
    let mut view = pod().deleting("11:59:59").by_pod_gc().0.pod.unwrap();
    view.ended = true;
    assert_eq!(unread::unread(&view), Some("NodeLost"));
}
