//! The namespace controller: deletes the content of a terminating namespace, then removes its finalizer.
//!
//! Pods are deleted first; nothing else is deleted until the last of them is gone.
//!
//! It runs in the [example](crate::simulated).

mod content;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use self::content::{Content, ContentStep, KUBERNETES, Target, changed, conditions, decide};
use super::agenda::Agenda;
use super::driver::{Change, Controller, Interest, Progress, served};
use super::object;
use crate::address::{Actor, Gvr, Subresource};
use crate::cluster::{Cluster, DeleteOptions, Patch, Preconditions, Propagation, WriteOptions};
use crate::error::ApiError;

/// The actor name of the namespace controller.
pub const ACTOR: &str = "namespace-controller";

/// Deletions per unit of work, so that other tasks can run in between.
const AT_ONCE: usize = 32;
/// Minimum time between two writes of the conditions, which contain counts that change with every object.
const REPORT_EVERY: Duration = Duration::from_secs(1);

type Name = Arc<str>;

pub(crate) struct Namespaces {
    cluster: Cluster,
    actor: Actor,
    namespaces: BTreeMap<Name, Arc<Value>>,
    contents: BTreeMap<Name, Content>,
    reports: BTreeMap<Name, Instant>,
    failures: BTreeMap<Name, Vec<String>>,
    agenda: Agenda<Name>,
}

