//! Processing of one key: observe, decide, execute.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::conflict::{After, OnConflict};
use crate::decision::Reach;
use belayer_core::executor::{Patched, Work, Writes};
use belayer_core::http::RequestError;
use belayer_core::informer::{Lookup, Stored};
use belayer_core::object::ObjectKey;
use belayer_core::slim::Slim;
use belayer_core::workqueue::{Backoff, Outcome, Priority};

use super::Shared;
use super::component::{AnyWrite, Asked, By, Considered};
use super::merge::{Merged, Planned, merge, step_of};
use super::outcome::{Executed, What, count_unread, report};
use super::step::{AnyStep, StepContext, Stepped};
use super::trace;

/// Longest pause before a failed release or step is repeated, unless the server asks for more, and before an object is
/// looked up again: a deletion waits for it.
pub(super) const RETRY_CAP: Duration = Duration::from_secs(30);

/// Retries on 409 before the key is requeued.
pub(super) const IN_PLACE_RETRIES: u32 = 5;

/// A requeue after at least this time is a resync.
const RESYNC: Duration = Duration::from_secs(60);

/// A write that is refused for this time is reported as denied. The fault of a server is often over sooner.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// It is reported again after this time: often enough for alerts, which look back a quarter of an hour.
const REPORT_AGAIN: Duration = Duration::from_secs(300);

/// What is known of writes that are not done yet.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// When each key was first known to be releasable, or to wait for only one answer; not before the workers were
    /// started.
    since: HashMap<ObjectKey, Instant>,
    /// When the refused write of each key is to be reported.
    report: HashMap<ObjectKey, Instant>,
}

impl Due {
    pub(super) fn note(&mut self, key: &ObjectKey) {
        if !self.since.contains_key(key) {
            self.since.insert(key.clone(), Instant::now());
        }
    }

    /// Counts from now: before, this replica was a standby.
    pub(super) fn restart(&mut self) {
        let now = Instant::now();
        self.since.values_mut().for_each(|since| *since = now);
        self.report.clear();
    }

    /// The write of this key is refused: whether it has been for so long that it is to be reported now.
    pub(super) fn is_refused_for_long(&mut self, key: &ObjectKey) -> bool {
        let now = Instant::now();
        let report = self.report.entry_ref(key).or_insert(now + REFUSED_FOR);
        let is_due = *report <= now;
        if is_due {
            *report = now + REPORT_AGAIN;
        }
        is_due
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) -> Duration {
        if !self.report.is_empty() {
            self.report.remove(key);
        }
        self.since
            .remove(key)
            .map(|since| since.elapsed())
            .unwrap_or_default()
    }
}

/// What to do after an attempt.
pub(super) enum Next<K> {
    End(Outcome),
    /// Decide again on this newer state of the object.
    Decide(Stored<K>),
}

impl<K: Slim> Shared<K> {
    pub(super) async fn work_on(&self, key: ObjectKey) -> Outcome {
        let mut work = self.tickets.begin(&key);
        let mut object = match self.parts.store.lookup(&key) {
            // Unknown is never treated as absent: the key is requeued.
            Lookup::Unknown => return Outcome::Retry(Backoff::ERROR.at_most(RETRY_CAP)),
            Lookup::Absent => None,
            Lookup::Found(object) => Some(object),
        };
        if self
            .own
            .must_wait_for(&key, self.parts.store.resource_version())
        {
            // The cache may have caught up since the watermark was read.
            self.free(self.own.seen(self.parts.store.resource_version()));
            return Outcome::Done;
        }
        let removed = |object: &Stored<K>| {
            let version = object.object.resource_version();
            self.own.has_removed(&key, version)
        };
        if object.as_ref().is_some_and(removed) {
            return Outcome::Done;
        }
        for attempt in 0..=IN_PLACE_RETRIES {
            let next = self.attempt(&key, object.as_ref(), attempt, &mut work);
            match next.await {
                Next::End(outcome) => return outcome,
                Next::Decide(newer) => object = Some(newer),
            }
        }
        Outcome::Retry(Backoff::CONFLICT)
    }

