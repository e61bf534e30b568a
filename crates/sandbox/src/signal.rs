//! Wakes all tasks that wait for a change, in the order in which they began to wait.
//!
//! `tokio::sync::watch` wakes its receivers in random order, so two runs of one seed would differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A notification that something has changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signal {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    changes: AtomicU64,
    notify: Notify,
}

/// A receiver of the notification. It does not see changes from before it was made.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    inner: Arc<Inner>,
    seen: u64,
}

impl Signal {
    /// Notifies all listeners.
    pub(crate) fn raise(&self) {
        self.inner.changes.fetch_add(1, Ordering::SeqCst);
        self.inner.notify.notify_waiters();
    }

    pub(crate) fn listen(&self) -> Listener {
        Listener {
            seen: self.inner.changes.load(Ordering::SeqCst),
            inner: Arc::clone(&self.inner),
        }
    }
}

impl Listener {
    /// Marks all changes up to now as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.inner.changes.load(Ordering::SeqCst);
    }

    /// Waits for a change that is not marked as seen. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            let waiting = self.inner.notify.notified();
            let now = self.inner.changes.load(Ordering::SeqCst);
            if now != self.seen {
                self.seen = now;
                return;
            }
            waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_change_before_the_wait_is_not_missed_and_a_seen_one_is_ignored() {
        let signal = Signal::default();
        signal.raise();
        let mut listener = signal.listen();
        signal.raise();
        listener.changed().await;
        let nothing = tokio::time::timeout(std::time::Duration::ZERO, listener.changed());
        assert!(nothing.await.is_err());
    }

    #[tokio::test]
    async fn listeners_are_woken_in_the_order_of_waiting() {
        let signal = Signal::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let (mut listener, woken) = (signal.listen(), Arc::clone(&woken));
                tokio::spawn(async move {
                    listener.changed().await;
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        signal.raise();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}
