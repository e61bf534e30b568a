//! The state machine, one rule per case.

use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;

use super::super::machine::Local;
use super::super::*;
use super::seconds;

const WALL: Timestamp = Timestamp::UNIX_EPOCH;

fn at(seconds: u64) -> Local {
    // A local start of its own: only differences count.
    Duration::from_secs(seconds)
}

fn candidate() -> Candidate {
    Candidate::new("me", Timing::default())
}

fn version(number: u64) -> Version {
    Version {
        uid: "u".into(),
        resource_version: number.to_string(),
    }
}

fn record(holder: &str, transitions: i64) -> Record {
    Record {
        holder: holder.into(),
        lease_seconds: 15,
        acquired: Some(WALL),
        renewed: Some(WALL),
        transitions,
    }
}

fn lease(holder: &str, number: u64) -> Lease {
    Lease {
        version: version(number),
        record: record(holder, 4),
    }
}

/// A leader since a renewal sent at 100 s, at version 9.
fn leader() -> Candidate {
    let mut leader = candidate();
    leader.wrote(record("me", 4), Some(version(9)), at(100));
    leader
}

#[test]
fn a_new_candidate_reads_first() {
    assert_eq!(candidate().begin(at(0), WALL), Action::Read);
    assert_eq!(candidate().status(at(0)), LeaseStatus::Standby);
}

#[test]
fn without_a_lease_one_is_created() {
    let ask = candidate().seen(None, at(0), WALL);
    assert_eq!(ask, Action::Create(record("me", 0)));
}

#[rstest]
#[case::held("other", 64, Action::Wait(seconds(1)))]
#[case::held_until_then("other", 65, Action::Create(record("me", 0)))]
#[case::given_back("", 50, Action::Create(record("me", 0)))]
fn a_deleted_lease_counts_until_its_end(
    #[case] holder: &str,
    #[case] now: u64,
    #[case] expected: Action,
) {
    let mut standby = candidate();
    standby.seen(Some(lease(holder, 1)), at(50), WALL);
    assert_eq!(standby.seen(None, at(now), WALL), expected);
}

#[test]
fn a_lease_that_was_given_back_is_acquired_at_once() {
    let ask = candidate().seen(Some(lease("", 1)), at(0), WALL);
    assert_eq!(ask, Action::Write(record("me", 5), version(1)));
}

#[rstest]
#[case::just_seen(0, Some(15))]
#[case::a_moment_before_its_end(14, Some(1))]
#[case::at_its_end(15, None)]
#[case::long_after(900, None)]
fn the_lease_of_another_replica_counts_from_when_its_change_was_seen(
    #[case] later: u64,
    #[case] left: Option<u64>,
) {
    let mut standby = candidate();
    standby.seen(Some(lease("other", 1)), at(50), WALL);
    let ask = standby.seen(Some(lease("other", 1)), at(50 + later), WALL);
    let expected = match left {
        Some(left) => Action::Wait(seconds(left)),
        None => Action::Write(record("me", 5), version(1)),
    };
    assert_eq!(ask, expected);
}

#[rstest]
#[case::an_hour_behind("2026-01-01T11:00:00Z")]
#[case::an_hour_ahead("2026-01-01T13:00:00Z")]
#[case::the_year_1970("1970-01-01T00:00:00Z")]
fn the_times_in_the_record_are_never_compared_with_a_clock(#[case] written: &str) {
    let written: Timestamp = written.parse().unwrap();
    let here: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let mut found = lease("other", 1);
    found.record.renewed = Some(written);
    let mut standby = candidate();
    assert_eq!(
        standby.seen(Some(found.clone()), at(0), here),
        Action::Wait(seconds(15))
    );
    // The other's clock jumps back at its next renewal: the change still counts as a renewal.
    found.record.renewed = Some(written - seconds(600));
    assert_eq!(
        standby.seen(Some(found), at(14), here),
        Action::Wait(seconds(15))
    );
}

