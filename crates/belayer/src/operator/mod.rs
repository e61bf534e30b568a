//! Starts and stops the controllers, informers and workers.
//!
//! Each controller registers its rules, handlers and workers in a [`ControllerContext`]. Informers and runners are
//! shared: one per kind, however many controllers work on it.

mod draining;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_controller::context::{
    BackgroundTask, ControllerContext, InformerHandle, WorkerGroup, list_state_known, synced, zeros,
};
use belayer_core::election::Leadership;
use belayer_core::events::EventSender;
use belayer_core::informer::Store;
use belayer_core::object::ObjectKey;
use belayer_core::slim::Pod;
use belayer_core::workqueue::WorkQueue;

use crate::health::{Needed, Started, Vitals};
use crate::server::Holds;

pub use crate::controllers::Components;
pub use belayer_controller::context::{Memory, Options};

/// Longest time for work in flight after a stop.
pub const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Longest time to wait for the list of an owner kind before the workers start without it. Until it is
/// synced, owners are read live.
const OWNERS_WITHIN: Duration = Duration::from_secs(10);

/// Belayer's controllers on one cluster.
pub struct Operator {
    sender: EventSender,
    /// Follows the gate.
    gate: BackgroundTask,
    /// Informers started first. The workers wait for namespaces if a controller reads them; an owner kind may
    /// not exist.
    namespaces: InformerHandle,
    namespaces_first: bool,
    owners: Vec<InformerHandle>,
    /// Informers started once those are synced: what a controller notes when it first sees an object depends on
    /// the object's namespace and owner.
    objects: Vec<InformerHandle>,
    pods: Store<Pod>,
    worker_groups: Vec<WorkerGroup>,
    queues: Vec<WorkQueue<ObjectKey>>,
    started: Vec<Started>,
    vitals: Arc<Vitals>,
    debug: Arc<dyn Holds>,
    /// Debug views of the controllers.
    provided: Vec<Arc<dyn Any + Send + Sync>>,
    /// Stops live reads and the recording of Events, after the workers have stopped.
    after_work: CancellationToken,
    /// The workers wait for these.
    leadership: Leadership,
    turn: Option<CancellationToken>,
}

impl Operator {
    /// Builds everything. Starts no task.
    pub fn new(options: Options, components: Components) -> Self {
        let running = &components.running;
        let namespaces_first = running.iter().any(|one| one.needs().reads_namespaces);
        let (mut context, sender) = ControllerContext::new(&options, running);
        for controller in running {
            controller.join(&mut context);
        }
        let gate = draining::join(&options, &components, &mut context);
        let provided = context.take_provided();
        let ControllerContext {
            shared,
            namespaces,
            owners,
            pods,
            informers: mut informer_handles,
            mut optional,
            mut worker_groups,
            debug,
            ..
        } = context;
        let namespaces = namespaces.into_handle();
        let owners: Vec<InformerHandle> = owners.into_handles().collect();
        let pod_store = pods.watched.store.clone();
        let (handle, group) = pods.finish();
        informer_handles.insert(0, handle);
        worker_groups.insert(0, group);

        let (vitals, started) = health_of(
            [&namespaces].into_iter().chain(&informer_handles),
            owners.iter().chain(&optional),
            &worker_groups,
        );
        informer_handles.append(&mut optional);
        zeros::of_work(
            [&namespaces]
                .into_iter()
                .chain(&owners)
                .chain(&informer_handles),
            &worker_groups,
        );
        Self {
            sender,
            gate,
            namespaces,
            namespaces_first,
            owners,
            objects: informer_handles,
            pods: pod_store,
            queues: worker_groups
                .iter()
                .map(|group| group.queue.clone())
                .collect(),
            worker_groups,
            started,
            vitals: Arc::new(vitals),
            debug: Arc::new(move || debug.report()),
            provided,
            after_work: shared.after_work,
            leadership: options.leadership,
            turn: None,
        }
    }

    /// Makes the workers wait until the token is cancelled: another operator of this process works until then,
    /// while this one fills its caches.
    pub fn wait_for_turn(&mut self) -> CancellationToken {
        self.turn.get_or_insert_default().clone()
    }

    /// The pods.
    pub fn pods(&self) -> &Store<Pod> {
        &self.pods
    }

