//! The node agent: its informers, what turns their objects into updates of lifecycles, and the lifecycles.
//!
//! ```no_run
//! use belayer_node_agent::agent::{Agent, Options};
//!
//! # fn start(options: Options) -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::new(options)?;
//! println!("{} wipes are known", agent.wipes().len());
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{
    Decoders, Event, Informer, InformerState, JsonDecoder, Store, Stored,
};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::{Priority, WorkQueue, Workers};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::names::WIPE_ANNOTATION;
use belayer_holds::node_wipe::{self, NodeWipe};
use belayer_lifecycles::{Lifecycles, Options as LifecycleOptions};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::command::CommandError;
use crate::config::Settings;
use crate::host::HostError;
use crate::lifecycle_updates::LifecycleUpdater;
use crate::requests::Api;
use crate::wipe::{RootError, Wiper};
use crate::work::{PodWork, REMOVAL};
use crate::world::World;

/// Name of the agent in metrics and logs.
pub const NAME: &str = "node-agent";

/// Interval at which lifecycles are compared with the stores.
const RECONCILE: Duration = Duration::from_secs(5);

/// Parts that an agent is built from. The [module's example](self) makes an agent.
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

/// Why an agent cannot start. The [module's example](self) makes an agent.
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

/// The node agent of one node. The [module's example](self) makes an agent.
pub struct Agent {
    world: Arc<World>,
    work: PodWork,
    queue: WorkQueue<ObjectKey>,
    pods: Option<Informer<Pod>>,
    wipes: Informer<NodeWipe>,
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
        let of_pods = Keep::nothing().annotations([WIPE_ANNOTATION]);
        let pod_decoders = Decoders::protobuf_or_json(of_pods.into());
        // Pods are read only to run handlers for them.
        let watched = (!settings.handlers.is_empty()).then(|| {
            let enqueue = queue.clone();
            Informer::builder(client.clone(), Resource::pods(), pod_decoders.clone())
                .fields(format!("spec.nodeName={node}"))
                .handler(Arc::new(move |event: &Event<Pod>| {
                    enqueue_pod(event, &enqueue);
                }))
                .build()
        });
        let (pods, pod_store) = watched.unzip();
        let enqueue = queue.clone();
        let (wipes, wipe_store) = Informer::builder(
            client.clone(),
            node_wipe::resource(),
            Decoders::new(JsonDecoder::new(Keep::nothing().into())),
        )
        .fields(format!("metadata.name={node}"))
        .handler(Arc::new(move |event: &Event<NodeWipe>| {
            publish_pending(event);
            enqueue_wipes(event, &enqueue);
        }))
        .build();
        let world = Arc::new(World::new(node.clone(), pod_store, wipe_store));
        let executor = Executor::new(client, FIELD_MANAGER, bounds, Writes::Sent);
        let work = PodWork {
            world: Arc::clone(&world),
            api: Api::new(executor, pod_decoders, &node),
            wiper,
            host: settings.host,
            handlers: settings.handlers,
            hooks: settings.hooks,
            removal: REMOVAL,
            permits: Semaphore::new(settings.workers),
            hanging: Mutex::default(),
            queue: queue.clone(),
        };
        Ok(Self {
            world,
            work,
            queue,
            pods,
            wipes,
        })
    }

    /// The pods of the agent's node; `None` without handlers.
    pub fn pods(&self) -> Option<&Store<Pod>> {
        self.world.pods.as_ref()
    }

    /// The list of wipes of the agent's node.
    pub fn wipes(&self) -> &Store<NodeWipe> {
        &self.world.wipes
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
            wipes,
        } = self;
        let watching = CancellationToken::new();
        let mut tasks = JoinSet::new();
        if let Some(pods) = pods {
            tasks.spawn(pods.run(watching.clone()));
        }
        tasks.spawn(wipes.run(watching.clone()));
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
        let updater = Arc::new(LifecycleUpdater::new(world, lifecycles.clone()));
        let handle = Arc::clone(&updater);
        // A single worker: lifecycles need the updates of a pod name in order.
        let workers = Workers::spawn(1, queue, move |key: ObjectKey| {
            let outcome = handle.process(&key);
            async move { outcome }
        });
        let mut ticks = tokio::time::interval(RECONCILE);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            updater.reconcile();
        }
        workers.shutdown().await;
        lifecycles.shutdown().await;
        watching.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

