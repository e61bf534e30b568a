//! Random interleavings against a simple model: lists that are searched.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use proptest::prelude::*;
use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::workqueue::{Backoff, Priority};

const AGEING: Ageing = Ageing {
    normal: Duration::from_millis(20),
    resync: Duration::from_millis(40),
    one_in: 3,
};

#[derive(Debug, Clone)]
enum Op {
    Add(u8, Priority),
    AddAfter(u8, Priority, u64),
    AddAll(Vec<u8>, Priority),
    RetryKey(u8, Priority),
    Forget(u8),
    Remove(u8),
    TryNext,
    /// Waits up to this long.
    Next(u64),
    /// The n-th of the held items, modulo their number.
    Done(usize),
    Succeeded(usize),
    Again(usize, u64),
    Retry(usize),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..8_u8;
    let priority = || prop::sample::select(&Priority::ALL[..]);
    let item = || 0..8_usize;
    prop_oneof![
        4 => (key(), priority()).prop_map(|(key, priority)| Op::Add(key, priority)),
        2 => (key(), priority(), 0..50_u64).prop_map(|(key, priority, ms)| Op::AddAfter(key, priority, ms)),
        1 => (prop::collection::vec(key(), 0..6), priority()).prop_map(|(keys, priority)| Op::AddAll(keys, priority)),
        1 => (key(), priority()).prop_map(|(key, priority)| Op::RetryKey(key, priority)),
        1 => key().prop_map(Op::Forget),
        1 => key().prop_map(Op::Remove),
        4 => Just(Op::TryNext),
        2 => (0..60_u64).prop_map(Op::Next),
        1 => item().prop_map(Op::Done),
        2 => item().prop_map(Op::Succeeded),
        1 => (item(), 0..50_u64).prop_map(|(item, ms)| Op::Again(item, ms)),
        2 => item().prop_map(Op::Retry),
        2 => (0..30_u64).prop_map(Op::Advance),
    ]
}

/// A waiting key: since when it is ready, or when it will be.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Waiting {
    key: u8,
    priority: Priority,
    at: Instant,
}

#[derive(Default)]
struct Model {
    /// In the order in which they became ready.
    ready: Vec<Waiting>,
    /// In the order in which they were added.
    delayed: Vec<Waiting>,
    processing: BTreeSet<u8>,
    /// Adds while the key was processed: ready ones and delayed ones.
    rerun_ready: BTreeMap<u8, Waiting>,
    rerun_delayed: BTreeMap<u8, Waiting>,
    failures: BTreeMap<u8, u32>,
    turns_since_overdue: u32,
    last_overdue: Option<Priority>,
    adds: u64,
    retries: u64,
}

impl Model {
    fn release_due(&mut self) {
        let now = Instant::now();
        let mut due: Vec<_> = self
            .delayed
            .extract_if(.., |waiting| waiting.at <= now)
            .collect();
        due.sort_by_key(|waiting| waiting.at);
        self.adds += due.len() as u64;
        self.ready.extend(due);
    }

    fn add(&mut self, key: u8, priority: Priority, at: Option<Instant>) {
        let now = Instant::now();
        self.release_due();
        let at = at.filter(|at| *at > now);
        if self.processing.contains(&key) {
            if let Some(rerun) = self.rerun_ready.get_mut(&key) {
                rerun.priority = rerun.priority.min(priority);
                return;
            }
            let delayed = self.rerun_delayed.remove(&key);
            let priority = delayed.map_or(priority, |delayed| delayed.priority.min(priority));
            match at {
                None => {
                    self.adds += 1;
                    self.rerun_ready.insert(
                        key,
                        Waiting {
                            key,
                            priority,
                            at: now,
                        },
                    );
                }
                Some(at) => {
                    let at = delayed.map_or(at, |delayed| delayed.at.min(at));
                    self.rerun_delayed
                        .insert(key, Waiting { key, priority, at });
                }
            }
            return;
        }
        if let Some(index) = self.ready.iter().position(|waiting| waiting.key == key) {
            if priority < self.ready[index].priority {
                let moved = self.ready.remove(index);
                self.ready.push(Waiting { priority, ..moved });
            }
            return;
        }
        let mut priority = priority;
        if let Some(index) = self.delayed.iter().position(|waiting| waiting.key == key) {
            priority = priority.min(self.delayed[index].priority);
            self.delayed[index].priority = priority;
            if at.is_some_and(|at| at >= self.delayed[index].at) {
                return;
            }
            self.delayed.remove(index);
        }
        self.wait(Waiting {
            key,
            priority,
            at: at.unwrap_or(now),
        });
    }

    fn wait(&mut self, waiting: Waiting) {
        if waiting.at > Instant::now() {
            self.delayed.push(waiting);
        } else {
            self.adds += 1;
            self.ready.push(waiting);
        }
    }

    fn take(&mut self) -> Option<Waiting> {
        let now = Instant::now();
        self.release_due();
        let head = |priority| {
            self.ready
                .iter()
                .find(|waiting| waiting.priority == priority)
                .copied()
        };
        let best = Priority::ALL.into_iter().find_map(head)?;
        let overdue: Vec<_> = Priority::ALL
            .into_iter()
            .filter(|priority| *priority > best.priority)
            .filter_map(head)
            .filter(|waiting| {
                let normal = waiting.priority == Priority::Normal;
                now - waiting.at > if normal { AGEING.normal } else { AGEING.resync }
            })
            .collect();
        let other = overdue
            .iter()
            .find(|waiting| Some(waiting.priority) != self.last_overdue);
        let overdue = other.or(overdue.first()).copied();
        let turn_is_due = self.turns_since_overdue + 1 >= AGEING.one_in;
        let chosen = match overdue {
            Some(overdue) if turn_is_due => {
                self.turns_since_overdue = 0;
                self.last_overdue = Some(overdue.priority);
                overdue
            }
            _ => {
                self.turns_since_overdue += 1;
                best
            }
        };
        self.ready.retain(|waiting| waiting.key != chosen.key);
        self.processing.insert(chosen.key);
        Some(chosen)
    }

