//! What pod-recreation says of a pod.

pub(crate) mod record;

use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;

use crate::NAME;
use crate::component::PodRecreation;
use crate::config::Settings;
use crate::explain::{self, Seen, recreation};
use crate::explainer::record::{denied, drained};
use crate::holds::HoldDecision;
use crate::snapshot::{Asked, Hold};
use belayer_controller::Site;
use belayer_controller::explain::{Live, explained};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Pod;
use belayer_holds::gate::GateConfigMap;
use belayer_holds::names;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer};
use belayer_inspect::reader::Reader;

/// Explains pods by the same decisions that the controller makes: of its hold, and of its record.
pub(crate) struct Pods {
    settings: Settings,
    /// The kinds of owners that some controller watches.
    owners: Vec<Resource>,
    /// The ConfigMap that says whether Belayer is drained.
    gate: ObjectKey,
}

impl Pods {
    pub(crate) fn explainer(settings: &Settings, site: &Site<'_>) -> Explainer {
        let it = Arc::new(Self {
            settings: settings.clone(),
            owners: site.owners.to_vec(),
            gate: GateConfigMap::key(site.namespace),
        });
        Explainer {
            component: NAME,
            holds: &[names::POD_RECREATION_HOLD],
            kinds: vec![Resource::pods()],
            explain: Box::new(move |_, key, reader| {
                let it = Arc::clone(&it);
                async move { it.look(&key, &reader).await }.boxed()
            }),
        }
    }

    async fn look(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, ExplainError> {
        let live = Live::new(reader);
        let recreation = recreation(&live, &self.settings, &self.owners);
        let pod = recreation.parts.pods.subject(key).await?;
        let (hold, decision) = live.decide(&recreation, &pod).await?;
        // Notes the record that a rejected pod is to have.
        recreation.wake(&pod);
        let record = recreation.record_key(&pod);
        let seen = Seen {
            hold,
            machine: live.settled(|| recreation.observe_record(&record)).await?,
            ignored: Asked::from(recreation.is_ignored(&pod)),
        };
        let mut explained = self.message(&recreation, &decision, &pod, &seen);
        let record = seen.machine.record.as_ref();
        if record.is_some_and(|record| record.status.finished_at.is_none()) {
            explained.notes.extend(drained(reader, &self.gate).await);
        }
        if record.is_none() && seen.only_the_leader_knows() {
            let namespace = self.gate.namespace().unwrap_or_default();
            explained.notes.push(format!(
                "it was rejected without its hold: only the leader can know that no container of it ran, if it has \
                 watched the pod since before. Then it holds the pod, or reports why not by the Event NotRecreated: \
                 kubectl -n {} get events --field-selector=involvedObject.name={},reason=NotRecreated; kubectl -n \
                 {namespace} get lease belayer names the leader",
                key.namespace().unwrap_or_default(),
                key.name(),
            ));
        }
        Ok(explained)
    }

    fn message(
        &self,
        recreation: &PodRecreation<Live>,
        decision: &HoldDecision,
        pod: &Pod,
        seen: &Seen,
    ) -> Explained {
        let now = Timestamp::now();
        let held = seen.hold.pod.hold == Hold::On;
        let record = seen.machine.record.as_ref();
        let refused = record.and_then(|record| denied(&record.status, now));
        let notes = seen.of_the_record(now).into_iter();
        Explained {
            why_not: explain::why_not(&self.settings, pod, seen),
            notes: notes.chain(refused).collect(),
            ..explained(recreation, held, decision, |action| match action {
                Action::Nothing if seen.is_made_anew() => made_anew(pod),
                _ => waits(action),
            })
        }
    }
}

/// The hold is off already: the spec is safe in the record.
fn made_anew(pod: &Pod) -> String {
    let holds: Vec<&str> = pod.meta.finalizers.iter().map(|name| &**name).collect();
    if holds.is_empty() {
        return "Belayer makes it anew as soon as it is gone".to_owned();
    }
    format!(
        "Belayer makes it anew as soon as it is gone; it is still held by {}",
        holds.join(", ")
    )
}

fn waits(action: Action) -> String {
    let next = match action {
        Action::Keep => {
            "Belayer lets go once it has started; if its node rejects it, it is re-created first"
        }
        _ => "nothing: the pod comes and goes as if Belayer were not there",
    };
    next.to_owned()
}
