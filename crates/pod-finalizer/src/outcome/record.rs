//! Writes records, once per pod UID, and stores the results.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use belayer_core::executor::{Class, Executor, Writes};
use belayer_core::http::{ErrorClass, METADATA_ONLY, Request, RequestError};
use belayer_core::object::{ObjectKey, OwnerReference, Resource, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_core::workqueue::Backoff;
use belayer_holds::conflict::OnConflict;
use belayer_holds::names;
use belayer_holds::runner::Stepped;
use belayer_metrics::outcome as result;

use super::build::{Built, Pod as FullPod};
use super::{EXPIRES_LABEL, NOT_FINAL_LABEL, PodOutcomeSpec, name_of, resource};
use crate::NAME;
use crate::argo::{NodeState, read_node};

/// Delay before an outcome that is not final yet is checked again, unless the pod changes earlier.
pub(crate) const NOT_FINAL: Duration = Duration::from_secs(30);

/// How long the rules below wait for a record whose write fails in a way that may last ([`may_last`]). An admission
/// webhook whose backend is down makes each write fail like that for as long as it exists.
const ERRORS_FOR: Duration = Duration::from_secs(60);

/// The longest pause between two tries in that time.
const PAUSE: Duration = Duration::from_secs(10);

/// Which outcome of a pod is recorded. The kind is that of the [example](crate::outcome).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// A final one: the end of every container is known, or its node is lost.
    IfFinal,
    /// What is known now, because the pod is released by other evidence (A12).
    AsItIs,
}

/// The state of a pod's record. The kind is that of the [example](crate::outcome).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RecordState {
    /// Unknown.
    #[default]
    Unknown,
    /// It is written, and was final.
    Written(Captured),
    /// It is written as it was at this version of the pod, when other evidence released it. Zero if an earlier process
    /// wrote it.
    Incomplete(ResourceVersion),
    /// It is not written, because the outcome is not final.
    NotFinal {
        /// What is missing.
        why: Arc<str>,
        /// The version of the pod that shows that.
        version: ResourceVersion,
        /// When it was checked.
        at: Timestamp,
    },
    /// The server rejected it, and a retry will probably fail as well.
    Refused {
        /// Why.
        why: Arc<str>,
        /// When it was last tried.
        at: Timestamp,
        /// Delay before the next try, by [`Backoff::DENIED`].
        pause: Duration,
    },
}

/// Proof that a record of the final outcome of this pod's UID exists, by a response of the API
/// server. The kind is that of the [example](crate::outcome).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured(Uid);

impl Captured {
    /// The pod whose outcome it is.
    pub fn pod(&self) -> &Uid {
        &self.0
    }

    /// A proof for tests of decisions.
    #[cfg(test)]
    pub(crate) fn scripted(pod: &str) -> Self {
        Self(Uid::new(pod))
    }
}

/// Writes the outcomes of pods. The kind is that of the [example](crate::outcome).
#[derive(Debug)]
pub struct Outcomes {
    /// How long a record without an owner is kept.
    ttl: Duration,
    known: Mutex<HashMap<Uid, RecordState>>,
    /// Since when writes of a record fail in a way that may last.
    failing: Mutex<HashMap<Uid, Instant>>,
}

