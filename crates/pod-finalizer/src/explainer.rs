//! `belayer explain` for a pod, by pod-finalizer.

mod consumer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::argo::Held::Undecided;
use crate::argo::{Ending, NodeReader};
use crate::cleanup::POD_GC_STRATEGY;
use crate::component::{self, Parts, PodFinalizer};
use crate::decide::{PodDecision, waits_for_workflow};
use crate::evidence::Evidence;
use crate::profile::Profiles;
use crate::profile::config::Settings;
use crate::row;
use crate::snapshot::{Selection, Snapshot};
use crate::status::{Asked, NodeRef, RemovedPods, StatusReader, node_of};
use belayer_controller::Site;
use belayer_controller::explain::{Live, LiveStore, explained};
use belayer_core::informer::Stored;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{ObjectMeta, OwnerMeta, Pod};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::decision::{Missing, Write};
use belayer_holds::gate::GateClient;
use belayer_holds::names;
use belayer_holds::selection::{MassRelease, Scope, UnselectedBy};
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer};
use belayer_inspect::reader::{Reader, explain as message};
use belayer_inspect::report::age;

/// Explains pods by the same decision that the controller makes.
pub(crate) struct Pods {
    settings: Settings,
    /// The note that names the source of the profiles.
    profiles_from: String,
    /// Belayer's own namespace. In its gate the controller records where it adds no finalizers.
    namespace: String,
}

impl Pods {
    pub(crate) fn explainer(settings: &Settings, site: &Site<'_>) -> Explainer {
        let it = Self {
            settings: settings.clone(),
            profiles_from: match site.config {
                Some(path) => format!("decided by the profiles of {}", path.display()),
                None => {
                    "decided by the built-in profile argo; use --config to read your configuration"
                        .to_owned()
                }
            },
            namespace: site.namespace.to_owned(),
        };
        let (holds, kinds) = (&[names::POD_STATUS_HOLD], vec![Resource::pods()]);
        Explainer::new(crate::NAME, holds, kinds, it, Self::explain)
    }

    async fn explain(
        self: Arc<Self>,
        _: Resource,
        key: ObjectKey,
        reader: Reader,
    ) -> Result<Explained, ExplainError> {
        let live = Live::new(&reader);
        let pods = pods(&live, &self.settings);
        let pod = pods.subject(&key).await?;
        let nodes = node_of(&pod.meta).into_iter().collect();
        let finalizer = finalizer(&live, &self.settings, pods, nodes);
        let gate_unknown = finalizer.read_gate(&live, &self.namespace).await;
        let mut seen = live.decide(&finalizer, &pod).await?;
        if let Some(Write::Release(Evidence::Unselected(_))) = seen.1.write {
            finalizer.count(&live).await?;
            seen = live.decide(&finalizer, &pod).await?;
        }
        if let Some(Write::Step(_)) = seen.1.write {
            let outcomes = &finalizer.outcomes;
            outcomes.read_existing(&pod, &live.executor()).await?;
            seen = live.decide(&finalizer, &pod).await?;
        }
        let (snapshot, decision) = seen;
        let mut explained = self.message(&finalizer, &pod, &snapshot, &decision);
        explained.notes.extend(gate_unknown);
        explained
            .notes
            .extend(consumer::notes(&reader, &pod, &snapshot, &decision).await);
        Ok(explained)
    }

