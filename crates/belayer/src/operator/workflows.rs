//! workflow-finalizer's place in the house: a runner per kind of owner, and its one rule about
//! pods.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;

use belayer_core::facts::Wake;
use belayer_core::object::Resource;
use belayer_core::workqueue::{Band, WorkQueue};
use belayer_holds::names;
use belayer_holds::namespace::NamespaceOracle;
use belayer_holds::owned::{self, OwnerEnds};
use belayer_holds::owner::OwnerOracle;
use belayer_holds::runner::Runner;
use belayer_workflow_finalizer::component::{self, Parts, WorkflowFinalizer};
use belayer_workflow_finalizer::config::{OwnerRule, Settings};
use belayer_workflow_finalizer::evidence;
use belayer_workflow_finalizer::look::PodsOracle;
use belayer_workflow_finalizer::steward::Steward;

use super::feed::Crew;
use super::ground::Ground;
use super::holds;
use super::owners::Owners;
use super::pods::Pods;
use super::zeros;

/// Whether another component asks whether the owners of pods are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoneOwners {
    /// pod-finalizer does.
    AskedByOthers,
    /// Nobody else does.
    AskedHere,
}

/// What came of putting workflow-finalizer in its place.
pub(super) struct Joined {
    pub(super) kinds: Vec<Arc<WorkflowFinalizer>>,
    pub(super) crews: Vec<Crew>,
}

/// Puts workflow-finalizer in its place among the pods and their owners.
pub(super) fn join(
    settings: &Settings,
    gone_owners: GoneOwners,
    ground: &mut Ground,
    pods: &mut Pods,
    owners: &mut Owners,
) -> Joined {
    zeros::of_component(
        component::NAME,
        evidence::EVIDENCE_NAMES.iter().chain(owned::NAMES).copied(),
        &[
            zeros::OWNER,
            zeros::NAMESPACE,
            ("pods", &["none", "some", "error"]),
        ],
    );
    pods.register(
        Arc::new(pod_rule(settings, gone_owners, ground, pods, owners)),
        settings.workers,
    );
    let mut joined = Joined {
        kinds: Vec::new(),
        crews: Vec::new(),
    };
    for rule in &settings.owners {
        if let Some((kind, crew)) = kind(settings, rule, ground, pods, owners) {
            joined.kinds.push(kind);
            joined.crews.push(crew);
        }
    }
    ground.told.add(component::NAME, &joined.kinds, |kinds| {
        holds::workflows::of(kinds)
    });
    let steward = Steward::new(
        joined.kinds.clone(),
        ground.events.clone(),
        ground.namespaces.store.clone(),
        &ground.namespace,
    );
    pods.run_beside(Box::new(|stop| steward.run(stop).boxed()));
    joined
}

/// The one rule about pods: those of an owner that ends are let go. Without it the owners would
/// wait for ever where pod-finalizer is switched off.
fn pod_rule(
    settings: &Settings,
    gone_owners: GoneOwners,
    ground: &Ground,
    pods: &Pods,
    owners: &Owners,
) -> OwnerEnds {
    let oracle = OwnerOracle::new(
        Arc::clone(&ground.executor),
        ground.decoders(owners.keep.clone()),
    );
    let facts = ground.facts(oracle, pods.wake());
    let held = |kind: &Resource| settings.owners.iter().any(|rule| rule.kind == *kind);
    OwnerEnds::new(owned::Parts {
        name: component::NAME,
        owners: owners
            .kinds
            .iter()
            .filter(|watched| held(&watched.resource))
            .map(|watched| (watched.resource.clone(), watched.store.clone()))
            .collect(),
        facts: (gone_owners == GoneOwners::AskedHere).then_some(facts),
    })
}

/// The name of a kind's queue. Names live as long as the process; a reload takes the one there is.
fn queue_name(plural: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.get(plural) {
        return name;
    }
    let name: &'static str = plural.to_owned().leak();
    names.insert(name);
    name
}

fn kind(
    settings: &Settings,
    rule: &OwnerRule,
    ground: &mut Ground,
    pods: &mut Pods,
    owners: &mut Owners,
) -> Option<(Arc<WorkflowFinalizer>, Crew)> {
    let watched = owners
        .kinds
        .iter_mut()
        .find(|watched| watched.resource == rule.kind)?;
    let name = queue_name(&rule.kind.plural);
    let queue = WorkQueue::new(name);
    let wake: Wake = {
        let queue = queue.clone();
        Arc::new(move |key| queue.add(key, Band::Release))
    };
    let namespace_oracle = NamespaceOracle::new(
        Arc::clone(&ground.executor),
        ground.namespaces.decoders.clone(),
    );
    let finalizer = Arc::new(WorkflowFinalizer::new(
        settings,
        rule.clone(),
        Parts {
            workflows: watched.store.clone(),
            pods: pods.watched.store.clone(),
            namespaces: ground.namespaces.store.clone(),
            pod_facts: ground.facts(PodsOracle::new(Arc::clone(&ground.executor)), wake.clone()),
            namespace_facts: ground.facts(namespace_oracle, wake),
            queue: queue.clone(),
            pods_queue: pods.queue.clone(),
        },
    ));
    let runner = Runner::builder(ground.runner(watched, &queue, names::OWNER_HOLDS))
        .component(Arc::clone(&finalizer))
        .build();

    // The census first, so that a decision finds the numbers that its event made.
    let told = Arc::clone(&finalizer);
    watched.on_event(move |event| told.on_workflow(event));
    watched.informer().add_handler(Arc::new(runner.clone()));
    let told = Arc::clone(&finalizer);
    pods.watched.on_event(move |event| told.on_pod(event));
    let told = Arc::clone(&finalizer);
    ground
        .namespaces
        .on_event(move |event| told.on_namespace(event));

    let workers = settings.workers;
    let crew = Crew {
        name,
        queue,
        // Not of the kind itself, which may not be served: there is nothing to do before it is.
        needs: vec![pods.watched.store.watch_state()],
        start: Box::new(move || runner.work(workers)),
        beside: Vec::new(),
    };
    Some((finalizer, crew))
}
