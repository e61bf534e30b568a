use std::convert::Infallible;
use std::time::Duration;

use belayer_metrics::cause;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::state::WORKS;
use super::store::Fit;
use super::{Event, Informer, InformerState};
use crate::duration;
use crate::failure_log::{Failure, Recovered};
use crate::http::{ErrorClass, RequestError};
use crate::slim::Slim;

/// After this many events the task yields to others of its thread.
const EVENTS_PER_TURN: usize = 256;

/// Why a list is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is the first list.
    Initial,
    /// The server no longer has the history since the store's version: 410.
    Expired,
    /// The kind was not served for a while.
    Unserved,
    /// The server keeps sending events older than the store's version.
    Lagging,
    /// The server keeps refusing a watch from the store's version, or the next event does not identify its object.
    Refused,
    /// A list has an object that cannot be identified, or the server cannot decode one: only another list shows what exists.
    Unreadable,
}

impl Cause {
    /// The cause for a log line.
    fn message(self) -> &'static str {
        match self {
            Self::Initial => "it is the first list",
            Self::Expired => "the server no longer has the history since the last version",
            Self::Unserved => "the kind was not served for a while",
            Self::Lagging => "the server keeps sending events older than the last version",
            Self::Refused => {
                "the server keeps refusing a watch from the last version, or sends an event that cannot be read"
            }
            Self::Unreadable => "an object cannot be identified",
        }
    }
}

impl Cause {
    /// The cause as a metric label.
    pub(super) fn label(self, fit: Fit) -> &'static str {
        match (self, fit) {
            (Self::Initial, _) => cause::INITIAL,
            (_, Fit::Regresses) => cause::REWOUND,
            (Self::Expired, _) => cause::EXPIRED,
            (Self::Unserved | Self::Lagging | Self::Refused | Self::Unreadable, _) => cause::ERROR,
        }
    }
}

/// However the informer ends, also by a panic or before it ran: its store is not updated any more.
impl<K> Drop for Informer<K> {
    fn drop(&mut self) {
        self.store.stop();
    }
}

impl<K: Slim> Informer<K> {
    /// Lists and watches until `stop` is cancelled. The store then keeps its content, with the
    /// state [`InformerState::Stopped`].
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            never = self.reflect() => match never {},
        }
    }

    async fn reflect(&mut self) -> Infallible {
        let mut cause = Cause::Initial;
        loop {
            let stream = self.list_until_complete(cause).await;
            cause = self.watch_until_lost(stream).await;
            tracing::info!(
                kind = self.telemetry.kind(),
                why = cause.message(),
                "listing again"
            );
        }
    }

    /// Calls the handlers with the events, in order.
    pub(super) async fn notify_all(&self, events: Vec<Event<K>>) {
        for (count, event) in events.iter().enumerate() {
            if count % EVENTS_PER_TURN == EVENTS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            self.notify(event);
        }
    }

    pub(super) fn notify(&self, event: &Event<K>) {
        for handler in &self.handlers {
            handler.on(event);
        }
    }

    /// Logs the error and waits.
    pub(super) async fn back_off(&mut self, error: &RequestError) {
        if error.class() == ErrorClass::NotServed || error.class() == ErrorClass::NotFound {
            return self.wait_until_served().await;
        }
        let reason = error.message();
        let opened = self.opened.take();
        // After a watch that expired comes a list: its pauses grow (L5).
        let worked = opened.filter(|at| at.elapsed() >= WORKS && error.class() != ErrorClass::Gone);
        if worked.is_some() {
            self.works();
        }
        let delay = self.backoff.next(error.retry_after());
        match worked {
            // Some proxies end every quiet watch: no outage.
            Some(opened) => tracing::info!(
                kind = self.telemetry.kind(),
                reason,
                lasted = duration::format(opened.elapsed()),
                "a watch broke off; reopening it"
            ),
            None => self.log_failure(&reason, delay),
        }
        let since = *self.down.get_or_insert_with(Instant::now);
        self.store.set_state(InformerState::Failing {
            since,
            reason: reason.into(),
        });
        self.sleep(delay).await;
    }

    fn log_failure(&mut self, reason: &str, delay: Duration) {
        let kind = self.telemetry.kind();
        match self.failure_log.failed(reason) {
            Failure::First => tracing::warn!(
                kind,
                reason,
                "list or watch failed; retrying until it succeeds"
            ),
            Failure::NewCause => {
                tracing::warn!(
                    kind,
                    reason,
                    "list or watch still fails, with another error"
                );
            }
            Failure::Repeated => tracing::debug!(
                kind,
                reason,
                delay = duration::format(delay),
                "list or watch failed again"
            ),
        }
    }

    /// A watch works.
    pub(super) fn works(&mut self) {
        self.backoff.reset();
        self.down = None;
        self.log_recovery();
    }

    /// Logs the end of an outage that was logged.
    pub(super) fn log_recovery(&mut self) {
        if let Some(Recovered { lasted, attempts }) = self.failure_log.recovered() {
            let kind = self.telemetry.kind();
            let lasted = crate::duration::format(lasted);
            tracing::info!(kind, lasted, attempts, "list and watch work again");
        }
    }

    /// The server does not serve the kind. The store no longer knows which objects are absent.
    pub(super) async fn wait_until_served(&mut self) {
        self.store.set_state(InformerState::NotServed);
        if !self.unserved {
            self.unserved = true;
            tracing::info!(
                kind = self.telemetry.kind(),
                "the kind is not served; waiting for it"
            );
            self.store.unserve();
            self.notify(&Event::Unserved);
        }
        // The server has answered: nothing is silent.
        self.telemetry.contacted();
        tokio::time::sleep(self.backoff.next_unserved()).await;
    }

    pub(super) async fn sleep(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
        self.telemetry.waited();
    }

    /// Records that the server answers.
    pub(super) fn recovered(&mut self) {
        self.telemetry.contacted();
        self.failure_log.answered();
        if self.store.is_synced() {
            self.store.set_state(InformerState::Synced);
        }
    }
}
