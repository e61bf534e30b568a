//! The events of a watch.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::super::negotiate::Form;
use super::super::respond::Writer;
use super::super::route::ResourceRequest;
use super::super::{Server, broken};
use crate::cluster::{
    EventType, Expired, StoreEvent, Subscription, at_version, event_view, is_shown_as_stored,
};
use crate::error::ApiError;
use crate::faults::{LiveWatch, Visibility, WatchEnd, WatchPlan};
use crate::kinds::ResourceInfo;
use crate::meta;
use crate::selector::Selectors;
use crate::signal::Listener;
use crate::wire::encode;

/// How often a watch without events sends a bookmark.
pub(super) const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Ready events are sent in one chunk of up to about this size, in bytes.
const CHUNK: usize = 64 * 1024;
/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The start of a watch.
pub(super) struct Start {
    /// Sent as ADDED before anything else.
    pub(super) initial: VecDeque<Arc<Value>>,
    /// The initial events end with an annotated bookmark.
    pub(super) announce_end: bool,
    pub(super) from: u64,
}

/// Which state of an object an event shows.
enum Shown<'e> {
    After,
    Before(&'e Arc<Value>),
}

pub(super) struct WatchStream {
    pub(super) server: Arc<Server>,
    pub(super) request: ResourceRequest,
    pub(super) info: ResourceInfo,
    pub(super) form: Form,
    pub(super) include_object: String,
    pub(super) selectors: Selectors,
    pub(super) start: Start,
    pub(super) subscription: Subscription,
    /// Events read from the log, each with the time at which it may be sent.
    pub(super) queue: VecDeque<(Instant, Arc<StoreEvent>)>,
    pub(super) store: Listener,
    pub(super) faults: Listener,
    pub(super) live: Arc<LiveWatch>,
    pub(super) plan: WatchPlan,
    pub(super) bookmarks: bool,
    pub(super) next_bookmark: Instant,
    pub(super) deadline: Instant,
    pub(super) sent: u64,
    pub(super) over: bool,
}

