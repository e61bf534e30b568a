//! Live answers: what caches cannot prove is asked.
//!
//! A decision names a question; the runner asks it here. One question is one request, however
//! many objects wait for the answer (single-flight). Each answer carries the [`LogicalTime`] at which
//! its look began, so that a decision can demand a look begun after it saw what it judges.
//!
//! A look that fails is repeated with backoff for as long as somebody waits: an error is no
//! answer, and those who wait are not woken by one. Only after [`Pace::keep`] they are, so that who
//! still wants the answer asks again; nobody looks on for objects that are gone meanwhile.

mod budget;
mod question;
mod reads;
mod telling;

use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use budget::{BUDGET, Budget};
pub use question::{LiveAnswer, LiveReader, LookError, Query, look};
pub use reads::LiveReads;

use crate::executor::on_behalf_of;
use crate::moment::LogicalTime;
use crate::object::ObjectKey;
use budget::Forgets;
use telling::Failing;

/// For whom a question is asked, and what was known then.
#[derive(Debug, Clone, Copy)]
pub struct Waiter<'a> {
    /// Woken when there is an answer.
    pub key: &'a ObjectKey,
    /// When it was gathered what is known: an answer that came later is news to this one.
    pub observed: LogicalTime,
    /// Least delay of the look, from now.
    pub after: Duration,
}

/// How long looks wait for one another.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Least time between the end of one look at a question and the next look at it.
    pub min_interval: Duration,
    /// First delay after a failed look; doubles, with full jitter.
    pub first_retry: Duration,
    /// Longest delay after a failed look.
    pub max_retry: Duration,
    /// An answer that nobody asked for again within this time is dropped, and so is a question
    /// whose looks fail for that long.
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

/// Called with every key that waited, once its question has an answer.
pub type Wake = Arc<dyn Fn(ObjectKey) + Send + Sync>;

/// The answers to one kind of question. Cheap to clone.
#[derive(Clone)]
pub struct QueryCache<Q: Query> {
    shared: Arc<Shared<Q>>,
}

struct Shared<Q: Query> {
    oracle: Arc<dyn LiveReader<Q>>,
    wake: Wake,
    pace: Pace,
    reads: LiveReads,
    cancel: CancellationToken,
    budget: Budget,
    state: Mutex<State<Q>>,
}

struct State<Q: Query> {
    entries: HashMap<Q, Entry<Q::Answer>>,
    failing: Failing<Q>,
    /// Whether a task is running that drops unused answers from time to time.
    swept: bool,
}

struct Entry<A> {
    fact: Option<LiveAnswer<A>>,
    /// When the latest answer came.
    answered: LogicalTime,
    /// Looks begun before this are no answer any more.
    outdated: LogicalTime,
    /// End of the last look.
    looked: Option<Instant>,
    touched: Instant,
    /// Why the last look failed, for `explain`.
    error: Option<LookError>,
    waiting: HashSet<ObjectKey>,
    /// A task is looking, or sleeping until it may.
    flight: Option<Flight>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flight {
    /// Will begin at the given time.
    Planned(Instant),
    /// Has begun.
    Looking,
}

/// Whether anybody still waits for the answer to a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    BySome,
    ByNobody,
}

/// How many times within [`Pace::keep`] unused answers are dropped.
const SWEEPS_PER_KEEP: u32 = 10;

impl<Q: Query> QueryCache<Q> {
    /// Answers by `oracle`, within the `reads` of the process; `wake` gets the keys that waited. Live reads
    /// end when `cancel` is cancelled.
    pub fn new(
        oracle: Arc<dyn LiveReader<Q>>,
        wake: Wake,
        pace: Pace,
        reads: LiveReads,
        cancel: CancellationToken,
    ) -> Self {
        Self::within(oracle, wake, pace, reads, cancel, &Budget::default())
    }

    /// The same where the answers share `budget` with others.
    pub fn within(
        oracle: Arc<dyn LiveReader<Q>>,
        wake: Wake,
        pace: Pace,
        reads: LiveReads,
        cancel: CancellationToken,
        budget: &Budget,
    ) -> Self {
        let state = State {
            entries: HashMap::new(),
            failing: Failing::none(),
            swept: false,
        };
        let shared = Arc::new(Shared {
            oracle,
            wake,
            pace,
            reads,
            cancel,
            budget: budget.clone(),
            state: Mutex::new(state),
        });
        let holder: Weak<Shared<Q>> = Arc::downgrade(&shared);
        budget.register(holder);
        Self { shared }
    }