impl Outcomes {
    /// Records without an owner are kept for `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            known: Mutex::default(),
            failing: Mutex::default(),
        }
    }

    /// The state of the record of a pod. `existing` returns the metadata of the record in the cache, if there is one:
    /// after a restart it saves three requests for every ended pod (A13).
    pub fn state(
        &self,
        pod: &ObjectMeta,
        existing: impl FnOnce(&ObjectKey) -> Option<ObjectMeta>,
    ) -> RecordState {
        if let Some(known) = self.known.lock().get(&pod.uid) {
            return known.clone();
        }
        match existing(&key(pod)) {
            Some(record) if record.labels.get(NOT_FINAL_LABEL).is_some() => {
                RecordState::Incomplete(ResourceVersion::new(0))
            }
            Some(_) => RecordState::Written(Captured(pod.uid.clone())),
            None => RecordState::Unknown,
        }
    }

    /// Removes the state of a pod that is gone.
    pub fn remove(&self, pod: &Uid) {
        self.known.lock().remove(pod);
        self.failing.lock().remove(pod);
    }

    /// Writes the record of `pod`, or stores why that is not possible yet.
    ///
    /// # Errors
    ///
    /// A transient error of a request.
    pub async fn record(
        &self,
        pod: &Pod,
        which: Recorded,
        executor: &Executor,
    ) -> Result<Stepped, RequestError> {
        if executor.writes() == Writes::DryRun {
            tracing::info!(pod = %pod.meta.key, "dry run: the outcome is not recorded");
            return Ok(Stepped::Later(Backoff::DENIED.cap()));
        }
        let Some(full) = full_pod(pod, executor).await? else {
            // Gone, or another pod has its name: its own events trigger a decision.
            return Ok(Stepped::Later(NOT_FINAL));
        };
        let built = full.outcome();
        let uid = &pod.meta.uid;
        let missing = not_final(&full, &built, executor).await?;
        if let (Some(why), Recorded::IfFinal) = (&missing, which) {
            self.is_not_final(pod, why);
            return Ok(Stepped::Settled);
        }
        let state = match self
            .write(pod, &built.spec, missing.is_none(), executor)
            .await
        {
            Ok(result) => {
                count(result);
                self.failing.lock().remove(uid);
                match missing {
                    None => RecordState::Written(Captured(uid.clone())),
                    Some(_) => RecordState::Incomplete(pod.meta.resource_version),
                }
            }
            Err(error) => {
                let failing = self.failing_for(uid, &error);
                if !is_final(error.class()) {
                    match failing {
                        None => return Err(error),
                        Some(time) if time < ERRORS_FOR => {
                            tracing::debug!(pod = %pod.meta.key, %error, "could not record the outcome, will be retried");
                            return Ok(Stepped::Retry(Backoff::ERROR.at_most(PAUSE)));
                        }
                        Some(_) => {}
                    }
                }
                count(result::REFUSED);
                tracing::warn!(pod = %pod.meta.key, %error, "could not record the outcome");
                RecordState::Refused {
                    why: refusal(&error).into(),
                    at: belayer_core::clock::now(),
                    pause: Backoff::DENIED.ceiling_after(self.last_pause(uid)),
                }
            }
        };
        self.known.lock().insert(uid.clone(), state);
        Ok(Stepped::Settled)
    }

    /// How long writes of the record have failed only in a way that may last. After an error of another kind this time
    /// begins anew.
    fn failing_for(&self, pod: &Uid, error: &RequestError) -> Option<Duration> {
        let mut failing = self.failing.lock();
        if !may_last(error.class()) {
            failing.remove(pod);
            return None;
        }
        let since = failing.entry(pod.clone()).or_insert_with(Instant::now);
        Some(since.elapsed())
    }

    fn is_not_final(&self, pod: &Pod, why: &str) {
        let state = RecordState::NotFinal {
            why: why.into(),
            version: pod.meta.resource_version,
            at: belayer_core::clock::now(),
        };
        self.known.lock().insert(pod.meta.uid.clone(), state);
    }

    /// Reads the record of `pod` without writing, for `explain`.
    pub(crate) async fn read_existing(
        &self,
        pod: &Pod,
        executor: &Executor,
    ) -> Result<(), RequestError> {
        let uid = &pod.meta.uid;
        let state = match existing(&resource(), pod, executor).await {
            Ok(record) if record.metadata.labels.is_final() => {
                RecordState::Written(Captured(uid.clone()))
            }
            Ok(_) => RecordState::Incomplete(pod.meta.resource_version),
            Err(error) => match error.class() {
                ErrorClass::NotFound => {
                    if let Some(full) = full_pod(pod, executor).await?
                        && let Some(why) = not_final(&full, &full.outcome(), executor).await?
                    {
                        self.is_not_final(pod, &why);
                    }
                    return Ok(());
                }
                // The user of `explain` may not read it.
                ErrorClass::Forbidden => return Ok(()),
                // The kind is not served, or the name is taken: then it cannot be written either.
                ErrorClass::NotServed | ErrorClass::Decode => RecordState::Refused {
                    why: refusal(&error).into(),
                    at: belayer_core::clock::now(),
                    pause: Backoff::DENIED.first(),
                },
                _ => return Err(error),
            },
        };
        self.known.lock().insert(uid.clone(), state);
        Ok(())
    }

    /// The delay before the last try, if an earlier one was rejected.
    fn last_pause(&self, pod: &Uid) -> Option<Duration> {
        match self.known.lock().get(pod)? {
            RecordState::Refused { pause, .. } => Some(*pause),
            RecordState::Unknown
            | RecordState::Written(_)
            | RecordState::Incomplete(_)
            | RecordState::NotFinal { .. } => None,
        }
    }

    /// Writes the record, and returns the result as a metric label value.
    async fn write(
        &self,
        pod: &Pod,
        spec: &PodOutcomeSpec,
        is_final: bool,
        executor: &Executor,
    ) -> Result<&'static str, RequestError> {
        let (kind, key) = (resource(), key(&pod.meta));
        let mut body = self.document(pod, spec, belayer_core::clock::now());
        if !is_final {
            body["metadata"]["labels"][NOT_FINAL_LABEL] = "true".into();
        }
        let request = Request::post(kind.path(pod.meta.key.namespace()), body.to_string())
            .query("fieldManager", names::FIELD_MANAGER)
            .accept(METADATA_ONLY);
        let sent = executor.write(&request, Class::Write).await;
        if OnConflict::LookUp.settle(sent, (&kind, &key))?.is_none() {
            let existing = existing(&kind, pod, executor).await?;
            if !is_final || existing.metadata.labels.is_final() {
                return Ok(result::EXISTED);
            }
            // It was written before the pod ended.
            let uid = Uid::new(&*existing.metadata.uid);
            let deleted = executor.delete(&kind, &key, &uid).await;
            OnConflict::Done.settle(deleted, (&kind, &key))?;
            executor.write(&request, Class::Write).await?;
        }
        if spec.complete {
            Ok(result::WRITTEN)
        } else {
            Ok(result::INCOMPLETE)
        }
    }

    fn document(&self, pod: &Pod, spec: &PodOutcomeSpec, now: Timestamp) -> serde_json::Value {
        let meta = &pod.meta;
        let mut document = json!({
            "apiVersion": resource().api_version(),
            "kind": &*resource().kind,
            "metadata": {
                "name": name_of(&meta.uid),
                "namespace": meta.key.namespace(),
                "labels": { "app.kubernetes.io/managed-by": names::FIELD_MANAGER },
            },
            "spec": spec,
        });
        match &meta.controller {
            Some(owner) => document["metadata"]["ownerReferences"] = json!([reference(owner)]),
            None => {
                let ttl = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
                let expires = now.as_second().saturating_add(ttl);
                document["metadata"]["labels"][EXPIRES_LABEL] = expires.to_string().into();
            }
        }
        document
    }
}

