//! How requests give way to an overloaded server (rule L2).
//!
//! A lane is a [`Class`] of requests for one resource: a server can be overloaded by one class, and
//! it also answers 429 while the cache of one resource is initialized. A 429 or 503 with
//! `Retry-After` pauses the lane. Until the pause ends, a request of the lane is not sent, and its
//! caller gets a 429 with the remaining time, so that it is retried as after an answer of the
//! server. The number of releases in flight in a lane follows a [`Window`]. A key of a workqueue
//! waits for its slot without a worker: see [`Tickets`](super::Tickets).

use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::limits::{Class, Ticket, Waiter};
use super::window::{Load, Window};
use crate::fair_queue::FairQueue;
use crate::http::{ApiError, ErrorClass, RequestError};
use crate::object::{ObjectKey, path};

/// The longest pause, as for [`ApiError::retry_after`].
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A pause is longer than the server asks by up to this part of it, at random: the server asks all
/// its clients for the same.
const JITTER: f64 = 0.25;

/// Above this number, lanes without a state worth keeping are removed. A tenant chooses the kinds
/// of its owners.
const MANY: usize = 256;

/// All lanes of an executor.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Mutex<HashMap<Name, Arc<Lane>>>,
    /// The highest number of releases in flight in a lane.
    cap: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    class: Class,
    group: Box<str>,
    plural: Box<str>,
}

#[derive(Hash)]
struct NameRef<'a> {
    class: Class,
    group: &'a str,
    plural: &'a str,
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.class == name.class && *self.group == *name.group && *self.plural == *name.plural
    }
}

impl Lanes {
    pub(super) fn new(cap: usize) -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::default(),
            cap,
        })
    }

    /// The lane of requests of `class` to this path.
    pub(super) fn of_path(&self, class: Class, path: &str) -> Arc<Lane> {
        let (group, plural) = path::resource(path).unwrap_or_default();
        self.of(class, group, plural)
    }

    /// The lane of requests of `class` for this resource.
    pub(super) fn of(&self, class: Class, group: &str, plural: &str) -> Arc<Lane> {
        let name = NameRef {
            class,
            group,
            plural,
        };
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get(&name) {
            return Arc::clone(lane);
        }
        if lanes.len() >= MANY {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1 || !lane.is_new());
        }
        let lane = Lane::new(class, group, plural, self.cap);
        let name = Name {
            class,
            group: group.into(),
            plural: plural.into(),
        };
        lanes.insert(name, Arc::clone(&lane));
        lane
    }
}

/// The requests of one class for one resource.
#[derive(Debug)]
pub(super) struct Lane {
    class: Class,
    resource: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: Window,
    paused: Option<Pause>,
    /// Slots that are taken.
    in_flight: usize,
    waiting: FairQueue<Ticket<Slot>>,
    /// Whether a task waits for the end of the pause.
    timer_runs: bool,
    /// Whether the overload was logged.
    is_logged: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    code: u16,
}

/// The permit for one release in flight, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Slot {
    /// `None` once it was returned.
    lane: Option<Arc<Lane>>,
}

impl Lane {
    fn new(class: Class, group: &str, plural: &str, cap: usize) -> Arc<Self> {
        let dot = if group.is_empty() { "" } else { "." };
        Arc::new(Self {
            class,
            resource: format!("{plural}{dot}{group}"),
            state: Mutex::new(State {
                window: Window::new(cap),
                paused: None,
                in_flight: 0,
                waiting: FairQueue::default(),
                timer_runs: false,
                is_logged: false,
            }),
        })
    }

    /// Whether a new lane would be the same.
    fn is_new(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.in_flight == 0 && state.waiting.is_empty();
        state.window.is_new() && state.pause().is_none() && is_idle
    }

    /// Refuses a request while the lane is paused.
    ///
    /// # Errors
    ///
    /// A 429 with the remaining time.
    pub(super) fn check(&self) -> Result<(), RequestError> {
        let Some(pause) = self.state.lock().pause() else {
            return Ok(());
        };
        let remaining = pause.until - Instant::now();
        let remaining = remaining.mul_f64(1.0 + JITTER * crate::rng::unit());
        Err(RequestError::from(ApiError {
            reason: "TooManyRequests".to_owned(),
            message: format!(
                "requests for {} are paused because of a response with status {}",
                self.resource, pause.code
            ),
            retry_after: Some(remaining.min(LONGEST_PAUSE)),
            ..ApiError::from_code(429)
        }))
    }