    /// The latest answer, if there is one.
    pub fn get(&self, question: &Q) -> Option<LiveAnswer<Q::Answer>> {
        let mut state = self.shared.state.lock();
        let entry = state.entries.get_mut(question)?;
        entry.touched = Instant::now();
        entry.fact.clone()
    }

    /// Why the last look at `question` failed; `None` if it did not.
    pub fn last_error(&self, question: &Q) -> Option<LookError> {
        self.shared
            .state
            .lock()
            .entries
            .get(question)?
            .error
            .clone()
    }

    /// Something happened that the answer at hand cannot know of, such as a watch that shows the
    /// owner gone: it is dropped, and so is that of a look already under way.
    pub fn outdate(&self, question: &Q) {
        if let Some(entry) = self.shared.state.lock().entries.get_mut(question) {
            entry.outdated = LogicalTime::now();
            let old = entry.fact.take();
            self.shared.budget.replace(weight::<Q>(old.as_ref()), 0);
        }
    }

    /// Asks `question` for `asker`, who is woken when there is an answer.
    ///
    /// A look that is under way serves this one too: whether it began late enough is for the
    /// decision to judge, which may ask again. So does an answer that came since the asker
    /// observed: without a look, it is woken to read that first.
    pub fn ask(&self, question: Q, asker: Waiter<'_>) {
        let now = Instant::now();
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if !std::mem::replace(&mut state.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.shared)));
        }
        let entry = state
            .entries
            .entry(question.clone())
            .or_insert_with(|| Entry {
                fact: None,
                answered: LogicalTime::BEGINNING,
                outdated: LogicalTime::BEGINNING,
                looked: None,
                touched: now,
                error: None,
                waiting: HashSet::new(),
                flight: None,
            });
        entry.touched = now;
        if entry.fact.is_some() && entry.answered > asker.observed {
            drop(guard);
            return (self.shared.wake)(asker.key.clone());
        }
        entry.waiting.insert(asker.key.clone());
        let earliest = entry
            .looked
            .map_or(now, |looked| looked + self.shared.pace.min_interval);
        let due = (now + asker.after).max(earliest);
        match entry.flight {
            Some(Flight::Looking) => return,
            Some(Flight::Planned(planned)) if planned <= due => return,
            // A sooner look is wanted than the one planned: it takes the place of the planned
            // one, which finds itself replaced when it wakes.
            Some(Flight::Planned(_)) | None => entry.flight = Some(Flight::Planned(due)),
        }
        drop(guard);
        let shared = Arc::clone(&self.shared);
        let namespace = Arc::clone(asker.key.shared_namespace());
        tokio::spawn(async move {
            let cancel = shared.cancel.clone();
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = shared.fly(question, due, &namespace) => {}
            }
        });
    }
}

