//! What pod-finalizer says of a pod.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;

use crate::argo::Held::Undecided;
use crate::argo::{Ending, NodeReader};
use crate::component;
use crate::decide::{PodDecision, decide};
use crate::explain::{self, Looks};
use crate::periodic::gate_by;
use crate::profile::config::Settings;
use crate::profile::{MaxUnselected, Profiles};
use crate::row;
use crate::snapshot::{Gate, Held, Selection, Snapshot};
use belayer_controller::Site;
use belayer_controller::explain::{self as shared, Decided, read};
use belayer_core::http::Request;
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Interner, Keep, ObjectMeta, Pod};
use belayer_holds::decision::Missing;
use belayer_holds::names;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::owner::OwnerReader;
use belayer_holds::selection::{Guard, MassRelease, Scope, UnselectedBy};
use belayer_inspect::explain::{Action, Explained, Explainer};
use belayer_inspect::reader::{Look, Reader};
use belayer_inspect::report::age;

/// Explains pods by the same decision that the controller makes.
pub(crate) struct Pods {
    looks: Looks,
    pods: JsonDecoder<Pod>,
    max_unselected: MaxUnselected,
    /// What the profiles are from.
    profiles_from: String,
    /// The ConfigMap by which the controller says whether holds are added.
    gate: ObjectKey,
}

impl Pods {
    pub(crate) fn new(settings: &Settings, site: &Site<'_>) -> Self {
        let reader = site.reader;
        let context = |keep: Keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let profiles = settings.profiles.clone();
        let owners = OwnerReader::new(
            Arc::clone(reader.executor()),
            Decoders::new(JsonDecoder::new(context(component::keep_of_owners(
                &profiles,
            )))),
        );
        let namespaces = NamespaceReader::new(
            Arc::clone(reader.executor()),
            Decoders::new(JsonDecoder::new(context(component::keep_of_namespaces()))),
        );
        Self {
            pods: JsonDecoder::new(context(component::keep_of_pods(&profiles))),
            looks: Looks {
                profiles,
                owners: Arc::new(owners),
                namespaces: Arc::new(namespaces),
                nodes: Arc::new(NodeReader::new(Arc::clone(reader.executor()))),
                executor: Arc::clone(reader.executor()),
                resync: settings.resync,
            },
            max_unselected: settings.max_unselected,
            profiles_from: match site.config {
                Some(path) => format!("by the profiles of {}", path.display()),
                None => "by the built-in profile argo; --config names another".to_owned(),
            },
            gate: ObjectKey::new(site.namespace, names::GATE_CONFIG_MAP),
        }
    }

