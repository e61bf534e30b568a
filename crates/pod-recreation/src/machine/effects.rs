//! The steps themselves: what is decided becomes requests.

use std::time::Duration;

use belayer_core::events::Regarding;
use belayer_core::executor::Writes;
use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::workqueue::{Backoff, Outcome};
use belayer_holds::decision::{Notice, Severity};
use serde_json::{Value, json};

use super::Shared;
use super::requests::{Live, Trial, is_denied, is_namespace_terminating, is_too_large};
use crate::api::{KIND, Phase, Policy, Spec, Status, Wipe};
use crate::carry::pod_to_create;
use crate::component::pod_key;
use crate::decide::{Effect, Snapshot, Step, name_taken_notice, taken};
use crate::reason;
use crate::record::Record;
use crate::snapshot::{Asked, PodView, Sight};

/// A store that cannot say is asked again after this time.
pub(super) const UNKNOWN: Duration = Duration::from_secs(1);

/// Whether holds may be added again is asked after this time.
pub(super) const DRAINED: Duration = Duration::from_secs(5);

/// What the caches do not show yet shows soon: a look after this time, should no event come.
pub(super) const SOON: Duration = Duration::from_secs(2);

impl Shared {
    /// Takes one step.
    pub(super) async fn take(
        &self,
        key: &ObjectKey,
        snapshot: &Snapshot,
        effect: Effect,
        notice: Option<&Notice>,
    ) -> Outcome {
        let taken = match (effect, snapshot.record.as_deref()) {
            (Effect::CreateRecord { pod, wipe }, _) => {
                self.create_record(key, snapshot, &pod, wipe).await
            }
            (Effect::Mark { pod, text }, record) => {
                let pod_key = record.map(pod_key).or_else(|| self.candidate(key));
                match pod_key {
                    Some(pod_key) => self.mark(&pod_key, &pod, &text).await,
                    None => return Outcome::Done,
                }
            }
            (_, None) => return Outcome::Done,
            (Effect::Status(step), Some(record)) => self.status(snapshot, record, &step).await,
            (Effect::Intend { pod, step }, Some(record)) => {
                self.intend(snapshot, record, &pod, &step).await
            }
            (Effect::Reserve { step, node }, Some(record)) => {
                self.reserve(record, &step, node.as_deref()).await
            }
            (Effect::DeletePod { pod }, Some(record)) => self.remove(record, &pod).await,
            (Effect::CreatePod { attempt }, Some(record)) => {
                self.create_pod(snapshot, record, attempt).await
            }
            (Effect::LookAtNode { node, step }, Some(record)) => {
                self.look_at_node(record, &node, &step).await
            }
            (Effect::DeleteRecord, Some(record)) => {
                self.delete_record(record).await.map(|()| Outcome::Done)
            }
        };
        match taken {
            Ok(outcome) => {
                // What was not done is not reported.
                if let Some(notice) = notice.filter(|_| matches!(outcome, Outcome::Done)) {
                    self.tell(snapshot, notice);
                }
                outcome
            }
            Err(error) => self.failed(key, &error),
        }
    }

    /// Every failure has a retry class.
    fn failed(&self, key: &ObjectKey, error: &RequestError) -> Outcome {
        let floor = error.retry_after().unwrap_or_default();
        match error.class() {
            ErrorClass::Conflict | ErrorClass::NotFound => {
                Outcome::Retry(Backoff::CONFLICT.at_least(floor))
            }
            ErrorClass::Forbidden | ErrorClass::Invalid => {
                tracing::warn!(record = %key, %error, "the API server refuses a step and will be asked again");
                Outcome::Retry(Backoff::DENIED)
            }
            _ => {
                tracing::debug!(record = %key, %error, "a step failed and will be repeated");
                Outcome::Retry(Backoff::ERROR.at_least(floor))
            }
        }
    }