    /// Waits for a slot, in the turn of `namespace`. Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`Self::check`], if the lane is paused already.
    pub(super) async fn slot(
        self: &Arc<Self>,
        namespace: impl FnOnce() -> Arc<str>,
    ) -> Result<Slot, RequestError> {
        self.check()?;
        if let Some(slot) = self.free_slot() {
            return Ok(slot);
        }
        let (ticket, served) = oneshot::channel();
        self.enqueue(&namespace(), Ticket::Task(ticket));
        // `self` owns the sender and is borrowed while this waits, so an error cannot happen.
        Ok(served.await.unwrap_or(Slot { lane: None }))
    }

    /// A slot, if one is free and no other request waits for it.
    pub(super) fn free_slot(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.state.lock();
        (state.waiting.is_empty() && state.may_take()).then(|| {
            state.in_flight += 1;
            Slot {
                lane: Some(Arc::clone(self)),
            }
        })
    }

    /// Whether a slot that was reserved earlier is still good for a request.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().pause().is_some()
    }

    /// Calls `waiter` as soon as there is a slot for `key`.
    pub(super) fn enqueue_key(self: &Arc<Self>, key: ObjectKey, waiter: Weak<dyn Waiter<Slot>>) {
        let namespace = Arc::clone(key.shared_namespace());
        self.enqueue(&namespace, Ticket::Key(key, waiter));
    }

    fn enqueue(self: &Arc<Self>, namespace: &Arc<str>, ticket: Ticket<Slot>) {
        self.state.lock().waiting.push(namespace, ticket);
        // A slot may have become free, and a pause needs a timer.
        self.serve();
    }

    /// Records the result of a request that was sent at `begun`.
    pub(super) fn record(&self, begun: Instant, error: Option<&RequestError>) {
        let load = match error {
            None => Load::Served,
            // Of this process, not of the server.
            Some(RequestError::NotLeading) => Load::Unknown,
            Some(error) => match error.class() {
                ErrorClass::TooManyRequests | ErrorClass::Unavailable | ErrorClass::Timeout => {
                    Load::Overloaded
                }
                _ => Load::Unknown,
            },
        };
        let mut state = self.state.lock();
        state.window.record(begun, load);
        if load == Load::Served {
            state.is_logged = false;
        }
        let Some(api) = error.and_then(RequestError::api) else {
            return;
        };
        let (429 | 503, Some(asked)) = (api.code, api.retry_after) else {
            return;
        };
        let pause = asked
            .mul_f64(1.0 + JITTER * crate::rng::unit())
            .min(LONGEST_PAUSE);
        let until = Instant::now() + pause;
        if state.paused.is_none_or(|paused| paused.until < until) {
            let code = api.code;
            state.paused = Some(Pause { until, code });
        }
        let limit = state.window.limit();
        if !std::mem::replace(&mut state.is_logged, true) {
            drop(state);
            tracing::info!(
                resource = self.resource,
                class = ?self.class,
                code = api.code,
                pause = crate::duration::format(pause),
                limit,
                "the API server is overloaded: sending fewer requests"
            );
        }
    }

    /// Gives free slots to waiting requests; during a pause a timer does it at the end.
    fn serve(self: &Arc<Self>) {
        loop {
            let ticket = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    return;
                }
                if let Some(pause) = state.pause() {
                    return self.serve_at(pause.until, &mut state);
                }
                if !state.may_take() {
                    return;
                }
                let Some(ticket) = state.waiting.pop() else {
                    return;
                };
                state.in_flight += 1;
                ticket
            };
            let slot = Slot {
                lane: Some(Arc::clone(self)),
            };
            // Not dropped here, because that would call this function recursively.
            if let Err(mut slot) = ticket.serve(slot) {
                slot.lane = None;
                self.state.lock().in_flight -= 1;
            }
        }
    }

    fn serve_at(self: &Arc<Self>, until: Instant, state: &mut State) {
        // A slot can be dropped while the runtime ends; no task is needed then.
        let (false, Ok(runtime)) = (state.timer_runs, Handle::try_current()) else {
            return;
        };
        state.timer_runs = true;
        let lane = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep_until(until).await;
            if let Some(lane) = lane.upgrade() {
                lane.state.lock().timer_runs = false;
                lane.serve();
            }
        });
    }
}

impl State {
    /// The pause, unless it has ended.
    fn pause(&mut self) -> Option<Pause> {
        self.paused = self.paused.filter(|pause| pause.until > Instant::now());
        self.paused
    }

    fn may_take(&mut self) -> bool {
        self.pause().is_none() && self.in_flight < self.window.limit()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.state.lock().in_flight -= 1;
            lane.serve();
        }
    }
}

#[cfg(test)]
mod tests;
