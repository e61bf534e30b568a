//! pvc-protection as a controller: its configuration keys, its requirements, and its event handlers.

use std::sync::Arc;

use futures::FutureExt as _;

use belayer_controller::config::{Problem, Section};
use belayer_controller::context::{ControllerContext, Watched, WorkerGroup, zeros};
use belayer_controller::{Configured, Controller, Hold, InformerRequirements, Site};
use belayer_core::index;
use belayer_core::object::Resource;
use belayer_core::queries::Enqueue;
use belayer_core::slim::{Keep, ObjectMeta, Pvc};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::names::PVC_PROTECTION_HOLD;
use belayer_holds::owner::OwnerReader;
use belayer_holds::runner::{self, Runner};
use belayer_holds::selection::Selected;
use belayer_holds::view::Cached;
use belayer_inspect::explain::Explainer;
use belayer_inspect::preflight::{Part, Policy, PvcMode};

use crate::component::{NAME, Parts, PvcProtection, pace};
use crate::config::{KEY, Mode, PvcProtectionConfig, Settings};
use crate::explainer;
use crate::feeder::FairQueueFeeder;
use crate::keys::KEYS;
use crate::owner::COMPLETED_LABEL;
use crate::periodic::PeriodicTask;
use crate::pods_query::PodsReader;
use crate::release_tracker::ReleaseObserver;
use crate::{debug, evidence, permissions};

/// Name of the queue.
const QUEUE: &str = "claims";

/// pvc-protection.
pub const CONTROLLER: Controller = Controller {
    name: NAME,
    key: KEY,
    default_on: true,
    keys: KEYS,
    crds: &[],
    finalizer: PVC_PROTECTION_HOLD,
    switch: "holdClaims",
    configure,
};

fn configure(section: &Section<'_>) -> Result<Arc<dyn Configured>, Problem> {
    let settings = section.settings::<PvcProtectionConfig, Settings>()?;
    Ok(Arc::new(settings))
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &CONTROLLER
    }

    fn holds(&self) -> Vec<Hold> {
        vec![Hold {
            kind: Resource::pvcs(),
            finalizers: self.mode.finalizers().to_vec(),
        }]
    }

    fn adds_holds(&self) -> bool {
        self.mode.adds_holds()
    }

    fn requires(&self) -> Vec<Part> {
        let own = || vec![(Resource::pvcs(), PVC_PROTECTION_HOLD.to_owned())];
        let (mode, policies, holds) = match self.mode {
            // The policy may exist: the gate disables it.
            Mode::Advise => (PvcMode::Advise, Vec::new(), own()),
            Mode::Own => (
                PvcMode::Own,
                vec![Policy {
                    name: "belayer-claim-hold",
                    resource: Resource::pvcs(),
                    finalizer: PVC_PROTECTION_HOLD.to_owned(),
                    labels: Vec::new(),
                    later: Vec::new(),
                    namespaces: Vec::new(),
                    switch: CONTROLLER.switch,
                }],
                own(),
            ),
            // The API server's own admission plugin adds that finalizer.
            Mode::InPlace => (PvcMode::InPlace, Vec::new(), Vec::new()),
        };
        let removed = self.mode.finalizers().iter();
        vec![Part {
            policies,
            holds,
            removes: removed
                .map(|name| (Resource::pvcs(), (*name).to_owned()))
                .collect(),
            pvcs: Some(mode),
            ..Part::new(
                NAME,
                "ClusterRole belayer-pvc-protection",
                permissions::permissions(),
            )
        }]
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements {
            indexes: vec![|pods| pods.index(index::PODS_BY_PVC, index::pvcs_of_bound_pod)],
            ..InformerRequirements::default()
        }
    }

    /// Every PVC is selected: there is no selector.
    fn selects(&self, _: &Resource, _: &ObjectMeta, _: bool) -> Selected {
        Selected::Yes
    }

    fn join(&self, context: &mut ControllerContext) {
        join(self, context);
    }

    fn explainers(&self, _: &Site<'_>) -> Vec<Explainer> {
        vec![explainer::explainer(self.mode)]
    }
}

/// Starts pvc-protection. It is the only controller that holds PVCs, so it has its own PVC informer and runner.
fn join(settings: &Settings, context: &mut ControllerContext) {
    let ControllerContext { shared, pods, .. } = context;
    zeros::of_component(
        NAME,
        evidence::EVIDENCE_NAMES.iter().copied(),
        &[
            ("pods", &["listed", "store", "error"]),
            ("owner", &["present", "gone", "unknown", "error"]),
        ],
    );
    let Settings { workers, mode } = *settings;
    let mut watched: Watched<Pvc> = Watched::new(
        &shared.watches,
        Resource::pvcs(),
        shared.decoders(Keep::nothing()),
        |builder| builder,
    );
    let queue = WorkQueue::new(QUEUE);
    let feeder = FairQueueFeeder::new(queue.clone(), workers, shared.after_work.clone());
    let enqueue: Enqueue = Arc::new(move |key| feeder.add(key));
    let reader = PodsReader::new(
        Arc::clone(&shared.executor),
        pods.watched.decoders.clone(),
        Some(pods.watched.store.clone()),
    );
    let owners = OwnerReader::new(
        Arc::clone(&shared.executor),
        shared.decoders(Keep::nothing().labels([COMPLETED_LABEL])),
    );
    let protection = Arc::new(PvcProtection::<Cached>::new(
        mode,
        Parts {
            pvcs: watched.store.clone(),
            pods: pods.watched.store.clone(),
            pods_queries: shared.queries_at(reader, Arc::clone(&enqueue), pace()),
            owners: shared.queries(owners, enqueue),
            queue: queue.clone(),
        },
    ));
    let runner = Runner::builder(runner::RunnerParts {
        observer: Arc::new(ReleaseObserver {
            releases: Arc::clone(protection.release_tracker()),
            next: Arc::clone(&shared.observer),
        }),
        ..shared.runner(&watched, &queue, mode.finalizers())
    })
    .component(Arc::clone(&protection))
    .build();

    let handler = Arc::clone(&protection);
    pods.watched.on_event(move |event| handler.on_pod(event));
    let handler = Arc::clone(&protection);
    watched.on_event(move |event| handler.on_pvc(event));
    watched.informer().add_handler(Arc::new(runner.clone()));

    context.debug.add(NAME, &protection, |it| debug::report(it));
    let periodic = PeriodicTask::new(Arc::clone(&protection), shared.executor.writes());
    let pods_state = pods.watched.store.watch_state();
    let handle = watched.into_handle();
    context.worker_groups.push(WorkerGroup {
        name: QUEUE,
        queue,
        needs: vec![handle.state(), pods_state],
        start: Box::new(move || runner.work(workers)),
        background: vec![Box::new(|stop| periodic.run(stop).boxed())],
    });
    context.informers.push(handle);
    context.provide(&protection);
}
