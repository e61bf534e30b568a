//! The one lock around the queue's state, and how to get by without waiting for it.
//!
//! Producers and consumers that meet at a lock cost each other far more than the work done under it:
//! they spin, sleep and are woken, thousands of times a second. An operation whose result nobody
//! waits for (an add, the end of work) therefore never waits: who finds the lock taken leaves the
//! operation in the in-tray, and whoever holds the lock works the tray off. Nothing can be seen in
//! between: every look at the state begins with the tray, so an add that has returned has happened.
//!
//! No operation is left behind. Who leaves one tries the lock once more afterwards, and who gives
//! the lock back looks at the tray afterwards: one of the two sees the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::band::{Ageing, Band};
use super::clock::Tick;
use super::state::{Phase, State, Verdict, When};
use super::table::KeyHash;
use super::wait::Wakes;

/// A tray that has grown past this many operations is given back when it is empty.
const KEEP_CAPACITY: usize = 4096;

/// Something to do to the state whose result nobody waits for.
#[derive(Debug)]
pub(super) enum Operation<K> {
    /// A key is added.
    Add {
        hash: KeyHash,
        key: K,
        band: Band,
        when: When,
        now: Tick,
    },
    /// The work on a key ended.
    Finish {
        index: u32,
        verdict: Verdict,
        now: Tick,
    },
}

#[derive(Debug)]
pub(super) struct Desk<K> {
    state: Mutex<State<K>>,
    tray: Mutex<VecDeque<Operation<K>>>,
    /// How many are in the tray.
    left: AtomicUsize,
    /// Told when the queue is shut down and nothing is processed any more.
    pub(super) idle: Notify,
}

/// What an operation leaves to be done without the lock.
#[derive(Debug)]
struct After<K> {
    /// A waker may run anything, this queue's methods included.
    wakes: Wakes,
    /// Dropping a key may run anything, too.
    dropped: Vec<K>,
    idle: bool,
}

impl<K: Eq> Desk<K> {
    pub(super) fn new(ageing: Ageing) -> Self {
        Self {
            state: Mutex::new(State::new(ageing)),
            tray: Mutex::default(),
            left: AtomicUsize::new(0),
            idle: Notify::new(),
        }
    }

    /// Does something to the state, as of now. What `act` hands back besides its result is dropped
    /// without the lock.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State<K>) -> (R, Vec<K>)) -> R {
        let mut state = self.state.lock();
        let mut dropped = self.work_off(&mut state);
        let (result, more) = act(&mut state);
        dropped.extend(more);
        self.give_back(state, dropped);
        result
    }

    /// Looks at the state, as of now.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<K>) -> R) -> R {
        self.with(|state| (look(state), Vec::new()))
    }

    /// Does it now, or leaves it to whoever holds the lock.
    pub(super) fn submit(&self, operation: Operation<K>) {
        match self.state.try_lock() {
            Some(mut state) => {
                let mut dropped = self.work_off(&mut state);
                dropped.extend(state.apply(operation));
                self.give_back(state, dropped);
            }
            None => {
                let mut tray = self.tray.lock();
                tray.push_back(operation);
                self.left.store(tray.len(), Ordering::SeqCst);
                drop(tray);
                self.relieve();
            }
        }
    }

    /// Works off what is in the tray. Returns keys to drop without the lock.
    fn work_off(&self, state: &mut State<K>) -> Vec<K> {
        let mut dropped = Vec::new();
        if self.left.load(Ordering::SeqCst) == 0 && state.tray.is_empty() {
            return dropped;
        }
        if state.tray.is_empty() {
            let mut tray = self.tray.lock();
            std::mem::swap(&mut *tray, &mut state.tray);
            self.left.store(0, Ordering::SeqCst);
        }
        // One by one: should comparing keys panic, the others are still there for who comes next.
        while let Some(operation) = state.tray.pop_front() {
            dropped.extend(state.apply(operation));
        }
        if state.tray.capacity() > KEEP_CAPACITY {
            state.tray = VecDeque::new();
        }
        dropped
    }

    /// Gives the lock back, does what is left to do without it, and looks at the tray again.
    fn give_back(&self, state: MutexGuard<'_, State<K>>, dropped: Vec<K>) {
        self.give_back_once(state, dropped);
        self.relieve();
    }

    fn give_back_once(&self, mut state: MutexGuard<'_, State<K>>, dropped: Vec<K>) {
        let after = After {
            wakes: state.settle(),
            dropped,
            idle: state.phase == Phase::ShutDown && state.idle(),
        };
        drop(state);
        after.wakes.fire();
        if after.idle {
            self.idle.notify_waiters();
        }
        drop(after.dropped);
    }

    /// Works off what others left while the lock was taken, unless somebody holds it again.
    fn relieve(&self) {
        loop {
            // Between giving back the lock and looking at the tray here, and between filling the
            // tray and trying the lock there.
            fence(Ordering::SeqCst);
            if self.left.load(Ordering::SeqCst) == 0 {
                return;
            }
            let Some(mut state) = self.state.try_lock() else {
                return;
            };
            let dropped = self.work_off(&mut state);
            self.give_back_once(state, dropped);
        }
    }
}

impl<K: Eq> State<K> {
    /// Returns keys to drop without the lock.
    fn apply(&mut self, operation: Operation<K>) -> Vec<K> {
        match operation {
            Operation::Add {
                hash,
                key,
                band,
                when,
                now,
            } => self.add(hash, key, band, when, now).into_iter().collect(),
            Operation::Finish {
                index,
                verdict,
                now,
            } => self.finish(index, verdict, now).dropped,
        }
    }
}
