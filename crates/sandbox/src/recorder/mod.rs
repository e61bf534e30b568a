//! Records who wrote what, so that tests can assert the writes and not only the final state.

mod asserts;
mod diff;
mod dump;
mod filter;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

pub use filter::WriteFilter;

use crate::address::{Actor, Gvr, ObjectKey};
use crate::clock::Clock;

/// The verb of a request. Part of a [`Write`](crate::Write); the [crate's example](crate) matches
/// patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a list of objects.
    List,
    /// Watch objects.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb's name in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// True for the five verbs that write.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// The result of a write. Part of a [`Write`](crate::Write). See the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The object changed (or would have, in a dry run).
    Applied,
    /// Accepted without a change.
    NoOp,
    /// Refused with this status code.
    Refused(u16),
}

/// One mutating request. The [crate's example](crate) compares the summaries.
#[derive(Debug, Clone)]
pub struct Write {
    /// Position in the record, from zero.
    pub index: usize,
    /// Cluster time.
    pub at: Timestamp,
    /// The author.
    pub actor: Actor,
    /// The verb.
    pub verb: Verb,
    /// The kind.
    pub resource: Gvr,
    /// `status`, `binding`, `eviction`, ...; empty for the object itself.
    pub subresource: &'static str,
    /// The object.
    pub key: ObjectKey,
    /// Its uid; empty when there is no such object.
    pub uid: String,
    /// Version after the write; unchanged by a no-op; zero when refused.
    pub resource_version: u64,
    /// The patch, or the object as it was sent when it was refused.
    pub body: Option<Arc<Value>>,
    /// The object after the write.
    pub object: Option<Arc<Value>>,
    /// `dryRun=All`.
    pub dry_run: bool,
    /// The result.
    pub outcome: Outcome,
}

impl Write {
    /// True when the store changed.
    pub fn changed(&self) -> bool {
        self.outcome == Outcome::Applied && !self.dry_run
    }

    /// One line without UIDs and times, which is the same in two runs of one seed.
    pub fn summary(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let outcome = match self.outcome {
            Outcome::Applied => "applied".to_owned(),
            Outcome::NoOp => "no-op".to_owned(),
            Outcome::Refused(code) => code.to_string(),
        };
        let dry_run = if self.dry_run { " dry-run" } else { "" };
        format!(
            "{} {} {}{slash}{} {} {outcome}{dry_run}",
            self.actor,
            self.verb.as_str(),
            self.resource,
            self.subresource,
            self.key,
        )
    }
}

/// What is recorded. An argument of
/// [`SandboxBuilder::recording`](crate::SandboxBuilder::recording); the [crate's example](crate)
/// keeps the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recording {
    /// Every mutating request, and how many requests of each kind there were.
    #[default]
    Everything,
    /// Only the number of requests: for clusters of millions of objects, because the record keeps every state
    /// of every object.
    Counts,
}

/// A position in the record. The [crate's example](crate) asserts all writes from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(usize);

/// The requests of one actor to one resource with one verb.
type RequestKey = (Actor, Verb, String);

#[derive(Debug, Default)]
struct Log {
    writes: Vec<Write>,
    requests: BTreeMap<RequestKey, u64>,
}

/// The record of one cluster. Cheap to clone; every clone is the same record. The [crate's
/// example](crate) asserts what it has recorded.
#[derive(Debug, Clone)]
pub struct Recorder {
    clock: Clock,
    recording: Recording,
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    pub(crate) fn new(clock: Clock, recording: Recording) -> Self {
        Recorder {
            clock,
            recording,
            log: Arc::default(),
        }
    }

    pub(crate) fn push(&self, mut write: Write) {
        if self.recording == Recording::Counts {
            return;
        }
        let mut log = self.log.lock();
        write.index = log.writes.len();
        write.at = self.clock.now();
        log.writes.push(write);
    }

    pub(crate) fn count(&self, actor: &Actor, verb: Verb, resource: &str) {
        let key = (actor.clone(), verb, resource.to_owned());
        *self.log.lock().requests.entry(key).or_default() += 1;
    }

    /// Every mutating request so far, in the order in which the server handled them.
    pub fn writes(&self) -> Vec<Write> {
        self.log.lock().writes.clone()
    }

    /// The mutating requests of one actor.
    pub fn writes_by(&self, actor: &str) -> Vec<Write> {
        self.log
            .lock()
            .writes
            .iter()
            .filter(|w| w.actor.as_str() == actor)
            .cloned()
            .collect()
    }

    /// The number of mutating requests.
    pub fn len(&self) -> usize {
        self.log.lock().writes.len()
    }

    /// Whether there was no mutating request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark(self.log.lock().writes.len())
    }

    /// Every mutating request after a mark.
    pub fn since(&self, mark: Mark) -> Vec<Write> {
        self.log
            .lock()
            .writes
            .get(mark.0..)
            .map(<[Write]>::to_vec)
            .unwrap_or_default()
    }

    /// How many requests an actor sent over HTTP or in-process, by verb and `resource.group`, including requests
    /// that a fault answered.
    pub fn requests_by(&self, actor: &str) -> BTreeMap<(Verb, String), u64> {
        let log = self.log.lock();
        let mine = log
            .requests
            .iter()
            .filter(|((who, _, _), _)| who.as_str() == actor);
        mine.map(|((_, verb, resource), n)| ((*verb, resource.clone()), *n))
            .collect()
    }

    /// How many requests of one kind an actor sent.
    pub fn requests(&self, actor: &str, verb: Verb, resource: &str) -> u64 {
        let key = (Actor::new(actor), verb, resource.to_owned());
        self.log.lock().requests.get(&key).copied().unwrap_or(0)
    }

    /// All actors that sent a request or wrote, ordered.
    pub fn actors(&self) -> Vec<Actor> {
        let log = self.log.lock();
        let mut actors: Vec<Actor> = log.requests.keys().map(|(who, _, _)| who.clone()).collect();
        actors.extend(log.writes.iter().map(|w| w.actor.clone()));
        actors.sort();
        actors.dedup();
        actors
    }

    /// Deletes the record. Earlier marks become invalid.
    pub fn clear(&self) {
        *self.log.lock() = Log::default();
    }
}