impl<Q: Query> Shared<Q> {
    /// Waits until `due` and for a slot among the live reads, then reads until there is an answer, then wakes
    /// all keys that wait. The read counts for the namespace of the first of them, also where it waits for a
    /// token.
    async fn fly(self: &Arc<Self>, question: Q, due: Instant, namespace: &Arc<str>) {
        tokio::time::sleep_until(due).await;
        if !self.is_planned(&question, due) {
            return;
        }
        let mut slot = self.reads.slot(namespace).await;
        {
            let mut state = self.state.lock();
            let Some(entry) = state.entries.get_mut(&question) else {
                return;
            };
            if entry.flight != Some(Flight::Planned(due)) {
                return;
            }
            entry.flight = Some(Flight::Looking);
        }
        let mut failures = 0;
        loop {
            let begun = LogicalTime::now();
            // A look is for all who wait, so it is the child of none of them.
            let span = tracing::debug_span!(
                "look",
                belayer.question = Q::NAME,
                belayer.about = %question,
                belayer.answer = tracing::field::Empty,
            );
            let look = on_behalf_of(Arc::clone(namespace), self.oracle.look(&question));
            let answer = look.instrument(span.clone()).await;
            let word = answer.as_ref().map_or("error", Q::outcome);
            span.record("belayer.answer", word);
            match answer {
                Ok(_) if self.is_outdated(&question, begun) => {}
                Ok(answer) => return self.answered(&question, LiveAnswer { answer, begun }),
                Err(error) => {
                    count::<Q>("error");
                    let delay = self
                        .pace
                        .retry_in(failures)
                        .max(error.retry_after.unwrap_or_default());
                    if self.failed(&question, error, failures) == Wanted::ByNobody {
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

    /// Whether the live read that was planned for `due` has not been replaced by an earlier one.
    fn is_planned(&self, question: &Q, due: Instant) -> bool {
        let state = self.state.lock();
        let flight = state.entries.get(question).and_then(|entry| entry.flight);
        flight == Some(Flight::Planned(due))
    }

    fn failed(&self, question: &Q, error: LookError, before: u32) -> Wanted {
        let mut state = self.state.lock();
        state.failing.fails(question, &error, before);
        let Some(entry) = state.entries.get_mut(question) else {
            return Wanted::ByNobody;
        };
        entry.error = Some(error);
        if Instant::now().duration_since(entry.touched) < self.pace.keep {
            return Wanted::BySome;
        }
        if entry.waiting.is_empty() {
            let entry = state.entries.remove(question);
            let old = entry.and_then(|entry| entry.fact);
            self.budget.replace(weight::<Q>(old.as_ref()), 0);
            state.failing.forget(question);
            return Wanted::ByNobody;
        }
        let waiting = entry.take_waiting();
        drop(state);
        waiting.into_iter().for_each(|key| (self.wake)(key));
        Wanted::BySome
    }

    fn is_outdated(&self, question: &Q, begun: LogicalTime) -> bool {
        self.state
            .lock()
            .entries
            .get(question)
            .is_some_and(|entry| begun < entry.outdated)
    }

    fn answered(&self, question: &Q, fact: LiveAnswer<Q::Answer>) {
        count::<Q>(Q::outcome(&fact.answer));
        let waiting = {
            let mut state = self.state.lock();
            state.failing.answered(question);
            let Some(entry) = state.entries.get_mut(question) else {
                return;
            };
            let now = Instant::now();
            let new = weight::<Q>(Some(&fact));
            let old = entry.fact.replace(fact);
            self.budget.replace(weight::<Q>(old.as_ref()), new);
            entry.answered = LogicalTime::now();
            entry.looked = Some(now);
            entry.touched = now;
            entry.error = None;
            entry.flight = None;
            entry.take_waiting()
        };
        self.budget.keep_within();
        waiting.into_iter().for_each(|key| (self.wake)(key));
    }
}

impl<Q: Query> Forgets for Shared<Q> {
    fn forget_before(&self, before: Instant) {
        self.state.lock().forget_before(before, &self.budget);
    }
}

impl<Q: Query> Drop for Shared<Q> {
    fn drop(&mut self) {
        for entry in self.state.get_mut().entries.values() {
            self.budget.replace(weight::<Q>(entry.fact.as_ref()), 0);
        }
    }
}

/// About how many bytes an answer takes, with its place in the table.
fn weight<Q: Query>(fact: Option<&LiveAnswer<Q::Answer>>) -> usize {
    let entry = size_of::<(Q, Entry<Q::Answer>)>();
    fact.map_or(0, |fact| entry + Q::weight(&fact.answer))
}

/// Drops unused answers from time to time, until there are no answers.
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
            state.forget_before(before, &shared.budget);
        }
        if state.entries.is_empty() {
            state.swept = false;
            return;
        }
    }
}

impl<A> Entry<A> {
    /// Those to be woken, in an order that does not depend on chance.
    fn take_waiting(&mut self) -> Vec<ObjectKey> {
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort();
        waiting
    }
}

impl<Q: Query> State<Q> {
    /// Drops the answers that were last used before `before`.
    fn forget_before(&mut self, before: Instant, budget: &Budget) {
        self.entries.retain(|_, entry| {
            let keep = entry.flight.is_some() || entry.touched > before;
            if !keep {
                budget.replace(weight::<Q>(entry.fact.as_ref()), 0);
            }
            keep
        });
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to_fit();
        }
        self.failing
            .keep(|question| self.entries.contains_key(question));
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
            .max(ceiling.mul_f64(crate::ambient::unit()))
    }
}

fn count<Q: Query>(answer: &'static str) {
    metrics::counter!(belayer_metrics::FACTS, "question" => Q::NAME, "answer" => answer)
        .increment(1);
}

#[cfg(test)]
mod tests;
