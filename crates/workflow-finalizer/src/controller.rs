//! workflow-finalizer as a controller: its configuration keys, its requirements, a runner per owner kind, and its
//! rule for pods.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use belayer_controller::config::{Problem, Section};
use belayer_controller::context::{BackgroundTask, ControllerContext, WorkerGroup, zeros};
use belayer_controller::{Configured, Controller, Hold, InformerRequirements, Kept, Site};
use belayer_core::object::Resource;
use belayer_core::queries::Enqueue;
use belayer_core::slim::ObjectMeta;
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::names;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::owned::{self, OwnerEnds};
use belayer_holds::runner::Runner;
use belayer_holds::selection::Selected;
use belayer_holds::view::Cached;
use belayer_inspect::explain::Explainer;
use belayer_inspect::preflight::{Kind, Part, Policy, only_in};
use belayer_inspect::reader::Reader;

use crate::component::{self, NAME, Parts, WorkflowFinalizer};
use crate::config::{KEY, OwnerRule, Settings, WorkflowFinalizerConfig};
use crate::keys::KEYS;
use crate::periodic::PeriodicTask;
use crate::pods_query::{self, PodsReader};
use crate::{debug, evidence, explainer, permissions};

/// workflow-finalizer.
pub const CONTROLLER: Controller = Controller {
    name: NAME,
    key: KEY,
    default_on: true,
    keys: KEYS,
    crds: &[],
    finalizer: names::WORKFLOW_HOLD,
    switch: "holdWorkflows",
    configure,
};

fn configure(section: &Section<'_>) -> Result<Arc<dyn Configured>, Problem> {
    let settings = section.settings::<WorkflowFinalizerConfig, Settings>()?;
    Ok(Arc::new(settings))
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &CONTROLLER
    }

    fn holds(&self) -> Vec<Hold> {
        let kinds = self.owners.iter().map(|rule| rule.kind.clone());
        kinds
            .map(|kind| Hold {
                kind,
                finalizers: vec![names::WORKFLOW_HOLD],
            })
            .collect()
    }

    fn requires(&self) -> Vec<Part> {
        // The manifests have a policy for workflows of Argo Workflows alone.
        let argo = OwnerRule::argo().kind;
        let policies = self.owners.iter().filter(|rule| rule.kind == argo);
        let kinds = || self.owners.iter().map(|rule| rule.kind.clone());
        vec![Part {
            kinds: kinds().map(Kind::optional).collect(),
            policies: policies
                .map(|rule| Policy {
                    name: "belayer-workflow-hold",
                    resource: rule.kind.clone(),
                    finalizer: names::WORKFLOW_HOLD.to_owned(),
                    labels: rule.selector.names().map(str::to_owned).collect(),
                    later: Vec::new(),
                    namespaces: vec![rule.namespaces.clone()],
                    switch: CONTROLLER.switch,
                })
                .collect(),
            holds: kinds()
                .map(|kind| (kind, names::WORKFLOW_HOLD.to_owned()))
                .collect(),
            namespaces: only_in(self.owners.iter().map(|rule| &rule.namespaces)),
            ..Part::new(
                NAME,
                "ClusterRole belayer-workflow-finalizer",
                permissions::permissions(self),
            )
        }]
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements {
            indexes: vec![|pods| pods.index(owned::HELD_BY_OWNER, owned::held_by_owner)],
            namespaces: component::keep_of_namespaces(),
            reads_namespaces: true,
            owners: self.owners.iter().map(|rule| rule.kind.clone()).collect(),
            keep_of_owners: component::keep_of_owners(self),
            ..InformerRequirements::default()
        }
    }

    fn selects(&self, kind: &Resource, object: &ObjectMeta, ignored: bool) -> Selected {
        let namespace = object.key.namespace().unwrap_or_default();
        let mut rules = self.owners.iter();
        let selects = |rule: &OwnerRule| {
            rule.kind.is_same_kind(kind) && rule.selects(&object.labels, namespace)
        };
        (!ignored && rules.any(selects)).into()
    }

    fn join(&self, context: &mut ControllerContext) {
        join(self, context);
    }

    fn explainers(&self, _: &Site<'_>) -> Vec<Explainer> {
        vec![explainer::explainer(self)]
    }

    fn kept<'a>(&'a self, reader: &'a Reader) -> BoxFuture<'a, Kept> {
        explainer::kept(reader, self).map(Some).boxed()
    }
}

