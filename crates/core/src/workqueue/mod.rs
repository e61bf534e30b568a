//! A work queue: hands out keys by priority, each key to one worker at a time.
//!
//! It is independent of Kubernetes: a key is anything that can be cloned, compared and hashed. The
//! semantics are those of client-go's queue, the order is that of controller-runtime's priority
//! queue, with a few additions.
//!
//! ```
//! use std::time::Duration;
//! use belayer_core::workqueue::{Backoff, Priority, WorkQueue};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::new("pods");
//! queue.add("default/resynced", Priority::Resync);
//! queue.add("default/deleted", Priority::Release);
//! queue.add("default/resynced", Priority::Resync); // merges
//! queue.add_after("default/later", Priority::Normal, Duration::from_secs(10));
//!
//! // The higher priority is served first. The work fails: the key is added again with backoff.
//! let item = queue.next().await.unwrap();
//! assert_eq!(*item.key(), "default/deleted");
//! item.retry(Backoff::CONFLICT);
//!
//! let item = queue.next().await.unwrap();
//! assert_eq!(*item.key(), "default/resynced");
//! item.succeeded();
//!
//! let item = queue.next().await.unwrap();
//! assert_eq!((*item.key(), item.failures()), ("default/deleted", 1));
//! item.succeeded();
//!
//! let item = queue.next().await.unwrap();
//! assert_eq!(*item.key(), "default/later");
//! item.succeeded();
//!
//! queue.shutdown_with_drain().await;
//! assert!(queue.next().await.is_none());
//! # }
//! ```
//!
//! # Rules
//!
//! - **One at a time.** A key is never handed out twice at once. A key added while it is processed
//!   runs once more afterwards, however often it was added.
//! - **Merging.** A key waits at most once. Adding it again keeps the higher priority and the earlier
//!   time: a delayed key that is added without delay is ready now, a ready key is not delayed by a
//!   delayed add. A key whose priority rises goes to the end of its new priority.
//! - **Order.** Higher [`Priority`]s first, FIFO within a priority, exactly, whatever the number of
//!   consumers. A delayed key joins its priority when its delay ends, and a key that is to run again
//!   when its work ends. [`Ageing`] gives overdue keys of lower priorities a share of the turns.
//! - **Delays.** [`add_after`](WorkQueue::add_after); the earliest wins. Adding is never rate
//!   limited: only failures wait.
//! - **Backoff.** [`Item::retry`] and [`WorkQueue::retry`] count failures per key and draw the
//!   delay from a [`Backoff`] curve that each call may choose. Only success resets failures:
//!   [`Item::succeeded`], [`Item::again`], or [`WorkQueue::forget`] for a key whose object was deleted.
//!   The failures of a key that failed and was neither retried to success nor forgotten are kept.
//! - **Wake-ups.** One waiter per key, the longest waiting first; one waiter sets the timer for all.
//! - **Shutdown.** [`shutdown`](WorkQueue::shutdown) hands out no more keys;
//!   [`shutdown_with_drain`](WorkQueue::shutdown_with_drain) first hands out the ready ones. Both let
//!   work in progress finish, and neither accepts new keys.
//! - **Metrics** under client-go's names; see [`WorkQueue::refresh_metrics`].
//!
//! Every operation costs O(1), except for delays, which cost O(log n). One lock protects the state,
//! and neither an add nor the end of work waits for it: an add while no waiter sleeps, and the end
//! of work while the lock is taken, go into an inbox that the next worker applies when it takes a
//! key. Keys are hashed before the lock is taken; wakers are called, keys dropped and durations
//! reported after it is released. [`Workers`] is the loop that most users need around it.

mod backoff;
mod clock;
mod delays;
mod durations;
mod inbox;
mod item;
mod list;
mod metrics;
mod next;
mod priority;
mod state;
mod sync;
mod table;
mod wait;
mod workers;

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::SharedString;
pub use backoff::Backoff;
pub use item::Item;
pub use metrics::{Metering, QueueSnapshot};
pub use priority::{Ageing, Priority};
pub use workers::panic_message;
pub use workers::{Outcome, Workers};

