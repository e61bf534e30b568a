//! Whether this process may write, and until when.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

use crate::http::RequestError;
use crate::watch;

/// Permission to write to the cluster. Cheap to clone, checked before every write.
///
/// Without an election it never ends. With one it lasts until a deadline that each renewal extends.
/// A write that is under way at its end is cancelled, so that nothing is in flight when another
/// replica begins.
///
/// The example of [`Elector`](crate::election::Elector) waits for one to begin.
#[derive(Debug, Clone)]
pub struct Leadership(Option<watch::Receiver<State>>);

/// Extends or ends a [`Leadership`]. Dropping it ends the leadership.
///
/// ```
/// use std::time::Duration;
/// use belayer_core::Leadership;
/// use tokio::time::Instant;
///
/// let (guard, leadership) = Leadership::elected();
/// assert!(!leadership.may_write());
/// guard.extend(Instant::now() + Duration::from_secs(10));
/// assert!(leadership.may_write());
/// drop(guard);
/// assert!(!leadership.may_write());
/// ```
#[derive(Debug)]
pub struct LeaseGuard(watch::Sender<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    until: Option<Instant>,
}

impl Leadership {
    /// The leadership of a process without an election.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// A leadership that has not begun, and the guard that begins and ends it.
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

    /// Waits until a write may begin; never returns if the leadership ended before.
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
                // Renewals need no wake-up: the deadline is read again when it has passed.
                _ = changes.wait_for(|state| state.until.is_none()) => return,
            }
        }
    }

    /// Runs `write` while the leadership lasts.
    ///
    /// # Errors
    ///
    /// [`RequestError::NotLeading`] if the leadership has not begun, or ended in the meantime: then
    /// the write may have been applied. Otherwise the error of `write`.
    pub async fn within<T>(
        &self,
        write: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        if self.0.is_none() {
            return write.await;
        }
        let (mut write, mut ended) = (pin!(write), pin!(self.ended()));
        poll_fn(|cx| {
            // Checks the clock before every step. In a process that was frozen the timers fire late
            // too, and a request that waited for its connection would be sent first.
            if !self.may_write() || ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(RequestError::NotLeading));
            }
            write.as_mut().poll(cx)
        })
        .await
    }
}

impl LeaseGuard {
    /// Allows writes to begin until then.
    pub fn extend(&self, until: Instant) {
        self.0.send_modify(|state| state.until = Some(until));
    }

    /// Forbids new writes and cancels those under way.
    pub fn end(&self) {
        self.0.send_modify(|state| state.until = None);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.end();
    }
}
