//! The primitives under the slots, in one place so that a model checker can replace them.

use parking_lot::{Mutex, MutexGuard};

/// Cancels one run.
pub(super) use tokio_util::sync::CancellationToken as Token;

/// Wakes one worker. A signal given while it does not wait is kept.
pub(super) use tokio::sync::Notify as Signal;

/// The lock of the slots.
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(inner: T) -> Self {
        Self(Mutex::new(inner))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }
}
