//! pod-finalizer's place in the house.

use std::sync::Arc;

use futures::FutureExt as _;

use belayer_core::object::Resource;
use belayer_holds::namespace::NamespaceOracle;
use belayer_holds::owner::OwnerOracle;
use belayer_holds::runner;
use belayer_pod_finalizer::argo::NodeOracle;
use belayer_pod_finalizer::component::{self, Parts, PodFinalizer};
use belayer_pod_finalizer::evidence;
use belayer_pod_finalizer::outcome::{self, Sweeper};
use belayer_pod_finalizer::profile::config::Settings;
use belayer_pod_finalizer::status::{self, Asked, StatusOracle};
use belayer_pod_finalizer::steward::Steward;

use super::ground::Ground;
use super::holds;
use super::owners::Owners;
use super::pods::Pods;
use super::zeros;

/// The kinds that it watches as metadata: owners of pods, and the records of their outcomes.
pub(super) fn kinds(settings: &Settings) -> Vec<Resource> {
    let owners = settings.profiles.owners().into_iter().cloned();
    let records = settings.profiles.capture().then(outcome::resource);
    owners.chain(records).collect()
}

/// Puts pod-finalizer in its place among the pods and their owners.
pub(super) fn join(
    settings: &Settings,
    ground: &mut Ground,
    pods: &mut Pods,
    owners: &mut Owners,
) -> Arc<PodFinalizer> {
    let evidence = evidence::EVIDENCE_NAMES.iter().copied();
    zeros::of_component(
        component::NAME,
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
        tracing::warn!(
            advice,
            "the configuration may not have the effect that you expect"
        );
    }
    let owner_oracle = OwnerOracle::new(
        Arc::clone(&ground.executor),
        ground.decoders(owners.keep.clone()),
    );
    let namespace_oracle = NamespaceOracle::new(
        Arc::clone(&ground.executor),
        ground.namespaces.decoders.clone(),
    );
    let kinds = settings.profiles.owners();
    let owners_of_pods = || {
        let all = owners.kinds.iter();
        all.filter(|watched| kinds.contains(&watched.resource))
    };
    let finalizer = Arc::new(PodFinalizer::new(
        settings,
        Parts {
            pods: pods.watched.store.clone(),
            namespaces: ground.namespaces.store.clone(),
            owners: owners_of_pods()
                .map(|watched| (watched.resource.clone(), watched.store.clone()))
                .collect(),
            owner_facts: ground.facts(owner_oracle, pods.wake()),
            namespace_facts: ground.facts(namespace_oracle, pods.wake()),
            status_facts: ground.facts_at(
                StatusOracle::new(
                    Arc::clone(&ground.executor),
                    Asked::OfPods(pods.watched.store.clone()),
                ),
                pods.wake(),
                status::pace(),
            ),
            node_facts: ground.facts(NodeOracle::new(Arc::clone(&ground.executor)), pods.wake()),
            queue: pods.queue.clone(),
        },
    ));

    // The census first, so that a decision finds the numbers that its event made.
    let told = Arc::clone(&finalizer);
    pods.watched.on_event(move |event| told.on_pod(event));
    let told = Arc::clone(&finalizer);
    ground
        .namespaces
        .on_event(move |event| told.on_namespace(event));
    for watched in &mut owners.kinds {
        let kind = watched.resource.clone();
        if kinds.contains(&kind) {
            let told = Arc::clone(&finalizer);
            watched.on_event(move |event| told.on_owner(&kind, event));
        }
    }

    pods.register(Arc::clone(&finalizer), settings.workers);
    let records = outcome::resource();
    if let Some(watched) = owners.kinds.iter().find(|kind| kind.resource == records)
        && settings.profiles.capture()
    {
        let executor = Arc::clone(&ground.executor);
        let sweeper = Sweeper::new(watched.store.clone(), executor, settings.outcome_ttl);
        pods.run_beside(Box::new(|stop| sweeper.run(stop).boxed()));
    }
    ground
        .told
        .add(component::NAME, &finalizer, |it| holds::pods::of(it));
    let steward = Steward::new(
        Arc::clone(&finalizer),
        Arc::clone(&ground.executor),
        ground.switch.clone(),
        ground.events.clone(),
        &ground.namespace,
    );
    pods.run_beside(Box::new(|stop| steward.run(stop).boxed()));
    finalizer
}
