//! The claims and pvc-protection's place among them and the pods.

use std::sync::Arc;

use futures::FutureExt as _;

use belayer_core::facts::Wake;
use belayer_core::object::Resource;
use belayer_core::slim::{Claim, Keep};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::owner::OwnerOracle;
use belayer_holds::runner::{self, Runner};
use belayer_pvc_protection::component::{self, Parts, PvcProtection};
use belayer_pvc_protection::config::Settings;
use belayer_pvc_protection::evidence;
use belayer_pvc_protection::ledger::Keeper;
use belayer_pvc_protection::look::PodsOracle;
use belayer_pvc_protection::owner::COMPLETED_LABEL;
use belayer_pvc_protection::steward::Steward;
use belayer_pvc_protection::turns::Turns;

use super::feed::{Crew, Feed, Watched};
use super::ground::Ground;
use super::holds;
use super::pods::Pods;
use super::zeros;

/// Name of the queue.
const QUEUE: &str = "claims";

/// Puts pvc-protection in its place: the one component that holds claims, so that their informer
/// and their runner are its own.
pub(super) fn join(
    settings: &Settings,
    ground: &mut Ground,
    pods: &mut Pods,
) -> (Arc<PvcProtection>, Feed, Crew) {
    zeros::of_component(
        component::NAME,
        evidence::EVIDENCE_NAMES.iter().copied(),
        &[
            ("pods", &["listed", "store", "error"]),
            ("owner", &["present", "gone", "unknown", "error"]),
        ],
    );
    let Settings { workers, mode } = *settings;
    let mut watched: Watched<Claim> = Watched::new(
        &ground.client,
        Resource::claims(),
        ground.decoders(Keep::nothing()),
        |builder| builder,
    );
    let queue = WorkQueue::new(QUEUE);
    let turns = Turns::new(queue.clone(), workers, ground.after_work.clone());
    let wake: Wake = Arc::new(move |key| turns.add(key));
    let oracle = PodsOracle::new(
        Arc::clone(&ground.executor),
        pods.watched.decoders.clone(),
        pods.watched.store.clone(),
    );
    let owners = OwnerOracle::new(
        Arc::clone(&ground.executor),
        ground.decoders(Keep::nothing().labels([COMPLETED_LABEL])),
    );
    let protection = Arc::new(PvcProtection::new(
        mode,
        Parts {
            claims: watched.store.clone(),
            pods: pods.watched.store.clone(),
            looks: ground.facts_at(oracle, Arc::clone(&wake), component::pace()),
            owners: ground.facts(owners, wake),
            queue: queue.clone(),
        },
    ));
    let runner = Runner::builder(runner::Parts {
        observer: Arc::new(Keeper {
            ledger: Arc::clone(protection.ledger()),
            next: Arc::clone(&ground.observer),
        }),
        ..ground.runner(&watched, &queue, mode.ours())
    })
    .component(Arc::clone(&protection))
    .build();

    let told = Arc::clone(&protection);
    pods.watched.on_event(move |event| told.on_pod(event));
    let told = Arc::clone(&protection);
    watched.on_event(move |event| told.on_claim(event));
    watched.informer().add_handler(Arc::new(runner.clone()));

    ground
        .told
        .add(component::NAME, &protection, |it| holds::claims::of(it));
    let steward = Steward::new(Arc::clone(&protection), ground.executor.writes());
    let pods_state = pods.watched.store.watch_state();
    let feed = watched.into_feed();
    let crew = Crew {
        name: QUEUE,
        queue,
        needs: vec![feed.state(), pods_state],
        start: Box::new(move || runner.work(workers)),
        beside: vec![Box::new(|stop| steward.run(stop).boxed())],
    };
    (protection, feed, crew)
}
