//! The records of re-creations, and pod-recreation's place among them and the pods.

use std::sync::Arc;

use futures::FutureExt as _;

use belayer_core::executor::Tickets;
use belayer_core::slim::Keep;
use belayer_core::workqueue::WorkQueue;
use belayer_holds::owner::OwnerOracle;
use belayer_pod_recreation::component::{Parts, PodRecreation};
use belayer_pod_recreation::machine::{self, Machine};
use belayer_pod_recreation::record::Record;
use belayer_pod_recreation::{NAME, Settings, api, config, evidence};

use super::feed::{Crew, Feed, Watched};
use super::ground::Ground;
use super::holds;
use super::owners::Owners;
use super::pods::Pods;
use super::zeros;

/// Name of the queue.
const QUEUE: &str = "recreations";

/// Puts pod-recreation in its place: its hold among the other holds of pods, its records in an
/// informer and a queue of their own.
pub(super) fn join(
    settings: &Settings,
    ground: &mut Ground,
    pods: &mut Pods,
    owners: &mut Owners,
) -> (Arc<PodRecreation>, Feed, Crew) {
    if settings.argo_left_out {
        tracing::warn!("{}", config::ARGO_LEFT_OUT);
    }
    zeros::of_component(
        NAME,
        evidence::EVIDENCE_NAMES.iter().copied(),
        &[zeros::OWNER],
    );
    let mut watched: Watched<Record> = Watched::new(
        &ground.client,
        api::resource(),
        ground.json_decoders(),
        |builder| builder,
    );
    let queue = WorkQueue::new(QUEUE);
    let oracle = OwnerOracle::new(
        Arc::clone(&ground.executor),
        ground.decoders(Keep::nothing()),
    );
    let recreation = Arc::new(PodRecreation::new(
        settings.clone(),
        Parts {
            pods: pods.watched.store.clone(),
            records: watched.store.clone(),
            namespaces: ground.namespaces.store.clone(),
            owners: owners.stores(),
            looks: ground.facts(oracle, pods.wake()),
            pods_queue: pods.queue.clone(),
            queue: queue.clone(),
        },
    ));
    let tickets = Tickets::new(&ground.executor, queue.clone());
    let machine = Machine::new(machine::Parts {
        component: Arc::clone(&recreation),
        pod_decoders: pods.watched.decoders.clone(),
        record_decoders: watched.decoders.clone(),
        owners: Arc::new(OwnerOracle::new(
            Arc::clone(tickets.executor()),
            ground.decoders(Keep::nothing()),
        )),
        tickets,
        events: ground.events.clone(),
        switch: ground.switch.clone(),
        clock: Arc::new(belayer_core::ambient::now),
    });

    let told = Arc::clone(&recreation);
    pods.watched.on_event(move |event| told.on_pod(event));
    pods.register(Arc::clone(&recreation), settings.workers);
    let told = Arc::clone(&recreation);
    ground
        .namespaces
        .on_event(move |event| told.on_namespace(event));
    for kind in &mut owners.kinds {
        let told = Arc::clone(&recreation);
        kind.on_event(move |event| told.on_owner(event));
    }
    let told = Arc::clone(&recreation);
    watched.on_event(move |event| told.on_record(event));
    watched.informer().add_handler(Arc::new(machine.clone()));

    ground
        .told
        .add(NAME, &recreation, |it| holds::recreations::of(it));
    let workers = settings.workers;
    let breakers = machine.clone();
    let pods_state = pods.watched.store.watch_state();
    let feed = watched.into_feed();
    let crew = Crew {
        name: QUEUE,
        queue,
        needs: vec![feed.state(), pods_state],
        start: Box::new(move || machine.work(workers)),
        beside: vec![Box::new(|stop| breakers.run_beside(stop).boxed())],
    };
    (recreation, feed, crew)
}