    async fn attempt(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        attempt: u32,
        work: &mut Work<'_>,
    ) -> Next<K> {
        let now = (self.parts.clock)();
        let mut considered: Vec<Considered> = self
            .components
            .iter()
            .filter_map(|component| component.consider(key, object, now))
            .collect();
        self.withhold(key, &mut considered);
        trace::decided(attempt, considered.iter().map(|one| one.by));
        for one in &considered {
            self.parts.observer.decided(one.by);
            // The Events of a step are recorded once it is done.
            if !matches!(one.write, Some(AnyWrite::Step(_))) {
                self.notify(object, one, one.asked);
            }
        }
        let again = considered.iter().filter_map(|one| one.requeue_after).min();
        let due = considered.iter().filter_map(|one| one.due).min();
        // A query that waits does so because the evidence does not exist yet.
        let asked = considered.iter().any(|one| one.asked == Asked::Now);
        let end = self.later(key, again, due);
        let planned = match object {
            Some(object) => merge(object.object.meta(), &self.parts.finalizers, considered),
            None => step_of(considered),
        };
        let Some(planned) = planned else {
            let mut due = self.due.lock();
            if asked && object.is_some() {
                due.note(key);
            } else {
                due.forget(key);
            }
            return Next::End(end);
        };
        // A release needs no rate limit token, but a slot: few while the server is overloaded. Keys wait for both
        // in a queue, not here, so that the worker is free for others.
        let may_send = if matches!(planned, Planned::Write(Merged::Release { .. })) {
            self.due.lock().note(key);
            work.may_release(&self.parts.resource)
        } else {
            work.may_send()
        };
        if !may_send {
            return Next::End(Outcome::Waiting);
        }
        let (merged, object) = match (planned, object) {
            (Planned::Step(step, one), object) => {
                return self.step(key, object, (step, one), end).await;
            }
            (Planned::Write(merged), Some(object)) => (merged, object),
            (Planned::Write(_), None) => return Next::End(end),
        };
        if !merged.is_complete() {
            return self.read_live(object, merged.class()).await;
        }
        match self.send(object, &merged).await {
            Ok(()) => {
                self.report(object, &merged);
                Next::End(end)
            }
            Err(error) => self.failed(object, &merged, error, attempt).await,
        }
    }

    /// Records Events.
    fn notify(&self, object: Option<&Stored<K>>, one: &Considered, asked: Asked) {
        if one.notices.is_empty() {
            return;
        }
        let of_the_object = || object.map(|object| self.regarding(&object.object));
        let Some(regarding) = one.regarding.clone().or_else(of_the_object) else {
            return;
        };
        for notice in &one.notices {
            match asked {
                Asked::Now => self.parts.events.record_unless_answered(&regarding, notice),
                Asked::Later | Asked::No => self.parts.events.record(&regarding, notice),
            }
        }
    }

    /// Sends a write that the runner makes itself.
    async fn send(&self, object: &Stored<K>, merged: &Merged) -> Result<(), RequestError> {
        let (key, uid) = (object.object.key(), object.object.uid());
        let patch = match merged {
            Merged::Release { patch, .. } | Merged::Hold { patch, .. } => patch,
            // With the UID: a later object of the same name is not affected.
            Merged::Delete { .. } => {
                let deleted = self.parts.executor.delete(&self.parts.resource, key, uid);
                return deleted.await.map(drop);
            }
        };
        let meta = object.object.meta();
        let body = patch.body();
        let patched = self
            .parts
            .executor
            .patch(&self.parts.resource, key, body, merged.class());
        if let Patched::At {
            version,
            finalizers,
        } = patched.await?
        {
            let known = object.object.resource_version();
            if version > known {
                self.own.wrote(key, version);
            }
            let removes = meta.is_deleting() && patch.finalizers().is_empty();
            if patch.is_undone_in(&finalizers) || version <= known && !removes {
                return Err(RequestError::Unchanged);
            }
            if version <= known {
                self.own.removed(key, known);
                // Its deletion may have come before this answer: then no event removes the entry.
                match self.parts.store.lookup(key) {
                    Lookup::Unknown => {}
                    Lookup::Absent => {
                        self.own.forget(key);
                    }
                    // Which also removes the entry if that is another object.
                    Lookup::Found(now) => {
                        let _ = self.own.has_removed(key, now.object.resource_version());
                    }
                }
            }
        }
        Ok(())
    }

