//! The one lock around the queue's state, and how to get by without it.
//!
//! Producers and consumers that meet at a lock cost each other far more than the work done under
//! it: they pass its memory from processor to processor, spin, sleep and are woken. An operation
//! whose result nobody waits for (an add; the end of work, where the lock is taken) therefore goes
//! into the in-tray, which has a lock of its own that is held for one push. Whoever next needs the
//! state works the tray off first, many operations at once. Nothing can be seen in between: every
//! look at the state begins with the tray, so an add that has returned has happened.
//!
//! Nothing is left behind. While somebody waits for what an operation may bring about (a waiter
//! sleeps, or the queue is closing) the tray is *watched*: who puts something in has to have it
//! worked off, as has who finds the tray grown to [`BATCH`] operations. Where another holds the
//! state's lock it is done by that one: it is marked as *urgent*; who marks it tries the lock
//! afterwards, and who gives the lock back looks at the mark afterwards: one of the two sees the
//! other.

use std::collections::VecDeque;
use std::ops::Deref;

use super::durations::Durations;
use super::metrics::Meters;
use super::operation::Operation;
use super::priority::Ageing;
use super::state::{Phase, State};
use super::sync::{AtomicBool, AtomicUsize, Guard, Lock, Notify, Ordering, fence};
use super::wait::Wakes;

/// How many operations may lie in a tray that nobody watches. It bounds the memory that keys take
/// which would merge.
const BATCH: usize = 128;

/// A tray that has grown past this many operations, while the lock was held for long, is given back
/// when it is empty.
const KEEP_CAPACITY: usize = 4096;

/// The one lock, the tray, and what passes between them.
pub(super) struct Inbox<K> {
    state: Apart<Lock<State<K>>>,
    tray: Apart<Lock<Tray<K>>>,
    /// How many operations are in the tray.
    left: Apart<AtomicUsize>,
    /// Whether the tray is watched, as a hint: what counts stands in the tray.
    watched: AtomicBool,
    /// Whether somebody has to work the tray off.
    urgent: AtomicBool,
    pub(super) meters: Meters,
    /// Told when the queue is shut down and nothing is processed any more.
    pub(super) idle: Notify,
}

/// Something in cache lines of its own: who reads its neighbours need not wait for who writes it.
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[derive(Debug)]
struct Tray<K> {
    operations: VecDeque<Operation<K>>,
    watched: bool,
}

/// What an operation leaves to be done without the lock.
#[derive(Debug)]
struct After<K> {
    /// A waker may run anything, this queue's methods included.
    wakes: Wakes,
    /// Dropping a key may run anything, too.
    dropped: Vec<K>,
    /// And so may a recorder of metrics.
    durations: Option<Durations>,
    idle: bool,
}

impl<K: Eq> Inbox<K> {
    pub(super) fn new(ageing: Ageing, meters: Meters) -> Self {
        Self {
            state: Apart(Lock::new(State::new(ageing, meters.durations()))),
            tray: Apart(Lock::new(Tray {
                operations: VecDeque::new(),
                watched: false,
            })),
            left: Apart(AtomicUsize::new(0)),
            watched: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            meters,
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

    /// Reports the durations that have come together, however few.
    pub(super) fn report_durations(&self) {
        let durations = self.with(|state| (state.take_durations(), Vec::new()));
        self.meters.report(durations);
    }

    /// Does it, at the latest before anybody looks.
    pub(super) fn submit(&self, operation: Operation<K>) {
        if self.goes_without_detour(&operation)
            && let Some(mut state) = self.state.try_lock()
        {
            let mut dropped = self.work_off(&mut state);
            state.apply(operation, &mut dropped);
            return self.give_back(state, dropped);
        }
        let mut tray = self.tray.lock();
        tray.operations.push_back(operation);
        let left = tray.operations.len();
        self.left.store(left, Ordering::Release);
        let urgent = tray.watched || left >= BATCH;
        if urgent {
            self.urgent.store(true, Ordering::SeqCst);
        }
        drop(tray);
        if urgent {
            self.relieve();
        }
    }

    /// Whether a free lock is worth taking: somebody waits for the operation, or it is the end of
    /// work, and whose work has ended comes for the next key and finds the state at hand.
    fn goes_without_detour(&self, operation: &Operation<K>) -> bool {
        matches!(operation, Operation::Finish { .. }) || self.watched.load(Ordering::Relaxed)
    }

    /// How many operations are in the tray.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.tray.lock().operations.len()
    }

    /// Works off what is in the tray. Returns keys to drop without the lock.
    fn work_off(&self, state: &mut State<K>) -> Vec<K> {
        let mut dropped = Vec::new();
        // A panic in comparing keys may have left some here.
        state.work_off(&mut dropped);
        if self.left.load(Ordering::Acquire) == 0 {
            return dropped;
        }
        let mut tray = self.tray.lock();
        std::mem::swap(&mut tray.operations, &mut state.tray);
        self.left.store(0, Ordering::Release);
        self.urgent.store(false, Ordering::SeqCst);
        drop(tray);
        state.work_off(&mut dropped);
        if state.tray.capacity() > KEEP_CAPACITY {
            state.tray = VecDeque::new();
        }
        dropped
    }

    /// Gives the lock back, does what is left to do without it, and looks at the tray again.
    fn give_back(&self, state: Guard<'_, State<K>>, dropped: Vec<K>) {
        self.give_back_once(state, dropped);
        self.relieve();
    }

    fn give_back_once(&self, mut state: Guard<'_, State<K>>, mut dropped: Vec<K>) {
        let mut wakes = Wakes::default();
        state.settle(&mut wakes);
        if self.watch(&mut state) {
            // Of what came before it was watched nobody else will tell those who wait.
            dropped.extend(self.work_off(&mut state));
            state.settle(&mut wakes);
        }
        let after = After {
            wakes,
            dropped,
            durations: state.many_durations(),
            idle: state.phase == Phase::ShutDown && state.idle(),
        };
        drop(state);
        after.wakes.fire();
        if after.idle {
            self.idle.notify_waiters();
        }
        self.meters.report(after.durations);
        drop(after.dropped);
    }

    /// Has the tray watched for as long as anybody waits. Whether that begins now.
    fn watch(&self, state: &mut State<K>) -> bool {
        let watched = state.somebody_waits();
        if watched == state.watched {
            return false;
        }
        state.watched = watched;
        self.tray.lock().watched = watched;
        self.watched.store(watched, Ordering::Relaxed);
        watched
    }

    /// Works off what is urgent, unless somebody holds the lock, who then will.
    fn relieve(&self) {
        loop {
            // Between giving back the lock and looking at the mark here, and between setting the
            // mark and trying the lock there.
            fence(Ordering::SeqCst);
            if !self.urgent.load(Ordering::SeqCst) {
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
