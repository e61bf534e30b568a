//! All names under one lock, with at most one worker each.
//!
//! This module does not wait, start tasks or call user code: what has to be done after the lock is
//! released is returned as [`Calls`]. A worker ends under the lock, so an observation either finds
//! a worker that will still read it or requests a new one.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use tokio::time::Instant;

use super::object::{Deadline, Identity};
use super::slot::{Slot, View};
use super::step::{Effects, Ended, Observation, Pace, Run, Step};
use super::sync::{Lock, Signal, Token};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};

pub(super) struct Slots<S> {
    state: Lock<State<S>>,
}

struct State<S> {
    names: BTreeMap<ObjectKey, Entry<S>>,
    /// No more work is handed out.
    closed: bool,
    /// The whole store was compared once: an unknown object is absent.
    reconciled: bool,
    /// When a name was last removed.
    last_removal: LogicalTime,
}

struct Entry<S> {
    slot: Slot<S>,
    /// The signal that wakes the worker, if there is one or one is being started.
    worker: Option<Arc<Signal>>,
    /// Cancels the run in flight.
    cancel: Option<Token>,
}

/// The calls to make after the lock is released. Wakers may run any code, including the slots's
/// methods.
#[must_use]
pub(super) struct Calls {
    cancel: Option<Token>,
    wake: Option<Arc<Signal>>,
    /// A worker is to be started for the name, to be woken by this signal.
    pub(super) spawn: Option<(ObjectKey, Arc<Signal>)>,
    pub(super) effects: Effects,
}

impl Calls {
    /// Cancels the run in flight and wakes the worker. The caller starts a new one.
    pub(super) fn fire(&mut self) {
        if let Some(token) = self.cancel.take() {
            token.cancel();
        }
        if let Some(signal) = self.wake.take() {
            signal.notify_one();
        }
    }
}

/// What a worker does next.
pub(super) enum Next<S> {
    Run(Run<S>, Token),
    Sleep(Instant),
    /// The worker ends; the name has no worker from now on.
    Exit,
}

/// The result of a lookup of an object's work.
pub(super) enum Lookup<S> {
    Known(View<S>),
    Absent,
    /// Not known, and the store was not compared yet.
    Unknown,
}

impl<S: Clone> Slots<S> {
    pub(super) fn new() -> Self {
        Self {
            state: Lock::new(State {
                names: BTreeMap::new(),
                closed: false,
                reconciled: false,
                last_removal: LogicalTime::BEGINNING,
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

    /// What the name's worker does next. Called by that worker only.
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
                state.remove_if_empty(key);
                Next::Exit
            }
        }
    }

    /// The run has ended. Its worker calls `begin` next, so no worker is woken.
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

    /// Compares all names with the whole store as of `as_of`, and begins the termination of remains
    /// of objects that the store does not contain.
    pub(super) fn pass(
        &self,
        as_of: LogicalTime,
        desired: &BTreeMap<ObjectKey, (Uid, S)>,
        found: &[(Identity, Deadline)],
    ) -> Vec<(ObjectKey, Calls)> {
        let mut state = self.state.lock();
        let mut calls = Vec::new();
        // The store may still list a name that was removed since `as_of`.
        let removed_since = state.last_removal > as_of;
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
        if !removed_since {
            names.extend(desired.keys().cloned());
        }
        for key in names {
            let listed = desired.get(&key).map(|(uid, it)| (uid, it.clone()));
            let call = state.change(&key, |slot| slot.pass(as_of, listed));
            calls.push((key, call));
        }
        state.reconciled = true;
        calls
    }

    /// Hands out no more work, cancels the runs in flight, and wakes every worker.
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

    pub(super) fn lookup(&self, object: &Identity) -> Lookup<S> {
        let state = self.state.lock();
        let entry = state.names.get(&object.key);
        match entry.and_then(|entry| entry.slot.view(&object.uid)) {
            Some(view) => Lookup::Known(view),
            None if state.reconciled => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(&ObjectKey, View<S>)) {
        let state = self.state.lock();
        for (key, entry) in &state.names {
            entry.slot.views().for_each(|view| visit(key, view));
        }
    }

    /// Whether nothing is in flight and nothing is due now.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.names.values().all(|entry| {
            let left = state.closed && entry.cancel.is_none();
            left || entry.slot.is_quiet(now)
        })
    }

    /// The number of names with a worker.
    #[cfg(test)]
    pub(super) fn workers(&self) -> usize {
        let state = self.state.lock();
        let workers = state.names.values().filter(|entry| entry.worker.is_some());
        workers.count()
    }

    /// The number of names.
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
        self.remove_if_empty(key);
        calls
    }

    /// A name with a worker is removed when that worker ends.
    fn remove_if_empty(&mut self, key: &ObjectKey) {
        if let btree_map::Entry::Occupied(entry) = self.names.entry(key.clone())
            && entry.get().slot.is_empty()
            && entry.get().worker.is_none()
        {
            entry.remove();
            self.last_removal = LogicalTime::now();
        }
    }
}