/// The owner reference by which the record is garbage-collected with the pod's owner. It is that of a controller, so that
/// the cache shows whether the record has an owner.
fn reference(owner: &OwnerReference) -> serde_json::Value {
    json!({
        "apiVersion": &*owner.api_version,
        "kind": &*owner.kind,
        "name": &*owner.name,
        "uid": owner.uid.as_str(),
        "blockOwnerDeletion": false,
        "controller": true,
    })
}

/// The whole pod, fetched for this record alone; `None` if it is gone or another has its name.
async fn full_pod(pod: &Pod, executor: &Executor) -> Result<Option<FullPod>, RequestError> {
    let pods = Resource::pods();
    let request = Request::get(pods.object_path(&pod.meta.key));
    match executor.read(&request, Class::Evidence).await {
        Ok(answer) => {
            let full: FullPod = answer.json()?;
            Ok((full.metadata.uid == pod.meta.uid.as_str()).then_some(full))
        }
        Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why the outcome of a pod is not final; `None` if it is. It is final if the end of every container is known, or if
/// the node is lost, so that no kubelet will report it. If the pod was deleted by force, a node that is not ready counts
/// as lost, as for [`NodeLost`](crate::argo::NodeLost).
async fn not_final(
    pod: &FullPod,
    built: &Built,
    executor: &Executor,
) -> Result<Option<String>, RequestError> {
    let is_open = !pod.is_ended() || built.running;
    let name = match pod.node_name() {
        Some(name) if is_open && (pod.is_ended() || pod.is_shut_down()) => name,
        _ if pod.is_ended() => return Ok(None),
        _ => {
            return Ok(Some(
                "its outcome is not final: it has not ended".to_owned(),
            ));
        }
    };
    let lost = match read_node(executor, &name.into()).await? {
        NodeState::Gone | NodeState::OutOfService => return Ok(None),
        NodeState::NotReady if pod.is_shut_down() => return Ok(None),
        NodeState::NotReady | NodeState::Ready => "its node exists".to_owned(),
        NodeState::Unknown(why) => format!("could not check whether its node is lost: {why}"),
    };
    if !pod.is_ended() {
        let why = format!("its outcome is not final: it has not ended, and {lost}");
        return Ok(Some(why));
    }
    let open = built.spec.unknown_containers.join(", ");
    Ok(Some(format!(
        "its outcome is not final: the end of its containers {open} is not known, and {lost}"
    )))
}

/// The key of the record of a pod.
fn key(pod: &ObjectMeta) -> ObjectKey {
    let namespace = pod.key.shared_namespace().clone();
    ObjectKey::new(namespace, name_of(&pod.uid))
}

/// A record as it is in the cluster.
#[derive(Deserialize)]
struct Existing {
    metadata: ExistingMeta,
    spec: ExistingSpec,
}

#[derive(Deserialize)]
struct ExistingMeta {
    uid: String,
    #[serde(default)]
    labels: ExistingLabels,
}

#[derive(Default, Deserialize)]
struct ExistingLabels {
    #[serde(rename = "belayer.dev/not-final")]
    not_final: Option<String>,
}

impl ExistingLabels {
    fn is_final(&self) -> bool {
        self.not_final.is_none()
    }
}

#[derive(Deserialize)]
struct ExistingSpec {
    #[serde(rename = "podUID")]
    pod_uid: String,
}

/// The record of this name, after a check that it belongs to this pod: any user could have created it.
async fn existing(
    kind: &Resource,
    pod: &Pod,
    executor: &Executor,
) -> Result<Existing, RequestError> {
    let key = key(&pod.meta);
    let request = Request::get(kind.object_path(&key));
    let existing: Existing = executor.read(&request, Class::Evidence).await?.json()?;
    if existing.spec.pod_uid == pod.meta.uid.as_str() {
        return Ok(existing);
    }
    Err(RequestError::Decode(format!(
        "{kind} {key} is the record of another pod"
    )))
}

/// Whether a retry cannot succeed without a change: no permission or no quota (403), kind not served (404), invalid
/// (422), the name is taken, or a request that the server does not take at all.
fn is_final(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Forbidden
            | ErrorClass::NotFound
            | ErrorClass::NotServed
            | ErrorClass::Invalid
            | ErrorClass::Decode
            | ErrorClass::Unsupported
            | ErrorClass::Gone
            | ErrorClass::Other
    )
}

/// Whether a retry may succeed, or fail like this for ever. A webhook whose backend does not answer: the request ends by
/// the timeout of the webhook, an error of the server, or before that by its own deadline. A conflict: with another write
/// to a quota, or the answer of a webhook. Of an API server that is overloaded or cannot be reached no release is possible
/// either.
fn may_last(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Server | ErrorClass::Timeout | ErrorClass::Conflict | ErrorClass::AlreadyExists
    )
}