    /// While Belayer is drained no hold is added, whatever the components decide.
    fn withhold(&self, key: &ObjectKey, considered: &mut [Considered]) {
        let adds = |one: &Considered| matches!(one.write, Some(AnyWrite::AddHold(_)));
        if !considered.iter().any(adds) || self.may_hold(key) {
            return;
        }
        for one in considered.iter_mut().filter(|one| adds(one)) {
            one.write = None;
        }
    }

    /// Executes the step of the component.
    async fn step(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        (step, one): (AnyStep, Box<Considered>),
        end: Outcome,
    ) -> Next<K> {
        let context = StepContext {
            key,
            executor: &self.parts.executor,
            own: &self.own,
        };
        let error = match (step.take(&context).await, object) {
            (Ok(Stepped::Settled), Some(object)) => {
                self.publish(object, one.by, What::Recorded);
                return Next::Decide(object.clone());
            }
            (Ok(Stepped::Done | Stepped::Settled), _) => {
                self.notify(object, &one, Asked::No);
                return Next::End(end);
            }
            (Ok(Stepped::Later(after)), _) => {
                let after = match end {
                    Outcome::Again { after: sooner } => sooner.min(after),
                    _ => after,
                };
                return Next::End(Outcome::Again { after });
            }
            (Ok(Stepped::Retry(backoff)), _) => return Next::End(Outcome::Retry(backoff)),
            (Err(error), _) => error,
        };
        let about = (&self.parts.resource, key);
        Next::End(Outcome::Retry(
            match OnConflict::Requeue.after(&error, about) {
                After::Denied => {
                    tracing::warn!(controller = one.by.component, object = %key, %error, "the API server rejected a step, which will be retried");
                    Backoff::DENIED
                }
                After::Retry(backoff) => {
                    tracing::debug!(controller = one.by.component, object = %key, %error, "a step failed and will be retried");
                    backoff.at_most(RETRY_CAP)
                }
                After::Over | After::Read => Backoff::CONFLICT,
            },
        ))
    }

    /// Requeues the key. A distant requeue is a resync: spread randomly, with resync priority. An exact one is not
    /// spread.
    fn later(&self, key: &ObjectKey, again: Option<Duration>, due: Option<Duration>) -> Outcome {
        match (again, due) {
            (again, Some(due)) => Outcome::Again {
                after: again.map_or(due, |again| again.min(due)),
            },
            (Some(after), None) if after >= RESYNC => {
                let spread = after.mul_f64(belayer_core::rng::unit() / 4.0);
                self.parts
                    .queue
                    .add_after(key.clone(), Priority::Resync, after + spread);
                Outcome::Done
            }
            (Some(after), None) => Outcome::Again { after },
            (None, None) => Outcome::Done,
        }
    }

    fn report(&self, object: &Stored<K>, merged: &Merged) {
        let dry = self.parts.executor.writes() == Writes::DryRun;
        let each = |by, what: What<'_>| {
            let evidence = match what {
                What::Released { evidence, .. } | What::Deleted { evidence } => Some(evidence),
                _ => None,
            };
            let pretended = What::Pretended { evidence };
            self.publish(object, by, if dry { pretended } else { what });
        };
        match merged {
            Merged::Release { releases, .. } => {
                let took = self.due.lock().forget(object.object.key());
                for (by, release) in releases {
                    let evidence = release.evidence().name();
                    let has = |finalizer: &str| object.object.meta().has_finalizer(finalizer);
                    let removed: &[_] = match release.evidence().reach() {
                        Reach::OwnHold => &[release.hold()],
                        Reach::AllHolds => &self.parts.finalizers,
                    };
                    if removed.iter().any(|finalizer| has(finalizer)) {
                        each(*by, What::Released { evidence, took });
                        if has(release.hold()) && release.evidence().is_traced() && !dry {
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
                        self.publish(
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
            Merged::Hold { by, .. } => {
                self.due.lock().forget(object.object.key());
                by.iter().for_each(|by| each(*by, What::Held));
            }
            Merged::Delete { by, evidence } => {
                let evidence = evidence.name();
                each(*by, What::Deleted { evidence });
            }
        }
    }

    pub(super) fn publish(&self, object: &Stored<K>, by: By, what: What<'_>) {
        let (key, uid) = (object.object.key(), object.object.uid());
        trace::done(by, uid.as_str(), &what);
        report(&*self.parts.observer, &Executed { by, key, uid, what });
    }
}
