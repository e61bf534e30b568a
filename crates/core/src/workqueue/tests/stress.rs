//! Real threads, no clock: a key is never processed twice at once, no key is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::*;
use crate::workqueue::{Backoff, Priority};

const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Object {
    /// Raised by producers before they add the key.
    version: AtomicU64,
    /// The version that the last work on it saw.
    seen: AtomicU64,
    busy: AtomicBool,
}

/// Cheap deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_is_worked_on_twice_at_once_and_no_change_is_lost() {
    const KEYS: usize = 64;
    const ADDS: u64 = 20_000;
    let objects: Arc<[Object]> = (0..KEYS).map(|_| Object::default()).collect();
    let queue: WorkQueue<usize> = silent(Ageing {
        normal: MS(1),
        resync: MS(2),
        one_in: 4,
    });
    let mut consumers = JoinSet::new();
    for seed in 0..8 {
        let (queue, objects) = (queue.clone(), Arc::clone(&objects));
        consumers.spawn(async move {
            let mut dice = Random(seed);
            while let Some(item) = queue.next().await {
                let object = &objects[*item.key()];
                assert!(!object.busy.swap(true, SeqCst), "twice at once");
                let version = object.version.load(SeqCst);
                if dice.below(8) == 0 {
                    yield_now().await;
                }
                let fails = dice.below(10) == 0;
                if !fails {
                    object.seen.store(version, SeqCst);
                }
                object.busy.store(false, SeqCst);
                match dice.below(4) {
                    _ if fails => {
                        item.retry(Backoff::new(MS(1), MS(2)));
                    }
                    0 => item.succeeded(),
                    1 => item.done(),
                    _ => drop(item),
                }
            }
        });
    }
    let mut producers = JoinSet::new();
    for seed in 100..108 {
        let (queue, objects) = (queue.clone(), Arc::clone(&objects));
        producers.spawn(async move {
            let mut dice = Random(seed);
            for _ in 0..ADDS {
                let key = dice.below(KEYS as u64) as usize;
                objects[key].version.fetch_add(1, SeqCst);
                let priority = Priority::ALL[dice.below(3) as usize];
                match dice.below(8) {
                    0 => queue.add_after(key, priority, MS(dice.below(3))),
                    1 => queue.add_all([key], priority),
                    _ => queue.add(key, priority),
                }
                if dice.below(64) == 0 {
                    yield_now().await;
                }
            }
        });
    }
    timeout(DEADLINE, producers.join_all())
        .await
        .expect("producers end");
    let caught_up = async {
        while objects
            .iter()
            .any(|object| object.seen.load(SeqCst) != object.version.load(SeqCst))
        {
            tokio::time::sleep(MS(1)).await;
        }
    };
    timeout(DEADLINE, caught_up)
        .await
        .expect("every last change is seen");
    timeout(DEADLINE, queue.shutdown_with_drain())
        .await
        .expect("the drain ends");
    timeout(DEADLINE, consumers.join_all())
        .await
        .expect("consumers end");
    assert_eq!(queue.snapshot().processing, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_distinct_key_is_handed_out_exactly_once() {
    const PER_PRODUCER: u32 = 10_000;
    let queue: WorkQueue<u32> = silent(Ageing::default());
    let mut consumers = JoinSet::new();
    for _ in 0..8 {
        let queue = queue.clone();
        consumers.spawn(async move {
            let mut keys = Vec::new();
            while let Some(item) = queue.next().await {
                keys.push(*item.key());
                item.succeeded();
            }
            keys
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..8 {
        let queue = queue.clone();
        producers.spawn(async move {
            for key in 0..PER_PRODUCER {
                queue.add(
                    producer * PER_PRODUCER + key,
                    Priority::ALL[key as usize % 3],
                );
            }
        });
    }
    timeout(DEADLINE, producers.join_all())
        .await
        .expect("producers end");
    timeout(DEADLINE, queue.shutdown_with_drain())
        .await
        .expect("the drain ends");
    let keys = timeout(DEADLINE, consumers.join_all())
        .await
        .expect("consumers end")
        .concat();
    assert_eq!(keys.len(), 8 * PER_PRODUCER as usize, "none twice");
    assert_eq!(
        keys.into_iter().collect::<BTreeSet<_>>().len(),
        8 * PER_PRODUCER as usize
    );
}

/// Waiters are dropped at random while keys arrive: a wake-up of a dropped waiter must not be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropped_waiters_lose_no_wake_up() {
    const KEYS: u32 = 20_000;
    let queue: WorkQueue<u32> = silent(Ageing::default());
    let mut consumers = JoinSet::new();
    for seed in 0..8 {
        let queue = queue.clone();
        consumers.spawn(async move {
            let mut dice = Random(seed);
            let mut taken = 0;
            loop {
                let patience = async {
                    for _ in 0..dice.below(4) {
                        yield_now().await;
                    }
                };
                // Only the first consumer waits without a limit.
                let item = tokio::select! {
                    item = queue.next() => item,
                    () = patience, if seed != 0 => continue,
                };
                match item {
                    Some(item) => {
                        taken += 1;
                        item.succeeded();
                    }
                    None => return taken,
                }
            }
        });
    }
    for key in 0..KEYS {
        queue.add_after(
            key,
            Priority::Normal,
            Duration::from_micros(u64::from(key % 3)),
        );
        if key % 16 == 0 {
            yield_now().await;
        }
    }
    let all_taken = async {
        while queue.snapshot().known > 0 {
            yield_now().await;
        }
    };
    timeout(DEADLINE, all_taken)
        .await
        .expect("no key is left behind");
    queue.shutdown();
    let taken = timeout(DEADLINE, consumers.join_all())
        .await
        .expect("consumers end");
    assert_eq!(taken.iter().sum::<u32>(), KEYS);
}

/// A task that adds and takes in a loop must see the end wherever it is when the queue closes: at
/// an add, waiting, or with a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_during_adds_and_takes_ends_all_tasks() {
    for round in 0..50 {
        let queue: WorkQueue<u64> = silent(Ageing::default());
        let mut busy = JoinSet::new();
        for seed in 0..20 {
            let queue = queue.clone();
            busy.spawn(async move {
                let mut dice = Random(seed);
                loop {
                    // Fewer keys than takers, so that some wait.
                    if seed % 2 == 0 {
                        queue.add(dice.below(1000), Priority::ALL[dice.below(3) as usize]);
                    }
                    let Some(item) = queue.next().await else {
                        return;
                    };
                    item.succeeded();
                }
            });
        }
        yield_now().await;
        if round % 2 == 0 {
            queue.shutdown();
        } else {
            timeout(DEADLINE, queue.shutdown_with_drain())
                .await
                .expect("the drain ends");
        }
        timeout(DEADLINE, busy.join_all())
            .await
            .expect("all tasks end");
        assert_eq!(queue.snapshot().known, 0);
    }
}
