//! All names under one lock, and at most one worker for each.
//!
//! Nothing in here waits, starts tasks or calls out: what is to be done once the lock is free comes
//! back as [`Calls`]. A worker is told to go, or lets a name go, under the lock, so an observation
//! either finds a worker that will still look or asks for a new one.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use tokio::time::Instant;

use super::object::{Deadline, Identity};
use super::slot::{Slot, View};
use super::step::{Effects, Ended, Observation, Pace, Run, Step};
use super::sync::{Lock, Signal, Token};
use belayer_core::moment::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};

pub(super) struct Gate<S> {
    state: Lock<State<S>>,
}

struct State<S> {
    names: BTreeMap<ObjectKey, Entry<S>>,
    /// No work is handed out any more.
    closed: bool,
    /// The whole store was looked at once: what is not known is not there.
    passed: bool,
    /// When a name was forgotten last.
    forgotten: LogicalTime,
}

struct Entry<S> {
    slot: Slot<S>,
    /// There is a worker, or one is about to be started; this is how to wake it.
    worker: Option<Arc<Signal>>,
    /// Of the run in flight.
    cancel: Option<Token>,
}

/// What to call once the lock is free. Wakers may run anything, the gate's own methods included.
#[must_use]
pub(super) struct Calls {
    cancel: Option<Token>,
    wake: Option<Arc<Signal>>,
    /// A worker is to be started for the name, and will be woken by this.
    pub(super) spawn: Option<(ObjectKey, Arc<Signal>)>,
    pub(super) effects: Effects,
}

impl Calls {
    /// Cancels the run in flight and wakes the worker. Starting one is left to the caller.
    pub(super) fn fire(&mut self) {
        if let Some(token) = self.cancel.take() {
            token.cancel();
        }
        if let Some(signal) = self.wake.take() {
            signal.notify_one();
        }
    }
}

/// What a worker is to do.
pub(super) enum Next<S> {
    Run(Run<S>, Token),
    Sleep(Instant),
    /// Nothing: the name does without a worker from now on.
    Exit,
}

/// What is known of an object's work, or that nothing is.
pub(super) enum Standing<S> {
    Known(View<S>),
    Absent,
    /// Nothing is known of it, and the store has not been looked at yet.
    Unknown,
}

impl<S: Clone> Gate<S> {
    pub(super) fn new() -> Self {
        Self {
            state: Lock::new(State {
                names: BTreeMap::new(),
                closed: false,
                passed: false,
                forgotten: LogicalTime::BEGINNING,
            }),
        }
    }

    pub(super) fn observe(
        &self,
        object: &Identity,
        observation: Observation<S>,
        seen: LogicalTime,
    ) -> Calls {
        let mut state = self.state.lock();
        state.change(&object.key, |slot| {
            slot.observe(&object.uid, observation, seen)
        })
    }

    /// What the name's worker is to do next. Only that worker asks.
    pub(super) fn begin(&self, key: &ObjectKey, now: Instant) -> Next<S> {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(entry) = state.names.get_mut(key) else {
            return Next::Exit;
        };
        debug_assert!(entry.cancel.is_none(), "two workers for one name");
        let step = if closed {
            Step::Rest
        } else {
            entry.slot.begin(now)
        };
        match step {
            Step::Run(run) => {
                let token = Token::new();
                entry.cancel = Some(token.clone());
                Next::Run(run, token)
            }
            Step::Sleep(until) => Next::Sleep(until),
            Step::Rest => {
                entry.worker = None;
                state.forget_if_empty(key);
                Next::Exit
            }
        }
    }

    /// The run that was handed out has ended. Its worker asks again at once, so nobody is woken.
    pub(super) fn complete(
        &self,
        key: &ObjectKey,
        ended: Ended,
        pace: Pace,
        now: Instant,
    ) -> Effects {
        let mut state = self.state.lock();
        let Some(entry) = state.names.get_mut(key) else {
            return Effects::default();
        };
        entry.cancel = None;
        entry.slot.complete(ended, pace, now)
    }