    /// Step 1. The record is made of the live pod, which must still be what the cache showed.
    async fn create_record(
        &self,
        key: &ObjectKey,
        snapshot: &Snapshot,
        pod: &Uid,
        wipe: Asked,
    ) -> Result<Outcome, RequestError> {
        let Sight::Present(_) = &snapshot.pod else {
            return Ok(Outcome::Done);
        };
        let Some(pod_key) = self.candidate(key) else {
            return Ok(Outcome::Done);
        };
        let Some((live, view)) = self.read_pod(&pod_key).await? else {
            return Ok(Outcome::Done);
        };
        if view.uid != *pod || !view.is_candidate() {
            return Ok(Outcome::Again { after: SOON });
        }
        let policy = Policy {
            wipe: match wipe {
                Asked::Yes => Wipe::Required,
                Asked::No => Wipe::None,
            },
            ..self.parts.component.settings().policy
        };
        let spec = Spec {
            pod_name: pod_key.name().to_owned(),
            first_uid: pod.to_string(),
            policy,
            pod: pod_to_create(&live),
        };
        let object = json!({
            "apiVersion": self.records.api_version(),
            "kind": KIND,
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                "ownerReferences": plain_owners(&live),
            },
            "spec": spec,
        });
        let collection = self.records.path(key.namespace());
        match self.create(collection, &object, Trial::Real).await {
            Ok(_) => Ok(Outcome::Done),
            // The answer to an earlier try was lost.
            Err(error) if error.class() == ErrorClass::AlreadyExists => {
                Ok(Outcome::Again { after: SOON })
            }
            Err(error) if is_namespace_terminating(&error) => Err(error),
            Err(error) if is_denied(&error) || is_too_large(&error) => {
                tracing::warn!(pod = %pod_key, %error, "a rejection cannot be recorded and will be tried again");
                let regarding = Regarding {
                    resource: self.pods.clone(),
                    key: pod_key,
                    uid: pod.clone(),
                };
                let notice = Notice {
                    severity: Severity::Warning,
                    reason: "RecreationDenied",
                    message: format!("its record cannot be written, and without one nothing is re-created: {error}")
                        .into(),
                };
                self.parts.events.tell(&regarding, &notice);
                Ok(Outcome::Retry(Backoff::DENIED))
            }
            Err(error) => Err(error),
        }
    }

    fn candidate(&self, record: &ObjectKey) -> Option<ObjectKey> {
        self.parts.component.candidate(record)
    }

    /// The live pod, as JSON and in our words.
    pub(super) async fn read_pod(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<(Value, PodView)>, RequestError> {
        match self.live_pod(key).await? {
            Live::Gone => Ok(None),
            Live::There(answer) => {
                let live: Value = answer.json()?;
                let pod = self
                    .parts
                    .pod_decoders
                    .read(&answer)
                    .map_err(|error| RequestError::Decode(error.to_string()))?;
                Ok(Some((live, self.parts.component.view(&pod))))
            }
        }
    }

    /// A status, once what it says is proven.
    async fn status(
        &self,
        snapshot: &Snapshot,
        record: &Record,
        step: &Step,
    ) -> Result<Outcome, RequestError> {
        if let Some(gone) = &step.gone {
            let key = pod_key(record);
            if let Some((_, view)) = self.read_pod(&key).await? {
                if view.uid == *gone {
                    return Ok(Outcome::Again { after: SOON });
                }
                let ours = view
                    .mark
                    .is_some_and(|mark| mark.record_uid == record.meta.uid);
                if !ours && step.next.phase == Some(Phase::Waiting) {
                    return self.name_taken(snapshot, record).await;
                }
                if ours && record.status.phase == Some(Phase::Creating) {
                    // The create was carried out after all: its answer was lost.
                    return Ok(Outcome::Again { after: SOON });
                }
            }
        }
        self.write(record, &step.next, step.counts).await
    }

    /// The end that a live look at a stranger under the pod's name leads to.
    pub(super) async fn name_taken(
        &self,
        snapshot: &Snapshot,
        record: &Record,
    ) -> Result<Outcome, RequestError> {
        let next = taken(record, (self.parts.clock)());
        let outcome = self.write(record, &next, Some("name_taken")).await?;
        self.tell(snapshot, &name_taken_notice(record));
        Ok(outcome)
    }

    /// Writes a status and counts what it means.
    pub(super) async fn write(
        &self,
        record: &Record,
        next: &Status,
        counts: Option<&'static str>,
    ) -> Result<Outcome, RequestError> {
        self.put_status(record, next).await?;
        if self.executor().writes() == Writes::DryRun {
            return Ok(Outcome::Done);
        }
        tracing::info!(record = %record.meta.key, phase = next.phase.map(Phase::as_str), attempts = next.attempts, "recorded");
        if let Some(outcome) = counts {
            let why = next.reason.as_deref().unwrap_or_default();
            let label = reason::label(why);
            metrics::counter!(belayer_metrics::RECREATIONS, "reason" => label, "outcome" => outcome)
                .increment(1);
            if outcome == "exhausted" {
                metrics::counter!(belayer_metrics::RECREATION_BUDGET_EXHAUSTED).increment(1);
            }
            if outcome == "rejected"
                && let Some(node) = &next.node_name
            {
                if self.storm.rejected_by(node) {
                    tracing::warn!(node, "the node rejects pod after pod and is given a rest");
                }
                self.report_breakers();
            }
        }
        Ok(Outcome::Done)
    }

    pub(super) fn report_breakers(&self) {
        let open = self.storm.open_breakers();
        metrics::gauge!(belayer_metrics::BREAKER_OPEN, "scope" => "node").set(open as f64);
    }

    /// Step 3: a node that is gone counts as wiped.
    async fn look_at_node(
        &self,
        record: &Record,
        node: &str,
        step: &Step,
    ) -> Result<Outcome, RequestError> {
        let nodes = Resource::nodes();
        let key = ObjectKey::cluster(node);
        let request = belayer_core::http::Request::get(nodes.object_path(&key))
            .accept(belayer_core::http::METADATA_ONLY);
        let class = belayer_core::executor::Class::Evidence;
        match self.executor().read(&request, class).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) if self.says_gone(&error, &nodes, &key) => {
                self.write(record, &step.next, step.counts).await
            }
            Err(error) => Err(error),
        }
    }

    async fn mark(&self, key: &ObjectKey, pod: &Uid, text: &str) -> Result<Outcome, RequestError> {
        let Some((live, view)) = self.read_pod(key).await? else {
            return Ok(Outcome::Again { after: SOON });
        };
        if view.uid == *pod && view.asks.leave == Asked::No {
            self.mark_pod(key, &live, text).await?;
        }
        Ok(Outcome::Again { after: SOON })
    }
}

/// The pod's owners own the record too, so that it goes with them; but it is no reason to wait with their
/// deletion, which would take a right on them.
fn plain_owners(pod: &Value) -> Vec<Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let owners = owners.into_iter().flatten().cloned();
    owners
        .map(|mut owner| {
            if let Some(owner) = owner.as_object_mut() {
                owner.remove("blockOwnerDeletion");
            }
            owner
        })
        .collect()
}
