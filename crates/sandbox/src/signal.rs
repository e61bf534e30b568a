//! Waking everybody who waits for a change, in the order in which they began to wait.
//!
//! `tokio::sync::watch` wakes its receivers in an order drawn by chance, which two runs of one seed would not share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Something changes now and then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signal {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    changes: AtomicU64,
    notify: Notify,
}

/// One who waits for changes. A change that happened before it was made is none.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    inner: Arc<Inner>,
    seen: u64,
}

impl Signal {
    /// Something has changed.
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
    /// What has changed up to now is known.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.inner.changes.load(Ordering::SeqCst);
    }

    /// Waits until something has changed that is not known yet. Cancel safe.
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
    async fn a_change_before_the_wait_is_not_missed_and_an_old_one_is_none() {
        let signal = Signal::default();
        signal.raise();
        let mut listener = signal.listen();
        signal.raise();
        listener.changed().await;
        let nothing = tokio::time::timeout(std::time::Duration::ZERO, listener.changed());
        assert!(nothing.await.is_err());
    }

    #[tokio::test]
    async fn those_who_waited_first_are_woken_first() {
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
