//! Whether this process may write, and until when.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

use crate::http::RequestError;
use crate::watch;

/// The leave to write to the cluster. Cheap to clone, asked before every write.
///
/// Without an election it never ends. With one it lasts until a deadline that each renewal moves;
/// a write that is under way when it ends is given up, so that nothing is in flight when somebody
/// else begins.
#[derive(Debug, Clone)]
pub struct Leadership(Option<watch::Receiver<State>>);

/// Changes a [`Leadership`]. Dropping it ends the leadership.
#[derive(Debug)]
pub struct LeaseGuard(watch::Sender<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    until: Option<Instant>,
}

impl Leadership {
    /// That of a process that shares the cluster with nobody.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// One that has not begun, and what begins and ends it.
    pub fn elected() -> (LeaseGuard, Self) {
        let sender = watch::Sender::new(State { until: None });
        let receiver = sender.subscribe();
        (LeaseGuard(sender), Self(Some(receiver)))
    }

    /// Whether a write may begin now.
    pub fn may_write(&self) -> bool {
        match &self.0 {
            None => true,
            Some(state) => state
                .borrow()
                .until
                .is_some_and(|until| Instant::now() < until),
        }
    }

    /// Waits until a write may begin. Never, if it ended before it began.
    pub async fn begun(&self) {
        let Some(state) = &self.0 else { return };
        let mut state = state.clone();
        loop {
            let leads = |state: &State| state.until.is_some_and(|until| Instant::now() < until);
            if state.wait_for(leads).await.is_err() {
                std::future::pending::<()>().await;
            }
            if self.may_write() {
                return;
            }
        }
    }

    /// Waits until no write may begin any more.
    pub async fn ended(&self) {
        let Some(state) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            let until = state.borrow().until;
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            let mut changes = state.clone();
            tokio::select! {
                () = sleep_until(until) => {}
                // Renewals need no look: the deadline is read again when it has come.
                _ = changes.wait_for(|state| state.until.is_none()) => return,
            }
        }
    }

    /// Does `write` while it lasts.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotLeading`] when it has not begun or ended meanwhile: then the write may
    /// have been applied. Otherwise what `write` answers.
    pub async fn within<T>(
        &self,
        write: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        if self.0.is_none() {
            return write.await;
        }
        let (mut write, mut ended) = (pin!(write), pin!(self.ended()));
        poll_fn(|cx| {
            // The clock itself, before every step: in a process that was frozen the timers are as
            // late as it is, and a request that waited for its connection would go out first.
            if !self.may_write() || ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(RequestError::NotLeading));
            }
            write.as_mut().poll(cx)
        })
        .await
    }
}

impl LeaseGuard {
    /// Writes may begin until then.
    pub fn extend(&self, until: Instant) {
        self.0.send_modify(|state| state.until = Some(until));
    }

    /// No write may begin or be waited for any more.
    pub fn end(&self) {
        self.0.send_modify(|state| state.until = None);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.end();
    }
}