    fn message(
        &self,
        finalizer: &PodFinalizer<Live>,
        pod: &Pod,
        snapshot: &Snapshot,
        decision: &PodDecision,
    ) -> Explained {
        let view = snapshot.pod.as_ref();
        let held = view.is_some_and(|view| view.held);
        let why_not = view
            .and_then(|view| why_not_selected(&self.settings.profiles, &pod.meta, &view.selection));
        let mut notes = vec![self.profiles_from.clone()];
        if decision.row == row::ADD_HOLD && decision.write.is_none() && decision.missing.is_empty()
        {
            notes.push(
                "Belayer adds no finalizer, because the evidence to release the pod already exists"
                    .to_owned(),
            );
        }
        if let MassRelease::Exceeded {
            scope: Scope::Cluster,
            ..
        } = snapshot.mass_release
        {
            notes.push(
                "unselected pods are counted as after a restart; a running Belayer counts pods whose labels changed since \
                 its start only in their namespace"
                    .to_owned(),
            );
        }
        let argo = view.and_then(|view| view.argo.as_ref());
        if held && argo.is_some_and(|argo| Ending::of(&argo.pod) == Ending::Held(Undecided)) {
            notes.push(
                "whether the pod had ended when its deletion began is visible only to a controller that watched the pod; \
                 see its Event DeletionWaits"
                    .to_owned(),
            );
        }
        let waits_for_end = view.is_some_and(|view| {
            decision.row == row::ADD_HOLD && decision.write.is_none() && waits_for_workflow(view)
        });
        if waits_for_end {
            notes.push(format!(
                "Belayer deletes the pod once its workflow has ended as its annotation {POD_GC_STRATEGY} requires"
            ));
        }
        let explained = Explained {
            why_not: why_not.filter(|_| !held),
            notes,
            ..explained(finalizer, held, decision, |action| {
                waits(
                    action,
                    held,
                    recheck_interval(decision, self.settings.resync),
                )
            })
        };
        match view.and_then(|view| view.cleanup) {
            Some(cleanup) if decision.row == row::CLEANUP && decision.write.is_none() => {
                deleted_later(explained, cleanup.gc.delay)
            }
            _ => explained,
        }
    }
}

fn pods(live: &Live, settings: &Settings) -> LiveStore<Pod> {
    live.store(
        Resource::pods(),
        component::keep_of_pods(&settings.profiles),
    )
}

/// The controller itself, with live reads instead of caches. Of the owners' statuses it reads only `nodes`.
fn finalizer(
    live: &Live,
    settings: &Settings,
    pods: LiveStore<Pod>,
    nodes: Vec<NodeRef>,
) -> PodFinalizer<Live> {
    let profiles = &settings.profiles;
    let keep_of_owners = || component::keep_of_owners(profiles);
    let keep_of_namespaces = component::keep_of_namespaces;
    let owners = profiles.owners().into_iter();
    let parts = Parts {
        pods,
        namespaces: live.store(Resource::namespaces(), keep_of_namespaces()),
        owners: owners
            .map(|kind| (kind.clone(), live.optional(kind.clone(), keep_of_owners())))
            .collect(),
        records: None,
        owner_queries: live.owners(keep_of_owners()),
        namespace_queries: live.namespaces(keep_of_namespaces()),
        status_queries: live.queries(StatusReader::new(live.executor(), Asked::These(nodes))),
        node_queries: live.queries(NodeReader::new(live.executor())),
        removed: RemovedPods::default(),
        queue: WorkQueue::new(crate::NAME),
        counted: Arc::default(),
    };
    PodFinalizer::new(settings, parts)
}

impl PodFinalizer<Live> {
    /// Takes over the closed gates, as after a restart; returns a note if they could not be read.
    async fn read_gate(&self, live: &Live, namespace: &str) -> Option<String> {
        self.may_hold.store(true, Ordering::Release);
        match GateClient::new(live.executor(), namespace).find().await {
            Ok(gate) => {
                self.held_objects().adopt_closed(&gate.unwrap_or_default());
                None
            }
            Err(error) => {
                let why = message(&error);
                Some(format!(
                    "could not read whether the backlog limit is reached: {why}"
                ))
            }
        }
    }

