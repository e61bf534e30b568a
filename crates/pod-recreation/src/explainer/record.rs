//! What pod-recreation says of the record of a re-creation.

use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use serde::Deserialize;

use crate::api::{ConditionType, Status};
use crate::decide::{Effect, decide};
use crate::explain::{self, recreation};
use crate::{NAME, Settings, api, row};
use belayer_controller::Site;
use belayer_controller::explain::Live;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::GateConfigMap;
use belayer_holds::names;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer, Row};
use belayer_inspect::reader::{ReadResult, Reader};
use belayer_inspect::report::age;

/// Explains records by the state machine that the controller runs.
pub(crate) struct Records {
    settings: Settings,
    /// The ConfigMap that says whether Belayer is drained.
    gate: ObjectKey,
}

impl Records {
    pub(crate) fn explainer(settings: &Settings, site: &Site<'_>) -> Explainer {
        let it = Arc::new(Self {
            settings: settings.clone(),
            gate: GateConfigMap::key(site.namespace),
        });
        Explainer {
            component: NAME,
            holds: &[names::POD_RECREATION_HOLD],
            kinds: vec![api::resource()],
            explain: Box::new(move |_, key, reader| {
                let it = Arc::clone(&it);
                async move { it.look(&key, &reader).await }.boxed()
            }),
        }
    }

    async fn look(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, ExplainError> {
        let live = Live::new(reader);
        let recreation = recreation(&live, &self.settings, &[]);
        recreation.parts.records.subject(key).await?;
        let snapshot = live.settled(|| recreation.observe_record(key)).await?;
        let now = Timestamp::now();
        let verdict = decide(&snapshot, now);
        let told = verdict.notice.as_ref().filter(|_| verdict.effect.is_none());
        let status = snapshot.record.map(|record| record.status);
        // One that was refused for too long has come to its end by that.
        let refused = status.as_ref().filter(|_| verdict.row != row::DENIED);
        let refused = refused.and_then(|status| denied(status, now));
        let under_way = status
            .as_ref()
            .is_some_and(|status| status.finished_at.is_none());
        let drained = if under_way {
            drained(reader, &self.gate).await
        } else {
            None
        };
        let message = status.and_then(|status| status.message);
        Ok(Explained {
            component: NAME,
            hold: names::POD_RECREATION_HOLD,
            held: false,
            row: Row {
                number: verdict.row.number,
                name: verdict.row.name,
                says: verdict.row.says.to_owned(),
            },
            action: action(verdict.effect.as_ref()),
            evidence: None,
            missing: told
                .map(|notice| notice.message.to_string())
                .into_iter()
                .chain(refused)
                .chain(drained)
                .collect(),
            why_not: None,
            next: explain::next(&verdict),
            requeue_after_seconds: verdict.again.map(|after| after.as_secs()),
            notes: message.into_iter().collect(),
        })
    }
}

/// That Belayer is drained: a re-creation that is under way stops where it is.
pub(crate) async fn drained(reader: &Reader, gate: &ObjectKey) -> Option<String> {
    let look: ReadResult<GateConfigMap> = reader.object(&Resource::config_maps(), gate).await;
    look.found()?.is_draining().then(|| {
        format!(
            "the drain must end (belayer drain --resume): configmap {gate} says draining, and only pods that exist \
             only in their records are re-created"
        )
    })
}

/// What the API server has against the pod that is to be created, if it refused it lately.
pub(crate) fn denied(status: &Status, now: Timestamp) -> Option<String> {
    if !status.is_true(ConditionType::CreateDenied) {
        return None;
    }
    let condition = status.condition(ConditionType::CreateDenied)?;
    let since = now.duration_since(condition.last_transition_time);
    Some(format!(
        "the API server has to accept the pod, which it has refused for {}: {}; it is tried again by itself, after half \
         a minute at first and ten minutes at last, and given up when that has lasted an hour",
        age(since.as_secs()),
        condition.message
    ))
}

/// What is done about the record, which is the object here: much of it is done to its pod.
fn action(effect: Option<&Effect>) -> Action {
    match effect {
        None | Some(Effect::LookAtNode { .. }) => Action::Nothing,
        Some(Effect::CreateRecord { .. }) => Action::Record,
        Some(Effect::Status(_) | Effect::Intend { .. } | Effect::Reserve { .. }) => {
            Action::WriteStatus
        }
        Some(Effect::CreatePod { .. }) => Action::CreatePod,
        Some(Effect::DeletePod { .. }) => Action::DeletePod,
        Some(Effect::Mark { .. }) => Action::AnnotatePod,
        Some(Effect::DeleteRecord) => Action::Delete,
    }
}

/// `namespace/name` of the youngest record of a pod, if there is one and it can be seen.
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
    let all = reader.all::<Found>(&path).await;
    let its = all.found()?.iter().filter(|one| one.spec.pod_name == pod);
    let youngest = its.max_by_key(|one| one.metadata.creation_timestamp)?;
    Some(format!("{namespace}/{}", youngest.metadata.name))
}