    /// Compares everything with what a look at the whole store, begun at `as_of`, has found, and
    /// takes up remains of objects that it has not.
    pub(super) fn pass(
        &self,
        as_of: LogicalTime,
        desired: &BTreeMap<ObjectKey, (Uid, S)>,
        found: &[(Identity, Deadline)],
    ) -> Vec<(ObjectKey, Calls)> {
        let mut state = self.state.lock();
        let mut calls = Vec::new();
        // A name forgotten since the look began may be one of those that it still lists.
        let forgotten_since = state.forgotten > as_of;
        let mut names: BTreeSet<_> = state.names.keys().cloned().collect();
        for (object, deadline) in found {
            let listed = desired.get(&object.key);
            if listed.is_none_or(|(uid, _)| *uid != object.uid) {
                let call = state.change(&object.key, |slot| {
                    slot.found(&object.uid, *deadline, as_of)
                });
                calls.push((object.key.clone(), call));
                names.insert(object.key.clone());
            }
        }
        if !forgotten_since {
            names.extend(desired.keys().cloned());
        }
        for key in names {
            let listed = desired.get(&key).map(|(uid, it)| (uid, it.clone()));
            let call = state.change(&key, |slot| slot.pass(as_of, listed));
            calls.push((key, call));
        }
        state.passed = true;
        calls
    }

    /// Hands out no work any more, cancels what is in flight, and lets every worker know.
    pub(super) fn close(&self) -> Vec<Calls> {
        let mut state = self.state.lock();
        state.closed = true;
        let calls = state.names.values().map(|entry| Calls {
            cancel: entry.cancel.clone(),
            wake: entry.worker.clone(),
            spawn: None,
            effects: Effects::default(),
        });
        calls.collect()
    }

    pub(super) fn standing(&self, object: &Identity) -> Standing<S> {
        let state = self.state.lock();
        let entry = state.names.get(&object.key);
        match entry.and_then(|entry| entry.slot.view(&object.uid)) {
            Some(view) => Standing::Known(view),
            None if state.passed => Standing::Absent,
            None => Standing::Unknown,
        }
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(&ObjectKey, View<S>)) {
        let state = self.state.lock();
        for (key, entry) in &state.names {
            entry.slot.views().for_each(|view| visit(key, view));
        }
    }

    /// Nothing is in flight, and nothing will be handed out at this moment.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.names.values().all(|entry| {
            let left = state.closed && entry.cancel.is_none();
            left || entry.slot.is_quiet(now)
        })
    }

    /// Names that have a worker.
    #[cfg(test)]
    pub(super) fn workers(&self) -> usize {
        let state = self.state.lock();
        let workers = state.names.values().filter(|entry| entry.worker.is_some());
        workers.count()
    }

    /// Names that are remembered.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.state.lock().names.len()
    }
}

impl<S: Clone> State<S> {
    fn change(&mut self, key: &ObjectKey, event: impl FnOnce(&mut Slot<S>) -> Effects) -> Calls {
        let mut calls = Calls {
            cancel: None,
            wake: None,
            spawn: None,
            effects: Effects::default(),
        };
        let entry = self.names.entry(key.clone()).or_insert_with(|| Entry {
            slot: Slot::default(),
            worker: None,
            cancel: None,
        });
        calls.effects = event(&mut entry.slot);
        if calls.effects.cancel {
            calls.cancel = entry.cancel.clone();
        }
        if calls.effects.wake && !self.closed {
            match &entry.worker {
                Some(signal) => calls.wake = Some(Arc::clone(signal)),
                None => {
                    let signal = Arc::new(Signal::new());
                    entry.worker = Some(Arc::clone(&signal));
                    calls.spawn = Some((key.clone(), signal));
                }
            }
        }
        self.forget_if_empty(key);
        calls
    }

    /// A name whose worker is still there is forgotten when that worker lets go.
    fn forget_if_empty(&mut self, key: &ObjectKey) {
        if let btree_map::Entry::Occupied(entry) = self.names.entry(key.clone())
            && entry.get().slot.is_empty()
            && entry.get().worker.is_none()
        {
            entry.remove();
            self.forgotten = LogicalTime::now();
        }
    }
}
