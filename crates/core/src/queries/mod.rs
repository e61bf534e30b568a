//! Live reads of what caches cannot prove.
//!
//! A decision returns a [`Query`], the runner asks it here. One query is one request, however many
//! objects wait for the answer (single-read_state). Each answer carries the [`LogicalTime`] at which
//! its read began, so that a decision can require a read that began after it saw the object.
//!
//! A failed read is retried with backoff while keys wait. An error is not an answer and does not
//! wake the waiting keys. After [`Pace::keep`] they are woken once; a key that still needs the
//! answer asks again, and the reads for deleted objects end.
//!
//! The example [`live_reads`](https://github.com/belayer/belayer/blob/main/crates/core/examples/live_reads.rs) has a query, its reader, and keys that wait for it.

mod budget;
mod failure_reports;
mod query;
mod reads;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use budget::{BUDGET, Budget};
pub use query::{LiveAnswer, LiveReader, Query, ReadError, read};
pub use reads::LiveReads;

use crate::executor::on_behalf_of;
use crate::logical_time::LogicalTime;
use crate::object::ObjectKey;
use crate::workqueue::panic_message;
use budget::Evict;
use failure_reports::FailureReports;

/// The key that waits for an answer, and the time of its observation. An argument of
/// [`QueryCache::ask`](crate::queries::QueryCache::ask), as in the [example](crate::queries).
#[derive(Debug, Clone, Copy)]
pub struct Waiter<'a> {
    /// Woken when there is an answer.
    pub key: &'a ObjectKey,
    /// When the caller read its caches. A later answer is new to the caller.
    pub observed: LogicalTime,
    /// Minimum delay of the read, from now.
    pub after: Duration,
}

impl<'a> Waiter<'a> {
    /// `key`, observed just now, whose answer is needed at once.
    pub fn now(key: &'a ObjectKey) -> Self {
        Self {
            key,
            observed: LogicalTime::now(),
            after: Duration::ZERO,
        }
    }
}

/// The delays between live reads. An argument of
/// [`QueryCache::new`](crate::queries::QueryCache::new), as in the [example](crate::queries).
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Minimum time between the end of one read of a query and the next read of it.
    pub min_interval: Duration,
    /// First delay after a failed read; doubles, with full jitter.
    pub first_retry: Duration,
    /// Maximum delay after a failed read.
    pub max_retry: Duration,
    /// An answer that is unused for this time is dropped. A query that fails for this time wakes
    /// the waiting keys, and is dropped if none waits.
    pub keep: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            min_interval: Duration::from_millis(100),
            first_retry: Duration::from_millis(50),
            max_retry: Duration::from_secs(30),
            keep: Duration::from_secs(600),
        }
    }
}

/// Called with every key that waited, once its query has an answer. An argument of
/// [`QueryCache::new`](crate::queries::QueryCache::new); in the [example](crate::queries) it adds
/// the key to a queue.
pub type Enqueue = Arc<dyn Fn(ObjectKey) + Send + Sync>;

/// The latest answers to the queries of one type. Cheap to clone. The [module's
/// example](crate::queries) asks one query for three keys.
#[derive(Clone)]
pub struct QueryCache<Q: Query> {
    shared: Arc<Shared<Q>>,
}

struct Shared<Q: Query> {
    reader: Arc<dyn LiveReader<Q>>,
    enqueue: Enqueue,
    pace: Pace,
    reads: LiveReads,
    cancel: CancellationToken,
    budget: Budget,
    state: Mutex<State<Q>>,
}

struct State<Q: Query> {
    entries: HashMap<Q, Entry<Q::Answer>>,
    failure_reports: FailureReports<Q>,
    /// Whether the task that drops unused answers is running.
    sweeping: bool,
}

struct Entry<A> {
    live: Option<LiveAnswer<A>>,
    /// When the latest answer came.
    answered: LogicalTime,
    /// The answers of reads that began before this are dropped.
    outdated: LogicalTime,
    /// End of the last read.
    last_read: Option<Instant>,
    last_used: Instant,
    /// The error of the last read, for `explain`.
    error: Option<ReadError>,
    waiting: HashSet<ObjectKey>,
    /// A task is reading, or waits until it may.
    read_state: Option<ReadState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadState {
    /// Begins at this time.
    Planned(Instant),
    /// Has begun; another read follows if `again`.
    Running { again: bool },
}

/// How often unused answers are dropped within [`Pace::keep`].
const SWEEPS_PER_KEEP: u32 = 10;

/// Longer than any process runs: thirty years, as in tokio.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

impl<Q: Query> QueryCache<Q> {
    /// Creates a cache that reads by `reader`, within the `reads` of the process. `enqueue` gets the
    /// keys that waited. Live reads end when `cancel` is cancelled.
    pub fn new(
        reader: Arc<dyn LiveReader<Q>>,
        enqueue: Enqueue,
        pace: Pace,
        reads: LiveReads,
        cancel: CancellationToken,
    ) -> Self {
        Self::within(reader, enqueue, pace, reads, cancel, &Budget::default())
    }