    /// Counts all held pods, as after a restart.
    async fn count(&self, live: &Live) -> Result<(), ExplainError> {
        self.parts.namespaces.list().await?;
        let keep = component::keep_of_pods(&self.profiles);
        let pods: LiveStore<OwnerMeta> = live.store(Resource::pods(), keep);
        for pod in pods.list().await? {
            let meta = Arc::new(Pod::new(pod.object.meta.clone()));
            self.note(
                &Stored::fresh(meta, pod.first_seen),
                UnselectedBy::Configuration,
            );
        }
        Ok(())
    }
}

/// How many unselected pods stay held with this configuration because of the mass-release limit.
pub(crate) async fn kept(reader: &Reader, settings: &Settings) -> Result<usize, ExplainError> {
    let live = Live::new(reader);
    let finalizer = finalizer(&live, settings, pods(&live, settings), Vec::new());
    finalizer.count(&live).await?;
    Ok(finalizer.held_objects().kept())
}

/// How often the controller checks a pod without an event: as often as it repeats a live read for it, and at least
/// every `resync`.
fn recheck_interval(decision: &PodDecision, resync: Duration) -> Duration {
    let repeated = decision.missing.iter().filter_map(|missing| match missing {
        Missing::Answer { after, .. } if !after.is_zero() => Some(*after),
        Missing::Answer { .. } | Missing::Event(_) => None,
    });
    repeated.min().map_or(resync, |sooner| sooner.min(resync))
}

fn waits(action: Action, held: bool, resync: Duration) -> String {
    match action {
        Action::Keep if held => format!(
            "Belayer releases the pod once the missing evidence exists. It checks at every change of the pod, its owner \
             and its namespace, and at least about every {}",
            age(i64::try_from(resync.as_secs()).unwrap_or(i64::MAX))
        ),
        Action::Keep => "Belayer adds its finalizer once the missing conditions are met".to_owned(),
        _ => "nothing: Belayer does not hold this pod".to_owned(),
    }
}

/// A pod whose cleanup is due after a delay. When that began, only a process that watches knows.
fn deleted_later(explained: Explained, delay: Duration) -> Explained {
    let delay = age(i64::try_from(delay.as_secs()).unwrap_or(i64::MAX));
    Explained {
        action: Action::Delete,
        missing: vec![format!(
            "the delay of its cleanup ({delay}) has to expire; only a running Belayer knows when it began"
        )],
        next: "a running Belayer deletes the pod once the delay has expired. If that is denied, the pod has the Event \
               CleanupDenied"
            .to_owned(),
        ..explained
    }
}

/// Why no profile selects a pod; `None` if one does.
fn why_not_selected(
    profiles: &Profiles,
    pod: &ObjectMeta,
    selection: &Selection,
) -> Option<String> {
    if let Selection::By { .. } = selection {
        return None;
    }
    let namespace = pod.key.namespace().unwrap_or_default();
    if pod.annotations.get(names::MIRROR_ANNOTATION).is_some() {
        return Some(
            "it is the mirror pod of a static pod: a finalizer on it would have no effect"
                .to_owned(),
        );
    }
    if let Selection::Ignored = selection {
        return Some(format!(
            "its namespace has the label {}=true",
            names::IGNORE_LABEL
        ));
    }
    if namespace == names::SYSTEM_NAMESPACE {
        return Some(format!("pods in {namespace} are never selected"));
    }
    let wanted: Vec<String> = profiles
        .iter()
        .map(|profile| {
            if profile.selector.matches(&pod.labels) {
                return format!("profile {} excludes namespace {namespace}", profile.name);
            }
            let labels: Vec<_> = profile.selector.names().collect();
            format!("profile {} selects by {}", profile.name, labels.join(", "))
        })
        .collect();
    Some(format!("no profile selects it: {}", wanted.join("; ")))
}

#[cfg(test)]
mod tests {
    use crate::row;

    /// A released pod that still exists cannot be distinguished from one that was deleted before it was held.
    #[test]
    fn row_14_names_both_causes() {
        let says = row::TOO_LATE.says;
        assert!(says.contains("has released it"), "{says}");
        assert!(says.contains("began before it was held"), "{says}");
    }
}