#[test]
fn a_change_outside_of_the_record_is_not_a_renewal() {
    let mut standby = candidate();
    standby.seen(Some(lease("other", 1)), at(0), WALL);
    // Labels of the Lease change again and again.
    standby.seen(Some(lease("other", 2)), at(10), WALL);
    let ask = standby.seen(Some(lease("other", 3)), at(15), WALL);
    assert_eq!(ask, Action::Write(record("me", 5), version(3)));
}

#[test]
fn the_lease_duration_of_the_record_counts() {
    let mut found = lease("other", 1);
    found.record.lease_seconds = 60;
    let mut standby = candidate();
    assert_eq!(
        standby.seen(Some(found), at(0), WALL),
        Action::Wait(seconds(60))
    );
}

#[rstest]
#[case::missing(0)]
#[case::nonsense(-5)]
fn without_a_recorded_lease_duration_ones_own_counts(#[case] said: i64) {
    let mut found = lease("other", 1);
    found.record.lease_seconds = said;
    let ask = candidate().seen(Some(found), at(0), WALL);
    assert_eq!(ask, Action::Wait(seconds(15)));
}

#[rstest]
#[case::at_once(100, LeaseStatus::Leading { until: at(110) })]
#[case::until_the_deadline(109, LeaseStatus::Leading { until: at(110) })]
#[case::not_at_the_deadline(110, LeaseStatus::InDoubt)]
#[case::before_the_lease_ends(114, LeaseStatus::InDoubt)]
fn a_leader_writes_until_its_deadline_counted_from_when_it_sent_the_renewal(
    #[case] now: u64,
    #[case] expected: LeaseStatus,
) {
    assert_eq!(leader().status(at(now)), expected);
}

#[test]
fn a_leader_renews_without_a_read_and_keeps_its_acquire_time() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let Action::Write(renewed, over) = leader().begin(at(102), now) else {
        panic!("no write");
    };
    assert_eq!(over, version(9));
    assert_eq!((renewed.acquired, renewed.renewed), (Some(WALL), Some(now)));
    assert_eq!(renewed.transitions, 4);
}

#[test]
fn after_a_failure_the_next_round_reads() {
    let mut leader = leader();
    leader.failed();
    assert_eq!(leader.begin(at(102), WALL), Action::Read);
}

#[test]
fn a_leader_in_doubt_that_finds_its_own_record_continues() {
    let mut leader = leader();
    leader.failed();
    let ask = leader.seen(Some(lease("me", 9)), at(500), WALL);
    assert_eq!(ask, Action::Write(record("me", 4), version(9)));
    leader.wrote(record("me", 4), Some(version(10)), at(500));
    assert_eq!(
        leader.status(at(501)),
        LeaseStatus::Leading { until: at(510) }
    );
}

#[test]
fn a_leader_that_finds_another_leader_has_lost() {
    for now in [105, 500] {
        let ask = leader().seen(Some(lease("other", 10)), at(now), WALL);
        assert_eq!(
            ask,
            Action::GiveUp {
                holder: "other".into()
            }
        );
    }
}

#[test]
fn a_leader_that_finds_that_another_replica_has_led_has_lost() {
    let mut found = lease("me", 12);
    found.record.transitions = 6;
    let ask = leader().seen(Some(found), at(500), WALL);
    assert!(matches!(ask, Action::GiveUp { .. }), "{ask:?}");
}

#[test]
fn a_leader_whose_lease_was_emptied_has_lost() {
    let ask = leader().seen(Some(lease("", 10)), at(105), WALL);
    assert_eq!(ask, Action::GiveUp { holder: "".into() });
}

#[test]
fn a_leader_creates_a_deleted_lease_again_unless_it_was_in_doubt() {
    assert_eq!(
        leader().seen(None, at(105), WALL),
        Action::Create(record("me", 4))
    );
    let ask = leader().seen(None, at(111), WALL);
    assert!(matches!(ask, Action::GiveUp { .. }), "{ask:?}");
}

#[test]
fn an_acquisition_whose_response_was_lost_is_found_by_the_next_read() {
    let mut standby = candidate();
    standby.seen(None, at(0), WALL);
    standby.failed();
    let ask = standby.seen(Some(lease("me", 1)), at(3), WALL);
    assert_eq!(ask, Action::Write(record("me", 4), version(1)));
}

