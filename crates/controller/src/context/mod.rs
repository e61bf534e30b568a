//! The context in which controllers are assembled: the shared informers, queues and clients. The
//! program
//! [`controller`](https://github.com/belayer/belayer/blob/main/e2e/external/controller/src/main.rs)
//! has a controller that has no informers.

mod informer_handle;
mod memory;
mod owners;
mod pods;
pub mod zeros;

use std::any::Any;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use belayer_core::clock;
use belayer_core::election::Leadership;
use belayer_core::events::{self, EventRecorder, EventSender};
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{Decoders, InformerState, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::{Budget, Enqueue, LiveReader, LiveReads, Pace, Query, QueryCache};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::slim::{DecodeContext, Interner, Keep, Namespace, Slim};
use belayer_core::watch;
use belayer_core::workqueue::WorkQueue;
use belayer_holds::holding::{HoldSwitch, Holding};
use belayer_holds::names::{self, FIELD_MANAGER, KUBERNETES_PVC_PROTECTION};
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::{self, Observer};

use crate::{Configured, Hold, InformerRequirements};

pub use informer_handle::{
    BackgroundTask, InformerHandle, Seen, Watched, WorkerGroup, list_state_known, synced,
};
pub use memory::Memory;
pub use owners::Owners;
pub use pods::Pods;

/// The options of a context. An argument of
/// [`ControllerContext::new`](crate::context::ControllerContext::new).
#[derive(Clone)]
pub struct Options {
    /// The cluster, for all requests but watches.
    pub client: Client,
    /// The cluster, for watches and the lists before them: a client with connections of its own.
    pub watches: Client,
    /// Belayer's own namespace.
    pub namespace: String,
    /// The limits of requests.
    pub bounds: Bounds,
    /// Whether writes are sent.
    pub writes: Writes,
    /// When this process may write: before that it only fills the caches.
    pub leadership: Leadership,
    /// The Lease of the leader election, if there is one.
    pub lease: Option<String>,
    /// What the controllers before these remember.
    pub memory: Memory,
    /// Called for everything that is executed.
    pub observer: Arc<dyn Observer>,
}

/// The shared parts that belong to no kind. Part of the [`ControllerContext`]. See the
/// [example](crate::context).
pub struct Shared {
    /// The cluster, for informers.
    pub watches: Client,
    /// Belayer's own namespace.
    pub namespace: String,
    /// Sends all requests but lists and watches.
    pub executor: Arc<Executor>,
    /// Whether finalizers may be added.
    pub switch: HoldSwitch,
    /// Records Events.
    pub events: EventRecorder,
    /// What the controllers remember across a reload of the configuration.
    pub memory: Memory,
    /// Called for everything that is executed.
    pub observer: Arc<dyn Observer>,
    /// The minimum delays between live reads of one query.
    pub pace: Pace,
    /// Limits the live reads in flight of all controllers together.
    pub reads: LiveReads,
    /// Ends live reads and the sending of Events, after the workers have ended.
    pub after_work: CancellationToken,
    /// The memory limit of all live answers.
    answers: Budget,
    interner: Interner,
    /// Of an object with very many finalizers, those that controllers read (T3).
    finalizers: Keep,
}

/// Collects what the controllers register. [`Configured::join`] receives
/// it; see the [example](crate::context).
pub struct ControllerContext {
    /// The parts that belong to no kind.
    pub shared: Shared,
    /// All namespaces.
    pub namespaces: Watched<Namespace>,
    /// The kinds that own pods, and other kinds that are watched as metadata.
    pub owners: Owners,
    /// The pods: one informer and one runner for all controllers.
    pub pods: Pods,
    /// Informers of kinds that one controller uses.
    pub informers: Vec<InformerHandle>,
    /// Informers whose kind may not be installed: the others do not wait for them.
    pub optional: Vec<InformerHandle>,
    /// Workers of kinds that one controller uses.
    pub worker_groups: Vec<WorkerGroup>,
    /// The answer of `/debug/holds`, by controller.
    pub debug: DebugView,
    /// Live reads of the owners of pods: one of each owner, whichever controllers ask.
    pub owner_queries: QueryCache<OwnerQuery>,
    provided: Vec<Arc<dyn Any + Send + Sync>>,
}

impl ControllerContext {
    /// A context for these controllers, which have not registered anything yet, and the task that sends its Events.
    pub fn new(options: &Options, controllers: &[Arc<dyn Configured>]) -> (Self, EventSender) {
        let needs = controllers.iter().map(|one| one.needs());
        let needs: Vec<InformerRequirements> = needs.collect();
        let holds = controllers.iter().flat_map(|one| one.holds());
        let holds: Vec<Hold> = holds.collect();
        let (shared, sender) = Shared::new(options, &holds);
        let of = |pick: fn(&InformerRequirements) -> &Keep| {
            needs
                .iter()
                .fold(Keep::nothing(), |keep, needs| keep.and(pick(needs)))
        };
        let namespaces = Watched::new(
            &shared.watches,
            Resource::namespaces(),
            shared.decoders(of(|needs| &needs.namespaces)),
            |builder| builder,
        );
        let kinds = needs.iter().flat_map(|needs| {
            let all = needs.owners.iter().chain(&needs.records);
            all.cloned()
        });
        let mut owners = Owners::new(&shared, kinds, of(|needs| &needs.keep_of_owners));
        let mut indexes = Vec::new();
        for index in needs.iter().flat_map(|needs| &needs.indexes) {
            indexes.push(*index);
        }
        let pods = Pods::new(&shared, of(|needs| &needs.pods), &indexes, &holds);
        let owner_queries = owners.queries(&shared, pods.enqueue());
        let context = Self {
            shared,
            namespaces,
            owners,
            pods,
            informers: Vec::new(),
            optional: Vec::new(),
            worker_groups: Vec::new(),
            debug: DebugView::default(),
            owner_queries,
            provided: Vec::new(),
        };
        (context, sender)
    }

    /// The state of the informer of a kind, once a controller has registered one.
    pub fn informer_state(&self, kind: &Resource) -> Option<watch::Receiver<InformerState>> {
        let pods = &self.pods.watched;
        if pods.resource == *kind {
            return Some(pods.store.watch_state());
        }
        let mut owners = self.owners.kinds.iter();
        if let Some(owner) = owners.find(|watched| watched.resource == *kind) {
            return Some(owner.store.watch_state());
        }
        let mut handles = self.informers.iter().chain(&self.optional);
        let found = handles.find(|handle| handle.resource == *kind);
        found.map(InformerHandle::state)
    }

    /// Stores a value of a controller, for tests and status.
    pub fn provide<T: Send + Sync + 'static>(&mut self, value: &Arc<T>) {
        self.provided.push(Arc::clone(value) as _);
    }

    /// Takes all values that were provided.
    pub fn take_provided(&mut self) -> Vec<Arc<dyn Any + Send + Sync>> {
        std::mem::take(&mut self.provided)
    }
}

