//! Fault injection.
//!
//! A fault is a [`Match`] of requests, a choice among the matching ones, and an action on those chosen.
//! Simulated controllers act on the cluster directly and are not affected by faults.
//!
//! A [`FaultPlan`] contains faults from a file.

mod answer;
mod matching;
mod plan;
#[cfg(test)]
mod tests;
mod watches;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub use answer::Answer;
pub(crate) use answer::Rendered;
pub use matching::{Match, Target};
pub use plan::{FaultPlan, FaultPlanError};
pub use watches::WatchEnd;
pub(crate) use watches::{LiveWatch, Visibility, WatchPlan};

use crate::clock::SharedRng;
use crate::signal::{Listener, Signal};

/// The action on a request that a fault has chosen.
#[derive(Debug, Clone)]
enum Action {
    /// Only the delay, if any.
    None,
    Answer(Answer),
    /// The connection breaks before the server has read the request.
    LoseRequest,
    /// The request is handled, and the connection breaks before the response.
    LoseAnswer,
    /// The connection breaks at once, and the request is handled after this time.
    HandleLate(Duration),
    /// No response until the client gives up.
    Hang,
    /// Reads see the cluster as of this version.
    Stale(u64),
    Watch(WatchPlan),
    /// Events of matching objects, of these versions, never reach matching watches.
    Hide(Match, Option<Range<u64>>),
    /// Matching watches pause, until the fault is removed or the store reaches a version.
    Pause(Option<u64>),
}

/// Which of the matching requests are chosen.
#[derive(Debug, Clone, Copy)]
struct Choice {
    skip: u64,
    every: u64,
    times: Option<u64>,
    probability: f64,
}

/// A fault, for [`Faults::inject`]. The [crate's example](crate) answers one patch with a
/// conflict.
#[derive(Debug, Clone)]
pub struct Fault {
    matching: Match,
    choice: Choice,
    delay: Duration,
    action: Action,
}

impl Fault {
    /// A fault for these requests. Without an action it only counts them.
    pub fn on(matching: Match) -> Self {
        let choice = Choice {
            skip: 0,
            every: 1,
            times: None,
            probability: 1.0,
        };
        Fault {
            matching,
            choice,
            delay: Duration::ZERO,
            action: Action::None,
        }
    }

    /// Ends after it has been applied this many times.
    pub fn times(mut self, times: u64) -> Self {
        self.choice.times = Some(times);
        self
    }

    /// Applies to the n-th match only, counted from one.
    pub fn nth(mut self, n: u64) -> Self {
        self.choice.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// Skips the first `n` matches.
    pub fn after(mut self, n: u64) -> Self {
        self.choice.skip = n;
        self
    }

    /// Applies to every n-th match.
    pub fn every(mut self, n: u64) -> Self {
        self.choice.every = n.max(1);
        self
    }

    /// Applies to a match with this probability, drawn from the sandbox's seed.
    pub fn probability(mut self, probability: f64) -> Self {
        self.choice.probability = probability;
        self
    }

    /// Delays the request before anything else happens to it.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers the request with this response without handling it.
    pub fn answer(self, answer: Answer) -> Self {
        self.action(Action::Answer(answer))
    }

    /// Breaks the connection before the request is handled.
    pub fn lose_request(self) -> Self {
        self.action(Action::LoseRequest)
    }

    /// Breaks the connection after the request is handled and before the response.
    pub fn lose_answer(self) -> Self {
        self.action(Action::LoseAnswer)
    }

    /// Breaks the connection at once, and handles the request after this time, when its client has given it up: a proxy or a busy server
    /// has it. [`Actor::is_late`](crate::Actor::is_late) marks its writes in the record.
    pub fn handle_late(self, after: Duration) -> Self {
        self.action(Action::HandleLate(after))
    }

    /// Gives no response until the client gives up or the fault is removed; the request is not handled.
    pub fn hang(self) -> Self {
        self.action(Action::Hang)
    }

    /// Get, list and watch show the cluster as of this version. Writes are not affected.
    pub fn stale(self, version: u64) -> Self {
        self.action(Action::Stale(version))
    }

    /// The watch ends after that many events.
    pub fn end_watch_after(self, events: u64, end: WatchEnd) -> Self {
        self.action(Action::Watch(WatchPlan {
            end: Some((events, end)),
            ..WatchPlan::default()
        }))
    }

    /// Delays every event of the watch.
    pub fn delay_events(self, delay: Duration) -> Self {
        self.action(Action::Watch(WatchPlan {
            delay,
            ..WatchPlan::default()
        }))
    }

    /// Delays every event of the watch by a random time up to this one, drawn from the sandbox's
    /// seed. Within a watch the order stays; between the watches of two kinds it does not.
    pub fn jitter_events(self, jitter: Duration) -> Self {
        self.action(Action::Watch(WatchPlan {
            jitter,
            ..WatchPlan::default()
        }))
    }

    /// Hides events of these objects from matching watches, running ones included, while the fault is active.
    /// Hidden events are not sent later: the next event of the object is the first that is seen.
    pub fn hide(self, objects: Match) -> Self {
        self.action(Action::Hide(objects, None))
    }

    /// As [`Fault::hide`], for the events from one version up to, and without, another. They stay hidden
    /// after the fault is removed.
    pub fn hide_versions(self, objects: Match, versions: Range<u64>) -> Self {
        self.action(Action::Hide(objects, Some(versions)))
    }

    /// Pauses matching watches, running ones included, while the fault is active; they catch up afterwards.
    pub fn pause_watches(self) -> Self {
        self.action(Action::Pause(None))
    }

    /// As [`Fault::pause_watches`], until the store reaches a version: earlier events arrive then, all at once.
    pub fn pause_watches_until(self, version: u64) -> Self {
        self.action(Action::Pause(Some(version)))
    }

    fn action(mut self, action: Action) -> Self {
        self.action = action;
        self
    }
}

#[derive(Debug)]
struct Rule {
    id: u64,
    fault: Fault,
    matched: u64,
    hits: Arc<AtomicU64>,
}

impl Rule {
    fn chooses(&mut self, rng: &SharedRng) -> bool {
        let choice = self.fault.choice;
        let place = self.matched;
        self.matched += 1;
        let Some(past) = place.checked_sub(choice.skip) else {
            return false;
        };
        if !past.is_multiple_of(choice.every) || self.spent() {
            return false;
        }
        if choice.probability < 1.0 && rng.unit() >= choice.probability {
            return false;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn spent(&self) -> bool {
        self.fault
            .choice
            .times
            .is_some_and(|times| self.hits.load(Ordering::Relaxed) >= times)
    }
}

/// All faults of one sandbox. Cheap to clone; every clone is the same set. The [crate's
/// example](crate) injects one.
#[derive(Clone)]
pub struct Faults {
    inner: Arc<Inner>,
}

struct Inner {
    rules: Mutex<Vec<Rule>>,
    watches: Mutex<Vec<std::sync::Weak<LiveWatch>>>,
    next_id: AtomicU64,
    rng: SharedRng,
    available: AtomicU64,
    /// Wakes everything that waits for a change of the faults.
    changed: Signal,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("rules", &self.inner.rules.lock().len())
            .finish()
    }
}

/// What the faults decided about one request.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) delay: Duration,
    pub(crate) fate: Fate,
    pub(crate) stale: Option<u64>,
    pub(crate) watch: WatchPlan,
}

#[derive(Debug, Default)]
pub(crate) enum Fate {
    #[default]
    Pass,
    Answer(Answer),
    LoseRequest,
    LoseAnswer,
    HandleLate(Duration),
    /// Hangs while the rule of this id is active.
    Hang(u64),
}

impl Faults {
    pub(crate) fn new(rng: SharedRng) -> Self {
        let inner = Inner {
            rules: Mutex::default(),
            watches: Mutex::default(),
            next_id: AtomicU64::new(1),
            rng,
            available: AtomicU64::new(1),
            changed: Signal::default(),
        };
        Faults {
            inner: Arc::new(inner),
        }
    }

