//! pod-recreation as a [`Controller`]: its configuration, requirements and registration.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use belayer_controller::config::{Problem, Section};
use belayer_controller::context::{ControllerContext, Watched, WorkerGroup, zeros};
use belayer_controller::{Configured, Controller, Crd, Hold, InformerRequirements, Site};
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta, Pod};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::node_wipe::{self, NodeWipe};
use belayer_holds::owned;
use belayer_holds::owner::OwnerReader;
use belayer_holds::runner::Runner;
use belayer_holds::selection::Selected;
use belayer_holds::view::Cached;
use belayer_inspect::explain::Explainer;
use belayer_inspect::preflight::{Kind, Limit, Part, Policy, only_in};
use belayer_inspect::reader::Reader;

use crate::component::{self, Parts, PodRecreation};
use crate::config::{KEY, PodRecreationConfig, Settings};
use crate::keys::KEYS;
use crate::record::Record;
use crate::recreations::{self, Recreations};
use crate::wipes::{self, Wipes};
use crate::{NAME, SWITCH, api, crd, debug, evidence, explainer, permissions};

/// Name of the queue of records.
const QUEUE: &str = "recreations";

/// Name of the queue of lists of wipes.
const WIPES: &str = "wipes";

/// The controller.
pub const CONTROLLER: Controller = Controller {
    name: NAME,
    key: KEY,
    default_on: false,
    keys: KEYS,
    crds: &[Crd::Text(crd::YAML), Crd::Text(crd::NODE_WIPE_YAML)],
    finalizer: POD_RECREATION_HOLD,
    switch: SWITCH,
    configure,
};

fn configure(section: &Section<'_>) -> Result<Arc<dyn Configured>, Problem> {
    let settings = section.settings::<PodRecreationConfig, Settings>()?;
    Ok(Arc::new(settings))
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &CONTROLLER
    }

    fn holds(&self) -> Vec<Hold> {
        vec![Hold {
            kind: Resource::pods(),
            finalizers: vec![POD_RECREATION_HOLD],
        }]
    }

    fn requires(&self) -> Vec<Part> {
        vec![Part {
            advice: self.advice(),
            kinds: [api::resource(), node_wipe::resource()]
                .map(|kind| Kind {
                    fix: "belayer crds | kubectl apply -f -",
                    ..Kind::optional(kind)
                })
                .into(),
            // Pods request re-creation by an annotation: the policy does not depend on labels.
            policies: vec![Policy {
                name: "belayer-pod-recreation-hold",
                resource: Resource::pods(),
                finalizer: POD_RECREATION_HOLD.to_owned(),
                labels: Vec::new(),
                later: Vec::new(),
                namespaces: vec![self.eligibility.namespaces.clone()],
                switch: CONTROLLER.switch,
            }],
            limits: vec![Limit::POD_DELETES, Limit::RECORDS],
            holds: vec![(Resource::pods(), POD_RECREATION_HOLD.to_owned())],
            namespaces: only_in([&self.eligibility.namespaces]),
            ..Part::new(
                NAME,
                "ClusterRole belayer-pod-recreation",
                permissions::permissions(),
            )
        }]
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements {
            pods: component::keep_of_pods(self),
            indexes: vec![|pods| {
                pods.index(owned::RECREATION_BY_OWNER, owned::recreation_by_owner)
            }],
            namespaces: component::keep_of_namespaces(),
            reads_namespaces: true,
            ..InformerRequirements::default()
        }
    }

    fn selects(&self, _: &Resource, object: &ObjectMeta, ignored: bool) -> Selected {
        (!ignored && self.eligibility.selects(&Pod::new(object.clone()))).into()
    }

    fn join(&self, context: &mut ControllerContext) {
        join(self, context);
    }

    fn explainers(&self, site: &Site<'_>) -> Vec<Explainer> {
        vec![
            explainer::Pods::explainer(self, site),
            explainer::record::Records::explainer(self, site),
        ]
    }

    fn record_of<'a>(
        &'a self,
        reader: &'a Reader,
        namespace: &'a str,
        pod: &'a str,
    ) -> BoxFuture<'a, Option<String>> {
        explainer::record::of_pod(reader, namespace, pod).boxed()
    }
}

