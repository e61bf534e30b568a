//! The node agent: two informers, one handle that feeds their objects into lifecycles, and the lifecycles.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{Decoders, Event, Informer, InformerState, JsonDecoder, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Interner, Keep, Pod};
use belayer_core::workqueue::{Priority, WorkQueue, Workers};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::names::WIPE_ANNOTATION;
use belayer_lifecycles::{Lifecycles, Options as LifecycleOptions};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::command::CommandError;
use crate::config::Settings;
use crate::feed::InformerHandle;
use crate::host::HostError;
use crate::record::{self, Record};
use crate::requests::Api;
use crate::wipe::{RootError, Wiper};
use crate::work::PodWork;
use crate::world::{BY_POD, BY_UID, World};

/// Name of the agent in metrics and logs.
pub const NAME: &str = "node-agent";

/// Interval at which lifecycles are compared with the stores.
const RECONCILE: Duration = Duration::from_secs(5);

/// Parts that an agent is built from.
pub struct Options {
    /// Client for the API server.
    pub client: Client,
    /// Name of the agent's node.
    pub node: String,
    /// Checked configuration.
    pub settings: Settings,
    /// Limits on API requests.
    pub bounds: Bounds,
}

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A root directory cannot be used.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Cgroups or processes of the node cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A configured program cannot be run.
    #[error("{name}: {error}")]
    Command {
        /// Name of the command.
        name: String,
        /// Reason.
        error: CommandError,
    },
}

/// The node agent of one node.
pub struct Agent {
    world: Arc<World>,
    work: PodWork,
    queue: WorkQueue<ObjectKey>,
    pods: Informer<Pod>,
    records: Informer<Record>,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("node", &self.world.node)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Builds an agent. Starts no task.
    ///
    /// # Errors
    ///
    /// If a root or a program of the settings cannot be used on this node.
    pub fn new(options: Options) -> Result<Self, StartError> {
        let Options {
            client,
            node,
            settings,
            bounds,
        } = options;
        for command in settings.handlers.iter().chain(&settings.hooks) {
            command.check().map_err(|error| StartError::Command {
                name: command.name.clone(),
                error,
            })?;
        }
        settings.host.check()?;
        let wiper = Arc::new(Wiper::new(settings.layout)?);
        let queue: WorkQueue<ObjectKey> = WorkQueue::new(NAME);
        let context = |keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let of_pods = context(Keep::nothing().annotations([WIPE_ANNOTATION]));
        let pod_decoders = Decoders::protobuf_or_json(of_pods);
        let wake = queue.clone();
        let (pods, pod_store) =
            Informer::builder(client.clone(), Resource::pods(), pod_decoders.clone())
                .fields(format!("spec.nodeName={node}"))
                .index(BY_UID, |pod: &Pod, show| show(pod.meta.uid.as_str()))
                .handler(Arc::new(move |event: &Event<Pod>| {
                    enqueue_pod(event, &wake);
                }))
                .build();
        let wake = queue.clone();
        let (records, record_store) = Informer::builder(
            client.clone(),
            record::resource(),
            Decoders::new(JsonDecoder::new(context(Keep::nothing()))),
        )
        .fields(format!("status.nodeName={node}"))
        .index(BY_POD, |record: &Record, show| {
            show(&record.pod().to_string());
        })
        .handler(Arc::new(move |event: &Event<Record>| {
            enqueue_record(event, &wake);
        }))
        .build();
        let world = Arc::new(World::new(node.clone(), pod_store, record_store));
        let executor = Executor::new(client, FIELD_MANAGER, bounds, Writes::Sent);
        let work = PodWork {
            world: Arc::clone(&world),
            api: Api::new(executor, pod_decoders, node),
            wiper,
            host: settings.host,
            handlers: settings.handlers,
            hooks: settings.hooks,
            permits: Semaphore::new(settings.workers),
            hanging: Mutex::default(),
            queue: queue.clone(),
        };
        Ok(Self {
            world,
            work,
            queue,
            pods,
            records,
        })
    }

    /// The pods of the agent's node.
    pub fn pods(&self) -> &Store<Pod> {
        &self.world.pods
    }

    /// The records of pods that this node rejected.
    pub fn records(&self) -> &Store<Record> {
        &self.world.records
    }

    /// The queue of pod names to process.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Runs until `stop` is cancelled. Every step is idempotent: the next start completes what this run did not.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            world,
            work,
            queue,
            pods,
            records,
        } = self;
        let watching = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(pods.run(watching.clone()));
        tasks.spawn(records.run(watching.clone()));
        if stop
            .run_until_cancelled(wait_for_lists(&world))
            .await
            .is_none()
        {
            watching.cancel();
            while tasks.join_next().await.is_some() {}
            return;
        }
        let lifecycles = Lifecycles::new(work, LifecycleOptions::new(NAME).without_resync());
        let feed = Arc::new(InformerHandle::new(world, lifecycles.clone()));
        let handle = Arc::clone(&feed);
        // A single worker: lifecycles need the updates of a pod name in order.
        let workers = Workers::spawn(1, queue, move |key: ObjectKey| {
            let outcome = handle.process(&key);
            async move { outcome }
        });
        let mut ticks = tokio::time::interval(RECONCILE);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            feed.reconcile();
        }
        workers.shutdown().await;
        lifecycles.shutdown().await;
        watching.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

/// Waits for the first list of both informers. The API server may not serve the record kind.
async fn wait_for_lists(world: &World) {
    let mut pods = world.pods.watch_state();
    let _ = pods
        .wait_for(|state| matches!(state, InformerState::Synced | InformerState::Stopped))
        .await;
    let mut records = world.records.watch_state();
    let _ = records
        .wait_for(|state| {
            matches!(
                state,
                InformerState::Synced | InformerState::NotServed | InformerState::Stopped
            )
        })
        .await;
}

fn enqueue_pod(event: &Event<Pod>, queue: &WorkQueue<ObjectKey>) {
    let pod = match event {
        Event::Added { object, .. } => object,
        Event::Updated { new, .. } => new,
        Event::Deleted { last, .. } => last,
        _ => return,
    };
    queue.add(pod.meta.key.clone(), Priority::Normal);
}

fn enqueue_record(event: &Event<Record>, queue: &WorkQueue<ObjectKey>) {
    let record = match event {
        Event::Added { object, .. } => object,
        Event::Updated { new, .. } => new,
        Event::Deleted { last, .. } => last,
        _ => return,
    };
    queue.add(record.pod(), Priority::Normal);
}
