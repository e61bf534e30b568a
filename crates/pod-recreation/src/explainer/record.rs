//! `belayer explain` for a PodRecreation.

use std::sync::Arc;

use belayer_core::clock;
use jiff::Timestamp;
use serde::Deserialize;

use crate::SWITCH;
use crate::api::{ConditionType, OnWipeTimeout, Status};
use crate::decide::{Effect, decide};
use crate::explainer::observed::{next, recreation};
use crate::record::Record;
use crate::{NAME, Settings, api, row};
use belayer_controller::Site;
use belayer_controller::explain::Live;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::GateObject;
use belayer_holds::names;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer, Row};
use belayer_inspect::reader::{ReadResult, Reader};
use belayer_inspect::report::age;

/// Explains records by the state machine of the controller.
pub(crate) struct Records {
    settings: Settings,
    /// The gate, which shows whether Belayer is draining.
    gate: ObjectKey,
}

impl Records {
    pub(crate) fn explainer(settings: &Settings, site: &Site<'_>) -> Explainer {
        let it = Self {
            settings: settings.clone(),
            gate: GateObject::key(site.namespace),
        };
        let (holds, kinds) = (&[names::POD_RECREATION_HOLD], vec![api::resource()]);
        Explainer::new(NAME, holds, kinds, it, Self::explain)
    }

    async fn explain(
        self: Arc<Self>,
        _: Resource,
        key: ObjectKey,
        reader: Reader,
    ) -> Result<Explained, ExplainError> {
        let live = Live::new(&reader);
        let recreation = recreation(&live, &self.settings, &[]);
        recreation.parts.records.subject(&key).await?;
        let snapshot = live.settled(|| recreation.observe_record(&key)).await?;
        let now = clock::now();
        let decision = decide(&snapshot, now);
        let notice = decision
            .notice
            .as_ref()
            .filter(|_| decision.effect.is_none());
        let wipe = snapshot
            .record
            .as_ref()
            .filter(|_| decision.is_wiping())
            .map(|record| wipe_must_end(record));
        let status = snapshot.record.map(|record| record.status);
        // Under this rule the record ends: Belayer does not try again.
        let denied = status
            .as_ref()
            .filter(|_| decision.row != row::DENIED)
            .and_then(|status| denied(status, now));
        let drained = match &status {
            Some(status) if status.finished_at.is_none() => drained(&reader, &self.gate).await,
            _ => None,
        };
        let message = status.and_then(|status| status.message);
        Ok(Explained {
            component: NAME,
            hold: names::POD_RECREATION_HOLD,
            held: false,
            row: Row {
                number: decision.row.number,
                name: decision.row.name,
                says: decision.row.says.to_owned(),
            },
            action: action(decision.effect.as_ref()),
            evidence: None,
            missing: notice
                .map(|notice| notice.message.to_string())
                .into_iter()
                .chain(wipe)
                .chain(denied)
                .chain(drained)
                .collect(),
            why_not: None,
            next: next(&decision),
            requeue_after_seconds: decision.again.map(|after| after.as_secs()),
            notes: message.into_iter().collect(),
        })
    }
}

/// The message that Belayer is draining, so that open re-creations are not continued; `None` if it is not.
pub(crate) async fn drained(reader: &Reader, gate: &ObjectKey) -> Option<String> {
    let read: ReadResult<GateObject> = reader.object(&belayer_holds::gate::resource(), gate).await;
    read.found()?.is_draining().then(|| {
        format!(
            "the drain must end (belayer drain --resume): the mode in the gate {gate} is draining, so only pods that \
             exist only in their records are re-created"
        )
    })
}

/// The namespace and the name of the Lease of the leader that runs pod-recreation: by the gate, or those of the manifests.
pub(crate) async fn lease(reader: &Reader, gate: &ObjectKey) -> (String, String) {
    let namespace = gate.namespace().unwrap_or_default();
    let read: ReadResult<GateObject> = reader.object(&belayer_holds::gate::resource(), gate).await;
    let gate = read.found();
    let lease = gate.as_ref().and_then(|gate| gate.lease_of(SWITCH));
    let lease = lease.unwrap_or("belayer-pod-recreation");
    let (namespace, name) = lease.split_once('/').unwrap_or((namespace, lease));
    (namespace.to_owned(), name.to_owned())
}

/// The message of the API server, if it denies the pod to create.
pub(crate) fn denied(status: &Status, now: Timestamp) -> Option<String> {
    if !status.is_true(ConditionType::CreateDenied) {
        return None;
    }
    let condition = status.condition(ConditionType::CreateDenied)?;
    let since = now.duration_since(condition.last_transition_time);
    Some(format!(
        "the API server must accept the pod, which it has denied for {}: {}. Belayer tries again after 30 s, later every \
         10 min, and gives up after an hour",
        age(since.as_secs()),
        condition.message
    ))
}

/// What the wipe of the rejected pod's node lacks, and what follows if it does not end in time.
fn wipe_must_end(record: &Record) -> String {
    let status = &record.status;
    let policy = &record.policy;
    let node = status.node_name.as_deref().unwrap_or_default();
    let condition = status.condition(ConditionType::StateWiped);
    let message = condition.map_or("", |condition| &*condition.message);
    let says = if message.is_empty() {
        "it is not reported yet"
    } else {
        message
    };
    let then = match policy.on_wipe_timeout {
        OnWipeTimeout::Proceed => {
            "re-creates the pod, but never again on that node (onWipeTimeout: proceed)"
        }
        OnWipeTimeout::Fail => "does not re-create the pod (onWipeTimeout: fail)",
    };
    let limit = policy.wipe_timeout_seconds;
    format!(
        "the wipe of node {node} must end: {says}. {limit} s after the rejection Belayer {then}"
    )
}

/// The action of a step on the record or its pod.
fn action(effect: Option<&Effect>) -> Action {
    match effect {
        None | Some(Effect::ReadNode { .. }) => Action::Nothing,
        Some(Effect::CreateRecord { .. } | Effect::RequestWipe { .. }) => Action::Record,
        Some(Effect::Status(_) | Effect::Intend { .. } | Effect::Reserve { .. }) => {
            Action::WriteStatus
        }
        Some(Effect::CreatePod { .. }) => Action::CreatePod,
        Some(Effect::DeletePod { .. }) => Action::DeletePod,
        Some(Effect::AnnotatePod { .. }) => Action::AnnotatePod,
        Some(Effect::DeleteRecord) => Action::Delete,
    }
}

/// `namespace/name` of the latest record of a pod, if there is one and it can be read.
pub(crate) async fn of_pod(reader: &Reader, namespace: &str, pod: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Found {
        metadata: Metadata,
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: String,
        creation_timestamp: Option<Timestamp>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        pod_name: String,
    }
    let path = api::resource().path(Some(namespace));
    let all: Vec<Found> = reader.all(&path).await.ok()?;
    let of_the_pod = all.iter().filter(|one| one.spec.pod_name == pod);
    let latest = of_the_pod.max_by_key(|one| one.metadata.creation_timestamp)?;
    Some(format!("{namespace}/{}", latest.metadata.name))
}