    /// The same with a `budget` that several caches share.
    pub fn within(
        reader: Arc<dyn LiveReader<Q>>,
        enqueue: Enqueue,
        pace: Pace,
        reads: LiveReads,
        cancel: CancellationToken,
        budget: &Budget,
    ) -> Self {
        let state = State {
            entries: HashMap::new(),
            failure_reports: FailureReports::none(),
            sweeping: false,
        };
        let shared = Arc::new(Shared {
            reader,
            enqueue,
            pace,
            reads,
            cancel,
            budget: budget.clone(),
            state: Mutex::new(state),
        });
        let cache: Weak<Shared<Q>> = Arc::downgrade(&shared);
        budget.register(cache);
        Self { shared }
    }

    /// Returns the latest answer, if there is one.
    pub fn get(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>> {
        let mut state = self.shared.state.lock();
        let entry = state.entries.get_mut(query)?;
        entry.last_used = Instant::now();
        entry.live.clone()
    }

    /// Returns the error of the last read of `query`; `None` if it succeeded.
    pub fn last_error(&self, query: &Q) -> Option<ReadError> {
        self.shared.state.lock().entries.get(query)?.error.clone()
    }

    /// Drops the answer to `query` and that of a read already under way. For a change that the
    /// answer cannot contain, such as a watch event that shows that the owner was deleted.
    pub fn outdate(&self, query: &Q) {
        if let Some(entry) = self.shared.state.lock().entries.get_mut(query) {
            entry.outdated = LogicalTime::now();
            let old = entry.live.take();
            self.shared.budget.replace(weight::<Q>(old.as_ref()), 0);
        }
    }

    /// Asks `query` for `waiter`, whose key is woken when there is an answer.
    ///
    /// A read under way serves this key too: the decision checks whether it began late enough, and
    /// may ask again. If an answer has arrived since the caller's observation, the key is woken at
    /// once to use it, without another read.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, which runs the reads. Nothing has changed then.
    pub fn ask(&self, query: Q, waiter: Waiter<'_>) {
        let runtime = Handle::current();
        let now = Instant::now();
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if !std::mem::replace(&mut state.sweeping, true) {
            runtime.spawn(sweep(Arc::downgrade(&self.shared)));
        }
        let entry = state.entries.entry(query.clone()).or_insert_with(|| Entry {
            live: None,
            answered: LogicalTime::BEGINNING,
            outdated: LogicalTime::BEGINNING,
            last_read: None,
            last_used: now,
            error: None,
            waiting: HashSet::new(),
            read_state: None,
        });
        entry.last_used = now;
        if entry.live.is_some() && entry.answered > waiter.observed {
            drop(guard);
            return (self.shared.enqueue)(waiter.key.clone());
        }
        entry.waiting.insert(waiter.key.clone());
        let due = entry.plan(after(now, waiter.after), self.shared.pace.min_interval);
        drop(guard);
        if let Some(due) = due {
            let namespace = Arc::clone(waiter.key.shared_namespace());
            self.shared.spawn_read(&runtime, query, due, namespace);
        }
    }

    /// Renews the answer to `query`, if there is one, by a read that begins after this call and counts for
    /// `namespace`. For a change that concerns few of the keys that would use the answer: the reader names them
    /// ([`LiveReader::affected`]).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, as [`QueryCache::ask`].
    pub fn renew(&self, query: &Q, namespace: &Arc<str>) {
        let runtime = Handle::current();
        let mut guard = self.shared.state.lock();
        let Some(entry) = guard.entries.get_mut(query) else {
            return;
        };
        if let Some(ReadState::Running { again }) = &mut entry.read_state {
            *again = true;
        }
        if entry.live.is_none() {
            return;
        }
        let due = entry.plan(Instant::now(), self.shared.pace.min_interval);
        drop(guard);
        if let Some(due) = due {
            let namespace = Arc::clone(namespace);
            self.shared
                .spawn_read(&runtime, query.clone(), due, namespace);
        }
    }
}

impl<Q: Query> Shared<Q> {
    fn spawn_read(self: &Arc<Self>, runtime: &Handle, query: Q, due: Instant, namespace: Arc<str>) {
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            let cancel = shared.cancel.clone();
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = shared.run_read(query, due, &namespace) => {}
            }
        });
    }

    /// Waits until `due` and for a slot among the live reads, reads until there is an answer, and
    /// wakes all waiting keys. The read counts for the namespace of the first of them, also while
    /// it waits for a token.
    async fn run_read(self: &Arc<Self>, query: Q, due: Instant, namespace: &Arc<str>) {
        tokio::time::sleep_until(due).await;
        if !self.is_planned(&query, due) {
            return;
        }
        let mut slot = self.reads.slot(namespace).await;
        {
            let mut state = self.state.lock();
            let Some(entry) = state.entries.get_mut(&query) else {
                return;
            };
            if entry.read_state != Some(ReadState::Planned(due)) {
                return;
            }
            entry.read_state = Some(ReadState::Running { again: false });
        }
        let mut failures = 0;
        loop {
            let (begun, sent) = (LogicalTime::now(), Instant::now());
            // The read serves all waiting keys, so it is not a child span of any of them.
            let span = tracing::debug_span!(
                "live read",
                live_read.query = Q::NAME,
                live_read.about = %query,
                live_read.answer = tracing::field::Empty,
            );
            let read = on_behalf_of(Arc::clone(namespace), self.reader.read(&query));
            // Without this, a reader that panics would leave the query marked as being read for ever.
            let read = AssertUnwindSafe(read).catch_unwind();
            let answer = read.instrument(span.clone()).await.unwrap_or_else(|panic| {
                let message = panic_message(&*panic);
                tracing::error!(query = Q::NAME, about = %query, panic = message, "live read panicked");
                Err(ReadError::unusable(format!("the read panicked: {message}")))
            });
            let outcome = answer.as_ref().map_or("error", Q::outcome);
            span.record("live_read.answer", outcome);
            match answer {
                Ok(answer) => {
                    let answer = LiveAnswer {
                        answer,
                        begun,
                        sent,
                    };
                    if self.answered(&query, answer, namespace) {
                        return;
                    }
                }
                Err(error) => {
                    count::<Q>("error");
                    let delay = self
                        .pace
                        .retry_in(failures)
                        .max(error.retry_after.unwrap_or_default());
                    if !self.failed(&query, error, failures) {
                        return;
                    }
                    failures += 1;
                    // Other reads may use the slot in the meantime.
                    drop(slot);
                    tokio::time::sleep(delay).await;
                    slot = self.reads.slot(namespace).await;
                }
            }
        }
    }

    /// Whether the read planned for `due` was not replaced by an earlier one.
    fn is_planned(&self, query: &Q, due: Instant) -> bool {
        let state = self.state.lock();
        let read_state = state.entries.get(query).and_then(|entry| entry.read_state);
        read_state == Some(ReadState::Planned(due))
    }

    /// Records a failed read. Returns whether the answer is still wanted.
    fn failed(&self, query: &Q, error: ReadError, before: u32) -> bool {
        let mut state = self.state.lock();
        state.failure_reports.failed(query, &error, before);
        let Some(entry) = state.entries.get_mut(query) else {
            return false;
        };
        entry.error = Some(error);
        if Instant::now().duration_since(entry.last_used) < self.pace.keep {
            return true;
        }
        if entry.waiting.is_empty() {
            let entry = state.entries.remove(query);
            let old = entry.and_then(|entry| entry.live);
            self.budget.replace(weight::<Q>(old.as_ref()), 0);
            state.failure_reports.remove(query);
            return false;
        }
        let waiting = entry.take_waiting();
        drop(state);
        waiting.into_iter().for_each(|key| (self.enqueue)(key));
        true
    }

    /// Records an answer. Returns false if it was outdated before that, so that another is needed.
    fn answered(
        self: &Arc<Self>,
        query: &Q,
        live: LiveAnswer<Q::Answer>,
        namespace: &Arc<str>,
    ) -> bool {
        let answer = live.answer.clone();
        let (mut woken, old, again) = {
            let mut state = self.state.lock();
            let entry = state.entries.get(query);
            if entry.is_some_and(|entry| live.begun < entry.outdated) {
                return false;
            }
            count::<Q>(Q::outcome(&live.answer));
            state.failure_reports.answered(query);
            let Some(entry) = state.entries.get_mut(query) else {
                return true;
            };
            let now = Instant::now();
            let new = weight::<Q>(Some(&live));
            let old = entry.live.replace(live);
            self.budget.replace(weight::<Q>(old.as_ref()), new);
            entry.answered = LogicalTime::now();
            entry.last_read = Some(now);
            entry.last_used = now;
            entry.error = None;
            let again = match entry.read_state.take() {
                Some(ReadState::Running { again: true }) => entry.plan(now, self.pace.min_interval),
                _ => None,
            };
            (entry.take_waiting(), old, again)
        };
        self.budget.keep_within();
        if let Some(due) = again {
            let runtime = Handle::current();
            self.spawn_read(&runtime, query.clone(), due, Arc::clone(namespace));
        }
        let old = old.as_ref().map(|old| &old.answer);
        woken.extend(self.reader.affected(query, old, &answer));
        woken.sort();
        woken.dedup();
        woken.into_iter().for_each(|key| (self.enqueue)(key));
        true
    }
}