fn count(result: &'static str) {
    metrics::counter!(belayer_metrics::OUTCOMES, "controller" => NAME, "result" => result)
        .increment(1);
}

/// Why the server does not accept a record.
fn refusal(error: &RequestError) -> String {
    if error.class() == ErrorClass::NotServed {
        return format!(
            "the API server does not serve {}: install the CRD (belayer crds | kubectl apply -f -)",
            resource()
        );
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(controller: Option<OwnerReference>) -> Pod {
        Pod::new(ObjectMeta {
            controller: controller.map(Arc::new),
            ..ObjectMeta::new(
                ObjectKey::new("ci", "step"),
                Uid::new("u-1"),
                ResourceVersion::new(1),
            )
        })
    }

    fn spec() -> PodOutcomeSpec {
        let pod =
            json!({"metadata": {"name": "step", "uid": "u-1"}, "status": {"phase": "Succeeded"}});
        super::super::build(pod.to_string().as_bytes())
            .unwrap()
            .spec
    }

    #[test]
    fn one_record_per_pod_uid_collected_with_its_owner() {
        let outcomes = Outcomes::new(Duration::from_secs(60));
        let owner = OwnerReference {
            api_version: "argoproj.io/v1alpha1".into(),
            kind: "Workflow".into(),
            name: "build".into(),
            uid: Uid::new("wf-1"),
        };
        let document = outcomes.document(&pod(Some(owner)), &spec(), Timestamp::UNIX_EPOCH);
        assert_eq!(document["metadata"]["name"], "pod-u-1");
        assert_eq!(document["metadata"]["ownerReferences"][0]["uid"], "wf-1");
        assert!(document["metadata"]["labels"].get(EXPIRES_LABEL).is_none());
    }

    #[test]
    fn a_record_without_an_owner_has_an_end() {
        let outcomes = Outcomes::new(Duration::from_secs(60));
        let document = outcomes.document(&pod(None), &spec(), Timestamp::UNIX_EPOCH);
        assert_eq!(document["metadata"]["labels"][EXPIRES_LABEL], "60");
        assert!(document["metadata"].get("ownerReferences").is_none());
    }
}
