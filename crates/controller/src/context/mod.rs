//! Where controllers are put together: the informers, queues and clients that they share.

mod feed;
mod owners;
mod pods;
pub mod zeros;

use std::any::Any;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use belayer_core::ambient;
use belayer_core::election::Leadership;
use belayer_core::events::{self, EventRecorder, EventSender};
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::facts::{Budget, LiveReader, LiveReads, Pace, Query, QueryCache, Wake};
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::slim::{DecodeContext, Interner, Keep, Namespace, Slim};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::holding::{HoldSwitch, Holding};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::runner::{self, Observer};

use crate::Needs;

pub use feed::{BackgroundTask, InformerHandle, Seen, Watched, WorkerGroup, heard_of, synced};
pub use owners::Owners;
pub use pods::Pods;

/// What controllers work with.
#[derive(Clone)]
pub struct Options {
    /// The cluster.
    pub client: Client,
    /// Belayer's own namespace.
    pub namespace: String,
    /// Bounds of requests.
    pub bounds: Bounds,
    /// Whether writes are sent.
    pub writes: Writes,
    /// When this process may write: until it may, only the caches are kept warm.
    pub leadership: Leadership,
    /// Is told of everything that is executed.
    pub observer: Arc<dyn Observer>,
}

/// What controllers share that is of no kind.
pub struct Shared {
    /// The cluster.
    pub client: Client,
    /// Belayer's own namespace.
    pub namespace: String,
    /// Sends everything but lists and watches.
    pub executor: Arc<Executor>,
    /// Whether finalizers may be added.
    pub switch: HoldSwitch,
    /// Records Events.
    pub events: EventRecorder,
    /// Is told of everything that is executed.
    pub observer: Arc<dyn Observer>,
    /// How often one thing may be asked live.
    pub pace: Pace,
    /// How many live reads may be in flight at once, for all controllers together.
    pub reads: LiveReads,
    /// Ends live reads and the sending of Events: after the workers have ended.
    pub after_work: CancellationToken,
    /// How much memory all live answers may take.
    answers: Budget,
    interner: Interner,
}

/// Collects what the controllers register.
pub struct ControllerContext {
    /// What is of no kind.
    pub shared: Shared,
    /// All namespaces.
    pub namespaces: Watched<Namespace>,
    /// The kinds that own pods, and others that are watched as metadata.
    pub owners: Owners,
    /// The pods: one informer and one runner for all controllers.
    pub pods: Pods,
    /// Informers of kinds of one controller.
    pub feeds: Vec<InformerHandle>,
    /// Those whose kind may not be installed: the others run all the same.
    pub optional: Vec<InformerHandle>,
    /// Workers of kinds of one controller.
    pub crews: Vec<WorkerGroup>,
    /// What `/debug/holds` answers, by controller.
    pub debug: DebugView,
    /// Whether a controller releases the pods whose owners are gone.
    pub gone_owners_are_asked: bool,
    provided: Vec<Arc<dyn Any + Send + Sync>>,
}

impl ControllerContext {
    /// A context in which nothing is registered yet, and what sends its Events.
    pub fn new(options: &Options, needs: &[Needs]) -> (Self, EventSender) {
        let (shared, sender) = Shared::new(options);
        let of = |pick: fn(&Needs) -> &Keep| {
            needs
                .iter()
                .fold(Keep::nothing(), |keep, needs| keep.and(pick(needs)))
        };
        let namespaces = Watched::new(
            &shared.client,
            Resource::namespaces(),
            shared.decoders(of(|needs| &needs.namespaces)),
            |builder| builder,
        );
        let kinds = needs.iter().flat_map(|needs| {
            let all = needs.owners.iter().chain(&needs.records);
            all.cloned()
        });
        let owners = Owners::new(&shared, kinds, of(|needs| &needs.keep_of_owners));
        let mut indexes = Vec::new();
        for index in needs.iter().flat_map(|needs| &needs.indexes) {
            indexes.push(*index);
        }
        let pods = Pods::new(&shared, of(|needs| &needs.pods), &indexes);
        let context = Self {
            shared,
            namespaces,
            owners,
            pods,
            feeds: Vec::new(),
            optional: Vec::new(),
            crews: Vec::new(),
            debug: DebugView::default(),
            gone_owners_are_asked: false,
            provided: Vec::new(),
        };
        (context, sender)
    }

