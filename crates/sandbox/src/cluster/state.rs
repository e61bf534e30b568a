//! The objects, and the one log that orders every change.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use super::written::Written;
use crate::address::{Actor, ObjectKey};
#[cfg(feature = "cel")]
use crate::admission::Policies;
use crate::error::ApiError;
use crate::kinds::{Registry, ResourceInfo, ResourceKey};
use crate::meta;
use crate::recorder::Verb;
use crate::wire::{Versioned, VersionedPartial, encode};

/// What happened to an object. Part of a [`StoreEvent`](crate::StoreEvent). See the [crate's
/// example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl EventType {
    /// The type as in watch events.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// One entry of the log. A [`Subscription`](crate::Subscription) returns it. See the [crate's
/// example](crate).
#[derive(Debug, Clone)]
pub struct StoreEvent {
    /// The version of this change; strictly increasing in the log.
    pub rv: u64,
    /// What happened.
    pub event_type: EventType,
    /// Kind of the object.
    pub resource: Arc<ResourceInfo>,
    /// Name of the object.
    pub key: ObjectKey,
    /// The object after the change. For a deletion: its last stored state, with the version before the
    /// deletion; the deletion's own version is [`StoreEvent::rv`].
    pub object: Arc<Value>,
    /// The object before the change.
    pub old: Option<Arc<Value>>,
    /// The JSON of watch events, encoded once for all watches.
    json: OnceLock<Bytes>,
    /// The same for watches of metadata.
    metadata_json: OnceLock<Bytes>,
}

impl StoreEvent {
    /// The object as JSON, at the version of the event.
    pub(crate) fn json(&self) -> &Bytes {
        self.json
            .get_or_init(|| encode(&Versioned(&self.object, self.rv)).into())
    }

    /// Its metadata as JSON, at the version of the event.
    pub(crate) fn metadata_json(&self) -> &Bytes {
        self.metadata_json
            .get_or_init(|| encode(&VersionedPartial(&self.object, self.rv)).into())
    }
}

pub(crate) type Table = BTreeMap<ObjectKey, Arc<Value>>;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rv: u64,
    pub(crate) kinds: Registry,
    /// By group, then resource.
    tables: BTreeMap<String, BTreeMap<String, Table>>,
    log: VecDeque<Arc<StoreEvent>>,
    log_limit: usize,
    /// Changes up to this version are compacted.
    compacted: u64,
    /// Further writes that the current write has caused, for the record.
    pub(crate) consequences: Vec<Consequence>,
    /// Who writes, while policies are to be asked about the write.
    pub(crate) author: Option<Actor>,
    /// What mutating webhooks say to the client of the current write.
    pub(crate) warnings: Vec<String>,
    /// The stored policies and webhooks, unless they have changed.
    #[cfg(feature = "cel")]
    pub(crate) policies: Option<Arc<Policies>>,
}

/// A write of the server itself, caused by a client's write.
#[derive(Debug)]
pub(crate) struct Consequence {
    pub(crate) verb: Verb,
    pub(crate) resource: Arc<ResourceInfo>,
    pub(crate) subresource: &'static str,
    pub(crate) key: ObjectKey,
    pub(crate) result: Result<Written, ApiError>,
}

