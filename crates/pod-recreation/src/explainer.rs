//! What pod-recreation says of a pod.

pub(crate) mod record;

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::config::Settings;
use crate::explain::{self, Looks, Seen};
use crate::explainer::record::{denied, drained};
use crate::snapshot::Hold;
use crate::{NAME, component, holds};
use belayer_controller::Site;
use belayer_controller::explain::{Decided, read};
use belayer_core::http::Request;
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Interner, Keep, Pod};
use belayer_holds::names;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::owner::OwnerReader;
use belayer_inspect::explain::{Action, Explained, Explainer};
use belayer_inspect::reader::Reader;

/// Explains pods by the same decisions that the controller makes: of its hold, and of its record.
pub(crate) struct Pods {
    looks: Looks,
    pods: JsonDecoder<Pod>,
    /// The ConfigMap that says whether Belayer is drained.
    gate: ObjectKey,
}

impl Pods {
    pub(crate) fn new(settings: &Settings, site: &Site<'_>) -> Self {
        let settings = settings.clone();
        let context = |keep: Keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let executor = site.reader.executor();
        let namespaces = NamespaceReader::new(
            Arc::clone(executor),
            Decoders::new(JsonDecoder::new(context(component::keep_of_namespaces()))),
        );
        let owners = OwnerReader::new(
            Arc::clone(executor),
            Decoders::new(JsonDecoder::new(DecodeContext::default())),
        );
        Self {
            gate: ObjectKey::new(site.namespace, names::GATE_CONFIG_MAP),
            pods: JsonDecoder::new(context(component::keep_of_pods(&settings))),
            looks: Looks {
                settings,
                executor: Arc::clone(executor),
                records: Decoders::new(JsonDecoder::new(DecodeContext::default())),
                namespaces: Arc::new(namespaces),
                owners: Arc::new(owners),
                owner_kinds: site.owners.to_vec(),
            },
        }
    }

    async fn look(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, String> {
        let request = Request::get(Resource::pods().object_path(key));
        let pod = read(reader, &request, &self.pods, &format!("pod {key}")).await?;
        let seen = self
            .looks
            .look(&pod)
            .await
            .map_err(|error| error.to_string())?;
        let mut explained = self.in_words(&pod, &seen);
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

    fn in_words(&self, pod: &Pod, seen: &Seen) -> Explained {
        let now = Timestamp::now();
        let decision = holds::decide(&seen.hold, now);
        let held = seen.hold.pod.hold == Hold::On;
        let record = seen.machine.record.as_ref();
        let refused = record.and_then(|record| denied(&record.status, now));
        let notes = seen.of_the_record(now).into_iter();
        let decided = Decided {
            component: NAME,
            hold: names::POD_RECREATION_HOLD,
            held,
            decision: &decision,
        };
        Explained {
            why_not: explain::why_not(&self.looks.settings, pod, seen),
            notes: notes.chain(refused).collect(),
            ..decided.explained(|action| match action {
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

impl Explainer for Pods {
    fn component(&self) -> &'static str {
        NAME
    }

    fn holds(&self) -> &'static [&'static str] {
        &[names::POD_RECREATION_HOLD]
    }

    fn is_about(&self, kind: &Resource) -> bool {
        kind.is_same_kind(&Resource::pods())
    }

    fn explain<'a>(
        &'a self,
        _: &'a Resource,
        key: &'a ObjectKey,
        reader: &'a Reader,
    ) -> BoxFuture<'a, Result<Explained, String>> {
        Box::pin(self.look(key, reader))
    }
}
