//! Work on one key: observe, decide, execute, and what each answer of the server means.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::decision::{Notice, Severity};
use belayer_core::executor::{Class, Patched, Sent, Work};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Lookup, Reading, Stored};
use belayer_core::moment::LogicalTime;
use belayer_core::object::ObjectKey;
use belayer_core::slim::Slim;
use belayer_core::workqueue::{Backoff, Outcome, Priority};

use super::Shared;
use super::component::{AnyComponent, AnyWrite};
use super::component::{Asked, By, Considered, Recorded};
use super::merge::{Merged, merge};
use super::outcome::{Executed, What, count_unread, report};
use super::trace;

/// Retries on 409 before the key goes back to the queue.
const IN_PLACE_RETRIES: u32 = 5;

/// A look that far ahead is a resync.
const RESYNC: Duration = Duration::from_secs(60);

/// When each key was first known to be releasable, or to hang on one answer.
#[derive(Debug, Default)]
pub(super) struct Due(HashMap<ObjectKey, Instant>);

impl Due {
    pub(super) fn note(&mut self, key: &ObjectKey) {
        if !self.0.contains_key(key) {
            self.0.insert(key.clone(), Instant::now());
        }
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) -> Duration {
        self.0
            .remove(key)
            .map(|since| since.elapsed())
            .unwrap_or_default()
    }
}

/// What to do after an attempt.
enum Next<K> {
    End(Outcome),
    /// Decide again on this newer state of the object.
    Decide(Stored<K>),
}

impl<K: Slim> Shared<K> {
    pub(super) async fn work_on(&self, key: ObjectKey) -> Outcome {
        let mut work = self.tickets.begin(&key);
        let mut object = match self.store.lookup(&key) {
            // Unknown is never treated as absent: the key comes back.
            Lookup::Unknown => return Outcome::Retry(Backoff::ERROR),
            Lookup::Absent => return Outcome::Done,
            Lookup::Found(object) => object,
        };
        if self.own.park(&key, self.store.resource_version()) {
            // The cache may have caught up since the watermark was read.
            self.free(self.own.seen(self.store.resource_version()));
            return Outcome::Done;
        }
        for attempt in 0..=IN_PLACE_RETRIES {
            match self.attempt(&object, attempt, &mut work).await {
                Next::End(outcome) => return outcome,
                Next::Decide(newer) => object = newer,
            }
        }
        Outcome::Retry(Backoff::CONFLICT)
    }

    async fn attempt(&self, object: &Stored<K>, attempt: u32, work: &mut Work<'_>) -> Next<K> {
        let now = (self.clock)();
        let mut considered: Vec<Considered> = self
            .components
            .iter()
            .map(|component| component.consider(object, now))
            .collect();
        self.withhold(object.object.key(), &mut considered);
        trace::decided(attempt, considered.iter().map(|one| one.by));
        let regarding = self.regarding(&object.object);
        for one in &considered {
            for notice in &one.notices {
                match one.asked {
                    Asked::Now => self.events.tell_unless_answered(&regarding, notice),
                    Asked::Later | Asked::No => self.events.tell(&regarding, notice),
                }
            }
        }
        let again = considered.iter().filter_map(|one| one.look_again).min();
        let asked = considered.iter().any(|one| one.asked != Asked::No);
        let key = object.object.key();
        let end = self.later(key, again);
        let Some(merged) = merge(object.object.meta(), self.ours, considered) else {
            let mut due = self.due.lock();
            if asked {
                due.note(key);
            } else {
                due.forget(key);
            }
            return Next::End(end);
        };
        // A release takes no token. Whatever else is to be sent waits for one in line, not here: the
        // worker is free for the releases of others.
        if !matches!(merged, Merged::Release { .. }) && !work.may_send() {
            return Next::End(Outcome::Waiting);
        }
        let (patch, class) = match &merged {
            Merged::Release { patch, .. } => {
                self.due.lock().note(key);
                (patch, Class::Release)
            }
            Merged::Hold { patch, .. } => (patch, Class::Write),
            Merged::Record { by } => return self.record(object, *by, again).await,
            Merged::Delete { .. } => return self.delete(object, &merged, end).await,
        };
        match self
            .executor
            .patch(&self.resource, key, patch.body(), class)
            .await
        {
            Ok(patched) => {
                if let Patched::At(version) = patched {
                    self.own.wrote(key, version);
                }
                self.report(object, &merged, &patched);
                Next::End(end)
            }
            Err(error) => self.failed(object, &merged, error, (attempt, class)).await,
        }
    }