    /// Activates a fault until it is used up or removed.
    pub fn inject(&self, fault: Fault) -> FaultHandle {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let hits = Arc::new(AtomicU64::new(0));
        let rule = Rule {
            id,
            fault,
            matched: 0,
            hits: Arc::clone(&hits),
        };
        self.inner.rules.lock().push(rule);
        self.wake();
        FaultHandle {
            faults: self.clone(),
            id,
            hits,
        }
    }

    /// Removes every fault and ends [`Faults::cut_off`].
    pub fn clear(&self) {
        self.inner.rules.lock().clear();
        self.set_available(1);
    }

    /// Refuses every connection and breaks the running watches, until [`Faults::restore`].
    pub fn cut_off(&self) {
        self.set_available(0);
    }

    /// Ends [`Faults::cut_off`].
    pub fn restore(&self) {
        self.set_available(1);
    }

    pub(crate) fn is_available(&self) -> bool {
        self.inner.available.load(Ordering::Relaxed) == 1
    }

    fn set_available(&self, available: u64) {
        self.inner.available.store(available, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        self.inner.changed.raise();
    }

    pub(crate) fn changes(&self) -> Listener {
        self.inner.changed.listen()
    }

    pub(crate) fn stands(&self, id: u64) -> bool {
        self.inner.rules.lock().iter().any(|rule| rule.id == id)
    }

    fn remove(&self, id: u64) {
        self.inner.rules.lock().retain(|rule| rule.id != id);
        self.wake();
    }

    /// Decides what happens to one request. The first rule with a final action wins; delays add up.
    pub(crate) fn decide(&self, target: &Target) -> Decision {
        let mut decision = Decision::default();
        for rule in self.inner.rules.lock().iter_mut() {
            if matches!(rule.fault.action, Action::Hide(..) | Action::Pause(_)) {
                continue;
            }
            if !rule.fault.matching.matches(target) || !rule.chooses(&self.inner.rng) {
                continue;
            }
            decision.delay = decision.delay.saturating_add(rule.fault.delay);
            let fate = match &rule.fault.action {
                Action::Answer(answer) => Fate::Answer(answer.clone()),
                Action::LoseRequest => Fate::LoseRequest,
                Action::LoseAnswer => Fate::LoseAnswer,
                Action::HandleLate(after) => Fate::HandleLate(*after),
                Action::Hang => Fate::Hang(rule.id),
                Action::Stale(version) => {
                    decision.stale = Some(*version);
                    continue;
                }
                Action::Watch(plan) => {
                    decision.watch.add(plan);
                    continue;
                }
                Action::None | Action::Hide(..) | Action::Pause(_) => continue,
            };
            if matches!(decision.fate, Fate::Pass) {
                decision.fate = fate;
            }
        }
        decision
    }
}

/// An active fault. Dropping the handle leaves it active.
/// [`Faults::inject`](crate::Faults::inject) returns it; the [crate's example](crate) reads its
/// hits.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    faults: Faults,
    id: u64,
    hits: Arc<AtomicU64>,
}

impl FaultHandle {
    /// How many requests (or hidden events) it has been applied to.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes the fault. Requests that hang because of it are handled.
    pub fn remove(&self) {
        self.faults.remove(self.id);
    }
}