impl<Q: Query> Evict for Shared<Q> {
    fn evict_before(&self, before: Instant) {
        self.state.lock().evict_before(before, &self.budget);
    }
}

impl<Q: Query> Drop for Shared<Q> {
    fn drop(&mut self) {
        for entry in self.state.get_mut().entries.values() {
            self.budget.replace(weight::<Q>(entry.live.as_ref()), 0);
        }
    }
}

/// That long after `time`. What is later than a clock can tell is never.
fn after(time: Instant, delay: Duration) -> Instant {
    time.checked_add(delay).unwrap_or(time + NEVER)
}

/// The approximate size of an answer in bytes, with its table entry.
fn weight<Q: Query>(live: Option<&LiveAnswer<Q::Answer>>) -> usize {
    let entry = size_of::<(Q, Entry<Q::Answer>)>();
    live.map_or(0, |live| entry + Q::weight(&live.answer))
}

/// Drops unused answers periodically, until there are none left.
async fn sweep<Q: Query>(shared: Weak<Shared<Q>>) {
    loop {
        let Some((keep, cancel)) = shared
            .upgrade()
            .map(|shared| (shared.pace.keep, shared.cancel.clone()))
        else {
            return;
        };
        let pause = tokio::time::sleep(keep / SWEEPS_PER_KEEP);
        if cancel.run_until_cancelled(pause).await.is_none() {
            return;
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut state = shared.state.lock();
        if let Some(before) = Instant::now().checked_sub(keep) {
            state.evict_before(before, &shared.budget);
        }
        if state.entries.is_empty() {
            state.sweeping = false;
            return;
        }
    }
}

impl<A> Entry<A> {
    /// Plans a read for `wanted`, but not sooner than `min_interval` after the last one. Returns when it begins, unless
    /// a read is under way or one that begins no later is planned.
    fn plan(&mut self, wanted: Instant, min_interval: Duration) -> Option<Instant> {
        let earliest = self
            .last_read
            .map(|last_read| after(last_read, min_interval));
        let due = earliest.map_or(wanted, |earliest| wanted.max(earliest));
        match self.read_state {
            Some(ReadState::Running { .. }) => return None,
            Some(ReadState::Planned(planned)) if planned <= due => return None,
            // This read is due earlier than the planned one and replaces it. The planned one
            // notices that when it wakes.
            Some(ReadState::Planned(_)) | None => self.read_state = Some(ReadState::Planned(due)),
        }
        Some(due)
    }

    /// Removes and returns the waiting keys, sorted so that the order is deterministic.
    fn take_waiting(&mut self) -> Vec<ObjectKey> {
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort();
        waiting
    }
}

impl<Q: Query> State<Q> {
    /// Drops the answers that were last used before `before`.
    fn evict_before(&mut self, before: Instant, budget: &Budget) {
        self.entries.retain(|_, entry| {
            let keep = entry.read_state.is_some() || entry.last_used > before;
            if !keep {
                budget.replace(weight::<Q>(entry.live.as_ref()), 0);
            }
            keep
        });
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to_fit();
        }
        self.failure_reports
            .retain(|query| self.entries.contains_key(query));
    }
}

impl Pace {
    fn retry_in(&self, failures: u32) -> Duration {
        let ceiling = self
            .first_retry
            .saturating_mul(2_u32.saturating_pow(failures.min(20)))
            .min(self.max_retry);
        // Full jitter, but never a busy loop.
        self.first_retry
            .min(ceiling)
            .max(ceiling.mul_f64(crate::rng::unit()))
    }
}

fn count<Q: Query>(answer: &'static str) {
    metrics::counter!(crate::metric_names::QUERIES, "question" => Q::NAME, "answer" => answer)
        .increment(1);
}

#[cfg(test)]
mod tests;
