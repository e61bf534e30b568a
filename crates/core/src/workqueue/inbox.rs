//! The lock around the queue's state, and an inbox of operations that need not wait for it.
//!
//! Producers and consumers that contend for one lock cost each other far more than the work under
//! it: they move its memory between processors, spin, sleep and are woken. An operation without a
//! result (an add; the end of work, if the lock is taken) is therefore put into the inbox, whose
//! own lock is held for one push only. The next thread that needs the state applies the pending
//! operations first, many at once. This is not visible from outside: every access to the state
//! begins with the pending operations, so an add that has returned has taken effect.
//!
//! No operation is left behind. While a waiter sleeps or the queue is closing, the inbox is
//! *watched*: the thread that puts in an operation makes sure that it is applied. So does a thread
//! that finds [`BATCH`] pending operations. If another thread holds the state's lock, that thread
//! applies them: the inbox is marked as *urgent*. The marking thread tries the lock after it sets
//! the mark, and the unlocking thread checks the mark after it unlocks: one of the two sees the
//! other.

use std::collections::VecDeque;
use std::ops::Deref;

use super::durations::Durations;
use super::metrics::Meters;
use super::priority::Ageing;
use super::state::operation::Operation;
use super::state::{Phase, State};
use super::sync::{AtomicBool, AtomicUsize, Guard, Lock, Notify, Ordering, fence};
use super::wait::Wakes;

/// How many operations may be pending in an inbox that is not watched. It bounds the memory of keys
/// that would merge.
const BATCH: usize = 128;

/// An inbox that has grown beyond this many operations, because the lock was held for long, frees
/// its memory when it is empty.
const KEEP_CAPACITY: usize = 4096;

/// The state with its lock, the pending operations, and the flags between them.
pub(super) struct Inbox<K> {
    state: CachePadded<Lock<State<K>>>,
    pending: CachePadded<Lock<Pending<K>>>,
    /// The number of pending operations.
    pending_len: CachePadded<AtomicUsize>,
    /// A copy of the flag in [`Pending`], as a hint.
    watched: AtomicBool,
    /// Whether a thread must apply the pending operations.
    urgent: AtomicBool,
    pub(super) meters: Meters,
    /// Notified when the queue is shut down and no key is being processed.
    pub(super) idle: Notify,
}

