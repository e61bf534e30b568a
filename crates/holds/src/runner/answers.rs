//! How each answer of the server to a write is handled.

use std::sync::Arc;
use std::time::Duration;

use crate::conflict::After;
use crate::decision::Notice;
use belayer_core::executor::Class;
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Lookup, Reading, Stored};
use belayer_core::logical_time::LogicalTime;
use belayer_core::slim::{Slim, Transition};
use belayer_core::workqueue::{Backoff, Outcome, Priority};

use super::Shared;
use super::merge::Merged;
use super::outcome::What;
use super::work::{IN_PLACE_RETRIES, Next, RETRY_CAP};

impl<K: Slim> Shared<K> {
    /// Every failure has a retry class.
    pub(super) async fn failed(
        &self,
        object: &Stored<K>,
        merged: &Merged,
        error: RequestError,
        attempt: u32,
    ) -> Next<K> {
        let key = object.object.key();
        match merged
            .on_conflict()
            .after(&error, (&self.parts.resource, key))
        {
            After::Over => {
                self.due.lock().forget(key);
                Next::End(Outcome::Done)
            }
            After::Read => match self.reread(object, attempt, merged.class()).await {
                // Still the version that the patch names: the conflict is not about it, but the word of a webhook.
                Next::Decide(live) if attempt == IN_PLACE_RETRIES && is_same(&live, object) => {
                    self.denied(object, merged, &error)
                }
                next => next,
            },
            After::Denied => self.denied(object, merged, &error),
            After::Retry(backoff) => {
                if is_refusal(&error) && self.due.lock().is_refused_for_long(key) {
                    self.report_denied(object, merged, &error);
                }
                tracing::debug!(object = %key, error = %error, "a write failed and will be retried");
                let backoff = match merged.class() {
                    Class::Release => backoff.at_most(RETRY_CAP),
                    _ => backoff,
                };
                Next::End(Outcome::Retry(backoff))
            }
        }
    }

    /// A conflict: the object has changed. Uses the cached object if it is newer already, else reads the object, in
    /// the class of the write: for a release without a rate limit token.
    async fn reread(&self, object: &Stored<K>, attempt: u32, class: Class) -> Next<K> {
        let ceiling = Duration::from_millis(2 << attempt);
        tokio::time::sleep(ceiling.mul_f64(belayer_core::rng::unit())).await;
        let slim = &object.object;
        match self.parts.store.lookup(slim.key()) {
            Lookup::Absent => return Next::End(Outcome::Done),
            Lookup::Found(newer) if newer.object.resource_version() > slim.resource_version() => {
                return Next::Decide(newer);
            }
            Lookup::Found(_) | Lookup::Unknown => {}
        }
        self.read_live(object, class).await
    }

    /// Reads the object live, with all its finalizers.
    pub(super) async fn read_live(&self, object: &Stored<K>, class: Class) -> Next<K> {
        let slim = &object.object;
        let request = Request::get(self.parts.resource.object_path(slim.key()))
            .accept(self.parts.decoders.accept(Reading::Object));
        let answer = match self.parts.executor.read(&request, class).await {
            Ok(answer) => answer,
            Err(error) if error.class() == ErrorClass::NotFound => return Next::End(Outcome::Done),
            Err(error) => {
                let floor = error.retry_after().unwrap_or_default();
                return Next::End(Outcome::Retry(Backoff::CONFLICT.at_least(floor)));
            }
        };
        match self.parts.decoders.read(&answer) {
            // Another object has the name: this one is gone, and the other one has its own events.
            Ok(newer) if newer.uid() != slim.uid() => Next::End(Outcome::Done),
            Ok(mut newer) => {
                self.unreadable.lock().remove(slim.key());
                self.follow(slim, &mut newer, class);
                let is_deleting = newer.meta().is_deleting();
                let seen = || object.deletion_seen.unwrap_or_else(LogicalTime::now);
                Next::Decide(Stored {
                    first_seen: object.first_seen,
                    deletion_seen: is_deleting.then(seen),
                    object: Arc::new(newer),
                })
            }
            Err(error) => {
                if self.unreadable.lock().insert(slim.key().clone()) {
                    tracing::warn!(object = %slim.key(), error = %error, "the object cannot be read");
                }
                // No other answer is to be expected until a client changes the object.
                Next::End(Outcome::Retry(Backoff::ERROR.at_most(RETRY_CAP)))
            }
        }
    }

    /// Gives a live object what the store knows of its earlier versions, and has the key decided again once the store has
    /// that version: what the store then knows may be more, and its event may show no difference.
    fn follow(&self, stored: &K, newer: &mut K, class: Class) {
        let version = newer.resource_version();
        if version == stored.resource_version() {
            newer.inherit(stored, Transition::Watched);
            return;
        }
        newer.inherit(stored, Transition::Missed);
        let priority = match class {
            Class::Release => Priority::Release,
            _ => Priority::Normal,
        };
        self.own.wrote(newer.key(), version);
        self.parts.queue.add(newer.key().clone(), priority);
    }

    fn denied(&self, object: &Stored<K>, merged: &Merged, error: &RequestError) -> Next<K> {
        self.report_denied(object, merged, error);
        Next::End(Outcome::Retry(Backoff::DENIED))
    }

    fn report_denied(&self, object: &Stored<K>, merged: &Merged, error: &RequestError) {
        let code = error.api().map_or(0, |api| api.code);
        let message = error.to_string();
        for by in merged.by() {
            self.publish(
                object,
                by,
                What::Denied {
                    code,
                    message: &message,
                },
            );
        }
        let (reason, what) = match merged {
            Merged::Release { .. } => ("ReleaseDenied", "release this object"),
            Merged::Hold { .. } => ("HoldDenied", "hold this object"),
            Merged::Delete { .. } => ("CleanupDenied", "delete this object"),
        };
        let text = format!("Belayer cannot {what} and will retry: {message}");
        let notice = Notice::warning(reason, text);
        self.parts
            .events
            .record(&self.regarding(&object.object), &notice);
    }
}

/// Whether both are the same version of an object.
fn is_same<K: Slim>(one: &Stored<K>, other: &Stored<K>) -> bool {
    let (one, other) = (&one.object, &other.object);
    one.uid() == other.uid() && one.resource_version() == other.resource_version()
}

/// Whether the server refuses the write for another reason than its load: 500 if a webhook cannot be called, or any code
/// that a webhook chooses.
fn is_refusal(error: &RequestError) -> bool {
    let busy = |code| matches!(code, 429 | 503 | 504);
    error.api().is_some_and(|api| !busy(api.code))
}