#[test]
fn giving_back_leaves_an_empty_holder_and_one_second() {
    let (given, over) = leader().resignation(at(105), WALL).unwrap();
    assert_eq!((given.holder.as_str(), given.lease_seconds), ("", 1));
    assert_eq!((given.transitions, over), (4, version(9)));
    assert!(candidate().resignation(at(0), WALL).is_none());
}

/// A leader that could not renew in time, and a candidate that has not seen the answer to its own write.
#[rstest]
#[case::in_doubt(leader())]
#[case::unanswered({
    let mut candidate = candidate();
    candidate.seen(Some(lease("me", 9)), at(100), WALL);
    candidate
})]
fn a_lease_that_is_held_without_leading_is_given_back(#[case] holder: Candidate) {
    let now = at(110);
    assert!(!matches!(holder.status(now), LeaseStatus::Leading { .. }));
    let (given, over) = holder.resignation(now, WALL).unwrap();
    assert_eq!((given.holder.as_str(), over), ("", version(9)));
}

/// A candidate whose create, sent at 100 s, found no namespace.
fn alone() -> Candidate {
    let mut alone = candidate();
    alone.seen(None, at(99), WALL);
    alone.found_no_namespace(at(100));
    alone
}

#[test]
fn without_a_namespace_a_candidate_may_write_until_the_deadline() {
    let until = at(110);
    assert_eq!(alone().status(at(109)), LeaseStatus::Alone { until });
    assert_eq!(alone().status(at(110)), LeaseStatus::InDoubt);
    assert_eq!(alone().begin(at(102), WALL), Action::Read);
    assert_eq!(alone().pause(at(109), 1.0), seconds(1));
    assert_eq!(alone().patience(at(108)), seconds(2));
    assert!(alone().resignation(at(105), WALL).is_none());
}

#[rstest]
#[case::in_time(105)]
#[case::in_doubt(500)]
fn a_candidate_without_a_namespace_tries_to_create_the_lease_and_leads_by_it(#[case] now: u64) {
    let mut alone = alone();
    let ask = alone.seen(None, at(now), WALL);
    assert_eq!(ask, Action::Create(record("me", 0)));
    alone.wrote(record("me", 0), Some(version(1)), at(now));
    let until = at(now + 10);
    assert_eq!(alone.status(at(now)), LeaseStatus::Leading { until });
}

#[rstest]
#[case::held("other")]
#[case::held_and_given_back("")]
fn a_candidate_without_a_namespace_has_lost_when_another_holds_the_lease(
    #[case] holder: &str,
    #[values(105, 500)] now: u64,
) {
    let ask = alone().seen(Some(lease(holder, 10)), at(now), WALL);
    let holder = holder.to_owned();
    assert_eq!(ask, Action::GiveUp { holder });
}

#[test]
fn a_candidate_without_a_namespace_continues_with_a_lease_whose_response_was_lost() {
    let ask = alone().seen(Some(lease("me", 1)), at(105), WALL);
    assert_eq!(ask, Action::Write(record("me", 4), version(1)));
}

#[test]
fn the_lease_of_another_replica_is_not_given_back() {
    let mut overtaken = leader();
    overtaken.failed();
    overtaken.seen(Some(lease("other", 10)), at(105), WALL);
    assert!(overtaken.resignation(at(106), WALL).is_none());
}

#[test]
fn standbys_spread_their_reads_and_wake_up_when_a_lease_expires() {
    let mut standby = candidate();
    standby.seen(Some(lease("other", 1)), at(0), WALL);
    assert_eq!(standby.pause(at(1), 0.0), seconds(2));
    assert_eq!(standby.pause(at(1), 1.0), Duration::from_millis(4_400));
    assert_eq!(standby.pause(at(14), 1.0), seconds(1));
    assert_eq!(leader().pause(at(101), 1.0), seconds(2));
    assert_eq!(leader().pause(at(109), 1.0), seconds(1));
    assert_eq!(leader().pause(at(111), 1.0), seconds(2));
    assert_eq!(leader().patience(at(102)), seconds(5));
    assert_eq!(leader().patience(at(108)), seconds(2));
    assert_eq!(leader().patience(at(111)), seconds(5));
}
