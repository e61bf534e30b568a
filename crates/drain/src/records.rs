//! Re-creations that are under way: each is brought to where no hold can be missed.
//!
//! A record that has reserved an attempt, or may yet, takes a pod that is not there for one that was never
//! created. That is true only as long as the pod keeps its hold until the record knows of it. So before the
//! hold is taken off, the record is told. A pod that is in its record alone is for a running Belayer to
//! create: it finishes what it has begun while it is drained.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use belayer_core::ambient;
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::names::{RECREATION_ANNOTATION, RECREATION_UID_ANNOTATION};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::{DecodeContext, ObjectMeta};
use belayer_inspect::reader::{Look, Reader, explain};
use belayer_pod_recreation::api::{self, Phase};
use belayer_pod_recreation::decide::adopt;
use belayer_pod_recreation::machine::status_patch;
use belayer_pod_recreation::record::Record;

/// A record that a Belayer works on changes at least this often while it is drained, unless the API server
/// refuses the pod.
const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody writes a record at the same time: so often it is read again.
const ATTEMPTS: usize = 5;

/// Whether the record of a re-created pod knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// It does, or it creates no other pod, or there is none.
    Yes,
    /// That could not be found out, or not be written; why, in words.
    Unknown(String),
}

/// A pod that is in its record alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alone {
    /// The record.
    pub(crate) key: ObjectKey,
    /// Its pod.
    pub(crate) pod: String,
    /// Why it is not there yet, in words.
    pub(crate) why: String,
    /// Whether somebody seems to be at it.
    pub(crate) moves: bool,
}

/// The records of re-creations.
pub(crate) struct Records {
    executor: Arc<Executor>,
    reader: Reader,
    decoders: Decoders<Record>,
    /// When each version of a record was first seen, by the UID of the record.
    seen: Mutex<HashMap<String, (String, Instant)>>,
}

impl Records {
    pub(crate) fn new(executor: Arc<Executor>, reader: Reader) -> Self {
        Self {
            executor,
            reader,
            decoders: Decoders::new(JsonDecoder::new(DecodeContext::default())),
            seen: Mutex::default(),
        }
    }

    /// Has the record that a pod names know of it.
    pub(crate) async fn told_of(&self, pod: &ObjectMeta) -> Recorded {
        let annotation = |name: &str| pod.annotations.get(name);
        let (Some(name), Some(uid)) = (
            annotation(RECREATION_ANNOTATION),
            annotation(RECREATION_UID_ANNOTATION),
        ) else {
            return Recorded::Yes;
        };
        let key = ObjectKey::new(pod.key.shared_namespace().clone(), name);
        self.tell(&key, &Uid::new(uid), &pod.uid).await
    }

    async fn tell(&self, key: &ObjectKey, uid: &Uid, pod: &Uid) -> Recorded {
        let unknown = |error: &RequestError| {
            let why = explain(error);
            Recorded::Unknown(format!("its record {key} has to know of it first: {why}"))
        };
        let mut attempt = 0;
        loop {
            let record = match self.read(key).await {
                Ok(Some(record)) if record.meta.uid == *uid => record,
                Ok(_) => return Recorded::Yes,
                Err(error) => return unknown(&error),
            };
            if record.meta.is_deleting() || !record.awaits(pod) {
                return Recorded::Yes;
            }
            let request = status_patch(&record, &adopt(&record, pod, ambient::now()));
            attempt += 1;
            match self.executor.write(&request, Class::Release).await {
                Ok(_) => {
                    tracing::info!(record = %key, %pod, "the record knows of its pod");
                    return Recorded::Yes;
                }
                Err(error) if error.class() == ErrorClass::Conflict && attempt < ATTEMPTS => {}
                Err(error) => return unknown(&error),
            }
        }
    }

    /// The record; nothing if there is none of that name.
    async fn read(&self, key: &ObjectKey) -> Result<Option<Record>, RequestError> {
        let request = Request::get(api::resource().object_path(key));
        match self.reader.read(&request).await {
            Ok(answer) => {
                let record = self.decoders.read(&answer);
                record
                    .map(Some)
                    .map_err(|error| RequestError::Decode(error.to_string()))
            }
            Err(error) => match error.class() {
                ErrorClass::NotFound | ErrorClass::NotServed => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The pods that are in their records alone. A pod that is there all the same is told to its record.
    /// Where the kind is not served, or may not be read, there are none to be named.
    pub(crate) async fn alone(&self) -> Vec<Alone> {
        let all = self.reader.all::<Value>(&api::resource().path(None)).await;
        let mut alone = Vec::new();
        for record in all.found().into_iter().flatten() {
            if let Some(one) = self.one(record).await {
                alone.push(one);
            }
        }
        alone
    }

    async fn one(&self, record: &Value) -> Option<Alone> {
        let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str);
        let phase = serde_json::from_value(record["status"]["phase"].clone());
        let phase = phase.ok().filter(|phase| is_under_way(*phase))?;
        if !record["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let namespace = text("/metadata/namespace")?;
        let key = ObjectKey::new(namespace, text("/metadata/name")?);
        let (uid, pod) = (text("/metadata/uid")?, text("/spec/podName")?);
        let found: Look<Value> = self
            .reader
            .object(&Resource::pods(), &ObjectKey::new(namespace, pod))
            .await;
        let why = match found {
            Look::Absent => in_words(phase, record),
            Look::Found(pod) => {
                let annotations = &pod["metadata"]["annotations"];
                let of_the_pod = pod["metadata"]["uid"].as_str().map(Uid::new);
                if let Some(pod) = of_the_pod
                    && annotations[RECREATION_UID_ANNOTATION] == uid
                {
                    self.tell(&key, &Uid::new(uid), &pod).await;
                }
                return None;
            }
            Look::Unknown(why) => format!("whether its pod is there could not be found out: {why}"),
        };
        let version = text("/metadata/resourceVersion").unwrap_or_default();
        Some(Alone {
            moves: self.moves(uid, version),
            pod: pod.to_owned(),
            key,
            why,
        })
    }

    /// Whether this version of a record is new enough for somebody to be at work on it.
    fn moves(&self, uid: &str, version: &str) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let (last, since) = seen
            .entry(uid.to_owned())
            .or_insert_with(|| (version.to_owned(), now));
        if last != version {
            (*last, *since) = (version.to_owned(), now);
        }
        now.duration_since(*since) < PATIENCE
    }
}

fn is_under_way(phase: Phase) -> bool {
    matches!(phase, Phase::Deleting | Phase::Waiting | Phase::Creating)
}

fn in_words(phase: Phase, record: &Value) -> String {
    let conditions = record["status"]["conditions"].as_array();
    let denied = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "CreateDenied" && condition["status"] == "True");
    match denied.and_then(|denied| denied["message"].as_str()) {
        Some(message) => format!("the API server refuses it: {message}"),
        None => format!("its record is in phase {phase:?}"),
    }
}