    /// While Belayer is drained nobody adds a hold, whatever the components say.
    fn withhold(&self, key: &ObjectKey, considered: &mut [Considered]) {
        let adds = |one: &Considered| matches!(one.write, Some(AnyWrite::AddHold(_)));
        if !considered.iter().any(adds) || self.may_hold(key) {
            return;
        }
        for one in considered.iter_mut().filter(|one| adds(one)) {
            one.write = None;
        }
    }

    /// Has the component write its record, then decides again.
    async fn record(&self, object: &Stored<K>, by: By, again: Option<Duration>) -> Next<K> {
        let key = object.object.key();
        let components = self.components.iter();
        let Some(component) = components
            .map(|component| &**component as &dyn AnyComponent<K>)
            .find(|component| component.name() == by.component)
        else {
            return Next::End(Outcome::Done);
        };
        match component.record(object, &self.executor).await {
            Ok(Recorded::Settled) => {
                self.tell(object, by, What::Recorded);
                Next::Decide(object.clone())
            }
            Ok(Recorded::Later(after)) => {
                let after = again.map_or(after, |again| again.min(after));
                Next::End(self.later(key, Some(after)))
            }
            Err(error) => {
                tracing::debug!(object = %key, %error, "a record was not written and will be tried again");
                let floor = error.retry_after().unwrap_or_default();
                Next::End(Outcome::Retry(Backoff::ERROR.at_least(floor)))
            }
        }
    }

    /// Deletes this very object: one of the same name that came after it is out of reach.
    async fn delete(&self, object: &Stored<K>, merged: &Merged, end: Outcome) -> Next<K> {
        let Merged::Delete { by, evidence } = merged else {
            return Next::End(end);
        };
        let (key, uid) = (object.object.key(), object.object.uid());
        let evidence = evidence.name();
        let error = match self.executor.delete(&self.resource, key, uid).await {
            Ok(Sent::Applied(_)) => {
                self.tell(object, *by, What::Deleted { evidence });
                return Next::End(end);
            }
            Ok(Sent::DryRun) => {
                let evidence = Some(evidence);
                self.tell(object, *by, What::Pretended { evidence });
                return Next::End(end);
            }
            Err(error) => error,
        };
        match error.class() {
            // Gone, or the name is another's: both have events of their own.
            ErrorClass::NotFound | ErrorClass::Conflict => Next::End(Outcome::Done),
            ErrorClass::Forbidden | ErrorClass::Invalid => {
                self.denied(object, merged, &error);
                Next::End(Outcome::Retry(Backoff::DENIED))
            }
            _ => {
                let floor = error.retry_after().unwrap_or_default();
                Next::End(Outcome::Retry(Backoff::ERROR.at_least(floor)))
            }
        }
    }

    /// A look in the far future is a resync: spread, and in the band of those.
    fn later(&self, key: &ObjectKey, again: Option<Duration>) -> Outcome {
        match again {
            Some(after) if after >= RESYNC => {
                let spread = after.mul_f64(belayer_core::ambient::unit() / 4.0);
                self.queue
                    .add_after(key.clone(), Priority::Resync, after + spread);
                Outcome::Done
            }
            Some(after) => Outcome::Again { after },
            None => Outcome::Done,
        }
    }