/// A value in cache lines of its own: threads that read its neighbours do not wait for threads that
/// write it.
#[repr(align(128))]
struct CachePadded<T>(T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[derive(Debug)]
struct Pending<K> {
    operations: VecDeque<Operation<K>>,
    watched: bool,
}

/// What is left to do after the lock is released.
#[derive(Debug)]
struct After<K> {
    /// A waker may run any code, including this queue's methods.
    wakes: Wakes,
    /// Dropping a key may also run any code.
    dropped: Vec<K>,
    /// So may a metrics recorder.
    durations: Option<Durations>,
    idle: bool,
}

impl<K: Eq> Inbox<K> {
    pub(super) fn new(ageing: Ageing, meters: Meters) -> Self {
        Self {
            state: CachePadded(Lock::new(State::new(ageing, meters.durations()))),
            pending: CachePadded(Lock::new(Pending {
                operations: VecDeque::new(),
                watched: false,
            })),
            pending_len: CachePadded(AtomicUsize::new(0)),
            watched: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            meters,
            idle: Notify::new(),
        }
    }

    /// Runs `act` on the state, after the pending operations. The keys that it returns are dropped
    /// without the lock.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State<K>) -> (R, Vec<K>)) -> R {
        let mut state = self.state.lock();
        let mut dropped = self.apply_pending(&mut state);
        let (result, more) = act(&mut state);
        dropped.extend(more);
        self.unlock(state, dropped);
        result
    }

    /// Reads the state, after the pending operations.
    pub(super) fn read<R>(&self, read: impl FnOnce(&State<K>) -> R) -> R {
        self.with(|state| (read(state), Vec::new()))
    }

    /// Reports the collected durations, however few.
    pub(super) fn report_durations(&self) {
        let durations = self.with(|state| (state.take_durations(), Vec::new()));
        self.meters.report(durations);
    }

    /// Applies the operation now, or at the latest before the next access to the state.
    pub(super) fn submit(&self, operation: Operation<K>) {
        if self.tries_lock_first(&operation)
            && let Some(mut state) = self.state.try_lock()
        {
            let mut dropped = self.apply_pending(&mut state);
            state.apply(operation, &mut dropped);
            return self.unlock(state, dropped);
        }
        let mut pending = self.pending.lock();
        pending.operations.push_back(operation);
        let len = pending.operations.len();
        self.pending_len.store(len, Ordering::Release);
        let urgent = pending.watched || len >= BATCH;
        if urgent {
            self.urgent.store(true, Ordering::SeqCst);
        }
        drop(pending);
        if urgent {
            self.apply_if_urgent();
        }
    }

    /// Whether the lock should be tried first: a waiter waits for the operation, or it is the end
    /// of work, whose worker takes the next key and needs the state anyway.
    fn tries_lock_first(&self, operation: &Operation<K>) -> bool {
        matches!(operation, Operation::Finish { .. }) || self.watched.load(Ordering::Relaxed)
    }

    /// The number of pending operations.
    #[cfg(test)]
    pub(super) fn pending_len(&self) -> usize {
        self.pending.lock().operations.len()
    }

    /// Applies the pending operations. Returns keys to drop without the lock.
    fn apply_pending(&self, state: &mut State<K>) -> Vec<K> {
        let mut dropped = Vec::new();
        // A panic in comparing keys may have left operations here.
        state.apply_pending(&mut dropped);
        if self.pending_len.load(Ordering::Acquire) == 0 {
            return dropped;
        }
        let mut pending = self.pending.lock();
        std::mem::swap(&mut pending.operations, &mut state.pending);
        self.pending_len.store(0, Ordering::Release);
        self.urgent.store(false, Ordering::SeqCst);
        drop(pending);
        state.apply_pending(&mut dropped);
        if state.pending.capacity() > KEEP_CAPACITY {
            state.pending = VecDeque::new();
        }
        dropped
    }

    /// Releases the lock, does what is left to do without it, and checks for urgent operations.
    fn unlock(&self, state: Guard<'_, State<K>>, dropped: Vec<K>) {
        self.unlock_once(state, dropped);
        self.apply_if_urgent();
    }

    fn unlock_once(&self, mut state: Guard<'_, State<K>>, mut dropped: Vec<K>) {
        let mut wakes = Wakes::default();
        state.settle(&mut wakes);
        if self.watch(&mut state) {
            // Operations submitted before the inbox was watched have not woken the waiters.
            dropped.extend(self.apply_pending(&mut state));
            state.settle(&mut wakes);
        }
        let after = After {
            wakes,
            dropped,
            durations: state.batch_of_durations(),
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

    /// Sets whether the inbox is watched. Returns whether that begins now.
    fn watch(&self, state: &mut State<K>) -> bool {
        let watched = state.has_waiters();
        if watched == state.watched {
            return false;
        }
        state.watched = watched;
        self.pending.lock().watched = watched;
        self.watched.store(watched, Ordering::Relaxed);
        watched
    }

    /// Applies urgent operations, unless another thread holds the lock; then that thread applies
    /// them.
    fn apply_if_urgent(&self) {
        loop {
            // Orders the release of the lock before the read of the mark, and in the other thread
            // the write of the mark before the attempt to lock.
            fence(Ordering::SeqCst);
            if !self.urgent.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut state) = self.state.try_lock() else {
                return;
            };
            let dropped = self.apply_pending(&mut state);
            self.unlock_once(state, dropped);
        }
    }
}