/// Starts pod-recreation: its event handlers, its component of the pod runner, and the record runner.
fn join(settings: &Settings, context: &mut ControllerContext) {
    let ControllerContext {
        shared,
        namespaces,
        owners,
        pods,
        ..
    } = context;
    for advice in settings.advice() {
        tracing::warn!("{advice}");
    }
    zeros::of_component(
        NAME,
        evidence::EVIDENCE_NAMES.iter().copied(),
        &[zeros::OWNER],
    );
    let mut watched: Watched<Record> = Watched::new(
        &shared.watches,
        api::resource(),
        shared.json_decoders(),
        |builder| builder,
    );
    let mut lists: Watched<NodeWipe> = Watched::new(
        &shared.watches,
        node_wipe::resource(),
        shared.json_decoders(),
        |builder| builder,
    );
    let queue = WorkQueue::new(QUEUE);
    let owner_reader = OwnerReader::new(
        Arc::clone(&shared.executor),
        shared.decoders(Keep::nothing()),
    );
    let namespace_reader =
        NamespaceReader::new(Arc::clone(&shared.executor), namespaces.decoders.clone());
    let recreation = Arc::new(PodRecreation::<Cached>::new(
        settings.clone(),
        Parts {
            pods: pods.watched.store.clone(),
            records: watched.store.clone(),
            wipes: lists.store.clone(),
            namespaces: namespaces.store.clone(),
            owners: owners.stores(),
            owner_queries: shared.queries(owner_reader.clone(), pods.enqueue()),
            namespace_queries: shared.queries(namespace_reader, pods.enqueue()),
            pods_queue: pods.queue.clone(),
            queue: queue.clone(),
        },
    ));
    let recreations = Arc::new(Recreations::new(recreations::RecreationsParts {
        component: Arc::clone(&recreation),
        pod_decoders: pods.watched.decoders.clone(),
        record_decoders: watched.decoders.clone(),
        owners: owner_reader,
        events: shared.events.clone(),
        switch: shared.switch.clone(),
    }));
    let runner = Runner::builder(shared.runner(&watched, &queue, &[]))
        .component(Arc::clone(&recreations))
        .build();

    let handler = Arc::clone(&recreation);
    pods.watched.on_event(move |event| handler.on_pod(event));
    pods.register(Arc::clone(&recreation), settings.workers);
    let handler = Arc::clone(&recreation);
    namespaces.on_event(move |event| handler.on_namespace(event));
    for kind in &mut owners.kinds {
        let handler = Arc::clone(&recreation);
        kind.on_event(move |event| handler.on_owner(event));
    }
    let handler = Arc::clone(&recreation);
    watched.on_event(move |event| handler.on_record(event));
    watched.informer().add_handler(Arc::new(runner.clone()));

    let list_queue = WorkQueue::new(WIPES);
    let list_runner = Runner::builder(shared.runner(&lists, &list_queue, &[]))
        .component(Arc::new(Wipes::new(watched.store.clone())))
        .build();
    let changed = Arc::clone(&recreation);
    lists.on_event(move |event| wipes::enqueue_records(event, &changed));
    lists.informer().add_handler(Arc::new(list_runner.clone()));
    let changed = list_queue.clone();
    watched.on_event(move |event| wipes::enqueue_node(event, &changed));

    context.debug.add(NAME, &recreation, |it| debug::report(it));
    let workers = settings.workers;
    let pods_state = pods.watched.store.watch_state();
    let handle = watched.into_handle();
    context.worker_groups.push(WorkerGroup {
        name: QUEUE,
        queue,
        needs: vec![handle.state(), pods_state],
        start: Box::new(move || runner.work(workers)),
        background: vec![Box::new(|stop| recreations.run_periodic_task(stop).boxed())],
    });
    let lists = lists.into_handle();
    context.worker_groups.push(WorkerGroup {
        name: WIPES,
        queue: list_queue,
        // Not the lists: an earlier ClusterRole does not permit them, and re-creations do not wait for them.
        needs: vec![handle.state()],
        start: Box::new(move || list_runner.work(1)),
        background: Vec::new(),
    });
    // The CRDs may not be installed: the other controllers run without them.
    context.optional.push(handle);
    context.optional.push(lists);
    context.provide(&recreation);
}