    fn finish(&mut self, key: u8) {
        self.release_due();
        assert!(self.processing.remove(&key));
        if let Some(rerun) = self.rerun_ready.remove(&key) {
            self.ready.push(rerun);
        }
        if let Some(rerun) = self.rerun_delayed.remove(&key) {
            self.wait(rerun);
        }
    }

    fn fail(&mut self, key: u8) {
        self.retries += 1;
        *self.failures.entry(key).or_default() += 1;
    }

    fn known(&self) -> usize {
        let mut keys: BTreeSet<u8> = self.processing.clone();
        keys.extend(self.failures.keys());
        keys.extend(
            self.ready
                .iter()
                .chain(&self.delayed)
                .map(|waiting| waiting.key),
        );
        keys.len()
    }

    fn agrees_with(&self, queue: &WorkQueue<u8>) -> Result<(), TestCaseError> {
        let queue_now = queue.snapshot();
        let depth = Priority::ALL.map(|priority| {
            self.ready
                .iter()
                .chain(self.rerun_ready.values())
                .filter(|w| w.priority == priority)
                .count()
        });
        prop_assert_eq!(queue_now.depth, depth);
        prop_assert_eq!(queue_now.delayed, self.delayed.len());
        prop_assert_eq!(queue_now.processing, self.processing.len());
        prop_assert_eq!(queue_now.known, self.known());
        prop_assert_eq!(
            (queue_now.adds, queue_now.retries),
            (self.adds, self.retries)
        );
        for key in 0..8 {
            let failures = self.failures.get(&key).copied().unwrap_or(0);
            prop_assert_eq!(queue.failures(&key), failures);
        }
        Ok(())
    }
}

const CURVE: Backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(30));

async fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let queue = silent(AGEING);
    let mut model = Model::default();
    let mut held: Vec<Item<'_, u8>> = Vec::new();
    for op in ops {
        match op {
            Op::Add(key, priority) => {
                queue.add(key, priority);
                model.add(key, priority, None);
            }
            Op::AddAfter(key, priority, ms) => {
                queue.add_after(key, priority, MS(ms));
                model.add(key, priority, Some(Instant::now() + MS(ms)));
            }
            Op::AddAll(keys, priority) => {
                queue.add_all(keys.clone(), priority);
                keys.into_iter()
                    .for_each(|key| model.add(key, priority, None));
            }
            Op::RetryKey(key, priority) => {
                let delay = queue.retry(key, priority, CURVE);
                prop_assert!(delay <= CURVE.cap());
                model.fail(key);
                model.add(key, priority, Some(Instant::now() + delay));
            }
            Op::Forget(key) => {
                queue.forget(&key);
                model.failures.remove(&key);
            }
            Op::Remove(key) => {
                queue.remove(&key);
                model.failures.remove(&key);
                model.ready.retain(|waiting| waiting.key != key);
                model.delayed.retain(|waiting| waiting.key != key);
            }
            Op::TryNext => {
                let item = queue.try_next();
                let expected = model.take();
                check(item, expected, &model, &mut held)?;
            }
            Op::Next(ms) => {
                let start = Instant::now();
                let item = timeout(MS(ms), queue.next()).await;
                let waited = start.elapsed();
                let expected = model.take();
                if let Some(expected) = &expected {
                    let needed = expected.at.saturating_duration_since(start);
                    // tokio's timers are precise to the millisecond.
                    prop_assert!(waited <= needed + MS(1), "{waited:?} for {needed:?}");
                }
                check(item.ok().flatten(), expected, &model, &mut held)?;
            }
            Op::Done(_) | Op::Succeeded(_) | Op::Again(..) | Op::Retry(_) if held.is_empty() => {}
            Op::Done(nth) => {
                let item = held.remove(nth % held.len());
                model.finish(*item.key());
                item.done();
            }
            Op::Succeeded(nth) => {
                let item = held.remove(nth % held.len());
                model.failures.remove(item.key());
                model.finish(*item.key());
                item.succeeded();
            }
            Op::Again(nth, ms) => {
                let item = held.remove(nth % held.len());
                let key = *item.key();
                model.failures.remove(&key);
                model.add(key, item.priority(), Some(Instant::now() + MS(ms)));
                model.finish(key);
                item.again(MS(ms));
            }
            Op::Retry(nth) => {
                let item = held.remove(nth % held.len());
                let (key, priority) = (*item.key(), item.priority());
                let delay = item.retry(CURVE);
                prop_assert!(delay <= CURVE.cap());
                model.fail(key);
                model.add(key, priority, Some(Instant::now() + delay));
                model.finish(key);
            }
            Op::Advance(ms) => advance(MS(ms)).await,
        }
        model.agrees_with(&queue)?;
    }
    Ok(())
}

fn check<'q>(
    item: Option<Item<'q, u8>>,
    expected: Option<Waiting>,
    model: &Model,
    held: &mut Vec<Item<'q, u8>>,
) -> Result<(), TestCaseError> {
    let seen = item
        .as_ref()
        .map(|item| (*item.key(), item.priority(), item.waited(), item.failures()));
    let expected = expected.map(|expected| {
        let failures = model.failures.get(&expected.key).copied().unwrap_or(0);
        (
            expected.key,
            expected.priority,
            expected.at.elapsed(),
            failures,
        )
    });
    prop_assert_eq!(seen, expected);
    held.extend(item);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_behaves_like_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(run(ops))?;
    }
}
