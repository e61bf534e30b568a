//! The primitives under the inbox, in one place so that a model checker can replace them.

use std::hint::spin_loop;

use parking_lot::{Mutex, MutexGuard};

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(super) use tokio::sync::Notify;

/// How often a thread that finds the lock taken pauses and tries again before it sleeps.
const ATTEMPTS: usize = 10;

/// How long it pauses: some microseconds, many times as long as the lock is held.
const PAUSES: usize = 100;

/// The guard of a lock.
pub(super) type Guard<'a, T> = MutexGuard<'a, T>;

/// A lock that is held for less than a microsecond, very often.
///
/// Processors that use it alternately spend their time waiting for each other's memory. A thread
/// that finds it taken therefore pauses for long: in the meantime the holder does many operations
/// in a row with a warm cache, and then they change over.
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(inner: T) -> Self {
        Self(Mutex::new(inner))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_later())
    }

    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }

    #[cold]
    fn lock_later(&self) -> Guard<'_, T> {
        for _ in 0..ATTEMPTS {
            for _ in 0..PAUSES {
                spin_loop();
            }
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }
}