impl Namespaces {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            actor: Actor::new(ACTOR),
            namespaces: BTreeMap::new(),
            contents: BTreeMap::new(),
            reports: BTreeMap::new(),
            failures: BTreeMap::new(),
            agenda: Agenda::default(),
        }
    }

    fn observe_namespace(&mut self, change: &Change) {
        match change {
            Change::Upserted(namespace) => {
                let name: Name = object::name(namespace).into();
                if object::is_deleting(namespace) {
                    self.agenda.add(Arc::clone(&name));
                }
                self.namespaces.insert(name, Arc::clone(namespace));
            }
            Change::Removed(namespace) => {
                let name = object::name(namespace);
                self.namespaces.remove(name);
                self.reports.remove(name);
                self.failures.remove(name);
                self.agenda.succeeded(&Name::from(name));
            }
        }
    }

    fn observe_content(&mut self, gvr: &Gvr, change: &Change) {
        let (Change::Upserted(object) | Change::Removed(object)) = change;
        let Some(namespace) = object::namespace(object) else {
            return;
        };
        let name: Name = namespace.into();
        let content = self.contents.entry(Arc::clone(&name)).or_default();
        match change {
            Change::Upserted(object) => content.upsert(gvr, object),
            Change::Removed(object) => content.remove(gvr, object::name(object)),
        }
        if content.is_empty() {
            self.contents.remove(&name);
        }
        if self
            .namespaces
            .get(&name)
            .is_some_and(|namespace| object::is_deleting(namespace))
        {
            self.agenda.add(name);
        }
    }

    fn process(&mut self, name: &Name, now: Instant) -> Result<(), ApiError> {
        let Some(namespace) = self.namespaces.get(name).map(Arc::clone) else {
            return Ok(());
        };
        // A failed deletion must not block the others.
        let limit = if self.failures.contains_key(name) {
            usize::MAX
        } else {
            AT_ONCE
        };
        let nothing = Content::default();
        let content = self.contents.get(name).unwrap_or(&nothing);
        match decide(&namespace, content, limit) {
            ContentStep::Nothing => Ok(()),
            ContentStep::SetTerminating => {
                self.patch_status(name, &json!({"phase": "Terminating"}))
            }
            ContentStep::Delete(targets) => self.delete(name, &targets, now),
            ContentStep::Wait => self.report(name, &namespace, now).map(drop),
            ContentStep::Finalize => {
                // The last report is written without regard to the interval.
                self.reports.remove(name);
                if self.report(name, &namespace, now)? == Report::Written {
                    self.agenda.add(Arc::clone(name));
                    return Ok(());
                }
                self.finalize(name, &namespace)
            }
        }
    }

    fn delete(&mut self, name: &Name, targets: &[Target], now: Instant) -> Result<(), ApiError> {
        let mut first = None;
        let mut failures = vec![];
        for target in targets {
            let options = DeleteOptions {
                propagation_policy: Some(Propagation::Background),
                preconditions: Preconditions {
                    uid: Some(target.uid.to_string()),
                    resource_version: None,
                },
                ..DeleteOptions::default()
            };
            let gvr = served(&self.cluster, &target.gvr);
            let deleted =
                self.cluster
                    .delete(&self.actor, &gvr, Some(name), &target.name, &options);
            match deleted {
                Ok(_) => {}
                // Gone, or replaced by another object of the same name: the log has an event for it.
                Err(error) if matches!(error.code, 404 | 409) && !error.is_not_served() => {}
                Err(error) => {
                    failures.push(error.message.clone());
                    first.get_or_insert(error);
                }
            }
        }
        let Some(error) = first else {
            self.failures.remove(name);
            self.agenda.add(Arc::clone(name));
            return Ok(());
        };
        failures.truncate(AT_ONCE);
        self.failures.insert(Arc::clone(name), failures);
        if let Some(namespace) = self.namespaces.get(name).map(Arc::clone) {
            self.report(name, &namespace, now)?;
        }
        Err(error)
    }

    /// Writes the conditions if they have changed and the interval has passed.
    fn report(&mut self, name: &Name, namespace: &Value, now: Instant) -> Result<Report, ApiError> {
        let nothing = Content::default();
        let content = self.contents.get(name).unwrap_or(&nothing);
        let failures = self.failures.get(name).map_or(&[][..], Vec::as_slice);
        let time = self.cluster.clock().now_rfc3339();
        let Some(conditions) = changed(namespace, &conditions(content, failures), &time) else {
            return Ok(Report::NothingNew);
        };
        if let Some(next) = self.reports.get(name).map(|last| *last + REPORT_EVERY)
            && next > now
        {
            self.agenda.add_at(Arc::clone(name), next);
            return Ok(Report::Later);
        }
        self.patch_status(name, &json!({"conditions": conditions}))?;
        self.reports.insert(Arc::clone(name), now);
        Ok(Report::Written)
    }

    fn patch_status(&self, name: &str, status: &Value) -> Result<(), ApiError> {
        let patch = Patch::Merge(json!({"status": status}));
        let options = WriteOptions::default();
        self.cluster
            .patch(
                &self.actor,
                &Gvr::NAMESPACES,
                None,
                name,
                patch,
                Subresource::Status,
                &options,
            )
            .map(drop)
    }

    fn finalize(&self, name: &str, namespace: &Value) -> Result<(), ApiError> {
        let finalizers = object::items(namespace, "/spec/finalizers");
        let left: Vec<&Value> = finalizers.iter().filter(|f| **f != KUBERNETES).collect();
        let mut finalized = namespace.clone();
        finalized["spec"] = json!({"finalizers": left});
        let options = WriteOptions::default();
        let face = Subresource::Finalize;
        self.cluster
            .update(
                &self.actor,
                &Gvr::NAMESPACES,
                None,
                name,
                finalized,
                face,
                &options,
            )
            .map(drop)
    }
}

/// The result of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Written,
    Later,
    NothingNew,
}

impl Controller for Namespaces {
    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, _: Instant) {
        if *gvr == Gvr::NAMESPACES {
            self.observe_namespace(change);
        } else {
            self.observe_content(gvr, change);
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        let Some(name) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        match self.process(&name, now) {
            Ok(()) => self.agenda.succeeded(&name),
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, namespace = %name, "namespace deletion will be retried");
                self.agenda.retry(name, now);
            }
        }
        Progress::Worked
    }
}