/// Starts workflow-finalizer: one runner per owner kind, and its rule for pods.
fn join(settings: &Settings, context: &mut ControllerContext) {
    zeros::of_component(
        NAME,
        evidence::EVIDENCE_NAMES.iter().chain(owned::NAMES).copied(),
        &[
            zeros::OWNER,
            zeros::NAMESPACE,
            ("pods", &["none", "some", "error"]),
        ],
    );
    pod_rule(settings, context);
    let mut kinds = Vec::new();
    for rule in &settings.owners {
        kinds.extend(kind(settings, rule, context));
    }
    context
        .debug
        .add(NAME, &kinds, |kinds| debug::report(kinds));
    let periodic = PeriodicTask::new(
        kinds,
        context.shared.events.clone(),
        context.namespaces.store.clone(),
        &context.shared.namespace,
    );
    let task: BackgroundTask = Box::new(|stop| periodic.run(stop).boxed());
    context.pods.run_in_background(task);
}

/// The rule for pods: pods of an owner that is being deleted or gone are released. Without it the owners would wait
/// for ever if pod-finalizer is disabled, and pods whose profile in pod-finalizer does not name the kind of their owner
/// would be held for ever.
fn pod_rule(settings: &Settings, context: &mut ControllerContext) {
    let ControllerContext {
        owners,
        owner_queries,
        pods,
        ..
    } = context;
    let held = |kind: &Resource| settings.owners.iter().any(|rule| rule.kind == *kind);
    let kinds = owners.kinds.iter_mut();
    let mut kinds: Vec<_> = kinds.filter(|watched| held(&watched.resource)).collect();
    let rule = Arc::new(OwnerEnds::new(owned::Parts {
        name: NAME,
        owners: kinds
            .iter()
            .map(|watched| (watched.resource.clone(), watched.store.clone()))
            .collect(),
        owner_queries: owner_queries.clone(),
        pods: pods.watched.store.clone(),
        queue: pods.queue.clone(),
    }));
    for watched in &mut kinds {
        let handler = Arc::clone(&rule);
        watched.on_event(move |event| handler.on_owner(event));
    }
    pods.register(rule, settings.workers);
}

/// The name of a kind's queue. Names live as long as the process; a reload reuses them.
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
    context: &mut ControllerContext,
) -> Option<Arc<WorkflowFinalizer>> {
    let ControllerContext {
        shared,
        namespaces,
        owners,
        pods,
        ..
    } = context;
    let watched = owners
        .kinds
        .iter_mut()
        .find(|watched| watched.resource == rule.kind)?;
    let name = queue_name(&rule.kind.plural);
    let queue = WorkQueue::new(name);
    let enqueue: Enqueue = {
        let queue = queue.clone();
        Arc::new(move |key| queue.add(key, Priority::Release))
    };
    let namespace_reader =
        NamespaceReader::new(Arc::clone(&shared.executor), namespaces.decoders.clone());
    let pods_reader = PodsReader::new(
        Arc::clone(&shared.executor),
        Some(pods.watched.store.clone()),
    );
    let finalizer = Arc::new(WorkflowFinalizer::<Cached>::new(
        settings,
        rule.clone(),
        Parts {
            workflows: watched.store.clone(),
            pods: pods.watched.store.clone(),
            namespaces: namespaces.store.clone(),
            pod_queries: shared.queries_at(pods_reader, enqueue.clone(), pods_query::pace()),
            namespace_queries: shared.queries(namespace_reader, enqueue),
            queue: queue.clone(),
            pods_queue: pods.queue.clone(),
        },
    ));
    let runner = Runner::builder(shared.runner(watched, &queue, &[names::WORKFLOW_HOLD]))
        .component(Arc::clone(&finalizer))
        .build();

    // The held objects are updated before the runner decides, so that a decision sees the counts after its event.
    let handler = Arc::clone(&finalizer);
    watched.on_event(move |event| handler.on_workflow(event));
    watched.informer().add_handler(Arc::new(runner.clone()));
    let handler = Arc::clone(&finalizer);
    pods.watched.on_event(move |event| handler.on_pod(event));
    let handler = Arc::clone(&finalizer);
    namespaces.on_event(move |event| handler.on_namespace(event));

    let workers = settings.workers;
    context.worker_groups.push(WorkerGroup {
        name,
        queue,
        // Does not wait for the kind itself, which may not be served.
        needs: vec![pods.watched.store.watch_state()],
        start: Box::new(move || runner.work(workers)),
        background: Vec::new(),
    });
    Some(finalizer)
}