impl WatchStream {
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut chunk = Vec::new();
        while !self.over {
            // Mark before reading, so that a change in between wakes this task again.
            self.faults.mark_seen();
            self.store.mark_seen();
            if !self.server.faults.is_available() {
                self.over = true;
                return Some(Err(broken()));
            }
            let planned = self
                .plan
                .end
                .filter(|(after, _)| self.sent >= *after)
                .map(|(_, end)| end);
            if let Some(end) = planned.or_else(|| self.live.take_command()) {
                self.plan.end = None;
                if !chunk.is_empty() && end == WatchEnd::Break {
                    // What was sent before the break still arrives.
                    self.plan.end = Some((0, end));
                    return Some(Ok(chunk.into()));
                }
                match self.end(end) {
                    Some(Ok(frame)) => chunk.extend(frame),
                    Some(Err(error)) => return Some(Err(error)),
                    None => {}
                }
                continue;
            }
            if self.step(&mut chunk) && chunk.len() < CHUNK {
                continue;
            }
            if !chunk.is_empty() {
                return Some(Ok(chunk.into()));
            }
            if !self.over {
                self.wait(&mut chunk).await;
                if !chunk.is_empty() {
                    return Some(Ok(chunk.into()));
                }
            }
        }
        (!chunk.is_empty()).then(|| Ok(chunk.into()))
    }

    /// Adds one ready event to the chunk. True when there may be more.
    fn step(&mut self, chunk: &mut Vec<u8>) -> bool {
        let visible = match self.visibility() {
            Visibility::Nothing => return false,
            Visibility::UpTo(version) => version,
            Visibility::Everything => u64::MAX,
        };
        if let Some(object) = self.start.initial.pop_front() {
            self.write(chunk, "ADDED", &object);
            return true;
        }
        if std::mem::take(&mut self.start.announce_end) {
            let annotations = json!({(INITIAL_EVENTS_END): "true"});
            self.bookmark(chunk, self.start.from, Some(annotations));
            return true;
        }
        if let Err(expired) = self.fetch() {
            self.error(chunk, &ApiError::expired(expired.to_string()));
            return true;
        }
        let ready = |(due, event): &&(Instant, Arc<StoreEvent>)| {
            event.rv <= visible && *due <= Instant::now()
        };
        if self.queue.front().filter(ready).is_none() {
            if self.info.custom && self.server.cluster.resource(&self.request.gvr).is_none() {
                // The definition is gone, and with it all objects of the watch.
                self.over = true;
            }
            return false;
        }
        if let Some((_, event)) = self.queue.pop_front() {
            self.show(chunk, &event);
        }
        true
    }

    fn visibility(&self) -> Visibility {
        let newest = || self.server.cluster.version();
        self.server.faults.visibility(&self.live.target, newest)
    }

    /// Reads events from the log; all of them when they are delayed, so that each delay starts at its own event.
    fn fetch(&mut self) -> Result<(), Expired> {
        let late = !(self.plan.delay.is_zero() && self.plan.jitter.is_zero());
        while self.queue.is_empty() || late {
            let Some(event) = self.subscription.try_next()? else {
                break;
            };
            let delay = self.plan.delay + self.server.faults.draw(self.plan.jitter);
            let due = Instant::now() + delay;
            // Within a watch the order stays.
            let due = self.queue.back().map_or(due, |(last, _)| due.max(*last));
            self.queue.push_back((due, event));
        }
        Ok(())
    }

    async fn wait(&mut self, chunk: &mut Vec<u8>) {
        let far = self.deadline;
        let due = self.queue.front().map_or(far, |(due, _)| *due);
        // A due event that is still queued is blocked by a fault; the fault's end wakes this task.
        let due = if due <= Instant::now() { far } else { due };
        let bookmark = if self.bookmarks {
            self.next_bookmark
        } else {
            far
        };
        tokio::select! {
            biased;
            () = self.faults.changed() => {}
            () = self.store.changed() => {}
            () = sleep_until(self.deadline) => {
                self.over = true;
                self.routine_bookmark(chunk);
            }
            () = sleep_until(due) => {}
            () = sleep_until(bookmark) => {
                self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                self.routine_bookmark(chunk);
            }
        }
    }

    fn routine_bookmark(&mut self, chunk: &mut Vec<u8>) {
        // With queued events a bookmark would be ahead of them.
        if !self.bookmarks || !self.start.initial.is_empty() || !self.queue.is_empty() {
            return;
        }
        let position = self.subscription.position();
        let position = match self.visibility() {
            Visibility::Everything => position,
            Visibility::UpTo(version) => position.min(version),
            Visibility::Nothing => return,
        };
        self.bookmark(chunk, position, None);
    }

    fn end(&mut self, end: WatchEnd) -> Option<io::Result<Bytes>> {
        match end {
            WatchEnd::Close => {
                self.over = true;
                None
            }
            WatchEnd::Break => {
                self.over = true;
                Some(Err(broken()))
            }
            WatchEnd::Expired => {
                let mut chunk = Vec::new();
                let position = self.subscription.position();
                let message = format!("too old resource version: {position} ({position})");
                self.error(&mut chunk, &ApiError::expired(message));
                Some(Ok(chunk.into()))
            }
            WatchEnd::Garbage => Some(Ok(Bytes::from_static(
                b"{\"type\":\"ADDED\",\"object\":{]\n",
            ))),
        }
    }

    fn show(&mut self, chunk: &mut Vec<u8>, event: &StoreEvent) {
        let namespace = self.request.namespace.as_str();
        let key = &event.key;
        if !namespace.is_empty() && &*key.namespace != namespace {
            return;
        }
        if !self.request.name.is_empty() && *key.name != *self.request.name {
            return;
        }
        let Some((kind, shown)) = self.select(event) else {
            return;
        };
        if self.server.faults.hides(&self.live.target, key, event.rv) {
            return;
        }
        let version = &*self.request.gvr.version;
        // The definition may have changed since this watch began.
        let kind_then = match event_view::is_form_of(&self.info) {
            true => &self.info,
            false => &*event.resource,
        };
        let stored = is_shown_as_stored(kind_then, version, &event.object);
        match (self.form, shown) {
            // The common cases: encoded once for all watches.
            (Form::Object, Shown::After) if stored => self.send(chunk, kind, event.json()),
            (Form::Metadata, Shown::After) => self.send(chunk, kind, event.metadata_json()),
            (_, shown) => {
                let object = match shown {
                    Shown::After => &event.object,
                    Shown::Before(old) => old,
                };
                let mut object = Value::clone(object);
                meta::set(&mut object, "resourceVersion", json!(event.rv.to_string()));
                let object = at_version(kind_then, version, Arc::new(object));
                self.write(chunk, kind, &object);
            }
        }
    }

    fn send(&mut self, chunk: &mut Vec<u8>, kind: &str, body: &[u8]) {
        frame(chunk, kind, body);
        self.sent += 1;
    }

    /// The event for a reader that sees only selected objects.
    fn select<'e>(&self, event: &'e StoreEvent) -> Option<(&'static str, Shown<'e>)> {
        if self.selectors.is_empty() {
            return Some((event.event_type.as_str(), Shown::After));
        }
        let before = event
            .old
            .as_ref()
            .is_some_and(|old| self.selectors.matches(old));
        let after = event.event_type != EventType::Deleted && self.selectors.matches(&event.object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(("ADDED", Shown::After)),
            (true, true) => Some(("MODIFIED", Shown::After)),
            (true, false) if event.event_type == EventType::Deleted => {
                Some(("DELETED", Shown::After))
            }
            // The last state that matched, at the version of the change.
            (true, false) => Some(("DELETED", Shown::Before(event.old.as_ref()?))),
        }
    }

    fn write(&mut self, chunk: &mut Vec<u8>, kind: &str, object: &Value) {
        let writer = Writer {
            info: &self.info,
            version: &self.request.gvr.version,
            form: self.form,
            include_object: &self.include_object,
            now: self.server.cluster.clock().now(),
        };
        // Forms that cannot be watched were refused before the stream began.
        let Ok(mut body) = writer.encode_one(object) else {
            return;
        };
        if matches!(self.form, Form::Table(_)) && self.sent > 0 {
            body = without_columns(&body);
        }
        self.send(chunk, kind, &body);
    }

    fn bookmark(&mut self, chunk: &mut Vec<u8>, version: u64, annotations: Option<Value>) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let object = match self.form {
            Form::Table(meta_version) => json!({
                "kind": "Table",
                "apiVersion": format!("meta.k8s.io/{meta_version}"),
                "metadata": {"resourceVersion": version.to_string()},
                "columnDefinitions": null,
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }}],
            }),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            Form::Object | Form::MetadataList => {
                let mut object = json!({
                    "kind": self.info.kind,
                    "apiVersion": self.info.api_version(&self.request.gvr.version),
                    "metadata": metadata,
                });
                if let (false, Value::Object(empty)) = (self.info.custom, empty(&self.info)) {
                    object
                        .as_object_mut()
                        .into_iter()
                        .for_each(|o| o.extend(empty.clone()));
                }
                object
            }
        };
        frame(chunk, "BOOKMARK", &encode(&object));
    }

    fn error(&mut self, chunk: &mut Vec<u8>, error: &ApiError) {
        frame(chunk, "ERROR", &encode(&error.to_status()));
        self.over = true;
    }
}

/// Only the first table of a watch describes its columns.
fn without_columns(table: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(table) {
        Ok(mut table) => {
            table["columnDefinitions"] = Value::Null;
            encode(&table)
        }
        Err(_) => table.to_vec(),
    }
}

/// The additional fields that a typed server prints for an object with only metadata.
fn empty(info: &ResourceInfo) -> Value {
    match info.resource.as_str() {
        "pods" => json!({"spec": {"containers": null}, "status": {}}),
        "namespaces" | "persistentvolumes" => json!({"spec": {}, "status": {}}),
        "persistentvolumeclaims" => json!({"spec": {"resources": {}}, "status": {}}),
        "services" => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "leases" => json!({"spec": {}}),
        _ => json!({}),
    }
}

fn frame(chunk: &mut Vec<u8>, kind: &str, body: &[u8]) {
    chunk.extend_from_slice(b"{\"type\":\"");
    chunk.extend_from_slice(kind.as_bytes());
    chunk.extend_from_slice(b"\",\"object\":");
    chunk.extend_from_slice(body);
    chunk.extend_from_slice(b"}\n");
}
