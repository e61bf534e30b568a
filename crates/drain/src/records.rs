//! Re-creations in progress: prepares their pods so that the holds may be removed.
//!
//! While an attempt is reserved, or may still be, pod-recreation concludes from a missing pod that the pod was
//! never created. That is correct only if the pod keeps its hold until the record names it. So the pod is
//! written into the record before its hold is removed. A pod that exists only in its record must be created by a
//! running Belayer, which completes started re-creations during the drain.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use belayer_core::clock;
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::{DecodeContext, ObjectMeta};
use belayer_holds::conflict::{After, OnConflict};
use belayer_holds::names::{
    RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION, RECREATION_UID_ANNOTATION,
};
use belayer_inspect::reader::{ReadResult, Reader, explain};
use belayer_pod_recreation::api::{self, Phase};
use belayer_pod_recreation::decide::status_with_pod;
use belayer_pod_recreation::record::Record;
use belayer_pod_recreation::recreations::status_patch;

/// Longest time without a change of a record that a Belayer processes during the drain, unless the API server
/// denies the pod.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts of a record write, conflicts included.
const ATTEMPTS: usize = 5;

/// Whether the record of a re-created pod names the pod. The report of a drain, which ends with an
/// [outcome](crate::passes), contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// It does, or the record creates no other pod, or does not exist.
    Yes,
    /// Reading or writing it failed; the message of the error.
    Unknown(String),
}

/// A pod that exists only in its record, or that its record does not name yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UncreatedPod {
    /// The record.
    pub(crate) key: ObjectKey,
    /// What is to be done, and why it is not done yet.
    pub(crate) why: String,
    /// Whether a Belayer seems to process the record.
    pub(crate) in_progress: bool,
}

