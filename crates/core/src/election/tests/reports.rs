//! What an election logs, publishes and says about itself.

use metrics::set_default_local_recorder;
use rstest::rstest;
use tokio::time::sleep;

use super::super::*;
use super::seconds;
use super::server::{Mood, Server};
use crate::logged::Log;
use crate::recorded::Recorded;

/// Keeps what an elector logs for users.
fn log() -> Log {
    Log::kept_from(tracing::Level::INFO)
}

/// What was logged since the log was this long.
fn since(log: &Log, before: usize) -> String {
    log.text()[before..].to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_standby_logs_each_leader_once() {
    let log = log();
    let server = Server::new();
    server.taken_by("one");
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(10)).await;
    server.taken_by("two");
    sleep(seconds(10)).await;
    let standing_by = log.lines("standing by for the lease");
    assert_eq!(standing_by.len(), 1, "{}", log.text());
    assert!(standing_by[0].contains("lease=ops/leader identity=\"standby\""));
    for holder in ["one", "two"] {
        let lines = log.lines(&format!("lease=ops/leader holder=\"{holder}\""));
        assert_eq!(lines.len(), 1, "{}", log.text());
        assert!(lines[0].contains("another replica is the leader"));
    }
    standby.leadership.begun().await;
    assert_eq!(log.lines("INFO").len(), 4, "{}", log.text());
    let why = "why=\"the previous leader did not renew the lease in time\"";
    assert_eq!(log.lines(" leading ").len(), 1, "{}", log.text());
    assert!(log.lines(" leading ")[0].contains(why), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_continues_says_so_and_one_that_resigns_too() {
    let log = log();
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    let before = log.text().len();
    sleep(seconds(60)).await;
    assert_eq!(since(&log, before), "", "it logs renewals");
    server.mood(Mood::Down);
    leader.leadership.ended().await;
    server.mood(Mood::Well);
    leader.leadership.begun().await;
    let text = since(&log, before);
    let again = "leading again: no other replica has led in the meantime";
    assert_eq!(text.matches(again).count(), 1, "{text}");
    assert_eq!(text.matches(" leading ").count(), 1, "{text}");
    assert_eq!(leader.resigns().await, Ended::Resigned);
    assert_eq!(log.lines("released the lease").len(), 1, "{}", log.text());
}

/// A failure that repeats is logged once, with its cause.
#[rstest]
#[case::forbidden(
    Mood::Forbids,
    "could not read the lease",
    "needs the RBAC permissions get, watch, create and patch"
)]
#[case::read_only(
    Mood::ReadOnly,
    "could not write the lease",
    "needs the RBAC permissions"
)]
#[case::down(Mood::Down, "could not read the lease", "ServiceUnavailable")]
#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_once(#[case] mood: Mood, #[case] failed: &str, #[case] help: &str) {
    let log = log();
    let server = Server::new();
    server.mood(mood);
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(100)).await;
    let lines = log.lines(failed);
    assert_eq!(lines.len(), 1, "{}", log.text());
    assert!(lines[0].contains(help), "{}", lines[0]);
    assert!(lines[0].contains("state=\"standby\""), "{}", lines[0]);
    let is_forbidden = mood != Mood::Down;
    assert_eq!(lines[0].contains("RBAC"), is_forbidden, "{}", lines[0]);
    // Once it has led, the same failure is news.
    server.mood(Mood::Well);
    standby.leadership.begun().await;
    server.mood(mood);
    sleep(seconds(100)).await;
    let after: Vec<_> = log.lines("could not ").into_iter().skip(1).collect();
    let after: Vec<_> = after
        .iter()
        .filter(|line| !line.contains("stopped"))
        .collect();
    assert!(!after.is_empty() && after.len() <= 2, "{after:?}");
}

