//! The steps themselves: what is decided becomes requests.

use std::time::Duration;

use belayer_core::clock;
use belayer_core::events::Regarding;
use belayer_core::executor::{Class, Writes};
use belayer_core::http::{METADATA_ONLY, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::workqueue::Backoff;
use belayer_holds::conflict::OnConflict;
use belayer_holds::decision::{Notice, Severity};
use belayer_holds::runner::{Component as _, Stepped};
use serde_json::{Value, json};

use super::Taking;
use super::requests::{Trial, is_denied, is_namespace_terminating, is_too_large};
use crate::api::{KIND, Phase, Policy, Spec, Status, Wipe};
use crate::carry::pod_to_create;
use crate::component::pod_key;
use crate::decide::{Effect, Step, name_taken_notice, taken};
use crate::reason;
use crate::record::Record;
use crate::snapshot::{Asked, PodView};
use crate::transitions::{State, is_declared};

/// What the caches do not show yet shows soon: a look after this time, should no event come.
pub(super) const SOON: Duration = Duration::from_secs(2);

impl Taking<'_> {
    /// Takes one step.
    pub(super) async fn take(self, effect: Effect) -> Result<Stepped, RequestError> {
        match (effect, self.snapshot.record.as_deref()) {
            (Effect::CreateRecord { pod, wipe }, _) => self.create_record(&pod, wipe).await,
            (Effect::Mark { pod, text }, record) => {
                match record.map(pod_key).or_else(|| self.candidate()) {
                    Some(key) => self.mark(&key, &pod, &text).await,
                    None => Ok(Stepped::Done),
                }
            }
            (_, None) => Ok(Stepped::Done),
            (Effect::Status(step), Some(record)) => self.status(record, &step).await,
            (Effect::Intend { pod, step }, Some(record)) => self.intend(record, &pod, &step).await,
            (Effect::Reserve { step, node }, Some(record)) => {
                self.reserve(record, &step, node.as_deref()).await
            }
            (Effect::DeletePod { pod }, Some(record)) => self.remove(record, &pod).await,
            (Effect::CreatePod { attempt }, Some(record)) => self.create_pod(record, attempt).await,
            (Effect::LookAtNode { node, step }, Some(record)) => {
                self.look_at_node(record, &node, &step).await
            }
            (Effect::DeleteRecord, Some(record)) => self.delete_record(record).await,
        }
    }

    /// Step 1. The record is made of the live pod, which must still be what the cache showed.
    async fn create_record(&self, pod: &Uid, wipe: Asked) -> Result<Stepped, RequestError> {
        let key = self.context.key;
        let Some(pod_key) = self.candidate() else {
            return Ok(Stepped::Done);
        };
        let Some((live, view)) = self.read_pod(&pod_key).await? else {
            return Ok(Stepped::Done);
        };
        if view.uid != *pod || !view.is_candidate() {
            return Ok(Stepped::Later(SOON));
        }
        let policy = Policy {
            wipe: match wipe {
                Asked::Yes => Wipe::Required,
                Asked::No => Wipe::None,
            },
            ..self.it.parts.component.settings().policy
        };
        let spec = Spec {
            pod_name: pod_key.name().to_owned(),
            first_uid: pod.to_string(),
            policy,
            pod: pod_to_create(&live),
        };
        let records = &self.it.records;
        let object = json!({
            "apiVersion": records.api_version(),
            "kind": KIND,
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                "ownerReferences": plain_owners(&live),
            },
            "spec": spec,
        });
        let created = self.create(records, key, &object, Trial::Real).await;
        match OnConflict::LookUp.settle(created, (records, key)) {
            Ok(Some(_)) => Ok(Stepped::Done),
            // The answer to an earlier try was lost: the record is there, or will be soon.
            Ok(None) => Ok(Stepped::Later(SOON)),
            Err(error) if is_namespace_terminating(&error) => Err(error),
            Err(error) if is_denied(&error) || is_too_large(&error) => {
                tracing::warn!(pod = %pod_key, %error, "a rejection cannot be recorded and will be tried again");
                let regarding = Regarding {
                    resource: self.it.pods.clone(),
                    key: pod_key,
                    uid: pod.clone(),
                };
                let notice = Notice {
                    severity: Severity::Warning,
                    reason: "RecreationDenied",
                    message: format!("its record cannot be written, and without one nothing is re-created: {error}")
                        .into(),
                };
                self.it.parts.events.record(&regarding, &notice);
                Ok(Stepped::Retry(Backoff::DENIED))
            }
            Err(error) => Err(error),
        }
    }

    fn candidate(&self) -> Option<ObjectKey> {
        self.it.parts.component.candidate(self.context.key)
    }

    /// The live pod, as JSON and in our words.
    pub(super) async fn read_pod(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<(Value, PodView)>, RequestError> {
        let Some(answer) = self.live(&self.it.pods, key).await? else {
            return Ok(None);
        };
        let live: Value = answer.json()?;
        let parts = &self.it.parts;
        let pod = parts.pod_decoders.read(&answer);
        let pod = pod.map_err(|error| RequestError::Decode(error.to_string()))?;
        Ok(Some((live, parts.component.view(&pod))))
    }

    /// A status, once what it says is proven.
    async fn status(&self, record: &Record, step: &Step) -> Result<Stepped, RequestError> {
        if let Some(gone) = &step.gone
            && let Some((_, view)) = self.read_pod(&pod_key(record)).await?
        {
            if view.uid == *gone {
                return Ok(Stepped::Later(SOON));
            }
            let ours = view
                .mark
                .is_some_and(|mark| mark.record_uid == record.meta.uid);
            if !ours && step.next.phase == Some(Phase::Waiting) {
                return self.name_taken(record).await;
            }
            if ours && record.status.phase == Some(Phase::Creating) {
                // The create was carried out after all: its answer was lost.
                return Ok(Stepped::Later(SOON));
            }
        }
        self.write(record, &step.next, step.counts).await
    }

    /// The end that a live look at a stranger under the pod's name leads to.
    pub(super) async fn name_taken(&self, record: &Record) -> Result<Stepped, RequestError> {
        let next = taken(record, clock::now());
        let stepped = self.write(record, &next, Some("name_taken")).await?;
        self.tell(&name_taken_notice(record));
        Ok(stepped)
    }

    pub(super) fn tell(&self, notice: &Notice) {
        if let Some(regarding) = self.it.regarding(self.snapshot) {
            self.it.parts.events.record(&regarding, notice);
        }
    }

    /// Writes a status and counts what it means.
    pub(super) async fn write(
        &self,
        record: &Record,
        next: &Status,
        counts: Option<&'static str>,
    ) -> Result<Stepped, RequestError> {
        let (from, to) = (State::of(&record.status), State::of(next));
        debug_assert!(is_declared(from, to), "{from:?} to {to:?} is not declared");
        self.put_status(record, next).await?;
        if self.context.executor.writes() == Writes::DryRun {
            return Ok(Stepped::Done);
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
                if self.it.storm.rejected_by(node) {
                    tracing::warn!(node, "the node rejects pod after pod and is given a rest");
                }
                self.it.report_breakers();
            }
        }
        Ok(Stepped::Done)
    }

    /// Step 3: a node that is gone counts as wiped.
    async fn look_at_node(
        &self,
        record: &Record,
        node: &str,
        step: &Step,
    ) -> Result<Stepped, RequestError> {
        let nodes = Resource::nodes();
        let key = ObjectKey::cluster(node);
        let request = Request::get(nodes.object_path(&key)).accept(METADATA_ONLY);
        let read = self.context.executor.read(&request, Class::Evidence);
        match read.await {
            Ok(_) => Ok(Stepped::Done),
            Err(error) if error.is_gone(&nodes, &key) => {
                self.write(record, &step.next, step.counts).await
            }
            Err(error) => Err(error),
        }
    }

    async fn mark(&self, key: &ObjectKey, pod: &Uid, text: &str) -> Result<Stepped, RequestError> {
        let Some((live, view)) = self.read_pod(key).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if view.uid == *pod && view.asks.leave == Asked::No {
            self.mark_pod(key, &live, text).await?;
        }
        Ok(Stepped::Later(SOON))
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
