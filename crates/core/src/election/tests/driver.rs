//! The driver against a server that has one Lease, on paused time.

use tokio::time::{Instant, sleep, timeout};

use super::super::*;
use super::seconds;
use super::server::{Mood, Server, Watches};

#[tokio::test(start_paused = true)]
async fn the_first_leads_at_once_and_the_second_is_standby() {
    let server = Server::new();
    let first = server.elector("first", Timing::default());
    first.leadership.begun().await;
    let second = server.elector("second", Timing::default());
    sleep(seconds(300)).await;
    assert!(first.leadership.may_write() && !second.leadership.may_write());
    assert!(
        server
            .0
            .lock()
            .holders
            .iter()
            .all(|holder| holder == "first")
    );
    assert!(!first.health.is_wedged() && !second.health.is_wedged());
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_is_taken_by_the_next_read_without_a_watch() {
    let server = Server::new();
    server.watches(Watches::Forbidden);
    let first = server.elector("first", Timing::default());
    first.leadership.begun().await;
    let second = server.elector("second", Timing::default());
    sleep(seconds(60)).await;
    let leadership = first.leadership.clone();
    let begun = Instant::now();
    assert_eq!(first.resigns().await, Ended::Resigned);
    assert!(!leadership.may_write());
    assert_eq!(server.holder(), "");
    second.leadership.begun().await;
    assert!(begun.elapsed() <= seconds(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn log_lines_of_the_election_are_plain_text() {
    let log = crate::logged::Log::kept();
    let server = Server::new();
    let first = server.elector("first", Timing::default());
    first.leadership.begun().await;
    assert_eq!(first.resigns().await, Ended::Resigned);
    let second = server.elector("second", Timing::default());
    second.leadership.begun().await;
    server.mood(Mood::Down);
    second.leadership.ended().await;
    let lines = log.text();
    for says in [
        "why=\"there was no lease\"",
        "why=\"the previous leader released the lease\"",
        "state=\"leading\"",
    ] {
        assert!(lines.contains(says), "{says}: {lines}");
    }
    assert!(
        !lines.contains("Some(") && !lines.contains("Leading {"),
        "{lines}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_after_the_lease_duration() {
    let server = Server::new();
    let first = server.elector("first", Timing::default());
    first.leadership.begun().await;
    let second = server.elector("second", Timing::default());
    sleep(seconds(60)).await;
    first.ended.abort();
    let begun = Instant::now();
    second.leadership.begun().await;
    let took = begun.elapsed();
    // Between the expiry counted from the last renewal and the latest time at which a standby can
    // see it.
    assert!((seconds(13)..=seconds(20)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_a_leader_stops_writing_and_continues_later() {
    for trouble in [Mood::Down, Mood::Silent] {
        let server = Server::new();
        let leader = server.elector("leader", Timing::default());
        leader.leadership.begun().await;
        sleep(seconds(30)).await;
        server.mood(trouble);
        let begun = Instant::now();
        leader.leadership.ended().await;
        assert!(begun.elapsed() <= seconds(10), "{:?}", begun.elapsed());
        sleep(seconds(600)).await;
        assert!(!leader.ended.is_finished());
        server.mood(Mood::Well);
        timeout(seconds(8), leader.leadership.begun())
            .await
            .unwrap();
        // No other replica has held it.
        assert_eq!(server.holder(), "leader");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_in_doubt_that_finds_another_leader_ends() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    server.mood(Mood::Down);
    leader.leadership.ended().await;
    server.taken_by("other");
    server.mood(Mood::Well);
    let ended = timeout(seconds(10), leader.ended).await.unwrap().unwrap();
    assert_eq!(
        ended,
        Ended::Lost {
            holder: "other".into()
        }
    );
    assert!(!leader.leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_replaced_while_it_may_write_stops_at_its_next_renewal() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    sleep(seconds(5)).await;
    server.taken_by("other");
    let stopped = timeout(seconds(2), leader.leadership.ended()).await;
    assert!(stopped.is_ok(), "it continues to write");
    let ended = timeout(seconds(1), leader.ended).await.unwrap().unwrap();
    assert!(matches!(ended, Ended::Lost { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_does_not_permit_to_write() {
    let server = Server::new();
    server.mood(Mood::Mute);
    let leader = server.elector("leader", Timing::default());
    sleep(seconds(60)).await;
    // The server has created the Lease, and the response was lost.
    assert_eq!(server.holder(), "leader");
    assert!(!leader.leadership.may_write());
    server.mood(Mood::Well);
    timeout(seconds(12), leader.leadership.begun())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_when_it_resigns_does_not_keep_the_lease() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    server.mood(Mood::Mute);
    // A renewal is applied, and its response is lost.
    sleep(seconds(3)).await;
    server.mood(Mood::Well);
    assert_eq!(leader.resigns().await, Ended::Resigned);
    assert_eq!(server.holder(), "");
}

/// The write that acquires the lease is applied, and the process is stopped before it has the answer.
#[tokio::test(start_paused = true)]
async fn an_acquisition_under_way_when_it_resigns_does_not_keep_the_lease() {
    let server = Server::new();
    server.mood(Mood::Mute);
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(1)).await;
    assert_eq!(server.holder(), "standby");
    assert!(!standby.leadership.may_write());
    server.mood(Mood::Well);
    assert_eq!(standby.resigns().await, Ended::Resigned);
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn without_rbac_permission_no_replica_leads_and_none_ends() {
    let server = Server::new();
    server.mood(Mood::Forbids);
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(100)).await;
    assert!(!standby.leadership.may_write() && !standby.ended.is_finished());
    let asked = server.0.lock().requests;
    assert!((20..=50).contains(&asked), "{asked} requests in 100 s");
    server.mood(Mood::Well);
    timeout(seconds(5), standby.leadership.begun())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_namespace_it_works_without_a_lease_until_the_namespace_exists() {
    let server = Server::new();
    server.mood(Mood::Homeless);
    let alone = server.elector("alone", Timing::default());
    timeout(seconds(1), alone.leadership.begun()).await.unwrap();
    for _ in 0..100 {
        sleep(seconds(1)).await;
        assert!(alone.leadership.may_write());
    }
    server.mood(Mood::Well);
    sleep(seconds(10)).await;
    assert_eq!(server.holder(), "alone");
    assert!(alone.leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_a_lease_ends_when_another_replica_holds_it() {
    let server = Server::new();
    server.mood(Mood::Homeless);
    let alone = server.elector("alone", Timing::default());
    timeout(seconds(1), alone.leadership.begun()).await.unwrap();
    sleep(seconds(30)).await;
    // The namespace is created, and another replica is faster.
    server.taken_by("other");
    server.mood(Mood::Well);
    let ended = timeout(seconds(3), alone.ended).await.unwrap().unwrap();
    let holder = "other".to_owned();
    assert_eq!(ended, Ended::Lost { holder });
    assert!(!alone.leadership.may_write());
    assert_eq!(server.0.lock().holders, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_a_lease_stops_in_doubt_and_continues() {
    let server = Server::new();
    server.mood(Mood::Homeless);
    let alone = server.elector("alone", Timing::default());
    timeout(seconds(1), alone.leadership.begun()).await.unwrap();
    server.mood(Mood::Silent);
    let begun = Instant::now();
    alone.leadership.ended().await;
    assert!(begun.elapsed() <= seconds(10), "{:?}", begun.elapsed());
    sleep(seconds(600)).await;
    server.mood(Mood::Homeless);
    timeout(seconds(8), alone.leadership.begun()).await.unwrap();
    assert_eq!(alone.resigns().await, Ended::Resigned);
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_replaced_does_not_give_back_the_lease_of_another() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    server.taken_by("other");
    assert!(matches!(
        leader.resigns().await,
        Ended::Resigned | Ended::Lost { .. }
    ));
    assert_eq!(server.holder(), "other");
}

#[tokio::test(start_paused = true)]
async fn an_elector_whose_server_does_not_respond_is_not_wedged() {
    for trouble in [Mood::Silent, Mood::Down, Mood::Forbids] {
        let server = Server::new();
        server.mood(trouble);
        let standby = server.elector("standby", Timing::default());
        for _ in 0..60 {
            sleep(seconds(60)).await;
            assert!(!standby.health.is_wedged(), "a restart would not help");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_elector_that_finishes_no_round_is_wedged() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    sleep(seconds(100)).await;
    // Its task is no longer polled, as when something it calls never returns.
    leader.ended.abort();
    sleep(seconds(70)).await;
    assert!(!leader.health.is_wedged());
    sleep(seconds(10)).await;
    assert!(leader.health.is_wedged());
}

#[tokio::test(start_paused = true)]
async fn a_settled_election_costs_one_request_per_period_and_replica() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    let before = server.0.lock().requests;
    sleep(seconds(100)).await;
    let asked = server.0.lock().requests - before;
    assert!((48..=51).contains(&asked), "{asked} requests in 100 s");
}

/// The Lease gets a label: its version changes, and its record does not.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_conflicts_with_another_change_is_repeated_at_once() {
    let server = Server::new();
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    sleep(seconds(5)).await;
    server.touched();
    let before = server.0.lock().requests;
    sleep(seconds(2)).await;
    // The renewal, a read, the renewal.
    assert_eq!(server.0.lock().requests - before, 3);
    sleep(seconds(60)).await;
    assert!(leader.leadership.may_write());
    assert!(!leader.ended.is_finished());
}

/// The elector is asked to resign while it waits for a response: to its renewal, or to a read after
/// a failed renewal.
#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_while_it_waits_for_an_answer_gives_the_lease_back() {
    for failed_before in [None, Some(Mood::Down)] {
        let server = Server::new();
        let leader = server.elector("leader", Timing::default());
        leader.leadership.begun().await;
        sleep(seconds(1)).await;
        if let Some(trouble) = failed_before {
            server.mood(trouble);
            sleep(seconds(2)).await;
        }
        server.mood(Mood::Silent);
        let before = server.0.lock().requests;
        sleep(seconds(2)).await;
        assert_eq!(server.0.lock().requests - before, 1, "it does not wait");
        server.mood(Mood::Well);
        let begun = Instant::now();
        assert_eq!(leader.resigns().await, Ended::Resigned);
        assert_eq!(
            (server.holder().as_str(), begun.elapsed()),
            ("", seconds(0))
        );
    }
}

/// An empty holder means that the lease was released: any replica would take it at once.
#[tokio::test(start_paused = true)]
async fn an_elector_without_an_identity_gets_one() {
    let server = Server::new();
    let nameless = server.elector("", Timing::default());
    nameless.leadership.begun().await;
    assert!(
        server.holder().starts_with("unknown-host_"),
        "{}",
        server.holder()
    );
    let second = server.elector("", Timing::default());
    sleep(seconds(100)).await;
    assert!(nameless.leadership.may_write() && !second.leadership.may_write());
}