    fn report(&self, object: &Stored<K>, merged: &Merged, patched: &Patched) {
        let took = self.due.lock().forget(object.object.key());
        let dry = *patched == Patched::DryRun;
        let each = |by, evidence: Option<&'static str>| {
            let what = match evidence {
                evidence if dry => What::Pretended { evidence },
                Some(evidence) => What::Released { evidence, took },
                None => What::Held,
            };
            self.tell(object, by, what);
        };
        match merged {
            Merged::Release { releases, .. } => {
                for (by, release) in releases {
                    let evidence = release.evidence().name();
                    let has = |finalizer: &str| object.object.meta().has_finalizer(finalizer);
                    if has(release.hold()) {
                        each(*by, Some(evidence));
                        if release.evidence().is_traced() && !dry {
                            count_unread(evidence, "enforce", object.object.key());
                        }
                    }
                    let finalizers: Vec<_> = release
                        .adopted()
                        .iter()
                        .filter(|finalizer| has(finalizer))
                        .cloned()
                        .collect();
                    if !finalizers.is_empty() && !dry {
                        let finalizers = &finalizers;
                        self.tell(
                            object,
                            *by,
                            What::Adopted {
                                finalizers,
                                evidence,
                            },
                        );
                    }
                }
            }
            Merged::Hold { by, .. } => by.iter().for_each(|by| each(*by, None)),
            Merged::Record { .. } | Merged::Delete { .. } => {}
        }
    }

    fn tell(&self, object: &Stored<K>, by: By, what: What<'_>) {
        let (key, uid) = (object.object.key(), object.object.uid());
        trace::done(by, uid.as_str(), &what);
        report(&*self.observer, &Executed { by, key, uid, what });
    }

    /// The table of answers: every failure has a retry class.
    async fn failed(
        &self,
        object: &Stored<K>,
        merged: &Merged,
        error: RequestError,
        (attempt, class): (u32, Class),
    ) -> Next<K> {
        let key = object.object.key();
        match error.class() {
            ErrorClass::NotFound => {
                self.due.lock().forget(key);
                Next::End(Outcome::Done)
            }
            ErrorClass::Conflict => self.reread(object, attempt, class).await,
            ErrorClass::Invalid if error.names_uid() => self.reread(object, attempt, class).await,
            ErrorClass::Forbidden | ErrorClass::Invalid => {
                self.denied(object, merged, &error);
                Next::End(Outcome::Retry(Backoff::DENIED))
            }
            _ => {
                tracing::debug!(object = %key, error = %error, "a write failed and will be repeated");
                let floor = error.retry_after().unwrap_or_default();
                Next::End(Outcome::Retry(Backoff::ERROR.at_least(floor)))
            }
        }
    }

    /// A conflict: the object has changed. Takes the cached object if that is newer already, else reads it, in
    /// the class of the write: for a release that takes no token either.
    async fn reread(&self, object: &Stored<K>, attempt: u32, class: Class) -> Next<K> {
        if attempt == IN_PLACE_RETRIES {
            return Next::End(Outcome::Retry(Backoff::CONFLICT));
        }
        let ceiling = Duration::from_millis(2 << attempt);
        tokio::time::sleep(ceiling.mul_f64(belayer_core::ambient::unit())).await;
        let slim = &object.object;
        match self.store.lookup(slim.key()) {
            Lookup::Absent => return Next::End(Outcome::Done),
            Lookup::Found(newer) if newer.object.resource_version() > slim.resource_version() => {
                return Next::Decide(newer);
            }
            Lookup::Found(_) | Lookup::Unknown => {}
        }
        let request = Request::get(self.resource.object_path(slim.key()))
            .accept(self.decoders.accept(Reading::Object));
        let answer = match self.executor.read(&request, class).await {
            Ok(answer) => answer,
            Err(error) if error.class() == ErrorClass::NotFound => return Next::End(Outcome::Done),
            Err(error) => {
                let floor = error.retry_after().unwrap_or_default();
                return Next::End(Outcome::Retry(Backoff::CONFLICT.at_least(floor)));
            }
        };
        match self.decoders.read(&answer) {
            // Another object of that name: this one is gone, and its successor has events of its own.
            Ok(newer) if newer.uid() != slim.uid() => Next::End(Outcome::Done),
            Ok(newer) => Next::Decide(Stored {
                first_seen: object.first_seen,
                deletion_seen: object
                    .deletion_seen
                    .or_else(|| newer.meta().is_deleting().then(LogicalTime::now)),
                object: Arc::new(newer),
            }),
            Err(error) => {
                tracing::warn!(object = %slim.key(), error = %error, "the object cannot be read");
                Next::End(Outcome::Retry(Backoff::CONFLICT))
            }
        }
    }

    fn denied(&self, object: &Stored<K>, merged: &Merged, error: &RequestError) {
        let code = error.api().map_or(0, |api| api.code);
        let message = error.to_string();
        for by in merged.by() {
            self.tell(
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
            Merged::Record { .. } => ("RecordDenied", "write a record of this object"),
            Merged::Delete { .. } => ("CleanupDenied", "delete this object"),
        };
        let text = format!("Belayer may not {what} and will try again: {message}");
        let notice = Notice {
            severity: Severity::Warning,
            reason,
            message: text.into(),
        };
        self.events.tell(&self.regarding(&object.object), &notice);
    }
}
