//! Objects, and the one log that orders every change to them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use super::types::ObjectKey;
use crate::kinds::{Registry, ResourceInfo, ResourceKey};
use crate::meta;

/// What happened to an object.
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
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub struct StoreEvent {
    /// The version this change made; strictly rising through the log.
    pub rv: u64,
    /// What happened.
    pub event_type: EventType,
    /// Kind of the object.
    pub resource: Arc<ResourceInfo>,
    /// Name of the object.
    pub key: ObjectKey,
    /// The object after the change; for a deletion its last state, at this version.
    pub object: Arc<Value>,
    /// The object before the change.
    pub old: Option<Arc<Value>>,
}

pub(crate) type Table = BTreeMap<ObjectKey, Arc<Value>>;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rv: u64,
    pub(crate) kinds: Registry,
    tables: BTreeMap<ResourceKey, Table>,
    log: VecDeque<Arc<StoreEvent>>,
    log_limit: usize,
    /// Changes up to this version are forgotten.
    compacted: u64,
}

impl State {
    pub(crate) fn new(kinds: Registry, log_limit: usize) -> Self {
        State {
            // A real cluster never hands out version zero.
            rv: 1,
            kinds,
            tables: BTreeMap::new(),
            log: VecDeque::new(),
            log_limit: log_limit.max(1),
            compacted: 1,
        }
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets the log up to a version.
    pub(crate) fn compact(&mut self, rv: u64) {
        let rv = rv.min(self.rv);
        while self.log.front().is_some_and(|e| e.rv <= rv) {
            self.log.pop_front();
        }
        self.compacted = self.compacted.max(rv);
    }

    pub(crate) fn get(&self, info: &ResourceInfo, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.tables.get(&info.key())?.get(key)
    }

    pub(crate) fn table(&self, info: &ResourceInfo) -> Option<&Table> {
        self.tables.get(&info.key())
    }

    pub(crate) fn drop_table(&mut self, key: &ResourceKey) {
        self.tables.remove(key);
    }

    /// Objects per resource.
    pub(crate) fn counts(&self) -> BTreeMap<ResourceKey, usize> {
        self.tables.iter().map(|(key, table)| (key.clone(), table.len())).collect()
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
        let table = self.tables.entry(info.key()).or_default();
        let old = table.insert(key.clone(), Arc::clone(&object));
        let event_type = if old.is_some() { EventType::Modified } else { EventType::Added };
        self.append(info, key, event_type, Arc::clone(&object), old);
        object
    }

    /// Removes an object; answers its last state at the version of its removal.
    pub(crate) fn remove(&mut self, info: &Arc<ResourceInfo>, key: &ObjectKey) -> Option<Arc<Value>> {
        let old = self.tables.get_mut(&info.key())?.remove(key)?;
        self.rv += 1;
        let mut last = Value::clone(&old);
        meta::set(&mut last, "resourceVersion", json!(self.rv.to_string()));
        let last = Arc::new(last);
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
        let event = StoreEvent {
            rv: self.rv,
            event_type,
            resource: Arc::clone(info),
            key: key.clone(),
            object,
            old,
        };
        self.log.push_back(Arc::new(event));
        while self.log.len() > self.log_limit {
            if let Some(gone) = self.log.pop_front() {
                self.compacted = gone.rv;
            }
        }
    }

    /// Entries after a version, oldest first. `None` when some of them are forgotten.
    pub(crate) fn since(&self, rv: u64) -> Option<impl DoubleEndedIterator<Item = &Arc<StoreEvent>>> {
        if rv < self.compacted {
            return None;
        }
        let start = self.log.partition_point(|e| e.rv <= rv);
        Some(self.log.range(start..))
    }

    /// Objects of a kind as of a version, after `start`, in one namespace or all.
    /// `None` when that version is forgotten.
    pub(crate) fn scan(
        &self,
        info: &ResourceInfo,
        namespace: &str,
        start: Option<&ObjectKey>,
        at: u64,
    ) -> Option<Vec<(ObjectKey, Arc<Value>)>> {
        let mut changed: BTreeMap<ObjectKey, Option<Arc<Value>>> = BTreeMap::new();
        if at < self.rv {
            for event in self.since(at)? {
                if event.resource.resource == info.resource && event.resource.group == info.group {
                    changed.entry(event.key.clone()).or_insert_with(|| event.old.clone());
                }
            }
        }
        let lower = match start {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(ObjectKey::new(Some(namespace), "")),
        };
        let inside = |key: &ObjectKey| namespace.is_empty() || &*key.namespace == namespace;
        let mut out: Vec<(ObjectKey, Arc<Value>)> = self
            .tables
            .get(&info.key())
            .into_iter()
            .flat_map(|t| t.range((lower.clone(), Bound::Unbounded)))
            .take_while(|(key, _)| inside(key))
            .filter(|(key, _)| !changed.contains_key(*key))
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
        Some(out)
    }

    /// One object as of a version. The outer `None`: that version is forgotten.
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
