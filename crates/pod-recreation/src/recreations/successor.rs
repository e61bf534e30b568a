//! The steps from the intent to the pod that takes the place of the rejected one.

use belayer_core::clock;
use belayer_core::executor::Sent;
use belayer_core::http::{Answer, RequestError};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::Backoff;
use belayer_holds::conflict::OnConflict;
use belayer_holds::decision::{Notice, Severity};
use belayer_holds::invariants::{self, Invariant};
use belayer_holds::names::{FIELD_MANAGER, RECREATION_UID_ANNOTATION};
use belayer_holds::runner::Stepped;
use serde_json::Value;

use super::Taking;
use super::effects::SOON;
use super::requests::{Trial, is_denied, is_namespace_terminating};
use crate::api::{ConditionStatus, ConditionType, Phase, Spec, Status};
use crate::carry::{Chain, pod_to_create, rehearsal, successor, unrehearsed, writers_of_spec};
use crate::component::pod_key;
use crate::decide::{Step, cut_short, finished};
use crate::record::Record;

impl Taking<'_> {
    /// Step 4.
    pub(super) async fn intend(
        &self,
        record: &Record,
        pod: &Uid,
        step: &Step,
    ) -> Result<Stepped, RequestError> {
        let key = pod_key(record);
        let Some(spec) = self.spec(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if let Some(node) = spec.pod["spec"]["nodeName"].as_str()
            && step.next.avoid_nodes.iter().any(|avoided| avoided == node)
        {
            let why = format!(
                "not re-created: its user bound it to node {node}, where it must not go again"
            );
            return self.contradicts_itself(record, why).await;
        }
        let tried = rehearsal(&spec.pod, self.chain(record, &step.next, 0));
        let pods = &self.it.pods;
        let tried = self.create(pods, &key, &tried, Trial::Rehearsal).await;
        // The last look before the intent is written: a deletion by somebody else until here cancels.
        let Some((live, view)) = self.read_pod(&key).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if view.uid != *pod || view.is_deleting() || view.recreatable().is_none() {
            return Ok(Stepped::Later(SOON));
        }
        // Whoever could write a record could have us create any pod: it must be this very pod's.
        if record.first_uid == pod.as_str() && spec.pod != pod_to_create(&live) {
            let why = "the record does not describe the pod that was rejected";
            let next = finished(record, Phase::Ended, why, clock::now());
            return self.write(record, &next, Some("reported")).await;
        }
        match tried {
            Ok(_) => self.write(record, &step.next, step.counts).await,
            Err(error) => {
                let message = unrehearsed(&error.to_string(), &record.pod_name);
                self.denied(record, error, message).await
            }
        }
    }

    /// The rejected pod stays as it is: what would be created in its place, its node must reject.
    async fn contradicts_itself(
        &self,
        record: &Record,
        why: String,
    ) -> Result<Stepped, RequestError> {
        let next = cut_short(record, &why, clock::now());
        let stepped = self.write(record, &next, Some("reported")).await?;
        let notice = Notice {
            severity: Severity::Warning,
            reason: "NotRecreated",
            message: why.into(),
        };
        self.tell(&notice);
        Ok(stepped)
    }

    /// The server does not take the pod.
    async fn denied(
        &self,
        record: &Record,
        error: RequestError,
        message: String,
    ) -> Result<Stepped, RequestError> {
        if is_namespace_terminating(&error) {
            let why = "the namespace is being deleted";
            let next = finished(record, Phase::Ended, why, clock::now());
            return self.write(record, &next, Some("cancelled")).await;
        }
        if !is_denied(&error) {
            return Err(error);
        }
        let notice = Notice {
            severity: Severity::Warning,
            reason: "RecreationDenied",
            message: format!("the API server refuses the re-created pod: {message}").into(),
        };
        self.tell(&notice);
        let told = record
            .status
            .condition(ConditionType::CreateDenied)
            .is_some_and(|condition| {
                condition.status == ConditionStatus::True && condition.message == message
            });
        if !told {
            let mut next = record.status.clone();
            let now = clock::now();
            next.set(
                ConditionType::CreateDenied,
                ConditionStatus::True,
                ("Refused", &message),
                now,
            );
            self.write(record, &next, Some("denied")).await?;
        }
        Ok(Stepped::Retry(Backoff::DENIED))
    }

    /// The spec of a record that still stands at the version that was decided on.
    async fn spec(&self, record: &Record) -> Result<Option<Spec>, RequestError> {
        let Some(answer) = self.live(&self.it.records, &record.meta.key).await? else {
            return Ok(None);
        };
        if !self.is_same(record, &answer) {
            return Ok(None);
        }
        let object: Value = answer.json()?;
        // The spec of a record never changes, so that its first generation is its only one.
        if object["metadata"]["generation"].as_i64() > Some(1) {
            let why =
                "the record's spec was changed, and a pod would come of it that nobody asked for";
            let next = cut_short(record, why, clock::now());
            self.write(record, &next, Some("reported")).await?;
            return Ok(None);
        }
        read_spec(&object).map(Some)
    }

    fn is_same(&self, record: &Record, answer: &Answer) -> bool {
        let live = self.it.parts.record_decoders.read(answer);
        live.is_ok_and(|live| {
            live.meta.uid == record.meta.uid
                && live.meta.resource_version == record.meta.resource_version
                && !live.meta.is_deleting()
        })
    }

    /// Step 7, the first half.
    pub(super) async fn reserve(
        &self,
        record: &Record,
        step: &Step,
        node: Option<&str>,
    ) -> Result<Stepped, RequestError> {
        let Some(spec) = self.spec(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        let namespace = record.meta.key.namespace().unwrap_or_default();
        match self.ended_owner(namespace, &spec).await {
            Ok(None) => {}
            Ok(Some(why)) => {
                let why = format!("not re-created: {why}");
                let next = cut_short(record, &why, clock::now());
                return self.write(record, &next, Some("cancelled")).await;
            }
            Err(error) => {
                tracing::debug!(record = %record.meta.key, %error, "an owner could not be looked at");
                return Ok(Stepped::Retry(Backoff::ERROR));
            }
        }
        let owner = record.meta.controller.as_ref().map(|owner| &owner.uid);
        if let Err(wait) = self.it.storm.admit(owner.map(Uid::as_str), node) {
            self.it.report_breakers();
            return Ok(Stepped::Later(wait));
        }
        let (reserved, budget) = (step.next.attempts, record.policy.max_retries);
        debug_assert!(
            invariants::one_pod(0, reserved, budget),
            "{}: {reserved} reserved of {budget}",
            Invariant::OnePod
        );
        self.write(record, &step.next, step.counts).await
    }

    /// Step 5, and leftovers: by UID, and only while the record stands.
    pub(super) async fn remove(&self, record: &Record, pod: &Uid) -> Result<Stepped, RequestError> {
        let Some(answer) = self.live(&self.it.records, &record.meta.key).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if !self.is_same(record, &answer) {
            return Ok(Stepped::Later(SOON));
        }
        let key = pod_key(record);
        // A pod that the record does not know is ours by its annotations, which copies have as well.
        if record.status.rejected_uid.as_deref() != Some(pod.as_str()) {
            let Some((live, view)) = self.read_pod(&key).await? else {
                return Ok(Stepped::Later(SOON));
            };
            if view.uid == *pod && !is_created_by_us(&live) {
                tracing::info!(pod = %key, uid = %pod, "a copy of a re-created pod is its user's");
                self.it.parts.component.note_copy(pod, &key);
                return Ok(Stepped::Later(SOON));
            }
        }
        self.delete_pod(&key, pod).await?;
        Ok(Stepped::Later(SOON))
    }

    /// Step 7, the second half, and step 8.
    pub(super) async fn create_pod(
        &self,
        record: &Record,
        attempt: u32,
    ) -> Result<Stepped, RequestError> {
        let Some(spec) = self.spec(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        let key = pod_key(record);
        let object = successor(&spec.pod, self.chain(record, &record.status, attempt));
        let pods = &self.it.pods;
        let created = self.create(pods, &key, &object, Trial::Real).await;
        let created = match OnConflict::LookUp.settle(created, (pods, &key)) {
            Ok(Some(Sent::Applied(answer))) => answer,
            Ok(Some(Sent::DryRun)) => return Ok(Stepped::Done),
            Ok(None) => return self.name_in_use(record, &key).await,
            Err(error) => {
                let message = error.to_string();
                return self.denied(record, error, message).await;
            }
        };
        let created: Value = created.json()?;
        let uid = Uid::new(created["metadata"]["uid"].as_str().unwrap_or_default());
        // A create cannot carry a version: whether it was still wanted shows afterwards.
        let wanted = match self.live(&self.it.records, &record.meta.key).await? {
            None => false,
            Some(answer) => self.is_wanted(record, &answer, attempt, &uid)?,
        };
        if !wanted {
            tracing::info!(pod = %key, %uid, "created in vain: the attempt is not wanted any more");
            self.delete_pod(&key, &uid).await?;
        }
        Ok(Stepped::Later(SOON))
    }

    fn is_wanted(
        &self,
        record: &Record,
        answer: &Answer,
        attempt: u32,
        uid: &Uid,
    ) -> Result<bool, RequestError> {
        let live = self.it.parts.record_decoders.read(answer);
        let live = live.map_err(|error| RequestError::Decode(error.to_string()))?;
        let status = &live.status;
        let reserved = status.phase == Some(Phase::Creating) && status.attempts == attempt;
        let known = status.pod_uid.as_deref() == Some(uid.as_str());
        Ok(live.meta.uid == record.meta.uid && !live.meta.is_deleting() && (reserved || known))
    }

    /// Somebody has the name: we, by an answer that was lost, or a stranger.
    async fn name_in_use(&self, record: &Record, key: &ObjectKey) -> Result<Stepped, RequestError> {
        let Some((live, view)) = self.read_pod(key).await? else {
            return Ok(Stepped::Retry(Backoff::CONFLICT));
        };
        let mark = &live["metadata"]["annotations"][RECREATION_UID_ANNOTATION];
        let was_rejected = record.status.rejected_uid.as_deref() == Some(view.uid.as_str());
        if was_rejected || mark.as_str() == Some(record.meta.uid.as_str()) {
            return Ok(Stepped::Later(SOON));
        }
        self.name_taken(record).await
    }

    fn chain<'a>(&self, record: &'a Record, status: &'a Status, attempt: u32) -> Chain<'a> {
        let key = &record.meta.key;
        Chain {
            namespace: key.namespace().unwrap_or_default(),
            pod_name: &record.pod_name,
            record: key.name(),
            record_uid: record.meta.uid.as_str(),
            attempt,
            avoid_nodes: &status.avoid_nodes,
        }
    }
}

/// Whether the spec of a pod is what we wrote: `kubectl replace --force`, or whoever applies what they
/// exported, writes the annotations of a re-created pod as well, under a name of their own.
fn is_created_by_us(pod: &Value) -> bool {
    let is_noted = pod["metadata"]["managedFields"].is_array();
    !is_noted || writers_of_spec(pod).any(|entry| entry["manager"] == FIELD_MANAGER)
}

fn read_spec(object: &Value) -> Result<Spec, RequestError> {
    serde_json::from_value(object["spec"].clone())
        .map_err(|error| RequestError::Decode(error.to_string()))
}