impl Shared {
    fn new(options: &Options, holds: &[Hold]) -> (Self, EventSender) {
        let client = options.client.clone();
        let executor = Executor::new(client, FIELD_MANAGER, options.bounds, options.writes)
            .with_streams(options.watches.clone())
            .within(options.leadership.clone());
        let executor = Arc::new(executor);
        let (events, sender) = events::recorder(Arc::clone(&executor));
        let events = events.with_memory(options.memory.events.clone());
        let finalizers = holds
            .iter()
            .flat_map(|hold| hold.finalizers.iter().copied());
        // Also those of controllers that are off: an admin may request that they are removed.
        let finalizers = names::holds()
            .chain([KUBERNETES_PVC_PROTECTION])
            .chain(finalizers);
        let shared = Self {
            watches: options.watches.clone(),
            namespace: options.namespace.clone(),
            executor,
            switch: HoldSwitch::new(Holding::Unknown),
            events,
            memory: options.memory.clone(),
            observer: Arc::clone(&options.observer),
            pace: Pace::default(),
            reads: LiveReads::default(),
            answers: Budget::default(),
            after_work: CancellationToken::new(),
            interner: Interner::default(),
            finalizers: Keep::nothing().finalizers(finalizers),
        };
        (shared, sender)
    }

    /// A cache of answers by `reader`; `enqueue` is called for each waiting key.
    pub fn queries<Q: Query, O: LiveReader<Q>>(
        &self,
        reader: O,
        enqueue: Enqueue,
    ) -> QueryCache<Q> {
        self.queries_at(reader, enqueue, self.pace)
    }

    /// The same with a separate `pace`.
    pub fn queries_at<Q: Query, O: LiveReader<Q>>(
        &self,
        reader: O,
        enqueue: Enqueue,
        pace: Pace,
    ) -> QueryCache<Q> {
        let cancel = self.after_work.clone();
        let reads = self.reads.clone();
        QueryCache::within(
            Arc::new(reader),
            enqueue,
            pace,
            reads,
            cancel,
            &self.answers,
        )
    }

    /// The parts of a runner of a kind; `finalizers` are the finalizers that it may change.
    pub fn runner<K: Slim>(
        &self,
        watched: &Watched<K>,
        queue: &WorkQueue<ObjectKey>,
        finalizers: &'static [&'static str],
    ) -> runner::RunnerParts<K> {
        runner::RunnerParts {
            resource: watched.resource.clone(),
            finalizers: finalizers.into(),
            store: watched.store.clone(),
            queue: queue.clone(),
            executor: Arc::clone(&self.executor),
            decoders: watched.decoders.clone(),
            events: self.events.clone(),
            clock: Arc::new(clock::now),
            observer: Arc::clone(&self.observer),
            switch: self.switch.clone(),
        }
    }

    /// Decoders of a kind that keep the labels and annotations in `keep`.
    pub fn decoders<K: SlimJson + SlimProtobuf>(&self, keep: Keep) -> Decoders<K> {
        Decoders::protobuf_or_json(DecodeContext {
            keep: keep.and(&self.finalizers),
            interner: self.interner.clone(),
        })
    }

    /// Decoders of a custom resource that is read whole: the API serves those as JSON only.
    pub fn json_decoders<K: SlimJson>(&self) -> Decoders<K> {
        Decoders::new(JsonDecoder::new(DecodeContext {
            keep: Keep::nothing(),
            interner: self.interner.clone(),
        }))
    }
}

/// The controllers' reports about their finalizers, from memory. A [`ControllerContext`] collects
/// it. The context is the one of the [example](crate::context).
#[derive(Default)]
pub struct DebugView(Vec<(&'static str, Report)>);

type Report = Box<dyn Fn() -> Value + Send + Sync>;

impl DebugView {
    /// Adds the report of a controller.
    pub fn add<C: Clone + Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        controller: &C,
        report: impl Fn(&C) -> Value + Send + Sync + 'static,
    ) {
        let controller = controller.clone();
        self.0.push((name, Box::new(move || report(&controller))));
    }

    /// The current report of each controller, by name.
    pub fn report(&self) -> Value {
        let each = self.0.iter();
        Value::Object(
            each.map(|(name, report)| ((*name).to_owned(), report()))
                .collect(),
        )
    }
}
