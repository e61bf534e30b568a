//! The primitives under the desk, in one place so that a model checker's can stand in for them.

use parking_lot::{Mutex, MutexGuard};

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(super) use tokio::sync::Notify;

/// What holds a lock.
pub(super) type Guard<'a, T> = MutexGuard<'a, T>;

/// A lock.
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(inner: T) -> Self {
        Self(Mutex::new(inner))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.0.lock()
    }

    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }
}