    /// Health for the endpoints.
    pub fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    /// Everything that is held, from memory, for `/debug/holds`.
    pub fn holds(&self) -> Arc<dyn Holds> {
        self.debug.clone()
    }

    /// A running controller.
    pub fn provided<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let mut all = self.provided.iter();
        all.find_map(|value| Arc::clone(value).downcast().ok())
    }

    /// Runs until `stop` is cancelled, then accepts no new work, completes the work in flight, and
    /// returns.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let informers = CancellationToken::new();
        tasks.spawn(self.sender.run(self.after_work.clone()));
        tasks.spawn((self.gate)(informers.clone()));
        let namespaces = synced(self.namespaces.state());
        let all_heard_of: Vec<_> = self
            .owners
            .iter()
            .map(|handle| list_state_known(handle.state()))
            .collect();
        tasks.spawn(self.namespaces.run(informers.clone()));
        let namespaces_and_owners = async {
            if self.namespaces_first {
                namespaces.await;
            }
            for handle in self.owners {
                tasks.spawn(handle.run(informers.clone()));
            }
            let all = futures::future::join_all(all_heard_of);
            let _ = tokio::time::timeout(OWNERS_WITHIN, all).await;
        };
        if stop
            .run_until_cancelled(namespaces_and_owners)
            .await
            .is_some()
        {
            for handle in self.objects {
                tasks.spawn(handle.run(informers.clone()));
            }
            let mut worker_groups = JoinSet::new();
            for (group, started) in self.worker_groups.into_iter().zip(self.started) {
                let (leadership, turn) = (self.leadership.clone(), self.turn.clone());
                let may_start = async move {
                    if let Some(turn) = turn {
                        turn.cancelled().await;
                    }
                    leadership.begun().await;
                };
                worker_groups.spawn(work(group, started, may_start, stop.clone()));
            }
            while worker_groups.join_next().await.is_some() {}
        }
        for queue in &self.queues {
            queue.shutdown();
        }
        informers.cancel();
        self.after_work.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

/// What the health endpoints check: required informers, optional informers, and the workers.
fn health_of<'a>(
    needed: impl Iterator<Item = &'a InformerHandle>,
    others: impl Iterator<Item = &'a InformerHandle>,
    worker_groups: &[WorkerGroup],
) -> (Vitals, Vec<Started>) {
    let mut vitals = Vitals::default();
    for handle in needed {
        vitals.informer(handle.seen(), Needed::Yes);
    }
    for handle in others {
        vitals.informer(handle.seen(), Needed::No);
    }
    let started = worker_groups
        .iter()
        .map(|group| vitals.workers(group.name, group.queue.clone()))
        .collect();
    (vitals, started)
}

/// Works on one queue until `stop` is cancelled and the work in flight is done. Only this group waits for its
/// informers.
async fn work(
    group: WorkerGroup,
    started: Started,
    may_start: impl Future<Output = ()>,
    stop: CancellationToken,
) {
    // If a kind is not served there is no work for it, and the process counts as ready.
    let all = group.needs.iter().cloned().map(list_state_known);
    let all = futures::future::join_all(all);
    if stop.run_until_cancelled(all).await.is_none() {
        return;
    }
    started.are_ready();
    let all = group.needs.into_iter().map(synced);
    let all = futures::future::join_all(all);
    if stop.run_until_cancelled(all).await.is_none() {
        return;
    }
    if stop.run_until_cancelled(may_start).await.is_none() {
        return;
    }
    tracing::info!(queue = group.name, "caches synced: starting workers");
    let workers = (group.start)();
    let mut background = JoinSet::new();
    for task in group.background {
        let task: BackgroundTask = task;
        background.spawn(task(stop.clone()));
    }
    stop.cancelled().await;
    tracing::info!(
        queue = group.name,
        "stopping: accepting no new work, completing work in flight"
    );
    // Background tasks end between two requests. What is cut off here, the next leader does.
    let end = async {
        workers.shutdown().await;
        while background.join_next().await.is_some() {}
    };
    if tokio::time::timeout(STOP_WITHIN, end).await.is_err() {
        tracing::warn!(queue = group.name, "work in flight took too long: aborted");
    }
}