/// Waits for the first list of each informer. The API server may not serve the list's kind.
async fn wait_for_lists(world: &World) {
    if let Some(pods) = &world.pods {
        let mut pods = pods.watch_state();
        let _ = pods
            .wait_for(|state| matches!(state, InformerState::Synced | InformerState::Stopped))
            .await;
    }
    let mut wipes = world.wipes.watch_state();
    let _ = wipes
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

/// Enqueues the pods whose entry has changed.
fn enqueue_wipes(event: &Event<NodeWipe>, queue: &WorkQueue<ObjectKey>) {
    let (old, new) = match event {
        Event::Added { object, .. } => (None, Some(object)),
        Event::Updated { old, new } => (Some(old), Some(new)),
        Event::Deleted { last, .. } => (Some(last), None),
        _ => return,
    };
    for (uid, wipe) in old.into_iter().chain(new).flat_map(|list| &list.wipes) {
        let of =
            |list: Option<&Stored<NodeWipe>>| list.and_then(|list| list.wipes.get(uid)).cloned();
        if of(old) != of(new) {
            queue.add(wipe.pod.clone(), Priority::Normal);
        }
    }
}

/// The number of wipes that are requested and not complete, from the list itself: it is right after a restart (rule
/// T6).
fn publish_pending(event: &Event<NodeWipe>) {
    let pending = match event {
        Event::Added { object, .. } | Event::Updated { new: object, .. } => {
            object.wipes.values().filter(|wipe| !wipe.is_done()).count()
        }
        Event::Deleted { .. } => 0,
        _ => return,
    };
    let pending = u32::try_from(pending).unwrap_or(u32::MAX);
    metrics::gauge!(belayer_metrics::WIPES_PENDING).set(f64::from(pending));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::command::{Command, Pod};
    use crate::host::Host;
    use crate::layout::Layout;
    use crate::uid::PodUid;

    /// Hooks that end within their time limits do not take the time of each other and of the removal.
    #[tokio::test]
    async fn hooks_have_time_limits_besides_that_of_the_removal() {
        let uid = PodUid::parse("0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9").unwrap();
        let node = tempfile::tempdir().unwrap();
        for tree in ["proc", "sys/fs/cgroup"] {
            fs::create_dir_all(node.path().join(tree)).unwrap();
        }
        let root = node.path().join("workspaces");
        let directory = root.join(uid.as_str());
        fs::create_dir_all(&directory).unwrap();
        let sleep = ["/bin/sh", "-c", "sleep 0.8"].map(str::to_owned).to_vec();
        let hook = || Command::new("hook", sleep.clone(), 5).unwrap();
        let server = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let mut agent = Agent::new(Options {
            client: Client::try_from(server).unwrap(),
            node: "node-1".to_owned(),
            settings: Settings {
                layout: Layout::new([root.to_str().unwrap()], [""; 0]).unwrap(),
                host: Host::at(node.path()),
                workers: 1,
                handlers: Vec::new(),
                hooks: vec![hook(), hook()],
            },
            bounds: Bounds::default(),
        })
        .unwrap();
        agent.work.removal = Duration::from_secs(1);
        let pod = Pod {
            key: ObjectKey::new("shop", "web"),
            uid,
        };
        let removed = agent.work.try_once(&pod, &CancellationToken::new()).await;
        assert_eq!(removed.unwrap(), 1);
        assert!(!directory.exists());
    }
}
