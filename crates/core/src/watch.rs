//! A value whose changes tasks can wait for: the part of `tokio::sync::watch` that is needed here,
//! except that tasks are woken in the order in which they began to wait.
//!
//! Tokio wakes them in random order, so two tasks that wait for one informer would continue in a
//! different order in each run of a simulation.
//!
//! ```
//! use belayer_core::watch;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let sender = watch::Sender::new(0);
//! let mut receiver = sender.subscribe();
//! sender.send_modify(|value| *value += 1);
//! assert_eq!(receiver.wait_for(|value| *value > 0).await, Ok(1));
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The sender was dropped: the value will not change any more. Returned by
/// [`Receiver::wait_for`](crate::watch::Receiver::wait_for); the [module's example](self) keeps
/// the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value will not change any more")]
pub struct Closed;

/// Changes the value. The [module's example](self) changes the value.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Waits for changes of the value. The [module's example](self) waits for a change.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    value: Mutex<T>,
    notify: Notify,
    /// The sender was dropped.
    closed: AtomicBool,
}

impl<T> Sender<T> {
    /// A value without receivers.
    pub fn new(value: T) -> Self {
        Self {
            shared: Arc::new(Shared {
                value: Mutex::new(value),
                notify: Notify::new(),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Locks and returns the current value. Hold the guard briefly: changes wait for it.
    pub fn borrow(&self) -> MutexGuard<'_, T> {
        self.shared.value.lock()
    }

    /// Changes the value and wakes the waiting tasks.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.shared.value.lock());
        self.shared.notify.notify_waiters();
    }

    /// Changes the value; wakes the waiting tasks only if `change` returns true. Returns what
    /// `change` returned.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = change(&mut self.shared.value.lock());
        if modified {
            self.shared.notify.notify_waiters();
        }
        modified
    }

    /// Returns a new receiver of the value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// Locks and returns the current value. Hold the guard briefly: changes wait for it.
    pub fn borrow(&self) -> MutexGuard<'_, T> {
        self.shared.value.lock()
    }

    /// Waits until `condition` is true, possibly at once, and returns the value for which it was.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the sender was dropped and the condition is false.
    pub async fn wait_for(&mut self, mut condition: impl FnMut(&T) -> bool) -> Result<T, Closed>
    where
        T: Clone,
    {
        loop {
            // Created before the check, so that a change in between wakes this task.
            let waiting = self.shared.notify.notified();
            let closed = self.shared.closed.load(Ordering::SeqCst);
            {
                let value = self.shared.value.lock();
                if condition(&value) {
                    return Ok(value.clone());
                }
            }
            if closed {
                return Err(Closed);
            }
            waiting.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_tasks_are_woken_in_order_and_see_the_end() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
                tokio::spawn(async move {
                    let seen = receiver.wait_for(|value| *value == 2).await;
                    woken.lock().push(number);
                    (seen, receiver.wait_for(|value| *value == 3).await)
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_modify(|value| *value = 1);
        assert!(!sender.send_if_modified(|_| false));
        tokio::task::yield_now().await;
        assert!(woken.lock().is_empty());
        sender.send_modify(|value| *value = 2);
        tokio::task::yield_now().await;
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.unwrap(), (Ok(2), Err(Closed)));
        }
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
    }
}
