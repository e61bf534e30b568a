//! `belayer explain` for a pod, by pod-recreation.

pub(crate) mod observed;
pub(crate) mod record;

use std::sync::Arc;

use crate::NAME;
use crate::component::{PodRecreation, is_reported_when_found, record_key};
use crate::config::Settings;
use crate::holds::HoldDecision;
use crate::snapshot::PodState;
use belayer_controller::Site;
use belayer_controller::explain::{Live, explained};
use belayer_core::clock;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Pod;
use belayer_holds::gate::GateObject;
use belayer_holds::names;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer};
use belayer_inspect::reader::Reader;

use observed::{Observed, recreation, why_not};
use record::{denied, drained, lease};

/// Explains pods by the same decisions that the controller makes about the hold and the record.
pub(crate) struct Pods {
    settings: Settings,
    /// The kinds of owners that Belayer watches.
    owners: Vec<Resource>,
    /// The gate, which shows whether Belayer is draining.
    gate: ObjectKey,
    /// Whether the settings are the defaults, because no configuration was given.
    defaults: bool,
}

impl Pods {
    pub(crate) fn explainer(settings: &Settings, site: &Site<'_>) -> Explainer {
        let it = Self {
            settings: settings.clone(),
            owners: site.owners.to_vec(),
            gate: GateObject::key(site.namespace),
            defaults: site.config.is_none(),
        };
        let (holds, kinds) = (&[names::POD_RECREATION_HOLD], vec![Resource::pods()]);
        Explainer::new(NAME, holds, kinds, it, Self::explain)
    }

    async fn explain(
        self: Arc<Self>,
        _: Resource,
        key: ObjectKey,
        reader: Reader,
    ) -> Result<Explained, ExplainError> {
        let live = Live::new(&reader);
        let recreation = recreation(&live, &self.settings, &self.owners);
        let pod = recreation.parts.pods.subject(&key).await?;
        let (hold, decision) = live.decide(&recreation, &pod).await?;
        let record = record_key(&pod, hold.pod.origin.as_ref());
        let observed = Observed {
            hold,
            recreation: live.settled(|| recreation.observe_record(&record)).await?,
            ignored: recreation.is_ignored(&pod),
        };
        let is_reported = is_reported_when_found(&pod);
        let mut explained = self.message(&recreation, &decision, &pod, &observed);
        let record = observed.recreation.record.as_ref();
        if record.is_some_and(|record| record.status.finished_at.is_none()) {
            explained.notes.extend(drained(&reader, &self.gate).await);
        }
        let pod = &observed.hold.pod;
        let matters = pod.held || matches!(pod.state, PodState::Rejected(_));
        if self.defaults && matters && !pod.is_selected() {
            explained.notes.push(DEFAULTS.to_owned());
        }
        if record.is_none() && observed.depends_on_history() {
            let (namespace, lease) = lease(&reader, &self.gate).await;
            let report = if is_reported {
                format!(
                    "or reports by the Event NotRecreated why it does not: kubectl -n {} get events \
                     --field-selector=involvedObject.name={},reason=NotRecreated",
                    key.namespace().unwrap_or_default(),
                    key.name(),
                )
            } else {
                "or has reported why it does not: the rejection is older than an hour, and then Belayer does not report it \
                 again"
                    .to_owned()
            };
            explained.notes.push(format!(
                "it was rejected without its hold: only the leader can know that no container of it ran, because it may \
                 have watched the pod before. The leader then holds the pod, {report}. To find the leader: kubectl -n \
                 {namespace} get lease {lease}",
            ));
        }
        Ok(explained)
    }

    fn message(
        &self,
        recreation: &PodRecreation<Live>,
        decision: &HoldDecision,
        pod: &Pod,
        observed: &Observed,
    ) -> Explained {
        let now = clock::now();
        let held = observed.hold.pod.held;
        let record = observed.recreation.record.as_ref();
        let denied = record.and_then(|record| denied(&record.status, now));
        let notes = observed.record_notes(now).into_iter();
        Explained {
            why_not: why_not(&self.settings, pod, observed),
            notes: notes.chain(denied).collect(),
            ..explained(recreation, held, decision, |action| match action {
                Action::Nothing if observed.is_being_recreated() => being_recreated(pod),
                Action::Keep if observed.is_rejection_recorded() => IS_RECORDED.to_owned(),
                _ => next(action),
            })
        }
    }
}

/// For a pod that only a configuration may select.
const DEFAULTS: &str =
    "decided by the default configuration; use --config to read your configuration";

/// For a rejected pod whose record has its rejection.
const IS_RECORDED: &str =
    "Belayer deletes the rejected pod and creates it again; the hold is removed then";

/// For a pod without the hold, because its spec is stored in its record.
fn being_recreated(pod: &Pod) -> String {
    let next = "Belayer re-creates it once it does not exist any more";
    let finalizers: Vec<&str> = pod.meta.finalizers.iter().map(|name| &**name).collect();
    if finalizers.is_empty() {
        return next.to_owned();
    }
    format!(
        "{next}; it still has the finalizers {}",
        finalizers.join(", ")
    )
}

fn next(action: Action) -> String {
    let next = match action {
        Action::Keep => {
            "Belayer releases the pod once it has started; if its node rejects the pod, Belayer re-creates it first"
        }
        _ => "nothing: Belayer does not hold this pod",
    };
    next.to_owned()
}