/// What a drain needs of a record. The pod in its spec may have a megabyte, and there may be thousands of records.
#[derive(Debug, Deserialize)]
struct ListedRecord {
    metadata: ListedMeta,
    #[serde(default)]
    spec: ListedSpec,
    #[serde(default)]
    status: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMeta {
    namespace: String,
    name: String,
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedSpec {
    pod_name: Option<String>,
}

/// A pod that an attempt created, by its annotations.
struct AttemptPod {
    uid: Uid,
    attempt: Option<u32>,
    deleting: bool,
}

impl AttemptPod {
    /// Whether Belayer deletes it because a later attempt replaces it. The record must not name it: its deletion
    /// would count as one by the user, and end the re-creation. The running Belayer releases it, unless it has started.
    fn is_given_up(&self, phase: Option<Phase>, attempts: u32) -> bool {
        let is_current = phase == Some(Phase::Creating) && self.attempt == Some(attempts);
        self.deleting && !is_current
    }
}

/// Why the pod of an earlier attempt is not written into its record.
const GIVEN_UP: &str =
    "the pod of an earlier attempt is being deleted, which only a running Belayer completes";

/// The records of re-creations.
pub(crate) struct Records {
    executor: Arc<Executor>,
    reader: Reader,
    decoders: Decoders<Record>,
    /// The last version of each record and when it was first read, by the UID of the record.
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

    /// Writes a re-created pod into the record that its annotations name.
    pub(crate) async fn record(&self, pod: &ObjectMeta) -> Recorded {
        let annotation = |name: &str| pod.annotations.get(name);
        let (Some(name), Some(uid)) = (
            annotation(RECREATION_ANNOTATION),
            annotation(RECREATION_UID_ANNOTATION),
        ) else {
            return Recorded::Yes;
        };
        // Users edit annotations. No record of this pod has such a name.
        if !api::is_name_for(name, pod.key.name()) {
            return Recorded::Yes;
        }
        let key = ObjectKey::new(pod.key.shared_namespace().clone(), name);
        let attempt = annotation(RECREATION_ATTEMPT_ANNOTATION).and_then(|text| text.parse().ok());
        let pod = AttemptPod {
            uid: pod.uid.clone(),
            attempt,
            deleting: pod.is_deleting(),
        };
        self.write(&key, &Uid::new(uid), &pod).await
    }

    async fn write(&self, key: &ObjectKey, uid: &Uid, pod: &AttemptPod) -> Recorded {
        let unknown = |error: &RequestError| {
            let why = explain(error);
            Recorded::Unknown(format!(
                "could not write the pod into its record {key} before removing its hold: {why}"
            ))
        };
        let records = api::resource();
        let changed =
            |error: &RequestError| OnConflict::Reread.after(error, (&records, key)) == After::Read;
        let mut attempt = 0;
        loop {
            let record = match self.read(key).await {
                Ok(Some(record)) if record.meta.uid == *uid => record,
                Ok(_) => return Recorded::Yes,
                Err(error) => return unknown(&error),
            };
            if record.meta.is_deleting() || !record.awaits(&pod.uid) {
                return Recorded::Yes;
            }
            if pod.is_given_up(record.status.phase, record.status.attempts) {
                return Recorded::Unknown(format!("{GIVEN_UP}; its record is {key}"));
            }
            let now = clock::now();
            let next = status_with_pod(&record, &pod.uid, now);
            let request = status_patch(&record, &next, now);
            attempt += 1;
            let written = self.executor.write(&request, Class::Release);
            match self.reader.contact().asked(written).await {
                Ok(_) => {
                    tracing::info!(record = %key, pod = %pod.uid, "wrote the pod into its record");
                    return Recorded::Yes;
                }
                Err(error) if changed(&error) && attempt < ATTEMPTS => {}
                Err(error) => return unknown(&error),
            }
        }
    }

    /// Reads a record; `None` if it does not exist.
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

    /// The pods that exist only in their records. A pod that exists already is written into its record.
    ///
    /// # Errors
    /// If the records cannot be listed: any pod may exist only in one of them.
    pub(crate) async fn uncreated(&self) -> Result<Vec<UncreatedPod>, RequestError> {
        let all: Vec<ListedRecord> = self.reader.all(&api::resource().path(None)).await?;
        let mut uncreated = Vec::new();
        for record in &all {
            uncreated.extend(self.uncreated_pod(record).await);
        }
        Ok(uncreated)
    }

    async fn uncreated_pod(&self, record: &ListedRecord) -> Option<UncreatedPod> {
        let ListedRecord {
            metadata,
            spec,
            status,
        } = record;
        if metadata.deletion_timestamp.is_some() {
            return None;
        }
        let namespace = metadata.namespace.as_str();
        let key = ObjectKey::new(namespace, metadata.name.as_str());
        let (uid, pod) = (metadata.uid.as_str(), spec.pod_name.as_deref()?);
        let version = metadata.resource_version.as_str();
        let uncreated = |why: String| UncreatedPod {
            key: key.clone(),
            why,
            in_progress: self.in_progress(uid, version),
        };
        let phase = &status["phase"];
        let phase = match serde_json::from_value::<Option<Phase>>(phase.clone()) {
            Ok(phase) => phase.filter(|phase| is_under_way(*phase))?,
            Err(_) => {
                return Some(uncreated(format!(
                    "pod {pod} may exist only in this record, whose phase {phase} is unknown to this version"
                )));
            }
        };
        let found: ReadResult<Value> = self
            .reader
            .object(&Resource::pods(), &ObjectKey::new(namespace, pod))
            .await;
        let why = match found {
            ReadResult::Absent => cause(phase, status),
            ReadResult::Found(rejected) if is_being_replaced(phase, status, &rejected) => {
                let finalizers = &rejected["metadata"]["finalizers"];
                format!("its rejected pod is being deleted and has the finalizers {finalizers}")
            }
            ReadResult::Found(pod) => {
                let annotations = &pod["metadata"]["annotations"];
                let of_the_pod = pod["metadata"]["uid"].as_str();
                let of_the_pod =
                    of_the_pod.filter(|_| annotations[RECREATION_UID_ANNOTATION] == uid)?;
                let attempt = annotations[RECREATION_ATTEMPT_ANNOTATION].as_str();
                let pod = AttemptPod {
                    uid: Uid::new(of_the_pod),
                    attempt: attempt.and_then(|text| text.parse().ok()),
                    deleting: !pod["metadata"]["deletionTimestamp"].is_null(),
                };
                let attempts = status["attempts"].as_u64();
                let attempts = attempts.and_then(|count| u32::try_from(count).ok());
                if !pod.is_given_up(Some(phase), attempts.unwrap_or_default()) {
                    return match self.write(&key, &Uid::new(uid), &pod).await {
                        Recorded::Yes => None,
                        Recorded::Unknown(why) => Some(uncreated(why)),
                    };
                }
                GIVEN_UP.to_owned()
            }
            ReadResult::Unknown(why) => format!("could not read its pod: {why}"),
        };
        Some(uncreated(format!("pod {pod} is not created yet: {why}")))
    }

    /// Whether this version of a record is new enough that a Belayer may be processing it.
    fn in_progress(&self, uid: &str, version: &str) -> bool {
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

/// Whether Belayer has deleted this pod to create it again: once it is gone, it exists only in its record.
fn is_being_replaced(phase: Phase, status: &Value, pod: &Value) -> bool {
    phase == Phase::Deleting
        && pod["metadata"]["uid"] == status["rejectedUID"]
        && !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_under_way(phase: Phase) -> bool {
    matches!(phase, Phase::Deleting | Phase::Waiting | Phase::Creating)
}

fn cause(phase: Phase, status: &Value) -> String {
    let conditions = status["conditions"].as_array();
    let denied = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "CreateDenied" && condition["status"] == "True");
    match denied.and_then(|denied| denied["message"].as_str()) {
        Some(message) => format!("the API server denies it: {message}"),
        None => format!("its record is in phase {phase:?}"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::an_earlier_attempt(Phase::Creating, 1, true, true)]
    #[case::before_the_next_attempt(Phase::Waiting, 2, true, true)]
    #[case::it_is_not_deleted(Phase::Creating, 1, false, false)]
    #[case::the_current_attempt_may_have_run(Phase::Creating, 2, true, false)]
    fn a_deleted_pod_of_an_earlier_attempt_does_not_end_the_re_creation(
        #[case] phase: Phase,
        #[case] attempt: u32,
        #[case] deleting: bool,
        #[case] is_given_up: bool,
    ) {
        let pod = AttemptPod {
            uid: Uid::new("u-2"),
            attempt: Some(attempt),
            deleting,
        };
        assert_eq!(pod.is_given_up(Some(phase), 2), is_given_up);
    }
}
