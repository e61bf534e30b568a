//! pod-finalizer as a controller: its configuration keys, its requirements, and its event handlers.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use belayer_controller::config::{Problem, Section};
use belayer_controller::context::{ControllerContext, zeros};
use belayer_controller::{
    Configured, Controller, Crd, Gated, Hold, InformerRequirements, Kept, Site,
};
use belayer_core::index;
use belayer_core::object::Resource;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::runner;
use belayer_holds::selection::Selected;
use belayer_holds::view::Cached;
use belayer_inspect::argo::STATUS_FINALIZER;
use belayer_inspect::explain::Explainer;
use belayer_inspect::preflight::{AdoptsArgo, Kind, Limit, Part, Policy, only_in};
use belayer_inspect::reader::Reader;

use crate::NAME;
use crate::argo::NodeReader;
use crate::component::{self, Parts, PodFinalizer};
use crate::keys::KEYS;
use crate::outcome::{self, Sweeper};
use crate::periodic::{GATE_KEY, PeriodicTask};
use crate::profile::config::{KEY, PodFinalizerConfig, Settings};
use crate::profile::{self, Cleanup, Mode, Profiles};
use crate::status::{self, Asked, RemovedPods, StatusReader};
use crate::{debug, evidence, explainer, permissions};

/// pod-finalizer.
pub const CONTROLLER: Controller = Controller {
    name: NAME,
    key: KEY,
    default_on: true,
    keys: KEYS,
    crds: &[Crd::Made(outcome::crd)],
    finalizer: names::POD_STATUS_HOLD,
    switch: GATE_KEY,
    configure,
};

/// Whether any profile for Argo Workflows removes Argo's own finalizer; `None` if no such profile holds pods.
fn adopts_argo(profiles: &Profiles) -> Option<AdoptsArgo> {
    let mut of_argo = profiles
        .iter()
        .filter(|profile| profile.is_argo() && profile.mode == Mode::Enforce)
        .peekable();
    of_argo.peek()?;
    let adopts =
        of_argo.any(|profile| profile.adopt.iter().any(|name| **name == *STATUS_FINALIZER));
    Some(if adopts {
        AdoptsArgo::Yes
    } else {
        AdoptsArgo::No
    })
}

fn configure(section: &Section<'_>) -> Result<Arc<dyn Configured>, Problem> {
    let settings = section.settings::<PodFinalizerConfig, Settings>()?;
    Ok(Arc::new(settings))
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &CONTROLLER
    }

    fn holds(&self) -> Vec<Hold> {
        vec![Hold {
            kind: Resource::pods(),
            finalizers: vec![names::POD_STATUS_HOLD],
        }]
    }

    fn requires(&self) -> Vec<Part> {
        requires(self)
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements {
            pods: component::keep_of_pods(&self.profiles),
            indexes: vec![|pods| {
                pods.index(index::PODS_BY_OWNER, index::owner_of_pod)
                    .index(index::PODS_BY_NAMESPACE, index::namespace_of_pod)
            }],
            namespaces: component::keep_of_namespaces(),
            reads_namespaces: true,
            owners: self.profiles.owners().into_iter().cloned().collect(),
            records: self
                .profiles
                .capture()
                .then(outcome::resource)
                .into_iter()
                .collect(),
            keep_of_owners: component::keep_of_owners(&self.profiles),
        }
    }

    fn gated(&self) -> Vec<Gated> {
        let mut profiles = self.profiles.iter();
        let cleans = profiles.position(|profile| profile.cleanup != Cleanup::None);
        let key = cleans.map(|index| Gated {
            gate: "PodCleanup",
            key: format!("{KEY}.profiles[{index}].cleanup"),
        });
        key.into_iter().collect()
    }

    fn selects(&self, _: &Resource, object: &ObjectMeta, ignored: bool) -> Selected {
        let namespace = object.key.namespace().unwrap_or_default();
        let selected = !ignored
            && object.annotations.get(names::MIRROR_ANNOTATION).is_none()
            && self
                .profiles
                .first_match(&object.labels, namespace)
                .is_some();
        selected.into()
    }

    fn join(&self, context: &mut ControllerContext) {
        join(self, context);
    }

    fn explainers(&self, site: &Site<'_>) -> Vec<Explainer> {
        vec![explainer::Pods::explainer(self, site)]
    }

    fn kept<'a>(&'a self, reader: &'a Reader) -> BoxFuture<'a, Kept> {
        explainer::kept(reader, self).map(Some).boxed()
    }
}

