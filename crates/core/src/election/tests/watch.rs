//! The standby's watch of the Lease, on paused time.

use std::time::Duration;

use rstest::rstest;
use tokio::time::{Instant, sleep};

use super::super::*;
use super::seconds;
use super::server::{Mood, Running, Server, Watches};

/// A settled election of a leader and a standby.
async fn settled(server: &Server) -> (Running, Running) {
    let leader = server.elector("leader", Timing::default());
    leader.leadership.begun().await;
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(60)).await;
    (leader, standby)
}

/// The one of both that leads, and the other.
fn by_leadership(one: Running, other: Running) -> (Running, Running) {
    if one.leadership.may_write() {
        (one, other)
    } else {
        (other, one)
    }
}

/// How long the standby takes to lead.
async fn until_led(standby: &Running) -> Duration {
    let begun = Instant::now();
    standby.leadership.begun().await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_a_lease_that_is_given_back_at_once() {
    let server = Server::new();
    // Whenever in its period the leader ends.
    for tenths in 0..25 {
        let (leader, standby) = settled(&server).await;
        sleep(Duration::from_millis(tenths * 100)).await;
        assert_eq!(leader.resigns().await, Ended::Resigned);
        assert_eq!(until_led(&standby).await, Duration::ZERO);
        assert_eq!(standby.resigns().await, Ended::Resigned);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_by_the_leader() {
    let server = Server::new();
    for tenths in 0..25 {
        let (leader, standby) = settled(&server).await;
        sleep(Duration::from_millis(tenths * 100)).await;
        server.deletes();
        for _ in 0..300 {
            assert!(leader.leadership.may_write() && !standby.leadership.may_write());
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(standby.resigns().await, Ended::Resigned);
        assert_eq!(leader.resigns().await, Ended::Resigned);
    }
}

/// As a Lease that is not renewed: the leader may write until its deadline.
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_of_a_leader_that_is_killed_is_created_one_lease_duration_later() {
    let server = Server::new();
    let (leader, standby) = settled(&server).await;
    server.next_write().await;
    leader.ended.abort();
    server.deletes();
    let took = until_led(&standby).await;
    let expected = Duration::from_millis(14_999)..=Duration::from_millis(15_500);
    assert!(expected.contains(&took), "{took:?}");
}

/// Whenever in the pause of the standby the leader renewed for the last time.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_killed_is_replaced_one_lease_duration_after_its_last_renewal() {
    for tenths in 0..50 {
        let server = Server::new();
        let leader = server.elector("leader", Timing::default());
        leader.leadership.begun().await;
        sleep(Duration::from_millis(tenths * 100)).await;
        let standby = server.elector("standby", Timing::default());
        sleep(seconds(60)).await;
        server.next_write().await;
        leader.ended.abort();
        let took = until_led(&standby).await;
        // Then, or after the shortest pause. The test notices a write up to 1 ms late.
        let expected = Duration::from_millis(14_999)..=Duration::from_millis(15_500);
        assert!(expected.contains(&took), "{tenths}: {took:?}");
    }
}

#[rstest]
#[case::without_the_permission(Watches::Forbidden)]
#[case::without_a_response(Watches::Unanswered)]
#[case::cut(Watches::Cut)]
#[case::without_events(Watches::Silent)]
#[case::with_an_error(Watches::Expired)]
#[case::with_garbage(Watches::Garbage)]
#[tokio::test(start_paused = true)]
async fn a_standby_whose_watch_fails_takes_the_lease_by_its_next_read(#[case] watches: Watches) {
    let server = Server::new();
    server.watches(watches);
    let (leader, standby) = settled(&server).await;
    let before = server.0.lock().watch_requests;
    sleep(seconds(300)).await;
    // One per lease duration.
    let opened = server.0.lock().watch_requests - before;
    assert!((10..=20).contains(&opened), "{opened} watches in 300 s");
    assert!(leader.leadership.may_write() && !standby.leadership.may_write());
    assert_eq!(leader.resigns().await, Ended::Resigned);
    let took = until_led(&standby).await;
    // At most the longest pause.
    assert!(took <= Duration::from_millis(4_400), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_became_silent_is_replaced() {
    let server = Server::new();
    let (leader, standby) = settled(&server).await;
    let before = server.0.lock().watch_requests;
    server.silence_open_watches();
    sleep(seconds(30)).await;
    assert_eq!(server.0.lock().watch_requests - before, 1);
    assert_eq!(leader.resigns().await, Ended::Resigned);
    assert_eq!(until_led(&standby).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn each_standby_has_one_watch_and_a_leader_has_none() {
    let server = Server::new();
    let (leader, second) = settled(&server).await;
    let third = server.elector("third", Timing::default());
    sleep(seconds(600)).await;
    assert_eq!(server.open_watches(), 2);
    let (before, holders) = {
        let world = server.0.lock();
        (world.requests, world.holders.len())
    };
    assert_eq!(leader.resigns().await, Ended::Resigned);
    sleep(seconds(1)).await;
    assert!(second.leadership.may_write() != third.leadership.may_write());
    assert_eq!(server.open_watches(), 1);
    let world = server.0.lock();
    // The leader gave it back, and one of both acquired it.
    assert_eq!(world.holders.len() - holders, 2);
    // A read and a write of both, and the read of the one that was too late.
    assert!(world.requests - before <= 6, "{}", world.requests - before);
}

/// Also by the one that was too late a moment ago.
#[tokio::test(start_paused = true)]
async fn one_hand_over_after_the_other_is_noticed_at_once() {
    let server = Server::new();
    let (leader, second) = settled(&server).await;
    let third = server.elector("third", Timing::default());
    sleep(seconds(60)).await;
    assert_eq!(leader.resigns().await, Ended::Resigned);
    sleep(seconds(2)).await;
    let (winner, other) = by_leadership(second, third);
    assert_eq!(winner.resigns().await, Ended::Resigned);
    assert_eq!(until_led(&other).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_was_just_woken_reads_after_the_longest_pause_at_the_latest() {
    let server = Server::new();
    let (leader, second) = settled(&server).await;
    let third = server.elector("third", Timing::default());
    sleep(seconds(60)).await;
    assert_eq!(leader.resigns().await, Ended::Resigned);
    sleep(Duration::from_millis(100)).await;
    let (winner, other) = by_leadership(second, third);
    server.watches(Watches::Forbidden);
    server.silence_open_watches();
    assert_eq!(winner.resigns().await, Ended::Resigned);
    let took = until_led(&other).await;
    assert!(took <= Duration::from_millis(4_400), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_acquired_does_not_cause_a_loop() {
    let server = Server::new();
    server.taken_by("x");
    let standby = server.elector("standby", Timing::default());
    sleep(seconds(5)).await;
    server.mood(Mood::ReadOnly);
    // Someone else writes it, again and again.
    let before = server.0.lock().requests;
    for _ in 0..1_000 {
        server.taken_by("");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(!standby.leadership.may_write());
    let sent = server.0.lock().requests - before;
    // A round every two seconds, with a read and a write.
    assert!((60..=200).contains(&sent), "{sent} requests in 100 s");
}
