//! Shutdown and drain.

use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::workqueue::{Backoff, Priority};
use Priority::{Normal, Release};

#[tokio::test(start_paused = true)]
async fn after_shutdown_nothing_is_accepted_or_handed_out() {
    let queue = queue();
    queue.add("waiting", Normal);
    queue.add_after("delayed", Normal, MS(10));
    assert!(!queue.is_shutting_down());
    queue.shutdown();
    queue.add("late", Release);
    queue.add_all(["later"], Release);
    queue.add_after("latest", Release, MS(1));
    assert_eq!(queue.retry("failed", Release, Backoff::ERROR), S(0));
    assert!(queue.next().await.is_none());
    assert!(nothing_ready(&queue));
    assert!(queue.is_shutting_down());
    let left = queue.snapshot();
    assert_eq!((left.known, left.ready(), left.delayed), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_while_it_is_processed_is_not_counted_after_shutdown() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Normal);
    assert_eq!(queue.snapshot().ready(), 1);
    queue.shutdown();
    assert_eq!(queue.snapshot().ready(), 0);
    item.done();
    assert!(nothing_ready(&queue));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_waiter() {
    let queue = queue();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    yield_now().await;
    queue.shutdown();
    for waiter in waiters {
        assert!(
            timeout(S(1), waiter)
                .await
                .expect("in time")
                .expect("no panic")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_affect_work_in_progress_and_drained_waits_for_it() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("b", Normal);
    let item = take(&queue);
    queue.add("a", Normal);
    queue.shutdown();
    assert!(timeout(S(1), queue.drained()).await.is_err());
    item.again(S(1));
    timeout(S(1), queue.drained())
        .await
        .expect("nothing is processed any more");
    assert!(queue.next().await.is_none(), "the rerun is cancelled");
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_queue_is_not_drained() {
    assert!(timeout(S(1), queue().drained()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_an_empty_queue_ends_at_once() {
    let queue = queue();
    queue.add_after("delayed", Normal, S(3600));
    timeout(S(1), queue.shutdown_with_drain())
        .await
        .expect("delayed keys are dropped");
    assert!(queue.next().await.is_none());
    timeout(S(1), queue.drained())
        .await
        .expect("it stays drained");
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_out_ready_keys_and_reruns_and_waits_for_all() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("b", Normal);
    queue.add_after("delayed", Normal, MS(1));
    let item = take(&queue);
    queue.add("a", Normal);
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown_with_drain().await }
    });
    yield_now().await;
    queue.add("late", Release);

    let b = queue.next().await.expect("b was ready");
    assert_eq!(*b.key(), "b");
    item.done();
    let rerun = queue.next().await.expect("a was to run again");
    assert_eq!(*rerun.key(), "a");
    b.retry(Backoff::ERROR);
    yield_now().await;
    assert!(!drain.is_finished(), "the rerun is being processed");

    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.is_none() }
    });
    yield_now().await;
    assert!(!waiter.is_finished(), "the rerun may have to run again");
    rerun.done();
    timeout(S(1), drain)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(
        timeout(S(1), waiter)
            .await
            .expect("in time")
            .expect("no panic")
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_drain_but_not_the_work_in_progress() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("b", Normal);
    let item = take(&queue);
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown_with_drain().await }
    });
    yield_now().await;
    queue.shutdown();
    assert!(queue.next().await.is_none());
    yield_now().await;
    assert!(!drain.is_finished());
    drop(item);
    timeout(S(1), drain)
        .await
        .expect("in time")
        .expect("no panic");
}