fn requires(settings: &Settings) -> Vec<Part> {
    let profiles = &settings.profiles;
    let pods = Resource::pods();
    let enforced: Vec<_> = profiles
        .iter()
        .filter(|profile| profile.mode == Mode::Enforce)
        .collect();
    let labels_of = |is_argo: bool| {
        let these = enforced.iter().filter(move |one| one.is_argo() == is_argo);
        these.map(|one| -> BTreeSet<String> { one.selector.names().map(str::to_owned).collect() })
    };
    // The policy of the manifests selects pods of Argo Workflows alone, without those that are never held. A label that one
    // of several profiles does not name is not required: that profile selects pods without it.
    let mut labels = labels_of(true)
        .reduce(|all, these| &all & &these)
        .unwrap_or_default();
    if enforced.iter().any(|profile| profile.is_argo()) {
        labels.insert(profile::argo::COMPONENT_LABEL.to_owned());
    }
    let named: BTreeSet<String> = labels_of(false).flatten().collect();
    let later = named.difference(&labels).cloned().collect();
    let namespaces = only_in(enforced.iter().map(|profile| &profile.namespaces));
    let policy = (!enforced.is_empty()).then(|| Policy {
        name: "belayer-pod-hold",
        resource: pods.clone(),
        finalizer: names::POD_STATUS_HOLD.to_owned(),
        labels: labels.into_iter().collect(),
        later,
        namespaces: enforced
            .iter()
            .map(|profile| profile.namespaces.clone())
            .collect(),
        switch: CONTROLLER.switch,
    });
    let mut parts = vec![Part {
        advice: profiles.iter().filter_map(|one| one.advice()).collect(),
        argo: adopts_argo(profiles),
        kinds: profiles
            .owners()
            .into_iter()
            .cloned()
            .map(Kind::optional)
            .collect(),
        policies: policy.into_iter().collect(),
        removes: profiles
            .adopted()
            .map(|name| (pods.clone(), name.to_string()))
            .collect(),
        holds: vec![(pods, names::POD_STATUS_HOLD.to_owned())],
        namespaces: namespaces.clone(),
        ..Part::new(
            NAME,
            "ClusterRole belayer-pod-finalizer",
            permissions::permissions(profiles),
        )
    }];
    let capture = permissions::permissions_to_capture(profiles);
    if !capture.is_empty() {
        parts.push(Part {
            kinds: vec![Kind {
                resource: outcome::resource(),
                without: "outcomes are not recorded: pods are held until their consumer has read the result",
                fix: "belayer crds | kubectl apply -f -",
                optional: false,
            }],
            namespaces: namespaces.clone(),
            ..Part::new(
                "pod-finalizer capture",
                "ClusterRole belayer-outcome-capture",
                capture,
            )
        });
    }
    let cleanup = permissions::permissions_to_clean_up(profiles);
    if !cleanup.is_empty() {
        parts.push(Part {
            namespaces,
            limits: vec![Limit::POD_CLEANUP],
            ..Part::new(
                "pod-finalizer cleanup",
                "ClusterRole belayer-pod-cleanup",
                cleanup,
            )
        });
    }
    parts
}

/// Starts pod-finalizer: its event handlers, its component of the pod runner, and its background tasks.
fn join(settings: &Settings, context: &mut ControllerContext) {
    let ControllerContext {
        shared,
        namespaces,
        owners,
        owner_queries,
        pods,
        ..
    } = context;
    let evidence = evidence::EVIDENCE_NAMES.iter().copied();
    zeros::of_component(
        NAME,
        evidence.chain([runner::ADOPTED]),
        &[
            zeros::OWNER,
            zeros::NAMESPACE,
            ("status", &["read", "too_large", "unreadable", "error"]),
            (
                "node",
                &[
                    "gone",
                    "out-of-service",
                    "not-ready",
                    "ready",
                    "unknown",
                    "error",
                ],
            ),
        ],
    );
    for advice in settings.profiles.iter().filter_map(|one| one.advice()) {
        tracing::warn!("{advice}");
    }
    let namespace_reader =
        NamespaceReader::new(Arc::clone(&shared.executor), namespaces.decoders.clone());
    let kinds = settings.profiles.owners();
    let records = outcome::resource();
    let records = owners.kinds.iter().find(|kind| kind.resource == records);
    let records = records.filter(|_| settings.profiles.capture());
    let records = records.map(|watched| watched.store.clone());
    let owners_of_pods = || {
        let all = owners.kinds.iter();
        all.filter(|watched| kinds.contains(&watched.resource))
    };
    let removed = RemovedPods::default();
    let finalizer = Arc::new(PodFinalizer::<Cached>::new(
        settings,
        Parts {
            pods: pods.watched.store.clone(),
            namespaces: namespaces.store.clone(),
            owners: owners_of_pods()
                .map(|watched| (watched.resource.clone(), watched.store.clone()))
                .collect(),
            records: records.clone(),
            owner_queries: owner_queries.clone(),
            namespace_queries: shared.queries(namespace_reader, pods.enqueue()),
            status_queries: shared.queries_at(
                StatusReader::new(
                    Arc::clone(&shared.executor),
                    Asked::OfPods(pods.watched.store.clone(), removed.clone()),
                ),
                pods.enqueue(),
                status::pace(),
            ),
            node_queries: shared.queries(
                NodeReader::new(Arc::clone(&shared.executor)),
                pods.enqueue(),
            ),
            removed,
            queue: pods.queue.clone(),
            counted: shared.memory.of(),
        },
    ));

    // The held objects are updated before the runner decides, so that a decision sees the counts after its event.
    let handler = Arc::clone(&finalizer);
    pods.watched.on_event(move |event| handler.on_pod(event));
    let handler = Arc::clone(&finalizer);
    namespaces.on_event(move |event| handler.on_namespace(event));
    for watched in &mut owners.kinds {
        let kind = watched.resource.clone();
        if kinds.contains(&kind) {
            let handler = Arc::clone(&finalizer);
            watched.on_event(move |event| handler.on_owner(&kind, event));
        }
    }

    pods.register(Arc::clone(&finalizer), settings.workers);
    if let Some(records) = records {
        let executor = Arc::clone(&shared.executor);
        let sweeper = Sweeper::new(records, executor, settings.outcome_ttl);
        pods.run_in_background(Box::new(|stop| sweeper.run(stop).boxed()));
    }
    context.debug.add(NAME, &finalizer, |it| debug::report(it));
    let periodic = PeriodicTask::new(
        Arc::clone(&finalizer),
        Arc::clone(&shared.executor),
        shared.switch.clone(),
        shared.events.clone(),
        &shared.namespace,
    );
    pods.run_in_background(Box::new(|stop| periodic.run(stop).boxed()));
    context.provide(&finalizer);
}