impl State {
    pub(crate) fn new(kinds: Registry, log_limit: usize) -> Self {
        State {
            // A real cluster never has version zero.
            rv: 1,
            kinds,
            tables: BTreeMap::new(),
            log: VecDeque::new(),
            log_limit: log_limit.max(1),
            compacted: 1,
            consequences: Vec::new(),
            author: None,
            warnings: Vec::new(),
            #[cfg(feature = "cel")]
            policies: None,
        }
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Compacts the log up to a version.
    pub(crate) fn compact(&mut self, rv: u64) {
        let rv = rv.min(self.rv);
        while self.log.front().is_some_and(|e| e.rv <= rv) {
            self.log.pop_front();
        }
        self.compacted = self.compacted.max(rv);
    }

    pub(crate) fn get(&self, info: &ResourceInfo, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.table(info)?.get(key)
    }

    pub(crate) fn table(&self, info: &ResourceInfo) -> Option<&Table> {
        self.tables.get(&info.group)?.get(&info.resource)
    }

    fn table_mut(&mut self, info: &ResourceInfo) -> &mut Table {
        let group = self.tables.entry(info.group.clone()).or_default();
        group.entry(info.resource.clone()).or_default()
    }

    pub(crate) fn drop_table(&mut self, (group, resource): &ResourceKey) {
        if let Some(group) = self.tables.get_mut(group) {
            group.remove(resource);
        }
    }

    /// Objects per resource.
    pub(crate) fn counts(&self) -> BTreeMap<ResourceKey, usize> {
        let all = self.tables.iter().flat_map(|(group, tables)| {
            tables
                .iter()
                .map(move |(name, table)| ((group.clone(), name.clone()), table.len()))
        });
        all.collect()
    }

    /// Stores a new state of an object at the next version.
    pub(crate) fn put(
        &mut self,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        mut object: Value,
    ) -> Arc<Value> {
        self.rv += 1;
        meta::set(&mut object, "resourceVersion", json!(self.rv.to_string()));
        let object = Arc::new(object);
        let old = self
            .table_mut(info)
            .insert(key.clone(), Arc::clone(&object));
        let event_type = if old.is_some() {
            EventType::Modified
        } else {
            EventType::Added
        };
        self.append(info, key, event_type, Arc::clone(&object), old);
        object
    }

    /// Removes an object; returns its last state, without the version of its removal.
    pub(crate) fn remove(
        &mut self,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
    ) -> Option<Arc<Value>> {
        let old = self.table_mut(info).remove(key)?;
        self.rv += 1;
        // Shared, not copied: the release of a large object needs no second copy.
        let last = Arc::clone(&old);
        self.append(info, key, EventType::Deleted, Arc::clone(&last), Some(old));
        Some(last)
    }

    fn append(
        &mut self,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        event_type: EventType,
        object: Arc<Value>,
        old: Option<Arc<Value>>,
    ) {
        #[cfg(feature = "cel")]
        if info.group == crate::attempt::GROUP {
            self.policies = None;
        }
        let event = StoreEvent {
            rv: self.rv,
            event_type,
            resource: Arc::clone(info),
            key: key.clone(),
            object,
            old,
            json: OnceLock::new(),
            metadata_json: OnceLock::new(),
        };
        self.log.push_back(Arc::new(event));
        while self.log.len() > self.log_limit {
            if let Some(gone) = self.log.pop_front() {
                self.compacted = gone.rv;
            }
        }
    }

    /// Entries after a version, oldest first. `None` when some of them are compacted.
    pub(crate) fn since(
        &self,
        rv: u64,
    ) -> Option<impl DoubleEndedIterator<Item = &Arc<StoreEvent>>> {
        if rv < self.compacted {
            return None;
        }
        let start = self.log.partition_point(|e| e.rv <= rv);
        Some(self.log.range(start..))
    }

    /// Objects of a kind as of a version, in one namespace or all, in order, at most `max` after `start`.
    /// `None` when that version is compacted.
    pub(crate) fn scan(
        &self,
        info: &ResourceInfo,
        namespace: &str,
        start: Option<&ObjectKey>,
        at: u64,
        max: usize,
    ) -> Option<Vec<(ObjectKey, Arc<Value>)>> {
        let mut changed: BTreeMap<ObjectKey, Option<Arc<Value>>> = BTreeMap::new();
        if at < self.rv {
            for event in self.since(at)? {
                if event.resource.resource == info.resource && event.resource.group == info.group {
                    changed
                        .entry(event.key.clone())
                        .or_insert_with(|| event.old.clone());
                }
            }
        }
        let inside = |key: &ObjectKey| namespace.is_empty() || &*key.namespace == namespace;
        let now = self.range(info, namespace, start);
        let mut out: Vec<(ObjectKey, Arc<Value>)> = now
            .filter(|(key, _)| changed.is_empty() || !changed.contains_key(*key))
            .take(max)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        if changed.is_empty() {
            return Some(out);
        }
        let before = changed
            .into_iter()
            .filter(|(key, _)| start.is_none_or(|start| key > start) && inside(key))
            .filter_map(|(key, old)| Some((key, old?)));
        out.extend(before);
        out.sort_by(|a, b| a.0.cmp(&b.0));
        out.truncate(max);
        Some(out)
    }

    fn range<'a>(
        &'a self,
        info: &ResourceInfo,
        namespace: &'a str,
        start: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)> {
        let lower = match start {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(ObjectKey::new(Some(namespace), "")),
        };
        let table = self.table(info).into_iter();
        let range = table.flat_map(move |t| t.range((lower.clone(), Bound::Unbounded)));
        range.take_while(move |(key, _)| namespace.is_empty() || &*key.namespace == namespace)
    }

    /// How many objects `scan` would return without a limit.
    pub(crate) fn count(
        &self,
        info: &ResourceInfo,
        namespace: &str,
        start: Option<&ObjectKey>,
        at: u64,
    ) -> usize {
        if at < self.rv {
            return self
                .scan(info, namespace, start, at, usize::MAX)
                .map_or(0, |found| found.len());
        }
        if namespace.is_empty() && start.is_none() {
            return self.table(info).map_or(0, Table::len);
        }
        self.range(info, namespace, start).count()
    }

    /// One object as of a version. The outer `None`: that version is compacted.
    pub(crate) fn get_at(
        &self,
        info: &ResourceInfo,
        key: &ObjectKey,
        at: u64,
    ) -> Option<Option<Arc<Value>>> {
        if at < self.rv {
            let next = self.since(at)?.find(|e| {
                e.key == *key
                    && e.resource.resource == info.resource
                    && e.resource.group == info.group
            });
            if let Some(event) = next {
                return Some(event.old.clone());
            }
        }
        Some(self.get(info, key).cloned())
    }
}
