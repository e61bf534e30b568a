//! The workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rstest::rstest;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::workqueue::{Backoff, Outcome, Priority, Workers};
use Priority::Normal;

/// Workers whose outcomes come from a script, and a channel with each key and the time at which it
/// was worked on.
fn scripted(
    queue: &WorkQueue<&'static str>,
    script: &[(&'static str, Vec<Outcome>)],
) -> (
    Workers<&'static str>,
    mpsc::UnboundedReceiver<(&'static str, Instant)>,
) {
    let (sender, worked) = mpsc::unbounded_channel();
    let script: BTreeMap<_, _> = script.iter().cloned().collect();
    let script = Arc::new(Mutex::new(script));
    let workers = Workers::spawn(2, queue.clone(), move |key| {
        sender
            .send((key, Instant::now()))
            .expect("the test listens");
        let script = Arc::clone(&script);
        async move { script.lock().get_mut(key).expect("in the script").remove(0) }
    });
    (workers, worked)
}

#[tokio::test(start_paused = true)]
async fn outcomes_reach_the_queue() {
    let queue = queue();
    let script = vec![
        Outcome::Retry(Backoff::ERROR.at_least(S(3))),
        Outcome::Again { after: S(5) },
        Outcome::Done,
    ];
    let (workers, mut worked) = scripted(&queue, &[("a", script)]);
    let start = Instant::now();
    queue.add("a", Normal);
    let mut at = Vec::new();
    for _ in 0..3 {
        at.push(worked.recv().await.expect("a runs").1 - start);
    }
    assert_eq!(at, [S(0), S(3), S(8)]);
    workers.drain().await;
    assert_eq!(queue.snapshot().known, 0, "`Done` resets failures");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_counted_and_its_key_retried_with_backoff() {
    let queue = queue();
    let tries = Arc::new(AtomicUsize::new(0));
    let (sender, mut worked) = mpsc::unbounded_channel();
    let workers = Workers::spawn(1, queue.clone(), {
        let tries = Arc::clone(&tries);
        move |key| {
            // One panic before the future exists, one inside it.
            let tried = if key == "bad" {
                tries.fetch_add(1, Ordering::SeqCst)
            } else {
                2
            };
            assert_ne!(tried, 0, "on purpose, {key}");
            let sender = sender.clone();
            async move {
                assert_ne!(tried, 1, "on purpose, {key}");
                sender.send(key).expect("the test listens");
                Outcome::Done
            }
        }
    });
    queue.add("bad", Normal);
    queue.add("good", Normal);
    assert_eq!(
        worked.recv().await,
        Some("good"),
        "the only worker survives"
    );
    let bad = timeout(S(1), worked.recv())
        .await
        .expect("retried within its backoff");
    assert_eq!((bad, workers.panics()), (Some("bad"), 2));
    workers.shutdown().await;
    assert_eq!(queue.snapshot().retries, 2);
}

#[tokio::test(start_paused = true)]
async fn workers_run_in_parallel_but_never_on_the_same_key() {
    let queue = queue();
    let running = Arc::new(Mutex::new(Vec::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let workers = Workers::spawn(3, queue.clone(), {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move |key| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                {
                    let mut running = running.lock();
                    assert!(!running.contains(&key), "{key} runs twice");
                    running.push(key);
                    most.fetch_max(running.len(), Ordering::SeqCst);
                }
                sleep(S(1)).await;
                running.lock().retain(|other| *other != key);
                Outcome::Done
            }
        }
    });
    for _ in 0..20 {
        for key in ["a", "b", "c", "d"] {
            queue.add(key, Normal);
        }
        sleep(MS(300)).await;
    }
    assert_eq!(workers.panics(), 0);
    workers.drain().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_running_work_and_starts_none() {
    let queue = queue();
    let finished = Arc::new(Mutex::new(Vec::new()));
    let workers = Workers::spawn(1, queue.clone(), {
        let finished = Arc::clone(&finished);
        move |key| {
            let finished = Arc::clone(&finished);
            async move {
                sleep(S(10)).await;
                finished.lock().push(key);
                Outcome::Done
            }
        }
    });
    queue.add("runs", Normal);
    queue.add("waits", Normal);
    sleep(S(1)).await;
    timeout(S(10), workers.shutdown())
        .await
        .expect("as long as the work takes");
    assert_eq!(*finished.lock(), ["runs"]);
}

#[tokio::test(start_paused = true)]
async fn drain_processes_the_ready_keys() {
    let queue = queue();
    let (workers, mut worked) = scripted(
        &queue,
        &[
            ("a", vec![Outcome::Done]),
            ("b", vec![Outcome::Again { after: S(0) }]),
        ],
    );
    queue.add("a", Normal);
    queue.add("b", Normal);
    timeout(S(1), workers.drain()).await.expect("in time");
    let mut keys = Vec::new();
    while let Some((key, _)) = worked.recv().await {
        keys.push(key);
    }
    assert_eq!(keys, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_workers_leaves_no_key_stuck() {
    let queue = queue();
    let workers = Workers::spawn(1, queue.clone(), |_| std::future::pending());
    queue.add("a", Normal);
    sleep(S(1)).await;
    assert_eq!(queue.snapshot().processing, 1);
    drop(workers);
    sleep(S(1)).await;
    assert_eq!(queue.snapshot().processing, 0);
}

/// Every key is requeued at once, many times as many as there are workers: no worker blocks.
#[tokio::test(start_paused = true)]
async fn keys_that_are_requeued_at_once_do_not_block_and_end_with_a_drain() {
    let queue: WorkQueue<u32> = silent(Ageing::default());
    let runs = Arc::new(AtomicUsize::new(0));
    let workers = Workers::spawn(4, queue.clone(), {
        let runs = Arc::clone(&runs);
        move |_| {
            runs.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Outcome::Again { after: S(0) })
        }
    });
    queue.add_all(0..5000, Normal);
    while runs.load(Ordering::SeqCst) < 15_000 {
        tokio::task::yield_now().await;
    }
    timeout(S(10), workers.drain()).await.expect("in time");
    assert_eq!(queue.snapshot().known, 0);
    // Neither a worker nor the metrics ticker is left.
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&queue.shared), 1);
}

#[rstest]
#[case::a_literal(Box::new("of a literal"), "of a literal")]
#[case::a_text(Box::new("formatted".to_owned()), "formatted")]
#[case::another_value(Box::new(7), "no message")]
fn the_message_of_a_panic(#[case] panic: Box<dyn std::any::Any + Send>, #[case] expected: &str) {
    assert_eq!(crate::workqueue::panic_message(&*panic), expected);
}