use clock::Clock;
use inbox::Inbox;
use metrics::Meters;
use state::operation::Operation;
use state::{Phase, When};
use table::Hasher;

/// How many keys [`WorkQueue::add_all`] adds under one lock.
const BATCH: usize = 128;

/// A type that can be a key. Cloning should be cheap (`Arc<str>` rather than `String`): it happens
/// once per key handed out. The keys in the [module's example](self) are `&str`.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}

/// The options of a queue. An argument of
/// [`WorkQueue::with_options`](crate::workqueue::WorkQueue::with_options); the [module's
/// example](self) uses the defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// When a key of a lower priority gets a turn.
    pub ageing: Ageing,
    /// Whether metrics are reported.
    pub metering: Metering,
}

/// The queue. Clones share it. See the [module](self) for its rules.
///
/// [`next`](Self::next) requires a tokio runtime with time enabled.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: SharedString,
    metering: Metering,
    hasher: Hasher,
    clock: Clock,
    inbox: Inbox<K>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .field("now", &self.snapshot())
            .finish_non_exhaustive()
    }
}

impl<K: Key> WorkQueue<K> {
    /// A queue with default [`Options`]. `name` is the `name` label of its metrics.
    pub fn new(name: impl Into<SharedString>) -> Self {
        Self::with_options(name, Options::default())
    }

    /// A queue with these options.
    pub fn with_options(name: impl Into<SharedString>, options: Options) -> Self {
        let name = name.into();
        let meters = Meters::new(&name, options.metering);
        let shared = Shared {
            name,
            metering: options.metering,
            hasher: Hasher::default(),
            clock: Clock::start(),
            inbox: Inbox::new(options.ageing, meters),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The current content of the queue.
    #[must_use]
    pub fn snapshot(&self) -> QueueSnapshot {
        let now = self.shared.clock.now();
        self.shared.inbox.read(|state| state.snapshot(now))
    }

    /// Publishes gauges and counters: depth, adds, retries, unfinished work, longest running. Call
    /// it periodically (client-go: every 500 ms) or before every scrape; [`Workers`] do. The gauges
    /// of unfinished work come from the clock, so they rise while work hangs. Durations are
    /// reported in batches as they end, and the rest here.
    pub fn refresh_metrics(&self) {
        let inbox = &self.shared.inbox;
        inbox.report_durations();
        inbox.meters.publish(|| self.snapshot());
    }

    /// Stops the queue: from now on adds are ignored and [`next`](Self::next) hands out nothing.
    /// Waiting keys are dropped (they are level-triggered: the next process adds them again). Items
    /// handed out before are not affected; [`drained`](Self::drained) waits for them.
    pub fn shutdown(&self) {
        self.close(Phase::ShutDown);
    }

    /// Stops like [`shutdown`](Self::shutdown), but ready keys, and keys being processed that are
    /// to run again at once, are still handed out. Delayed keys are dropped. Completes when nothing
    /// is left and nothing is being processed, so consumers must continue until
    /// [`next`](Self::next) returns `None`. A [`shutdown`](Self::shutdown) in the meantime ends the
    /// drain.
    pub async fn shutdown_with_drain(&self) {
        self.close(Phase::Draining);
        self.drained().await;
    }

    /// Waits until the queue is shut down and no key is being processed.
    pub async fn drained(&self) {
        loop {
            let mut idle = pin!(self.shared.inbox.idle.notified());
            idle.as_mut().enable();
            let inbox = &self.shared.inbox;
            if inbox.read(|state| state.phase == Phase::ShutDown && state.idle()) {
                return;
            }
            idle.await;
        }
    }

    /// Whether adds are ignored, because of a shutdown with or without drain.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shared.inbox.read(|state| state.phase != Phase::Open)
    }

    fn close(&self, phase: Phase) {
        self.shared.inbox.with(|state| ((), state.close(phase)));
    }

    /// Adds a key to be worked on as soon as possible. Merges with a waiting one.
    pub fn add(&self, key: K, priority: Priority) {
        self.insert(key, priority, None);
    }

    /// Adds a key to be worked on after `delay`. Merges with a waiting one: the earliest time wins.
    pub fn add_after(&self, key: K, priority: Priority, delay: Duration) {
        self.insert(key, priority, Some(delay).filter(|delay| !delay.is_zero()));
    }

    /// Adds many keys, in their order, with few locks: for the initial list.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, priority: Priority) {
        let shared = &*self.shared;
        let mut keys = keys.into_iter().map(|key| (shared.hasher.hash(&key), key));
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            // The caller's iterator runs outside the lock.
            batch.extend(keys.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            let now = shared.clock.now();
            shared.inbox.with(|state| {
                let add = |(hash, key)| state.add(hash, key, priority, When::Now, now);
                ((), batch.drain(..).filter_map(add).collect())
            });
        }
    }

