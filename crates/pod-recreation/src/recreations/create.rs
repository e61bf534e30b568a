//! The steps that delete the rejected pod and create the one that replaces it.

use belayer_core::clock;
use belayer_core::executor::Sent;
use belayer_core::http::{Answer, RequestError};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::Backoff;
use belayer_holds::decision::Notice;
use belayer_holds::invariants::{self, Invariant};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::runner::Stepped;
use serde_json::Value;

use super::requests::{CreateMode, is_denied, is_name_in_use, is_namespace_terminating, looked_up};
use super::{Execution, SOON};
use crate::api::{ConditionStatus, ConditionType, Phase, Spec, Status};
use crate::component::pod_key;
use crate::decide::{StatusWrite, cancelled_step, is_of_record, reported_step};
use crate::rate_limit::Subject;
use crate::record::Record;
use crate::replacement_pod::{
    Chain, dry_run_pod, has_spec_of, metadata_to_create, missing_marks, pod_of_attempt,
    writers_of_spec_through,
};

/// How often a dry run is repeated because the metadata of the pod has changed.
const DRY_RUNS: usize = 3;

impl Execution<'_> {
    /// Step 4: the server-side dry run, then the intent to delete the rejected pod.
    pub(super) async fn intend(
        &self,
        record: &Record,
        pod: &Uid,
        step: &StatusWrite,
    ) -> Result<Stepped, RequestError> {
        let key = pod_key(record);
        let Some(Recorded { spec, .. }) = self.recorded(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        let is_first = record.first_uid == pod.as_str();
        if let Some(node) = spec.pod["spec"]["nodeName"].as_str()
            && step.next.avoid_nodes.iter().any(|avoided| avoided == node)
        {
            let is_new = !record
                .status
                .avoid_nodes
                .iter()
                .any(|avoided| avoided == node);
            let because = if is_new {
                ", because its directories there were not removed in time"
            } else {
                ""
            };
            let why = format!(
                "its user bound it to node {node}, on which it must not run again{because}"
            );
            let end = reported_step(record, &why, clock::now());
            return self.write(record, &end).await;
        }
        let mut next = step.clone();
        // The metadata may change until the intent is written.
        for _ in 0..DRY_RUNS {
            let pod_to_create = described(&spec, &next.next);
            let chain = self.chain(record, &next.next, 0);
            let tried = self.try_create(&key, &pod_to_create, chain).await;
            // The last read before the intent is written: if another client has deleted the pod, that cancels.
            let Some((live, view)) = self.read_pod(&key).await? else {
                return Ok(Stepped::Later(SOON));
            };
            let is_declined =
                !view.is_selected() || view.release_requested || view.recreation_ended;
            if view.uid != *pod
                || view.deleting
                || view.recorded_rejection().is_none()
                || is_declined
            {
                return Ok(Stepped::Later(SOON));
            }
            // Otherwise a client that may write records could have Belayer create any pod. Of a re-created pod admission
            // may change the spec in another way each time.
            let objection = if is_first {
                let why = "the record does not describe the spec of the rejected pod";
                (!has_spec_of(&spec.pod, &live)).then(|| why.to_owned())
            } else {
                changed_by(&live).map(|manager| {
                    format!("another client changed the spec of the re-created pod (field manager {manager})")
                })
            };
            if let Some(why) = objection {
                let end = reported_step(record, &why, clock::now());
                return self.write(record, &end).await;
            }
            let recorded = &pod_to_create["metadata"];
            let known = if is_first { &Value::Null } else { recorded };
            let lists = &self.it.parts.component.settings().carry;
            let metadata = metadata_to_create(&live, known, lists);
            if metadata != *recorded {
                next.next.pod_metadata = Some(metadata);
                continue;
            }
            return match tried {
                Ok(Tried::Accepted) => self.write(record, &next).await,
                Ok(Tried::Unmarked(marks)) => {
                    let message = format!(
                        "admission removes {} from it, without which Belayer does not recognize it",
                        marks.join(", ")
                    );
                    self.refused(record, message).await
                }
                Err(error) => self.denied(record, error).await,
            };
        }
        Ok(Stepped::Later(SOON))
    }

    /// The server-side dry run of a create. The rejected pod has the name, so the pod gets a generated one. A policy about
    /// names may deny only that one. So a denied pod is tried under its own name too: only if admission accepts it, the API
    /// server answers that the name is in use.
    async fn try_create(
        &self,
        key: &ObjectKey,
        pod: &Value,
        chain: Chain<'_>,
    ) -> Result<Tried, RequestError> {
        let pods = &self.it.pods;
        let generated = dry_run_pod(pod, chain);
        match self.create(pods, key, &generated, CreateMode::DryRun).await {
            Ok(Sent::Applied(answer)) => {
                let marks = missing_marks(&answer.json()?, &generated);
                return Ok(if marks.is_empty() {
                    Tried::Accepted
                } else {
                    Tried::Unmarked(marks)
                });
            }
            Ok(Sent::DryRun) => return Ok(Tried::Accepted),
            Err(error) if is_denied(&error) && !is_namespace_terminating(&error) => {}
            Err(error) => return Err(error),
        }
        let named = pod_of_attempt(pod, chain);
        match self.create(pods, key, &named, CreateMode::DryRun).await {
            Err(error) if !is_name_in_use(&error) => Err(error),
            _ => Ok(Tried::Accepted),
        }
    }

    /// The API server refused the create.
    async fn denied(&self, record: &Record, error: RequestError) -> Result<Stepped, RequestError> {
        if is_namespace_terminating(&error) {
            let end = cancelled_step(record, "the namespace is being deleted", clock::now());
            return self.write(record, &end).await;
        }
        if !is_denied(&error) {
            return Err(error);
        }
        self.refused(record, error.to_string()).await
    }

    /// The pod cannot be created until a user changes something: reports that, and tries again later.
    async fn refused(&self, record: &Record, message: String) -> Result<Stepped, RequestError> {
        let notice = Notice::warning(
            "RecreationDenied",
            format!("the API server denies the re-created pod: {message}"),
        );
        self.record_event(&notice);
        let is_recorded = record
            .status
            .condition(ConditionType::CreateDenied)
            .is_some_and(|condition| {
                condition.status == ConditionStatus::True && condition.message == message
            });
        if !is_recorded {
            let mut next = record.status.clone();
            let now = clock::now();
            next.set(
                ConditionType::CreateDenied,
                ConditionStatus::True,
                ("Refused", &message),
                now,
            );
            let step = StatusWrite::of(next).counted("denied");
            self.write(record, &step).await?;
        }
        Ok(Stepped::Retry(Backoff::DENIED))
    }

    /// A record that still has the version of the decision.
    async fn recorded(&self, record: &Record) -> Result<Option<Recorded>, RequestError> {
        let Some(answer) = self.live(&self.it.records, &record.meta.key).await? else {
            return Ok(None);
        };
        if !self.is_same(record, &answer) {
            return Ok(None);
        }
        let object: Value = answer.json()?;
        // The spec is immutable: a second generation shows that it was changed nevertheless.
        if object["metadata"]["generation"].as_i64() > Some(1) {
            let why = "the record's spec was changed, so its pod may not be the rejected one";
            let end = reported_step(record, why, clock::now());
            self.write(record, &end).await?;
            return Ok(None);
        }
        let spec = serde_json::from_value(object["spec"].clone())
            .map_err(|error| RequestError::Decode(error.to_string()))?;
        Ok(Some(Recorded { spec, object }))
    }

    fn is_same(&self, record: &Record, answer: &Answer) -> bool {
        let live = self.it.parts.record_decoders.read(answer);
        live.is_ok_and(|live| {
            live.meta.uid == record.meta.uid
                && live.meta.resource_version == record.meta.resource_version
                && !live.meta.is_deleting()
        })
    }

    /// Step 7: reserves an attempt.
    pub(super) async fn reserve(
        &self,
        record: &Record,
        step: &StatusWrite,
        node: Option<&str>,
    ) -> Result<Stepped, RequestError> {
        let namespace = record.meta.key.namespace().unwrap_or_default();
        // Before the reads: a re-creation that must wait sends no request.
        let owner = record.meta.controller.as_ref().map(|owner| &owner.uid);
        let subject = Subject {
            namespace,
            owner: owner.map(Uid::as_str),
            node,
        };
        let permit = match self.it.rate_limiter.acquire(subject) {
            Ok(permit) => permit,
            Err(wait) => {
                self.it.report_breakers();
                return Ok(Stepped::Later(wait));
            }
        };
        let Some(recorded) = self.recorded(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        let pod = recorded.pod(&record.status);
        match self.ended_owner(namespace, &pod).await {
            Ok(None) => {}
            Ok(Some(why)) => {
                let end = cancelled_step(record, &why, clock::now());
                return self.write(record, &end).await;
            }
            Err(error) => {
                tracing::debug!(record = %record.meta.key, %error, "could not read an owner; Belayer tries again");
                return Ok(Stepped::Retry(Backoff::ERROR));
            }
        }
        let (reserved, budget) = (step.next.attempts, record.policy.max_retries);
        debug_assert!(
            invariants::one_pod(0, reserved, budget),
            "{}: {reserved} reserved of {budget}",
            Invariant::OnePod
        );
        let stepped = self.write(record, step).await?;
        permit.spend();
        Ok(stepped)
    }

    /// Step 5, and pods of old attempts: deletes by UID, and only if the record has not changed.
    pub(super) async fn remove(&self, record: &Record, pod: &Uid) -> Result<Stepped, RequestError> {
        let Some(answer) = self.live(&self.it.records, &record.meta.key).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if !self.is_same(record, &answer) {
            return Ok(Stepped::Later(SOON));
        }
        self.delete_pod(&pod_key(record), pod).await?;
        Ok(Stepped::Later(SOON))
    }

    /// Steps 7 and 8: creates the pod of the attempt, then reads the record again.
    pub(super) async fn create_pod(
        &self,
        record: &Record,
        attempt: u32,
    ) -> Result<Stepped, RequestError> {
        let Some(recorded) = self.recorded(record).await? else {
            return Ok(Stepped::Later(SOON));
        };
        let key = pod_key(record);
        let pod = recorded.pod(&record.status);
        let object = pod_of_attempt(&pod, self.chain(record, &record.status, attempt));
        let pods = &self.it.pods;
        let created = self
            .create(pods, &key, &object, CreateMode::Persisted)
            .await;
        let created = match looked_up(created, (pods, &key)) {
            Ok(Some(Sent::Applied(answer))) => answer,
            Ok(Some(Sent::DryRun)) => return Ok(Stepped::Done),
            Ok(None) => return self.name_in_use(record, &key).await,
            Err(error) => return self.denied(record, error).await,
        };
        let created: Value = created.json()?;
        let uid = Uid::new(created["metadata"]["uid"].as_str().unwrap_or_default());
        // A create has no precondition on the record, so it is checked afterwards.
        let wanted = match self.live(&self.it.records, &record.meta.key).await? {
            None => false,
            Some(answer) => self.is_wanted(record, &answer, attempt, &uid)?,
        };
        if !wanted {
            tracing::info!(pod = %key, %uid, "deleting the created pod: its record has changed meanwhile");
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

    /// The name is in use: by a pod of this record whose response was lost, or by another pod.
    pub(super) async fn name_in_use(
        &self,
        record: &Record,
        key: &ObjectKey,
    ) -> Result<Stepped, RequestError> {
        let Some((_, view)) = self.read_pod(key).await? else {
            return Ok(Stepped::Retry(Backoff::CONFLICT));
        };
        let was_rejected = record.status.rejected_uid.as_deref() == Some(view.uid.as_str());
        // A user's copy of such a pod has its annotations too, but is another pod.
        if was_rejected || is_of_record(record, &view) {
            return Ok(Stepped::Later(SOON));
        }
        self.name_taken_by(record, &view).await
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

/// What the dry run of a create shows.
enum Tried {
    /// The API server accepts the pod.
    Accepted,
    /// It accepts the pod, but without these marks by which Belayer recognizes it.
    Unmarked(Vec<&'static str>),
}

/// A record as the API server returns it.
struct Recorded {
    spec: Spec,
    object: Value,
}

impl Recorded {
    /// The pod to create while it exists in its record alone, without owners from which the record was orphaned meanwhile
    /// (`--cascade=orphan`). The record was created with the owners that the pod had then. A later owner of the pod is not
    /// one of the record.
    fn pod(&self, status: &Status) -> Value {
        let uids = |object: &Value| -> Vec<Value> {
            let owners = object["metadata"]["ownerReferences"].as_array();
            let owners = owners.into_iter().flatten();
            owners.map(|owner| owner["uid"].clone()).collect()
        };
        let (then, now) = (uids(&self.spec.pod), uids(&self.object));
        let mut pod = described(&self.spec, status);
        let owners = pod["metadata"].get_mut("ownerReferences");
        if let Some(owners) = owners.and_then(Value::as_array_mut) {
            owners.retain(|owner| !then.contains(&owner["uid"]) || now.contains(&owner["uid"]));
        }
        pod
    }
}

/// The pod to create: that of the spec, with the metadata of the status if that is newer.
fn described(spec: &Spec, status: &Status) -> Value {
    let mut pod = spec.pod.clone();
    if let Some(metadata) = &status.pod_metadata {
        pod["metadata"] = metadata.clone();
    }
    pod
}

/// What a controller that schedules pods writes into a pod with scheduling gates. It does so again in the next pod.
const SCHEDULING: &[&str] = &[
    "f:affinity",
    "f:nodeSelector",
    "f:schedulingGates",
    "f:tolerations",
];

/// The field manager of another client that has changed the spec of a pod that Belayer created. What admission changes at
/// its creation counts as written by Belayer. A client that applies the same fields again shares their ownership; one that
/// changes a field takes it.
fn changed_by(pod: &Value) -> Option<&str> {
    let (own, others): (Vec<&Value>, Vec<&Value>) = writers_of_spec_through(pod, &["", "resize"])
        .partition(|entry| entry["manager"] == FIELD_MANAGER);
    let is_own = |(name, theirs): (&String, &Value)| {
        let mut own = own
            .iter()
            .filter_map(|entry| entry["fieldsV1"]["f:spec"].get(name));
        SCHEDULING.contains(&name.as_str()) || own.any(|own| has_fields(own, theirs))
    };
    let changes = |entry: &&Value| {
        let fields = entry["fieldsV1"]["f:spec"].as_object();
        !fields.into_iter().flatten().all(is_own)
    };
    others.into_iter().find(changes)?["manager"].as_str()
}

/// Whether a set of fields has all of another.
fn has_fields(set: &Value, other: &Value) -> bool {
    let mut fields = other.as_object().into_iter().flatten();
    fields.all(|(name, below)| set.get(name).is_some_and(|set| has_fields(set, below)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::the_same_image("", json!({ "f:containers": { "k:main": { "f:image": {} } } }), false)]
    #[case::resources("resize", json!({ "f:containers": { "k:main": { "f:resources": {} } } }), true)]
    #[case::a_deadline("", json!({ "f:activeDeadlineSeconds": {} }), true)]
    #[case::what_a_scheduler_writes("", json!({ "f:nodeSelector": {}, "f:tolerations": {} }), false)]
    #[case::a_debug_container("ephemeralcontainers", json!({ "f:ephemeralContainers": {} }), false)]
    #[case::no_field("", json!({}), false)]
    fn r3_a_change_of_the_spec_by_another_client(
        #[case] subresource: &str,
        #[case] fields: Value,
        #[case] is_change: bool,
    ) {
        let own = json!({ "f:containers": { "k:main": { "f:image": {}, "f:name": {} } } });
        let pod = json!({ "metadata": { "managedFields": [
            { "manager": FIELD_MANAGER, "fieldsV1": { "f:spec": own } },
            { "manager": "edit", "subresource": subresource, "fieldsV1": { "f:spec": fields } },
        ] } });
        assert_eq!(changed_by(&pod), is_change.then_some("edit"));
    }
}
