//! Shared by all writes: one lock, one entry in the record, one notification.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::written::{Effect, Written};
use super::{Cluster, Consequence, State, at_version};
use crate::address::{Actor, Gvr, ObjectKey};
use crate::error::{ApiError, Reason};
use crate::meta;
use crate::recorder::{Outcome, Verb, Write};

/// The record's entry of a write, before it is tried.
pub(super) struct Entry<'a> {
    pub(super) actor: &'a Actor,
    pub(super) verb: Verb,
    pub(super) gvr: &'a Gvr,
    pub(super) subresource: &'static str,
    pub(super) key: ObjectKey,
    pub(super) body: Option<Arc<Value>>,
    pub(super) dry_run: bool,
}

impl Cluster {
    /// Runs a write under the lock and records it there, so that the record's order is the store's.
    pub(super) fn write(
        &self,
        entry: Entry<'_>,
        work: impl FnOnce(&mut State) -> Result<Written, ApiError>,
    ) -> Result<Written, ApiError> {
        let mut state = self.inner.state.lock();
        let before = state.rv;
        let info = state.kinds.find(entry.gvr).cloned();
        let version = entry.gvr.version.clone();
        state.author = Some(entry.actor.clone());
        let result = work(&mut state);
        state.author = None;
        let warnings = std::mem::take(&mut state.warnings);
        if !State::is_waiting() {
            self.recorder().push(record(entry, &result));
        }
        for consequence in std::mem::take(&mut state.consequences) {
            self.record_consequence(consequence);
        }
        let news = state.rv != before;
        drop(state);
        if news {
            self.inner.changed.raise();
        }
        let mut written = result?.warn(warnings);
        if let Some(info) = info {
            written.object = at_version(&info, &version, written.object);
        }
        Ok(written)
    }
}

impl Cluster {
    fn record_consequence(&self, consequence: Consequence) {
        let entry = Entry {
            actor: &Actor::new(super::SERVER),
            verb: consequence.verb,
            gvr: &consequence.resource.storage_gvr(),
            subresource: consequence.subresource,
            key: consequence.key,
            body: None,
            dry_run: false,
        };
        self.recorder().push(record(entry, &consequence.result));
    }
}

/// etcd's limit of a request, in bytes.
const REQUEST_LIMIT: usize = 1_572_864;

/// Limit of the API server's client of etcd, in bytes.
const CLIENT_LIMIT: usize = 2_097_152;

/// Refuses an object that is too large to be stored. The real server stores built-in kinds in a shorter form.
///
/// # Errors
/// 500, as from etcd or the API server's client of it.
pub(super) fn check_size(object: &Value) -> Result<(), ApiError> {
    let size = size(object);
    if size <= REQUEST_LIMIT {
        return Ok(());
    }
    let why = if size <= CLIENT_LIMIT {
        "etcdserver: request is too large".to_owned()
    } else {
        format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {CLIENT_LIMIT})"
        )
    };
    Err(ApiError::new(500, Reason::Unknown, why))
}

/// About the length of a value as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len() + 4 + size(value))
            .sum(),
        _ => 4,
    }
}

fn record(entry: Entry<'_>, result: &Result<Written, ApiError>) -> Write {
    let mut write = Write {
        index: 0,
        at: Timestamp::UNIX_EPOCH,
        actor: entry.actor.clone(),
        verb: entry.verb,
        resource: entry.gvr.clone(),
        subresource: entry.subresource,
        key: entry.key,
        uid: String::new(),
        resource_version: 0,
        body: entry.body,
        object: None,
        dry_run: entry.dry_run,
        outcome: Outcome::Applied,
    };
    match result {
        Ok(written) => {
            write.uid = meta::uid(&written.object).to_owned();
            write.resource_version = meta::version(&written.object);
            if write.key.name.is_empty() {
                write.key.name = Arc::from(meta::name(&written.object));
            }
            if written.effect == Effect::Unchanged {
                write.outcome = Outcome::NoOp;
            }
            write.object = Some(Arc::clone(&written.object));
        }
        Err(error) => write.outcome = Outcome::Refused(error.code),
    }
    write
}
