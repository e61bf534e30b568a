use std::convert::Infallible;
use std::time::Duration;

use belayer_metrics::cause;
use tokio_util::sync::CancellationToken;

use super::store::Fit;
use super::{Event, Informer, InformerState, Store};
use crate::duration;
use crate::failure_log::{News, Over};
use crate::http::{ErrorClass, RequestError};
use crate::slim::Slim;

/// Events after which other tasks of the thread get a turn.
const EVENTS_PER_TURN: usize = 256;

/// Why a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is the first.
    Initial,
    /// The server no longer has the history since our version: 410.
    Expired,
    /// The kind was not served for a while.
    Unserved,
    /// The server keeps telling of a time before our version.
    Lagging,
    /// The server keeps refusing to go on from our version.
    Refused,
    /// Something came that did not even say whose it was: only a list can tell what is there.
    Unreadable,
}

impl Cause {
    /// For a log line.
    fn in_words(self) -> &'static str {
        match self {
            Self::Initial => "it is the first list",
            Self::Expired => "the server no longer has the history since the last version",
            Self::Unserved => "the kind was not served for a while",
            Self::Lagging => "the server keeps answering from before the last version",
            Self::Refused => "the server keeps refusing a watch from the last version",
            Self::Unreadable => {
                "the watch sent something that does not say which object it is about"
            }
        }
    }
}

impl Cause {
    /// As a metric label.
    pub(super) fn label(self, fit: Fit) -> &'static str {
        match (self, fit) {
            (Self::Initial, _) => cause::INITIAL,
            (_, Fit::Regresses) => cause::REWOUND,
            (Self::Expired, _) => cause::EXPIRED,
            (Self::Unserved | Self::Lagging | Self::Refused | Self::Unreadable, _) => cause::ERROR,
        }
    }
}

/// Tells readers when the informer ends, however it ends.
struct Running<K: Slim>(Store<K>);

impl<K: Slim> Drop for Running<K> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<K: Slim> Informer<K> {
    /// Lists and watches until `stop` is cancelled. The store keeps what it has then, and says
    /// [`InformerState::Stopped`].
    pub async fn run(mut self, stop: CancellationToken) {
        let _running = Running(self.store.clone());
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
                why = cause.in_words(),
                "listing again"
            );
        }
    }

    /// Tells the handlers, in order.
    pub(super) async fn emit(&self, events: Vec<Event<K>>) {
        for (count, event) in events.iter().enumerate() {
            if count % EVENTS_PER_TURN == EVENTS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            self.tell(event);
        }
    }

    pub(super) fn tell(&self, event: &Event<K>) {
        for handler in &self.handlers {
            handler.on(event);
        }
    }

    /// Says what went wrong, and waits.
    pub(super) async fn back_off(&mut self, error: &RequestError) {
        if error.class() == ErrorClass::NotServed || error.class() == ErrorClass::NotFound {
            return self.wait_until_served().await;
        }
        let delay = self.backoff.next(error.retry_after());
        let reason = error.in_words();
        let since = match self.store.state() {
            InformerState::Failing { since, .. } => since,
            _ => tokio::time::Instant::now(),
        };
        self.tell_failure(&reason, delay);
        self.store.set_state(InformerState::Failing {
            since,
            reason: reason.into(),
        });
        self.sleep(delay).await;
    }

    fn tell_failure(&mut self, reason: &str, delay: Duration) {
        let kind = self.telemetry.kind();
        match self.failure_log.fails(reason) {
            News::Begins => tracing::warn!(
                kind,
                reason,
                "list or watch failed; it is tried again until it succeeds"
            ),
            News::OtherCause => {
                tracing::warn!(kind, reason, "list or watch fails for another reason");
            }
            News::None => tracing::debug!(
                kind,
                reason,
                delay = duration::format(delay),
                "list or watch failed again"
            ),
        }
    }

    /// What was told to fail succeeds.
    pub(super) fn works_again(&mut self) {
        if let Some(Over { lasted, tries }) = self.failure_log.ends() {
            let kind = self.telemetry.kind();
            let lasted = crate::duration::format(lasted);
            tracing::info!(kind, lasted, tries, "list and watch work again");
        }
    }

    /// The server does not know the kind. What is stored no longer says what is absent.
    pub(super) async fn wait_until_served(&mut self) {
        self.store.set_state(InformerState::NotServed);
        if !self.unserved {
            self.unserved = true;
            tracing::info!(
                kind = self.telemetry.kind(),
                "the kind is not served, waiting for it"
            );
            self.store.unserve();
            self.tell(&Event::Unserved);
        }
        let delay = self.backoff.next_unserved();
        self.sleep(delay).await;
    }

    pub(super) async fn sleep(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
        self.telemetry.waited();
    }

    /// The server answers.
    pub(super) fn recovered(&mut self) {
        self.telemetry.heard();
        self.failure_log.answered();
        if self.store.is_synced() {
            self.store.set_state(InformerState::Synced);
        }
    }
}