/// Near its deadline a leader waits less and less for a response.
#[tokio::test(start_paused = true)]
async fn a_leader_without_responses_logs_that_once() {
    let log = log();
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    server.mood(Mood::Silent);
    sleep(seconds(100)).await;
    let lines = log.lines("no complete response within");
    assert_eq!(lines.len(), 1, "{}", log.text());
    assert!(lines[0].contains("within 5s "), "{}", lines[0]);
    let stopped = "stopped writing: the lease could not be renewed for 10s";
    assert_eq!(log.lines(stopped).len(), 1, "{}", log.text());
    // It stops again after it has led again.
    server.mood(Mood::Well);
    leader.leadership.begun().await;
    server.mood(Mood::Silent);
    leader.leadership.ended().await;
    sleep(seconds(1)).await;
    assert_eq!(log.lines(stopped).len(), 2, "{}", log.text());
}

/// The library has no command line: another program has other flags, or none.
#[rstest]
#[case::no_permission(Mood::Forbids, "a single replica can run without election")]
#[case::no_namespace(Mood::Homeless, "create the namespace, or configure another one")]
#[tokio::test(start_paused = true)]
async fn the_advice_names_no_flags(#[case] mood: Mood, #[case] advice: &str) {
    let log = log();
    let server = Server::new();
    server.mood(mood);
    let elector = server.elector("one", Timing::default());
    sleep(seconds(100)).await;
    drop(elector);
    assert_eq!(log.lines(advice).len(), 1, "{}", log.text());
    assert!(!log.text().contains("--"), "{}", log.text());
}

/// The namespace is deleted while the replica leads.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_namespace_says_what_to_check() {
    let log = log();
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    server.deletes();
    server.mood(Mood::Homeless);
    sleep(seconds(5)).await;
    let lines = log.lines("could not write the lease");
    assert_eq!(lines.len(), 1, "{}", log.text());
    assert!(lines[0].contains("check that the namespace exists, or configure another one"));
    assert!(!lines[0].contains("--"), "{}", lines[0]);
    assert!(leader.leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn work_without_a_lease_is_logged_once() {
    let log = log();
    let server = Server::new();
    server.mood(Mood::Homeless);
    let alone = server.elector("alone", Timing::default());
    sleep(seconds(100)).await;
    assert!(alone.leadership.may_write());
    assert_eq!(log.lines("WARN").len(), 1, "{}", log.text());
    assert_eq!(log.lines("working without leader election").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_metric_says_whether_this_replica_may_write() {
    let recorded = Recorded::default();
    let _guard = set_default_local_recorder(&recorded);
    let leads = || {
        recorded
            .gauge("leader_election_master_status{name=leader}")
            .to_string()
    };
    let server = Server::new();
    server.taken_by("other");
    let leader = server.elector("leader", Timing::default());
    sleep(seconds(1)).await;
    assert_eq!(leads(), "0");
    leader.leadership.begun().await;
    sleep(seconds(1)).await;
    assert_eq!(leads(), "1");
    server.mood(Mood::Down);
    sleep(seconds(5)).await;
    assert!(leader.leadership.may_write());
    assert_eq!(leads(), "1");
    server.mood(Mood::Silent);
    leader.leadership.ended().await;
    sleep(seconds(30)).await;
    assert_eq!(leads(), "0");
    server.mood(Mood::Well);
    leader.leadership.begun().await;
    sleep(seconds(1)).await;
    assert_eq!(leads(), "1");
    assert_eq!(leader.resigns().await, Ended::Resigned);
    assert_eq!(leads(), "0");
    server.mood(Mood::Homeless);
    let alone = server.elector("alone", Timing::default());
    sleep(seconds(1)).await;
    assert_eq!(leads(), "1");
    server.taken_by("other");
    server.mood(Mood::Well);
    assert!(matches!(alone.ended.await, Ok(Ended::Lost { .. })));
    assert_eq!(leads(), "0");
}

#[tokio::test(start_paused = true)]
async fn an_elector_prints_its_settings_and_state() {
    let server = Server::new();
    let (elector, _) = server.candidate("one", Timing::default());
    let text = format!("{elector:?}");
    assert!(
        text.contains("Settings") && text.contains("Candidate"),
        "{text}"
    );
}