    async fn look(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, String> {
        let request = Request::get(Resource::pods().object_path(key));
        let pod = read(reader, &request, &self.pods, &format!("pod {key}")).await?;
        let (gate, gate_known) = gate(reader, &self.gate, key).await;
        let mut snapshot = self
            .looks
            .snapshot(&pod, gate)
            .await
            .map_err(|error| error.to_string())?;
        if let Some(by) = unselected_by(&snapshot) {
            snapshot.mass_release = self.mass_release(&pod, by, reader).await?;
        }
        let decision = decide(&snapshot, Timestamp::now());
        let mut explained = self.in_words(&pod, &snapshot, &decision);
        explained.notes.extend(gate_known);
        Ok(explained)
    }

    /// Whether too many pods are unselected, so that this one is kept.
    async fn mass_release(
        &self,
        pod: &Pod,
        by: UnselectedBy,
        reader: &Reader,
    ) -> Result<MassRelease, String> {
        let mut guard = counted(reader, &self.looks.profiles, self.max_unselected).await?;
        Ok(guard.of(pod.meta.key.shared_namespace(), by))
    }

    fn in_words(&self, pod: &Pod, snapshot: &Snapshot, decision: &PodDecision) -> Explained {
        let view = snapshot.pod.as_ref();
        let held = view.is_some_and(|view| view.held == Held::Yes);
        let why_not = view.and_then(|view| {
            explain::why_not_selected(&self.looks.profiles, &pod.meta, &view.selection)
        });
        let mut notes = vec![self.profiles_from.clone()];
        if decision.row == row::ADD_HOLD && decision.write.is_none() && decision.missing.is_empty()
        {
            notes.push("it gets no hold: what would release it is there already".to_owned());
        }
        if let MassRelease::Exceeded {
            scope: Scope::Cluster,
            ..
        } = snapshot.mass_release
        {
            notes.push(
                "counted as right after a start: a running Belayer counts pods whose own labels have changed since then in \
                 their namespace alone"
                    .to_owned(),
            );
        }
        let argo = view.and_then(|view| view.argo.as_ref());
        if held && argo.is_some_and(|argo| Ending::of(&argo.pod) == Ending::Held(Undecided)) {
            notes.push(
                "only a controller that watched the pod knows whether it had ended when its deletion began; the \
                 Event DeletionWaits shows how it judged"
                    .to_owned(),
            );
        }
        let decided = Decided {
            component: component::NAME,
            hold: names::POD_STATUS_HOLD,
            held,
            decision,
        };
        Explained {
            why_not: why_not.filter(|_| !held),
            notes,
            ..decided
                .explained(|action| waits(action, held, looks_again(decision, self.looks.resync)))
        }
    }
}

/// All held pods, counted as a controller counts them right after its start.
async fn counted(
    reader: &Reader,
    profiles: &Profiles,
    max: MaxUnselected,
) -> Result<Guard, String> {
    let keeps = (
        component::keep_of_pods(profiles),
        component::keep_of_namespaces(),
    );
    let unselected = |pod: &ObjectMeta, namespace: Option<&ObjectMeta>| {
        explain::unselected_by(profiles, pod, namespace)
    };
    let (pods, hold) = (Resource::pods(), names::POD_STATUS_HOLD);
    shared::counted(reader, &pods, hold, keeps, max, unselected).await
}

/// How many pods it keeps by this configuration although no profile selects them.
pub(crate) async fn kept(reader: &Reader, settings: &Settings) -> Result<usize, String> {
    let guard = counted(reader, &settings.profiles, settings.max_unselected);
    Ok(guard.await?.kept())
}

/// Only a held pod that nothing selects is let go by a rule that counts all others.
fn unselected_by(snapshot: &Snapshot) -> Option<UnselectedBy> {
    let pod = snapshot.pod.as_ref().filter(|pod| pod.held == Held::Yes)?;
    match pod.selection {
        Selection::By { .. } => None,
        Selection::None => Some(UnselectedBy::Configuration),
        Selection::Ignored => Some(UnselectedBy::Namespace),
    }
}

/// How often the controller looks at a pod without any event: as often as it repeats a question about it, at least
/// every `resync`.
fn looks_again(decision: &PodDecision, resync: Duration) -> Duration {
    let repeated = decision.missing.iter().filter_map(|missing| match missing {
        Missing::Answer { after, .. } if !after.is_zero() => Some(*after),
        Missing::Answer { .. } | Missing::Event(_) => None,
    });
    repeated.min().map_or(resync, |sooner| sooner.min(resync))
}

fn waits(action: Action, held: bool, resync: Duration) -> String {
    match action {
        Action::Keep if held => format!(
            "Belayer lets go when what is missing is there: it looks again at every change of the pod, its owner \
             and its namespace, and without one about every {}",
            age(i64::try_from(resync.as_secs()).unwrap_or(i64::MAX))
        ),
        Action::Keep => "Belayer adds the hold once what is missing is there".to_owned(),
        _ => "nothing: the pod comes and goes as if Belayer were not there".to_owned(),
    }
}

/// Whether holds are added, as the controller told the admission policy; and what is not known.
async fn gate(reader: &Reader, key: &ObjectKey, pod: &ObjectKey) -> (Gate, Option<String>) {
    #[derive(Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: std::collections::BTreeMap<String, String>,
    }
    let maps = Resource::config_maps();
    match reader.object::<ConfigMap>(&maps, key).await {
        Look::Found(map) => (gate_by(&map.data, pod.shared_namespace()), None),
        Look::Absent => (Gate::Open, None),
        Look::Unknown(why) => (
            Gate::Open,
            Some(format!(
                "whether the backlog gate is closed is not known: {why}"
            )),
        ),
    }
}

impl Explainer for Pods {
    fn component(&self) -> &'static str {
        component::NAME
    }

    fn holds(&self) -> &'static [&'static str] {
        &[names::POD_STATUS_HOLD]
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