    /// Keeps a value of a controller for those who want to look at it.
    pub fn provide<T: Send + Sync + 'static>(&mut self, value: &Arc<T>) {
        self.provided.push(Arc::clone(value) as _);
    }

    /// Everything that was provided.
    pub fn take_provided(&mut self) -> Vec<Arc<dyn Any + Send + Sync>> {
        std::mem::take(&mut self.provided)
    }
}

impl Shared {
    fn new(options: &Options) -> (Self, EventSender) {
        let client = options.client.clone();
        let executor = Executor::new(client, FIELD_MANAGER, options.bounds, options.writes)
            .within(options.leadership.clone());
        let executor = Arc::new(executor);
        let (events, sender) = events::recorder(Arc::clone(&executor));
        let shared = Self {
            client: options.client.clone(),
            namespace: options.namespace.clone(),
            executor,
            switch: HoldSwitch::new(Holding::Unknown),
            events,
            observer: Arc::clone(&options.observer),
            pace: Pace::default(),
            reads: LiveReads::default(),
            answers: Budget::default(),
            after_work: CancellationToken::new(),
            interner: Interner::default(),
        };
        (shared, sender)
    }

    /// Answers of `oracle`; `wake` is called for each who waited.
    pub fn facts<Q: Query, O: LiveReader<Q>>(&self, oracle: O, wake: Wake) -> QueryCache<Q> {
        self.facts_at(oracle, wake, self.pace)
    }

    /// The same where one thing is asked at a pace of its own.
    pub fn facts_at<Q: Query, O: LiveReader<Q>>(
        &self,
        oracle: O,
        wake: Wake,
        pace: Pace,
    ) -> QueryCache<Q> {
        let cancel = self.after_work.clone();
        let reads = self.reads.clone();
        QueryCache::within(Arc::new(oracle), wake, pace, reads, cancel, &self.answers)
    }

    /// What a runner of a kind is made of; `ours` are the finalizers that it may touch.
    pub fn runner<K: Slim>(
        &self,
        watched: &Watched<K>,
        queue: &WorkQueue<ObjectKey>,
        ours: &'static [&'static str],
    ) -> runner::Parts<K> {
        runner::Parts {
            resource: watched.resource.clone(),
            ours,
            store: watched.store.clone(),
            queue: queue.clone(),
            executor: Arc::clone(&self.executor),
            decoders: watched.decoders.clone(),
            events: self.events.clone(),
            clock: Arc::new(ambient::now),
            observer: Arc::clone(&self.observer),
            switch: self.switch.clone(),
        }
    }

    /// Decoders of a kind whose rules read the labels and annotations in `keep`.
    pub fn decoders<K: SlimJson + SlimProtobuf>(&self, keep: Keep) -> Decoders<K> {
        Decoders::protobuf_or_json(DecodeContext {
            keep,
            interner: self.interner.clone(),
        })
    }

    /// Decoders of a custom resource that is read whole: those travel as JSON only.
    pub fn json_decoders<K: SlimJson>(&self) -> Decoders<K> {
        Decoders::new(JsonDecoder::new(DecodeContext {
            keep: Keep::nothing(),
            interner: self.interner.clone(),
        }))
    }
}

/// What each controller says of its finalizers, from memory.
#[derive(Default)]
pub struct DebugView(Vec<(&'static str, Report)>);

type Report = Box<dyn Fn() -> Value + Send + Sync>;

impl DebugView {
    /// Has a controller report.
    pub fn add<C: Clone + Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        controller: &C,
        report: impl Fn(&C) -> Value + Send + Sync + 'static,
    ) {
        let controller = controller.clone();
        self.0.push((name, Box::new(move || report(&controller))));
    }

    /// What each says now, by its name.
    pub fn report(&self) -> Value {
        let each = self.0.iter();
        Value::Object(
            each.map(|(name, report)| ((*name).to_owned(), report()))
                .collect(),
        )
    }
}