    fn insert(&self, key: K, priority: Priority, delay: Option<Duration>) {
        let shared = &*self.shared;
        let now = shared.clock.now();
        shared.inbox.submit(Operation::Add {
            hash: shared.hasher.hash(&key),
            key,
            priority,
            when: delay.map_or(When::Now, |delay| When::At(now.after(delay))),
            now,
        });
    }

    /// Counts a failure of `key` and adds it after a delay drawn from `backoff`. Returns the delay.
    /// For a key that is being worked on, [`Item::retry`] does the same. Does nothing once the
    /// queue is shutting down.
    pub fn retry(&self, key: K, priority: Priority, backoff: Backoff) -> Duration {
        let shared = &*self.shared;
        let hash = shared.hasher.hash(&key);
        let draw = crate::rng::unit();
        let now = shared.clock.now();
        shared.inbox.with(|state| {
            let (delay, known) = state.retry(hash, key, priority, (backoff, draw), now);
            (delay, known.into_iter().collect())
        })
    }

    /// Resets the failures of a key, because its object was deleted or it succeeded elsewhere. A
    /// waiting key stays in the queue.
    pub fn forget(&self, key: &K) {
        let hash = self.shared.hasher.hash(key);
        let inbox = &self.shared.inbox;
        inbox.with(|state| ((), state.forget(hash, key)));
    }

    /// Takes a key out of the queue, whether it is ready or delayed, and resets its failures. A key that is being
    /// processed is only [forgotten](Self::forget), and runs again if it was added meanwhile.
    pub fn remove(&self, key: &K) {
        let hash = self.shared.hasher.hash(key);
        let inbox = &self.shared.inbox;
        inbox.with(|state| ((), state.remove(hash, key)));
    }

    /// Consecutive failures of a key since it last succeeded or was forgotten.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        let hash = self.shared.hasher.hash(key);
        self.shared.inbox.read(|state| state.failures(hash, key))
    }

    /// Waits for the next key to work on. `None` once the queue is shut down.
    ///
    /// Cancel-safe: a dropped future loses no key; if it had been woken for a key, the next waiter
    /// is woken instead.
    pub async fn next(&self) -> Option<Item<'_, K>> {
        // A loop over a full queue would otherwise never yield to its runtime.
        tokio::task::coop::consume_budget().await;
        next::Next::new(&self.shared).await
    }

    /// The next key, if one is ready now.
    #[must_use]
    pub fn try_next(&self) -> Option<Item<'_, K>> {
        let now = self.shared.clock.now();
        let taken = self
            .shared
            .inbox
            .with(|state| (state.take(now), Vec::new()));
        taken.map(|taken| Item::new(&self.shared, taken))
    }
}
