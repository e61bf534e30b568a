//! The wiring: which informer feeds which component, what starts when, and how it all stops.
//!
//! A component is put in its place by a file of its own, whose `join` registers its rules with
//! the runner of its kind and its handlers with the informers. Informers and runners are shared:
//! one per kind, however many components look at it.
#![cfg_attr(
    not(all(
        feature = "pod-finalizer",
        feature = "pod-recreation",
        feature = "workflow-finalizer",
        feature = "pvc-protection"
    )),
    allow(
        dead_code,
        unused_imports,
        unused_mut,
        reason = "a build that leaves a component out has no use for what only that one shares"
    )
)]

#[cfg(feature = "pvc-protection")]
mod claims;
mod draining;
mod feed;
mod ground;
mod holds;
mod needs;
mod options;
mod owners;
#[cfg(feature = "pod-finalizer")]
mod pod_finalizer;
mod pods;
#[cfg(feature = "pod-recreation")]
mod recreations;
#[cfg(feature = "workflow-finalizer")]
mod workflows;
mod zeros;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_core::election::Tenure;
use belayer_core::events::EventSender;
use belayer_core::object::ObjectKey;
use belayer_core::workqueue::WorkQueue;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::component::PodFinalizer;
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::PodRecreation;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::component::PvcProtection;

use crate::health::{Needed, Started, Vitals};
use crate::server::Holds;
use feed::{Beside, Crew, Feed};
use ground::Ground;
use holds::Told;
use owners::Owners;
use pods::Pods;

pub use crate::components::Components;
pub use options::Options;

/// How long work in flight may take to finish once the process is told to stop.
pub const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How long an owner kind may take to be listed before the workers start without it. Until it is
/// there its owners are asked for live.
const OWNERS_WITHIN: Duration = Duration::from_secs(10);

/// Belayer's controllers on one cluster.
pub struct Operator {
    sender: EventSender,
    /// Follows the gate: whether holds may be added.
    gate: Beside,
    /// Started at once. Of these, namespaces are waited for where somebody reads them; a kind of
    /// owners may not exist.
    namespaces: Feed,
    namespaces_first: bool,
    owners: Vec<Feed>,
    /// Started when those are there: what is noted about an object when it is first seen depends
    /// on its namespace and its owner.
    objects: Vec<Feed>,
    crews: Vec<Crew>,
    queues: Vec<WorkQueue<ObjectKey>>,
    started: Vec<Started>,
    vitals: Arc<Vitals>,
    holds: Arc<Told>,
    #[cfg(feature = "pod-finalizer")]
    finalizer: Option<Arc<PodFinalizer>>,
    #[cfg(feature = "pvc-protection")]
    protection: Option<Arc<PvcProtection>>,
    #[cfg(feature = "pod-recreation")]
    recreation: Option<Arc<PodRecreation>>,
    /// Ends live looks and the telling of Events: after the workers have ended.
    after_work: CancellationToken,
    /// Before these the workers do not start.
    tenure: Tenure,
    turn: Option<CancellationToken>,
}

impl Operator {
    /// Puts everything together. Nothing runs yet.
    pub fn new(options: Options) -> Self {
        let components = &options.components;
        let (mut ground, sender) = Ground::new(&options, components.keep_of_namespaces());
        let (kinds, keep) = components.owners();
        let mut owners = Owners::new(&ground, kinds, keep);
        let indexes = |builder| components.index_pods(builder);
        let mut pods = Pods::new(&ground, components.keep_of_pods(), indexes);

        #[cfg(feature = "pod-finalizer")]
        let finalizer = components
            .pod_finalizer
            .as_ref()
            .map(|settings| pod_finalizer::join(settings, &mut ground, &mut pods, &mut owners));
        #[cfg(feature = "pod-recreation")]
        let recreations = components
            .pod_recreation
            .as_ref()
            .map(|settings| recreations::join(settings, &mut ground, &mut pods, &mut owners));
        #[cfg(feature = "pvc-protection")]
        let claims = components
            .pvc_protection
            .as_ref()
            .map(|settings| claims::join(settings, &mut ground, &mut pods));
        // After pod-finalizer, whose word about a pod comes first.
        #[cfg(feature = "workflow-finalizer")]
        let workflows = components.workflow_finalizer.as_ref().map(|settings| {
            let others = components.asks_for_gone_owners();
            workflows::join(settings, others, &mut ground, &mut pods, &mut owners)
        });

        let gate = draining::join(&options, &mut ground, &mut pods);
        let Ground {
            namespaces,
            told,
            after_work,
            ..
        } = ground;
        let namespaces = namespaces.into_feed();
        let owners: Vec<Feed> = owners.into_feeds().collect();
        let mut objects = Vec::new();
        let mut crews = Vec::new();
        let (feed, crew) = pods.finish();
        objects.push(feed);
        crews.push(crew);
        #[cfg(feature = "pvc-protection")]
        let protection = claims.map(|(protection, feed, crew)| {
            objects.push(feed);
            crews.push(crew);
            protection
        });
        #[cfg(feature = "workflow-finalizer")]
        crews.extend(workflows.into_iter().flat_map(|joined| joined.crews));

        // Its kind may not be installed: the others run all the same.
        let mut optional: Vec<Feed> = Vec::new();
        #[cfg(feature = "pod-recreation")]
        let recreation = recreations.map(|(recreation, feed, crew)| {
            optional.push(feed);
            crews.push(crew);
            recreation
        });

        let (vitals, started) = looked_after(
            [&namespaces].into_iter().chain(&objects),
            owners.iter().chain(&optional),
            &crews,
        );
        objects.append(&mut optional);
        zeros::of_work(
            [&namespaces].into_iter().chain(&owners).chain(&objects),
            &crews,
        );
        Self {
            sender,
            gate,
            namespaces,
            namespaces_first: components.read_namespaces(),
            owners,
            objects,
            queues: crews.iter().map(|crew| crew.queue.clone()).collect(),
            crews,
            started,
            vitals: Arc::new(vitals),
            holds: Arc::new(told),
            #[cfg(feature = "pod-finalizer")]
            finalizer,
            #[cfg(feature = "pvc-protection")]
            protection,
            #[cfg(feature = "pod-recreation")]
            recreation,
            after_work,
            tenure: options.tenure,
            turn: None,
        }
    }

    /// Has the workers wait for their turn, which begins when the token is cancelled: another
    /// operator of this process works until then, while this one fills its caches.
    pub fn wait_for_turn(&mut self) -> CancellationToken {
        self.turn.get_or_insert_default().clone()
    }

    /// How it is doing, for the endpoints.
    pub fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    /// Everything that is held, from memory, for `/debug/holds`.
    pub fn holds(&self) -> Arc<dyn Holds> {
        self.holds.clone()
    }

    /// pod-finalizer, if it is on, for those who want to look.
    #[cfg(feature = "pod-finalizer")]
    pub fn finalizer(&self) -> Option<&Arc<PodFinalizer>> {
        self.finalizer.as_ref()
    }

    /// pvc-protection, if it is on, for those who want to look.
    #[cfg(feature = "pvc-protection")]
    pub fn protection(&self) -> Option<&Arc<PvcProtection>> {
        self.protection.as_ref()
    }

    /// pod-recreation, if it is on, for those who want to look.
    #[cfg(feature = "pod-recreation")]
    pub fn recreation(&self) -> Option<&Arc<PodRecreation>> {
        self.recreation.as_ref()
    }

    /// Runs until `stop` is cancelled, then takes no new work, finishes what is in flight, and
    /// returns.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let informers = CancellationToken::new();
        tasks.spawn(self.sender.run(self.after_work.clone()));
        tasks.spawn((self.gate)(informers.clone()));
        let namespaces = feed::synced(self.namespaces.state());
        let heard_of: Vec<_> = self
            .owners
            .iter()
            .map(|feed| feed::heard_of(feed.state()))
            .collect();
        for feed in [self.namespaces].into_iter().chain(self.owners) {
            tasks.spawn(feed.run(informers.clone()));
        }
        let grounded = async {
            if self.namespaces_first {
                namespaces.await;
            }
            let all = futures::future::join_all(heard_of);
            let _ = tokio::time::timeout(OWNERS_WITHIN, all).await;
        };
        if stop.run_until_cancelled(grounded).await.is_some() {
            for feed in self.objects {
                tasks.spawn(feed.run(informers.clone()));
            }
            let mut crews = JoinSet::new();
            for (crew, started) in self.crews.into_iter().zip(self.started) {
                let (tenure, turn) = (self.tenure.clone(), self.turn.clone());
                let may_start = async move {
                    if let Some(turn) = turn {
                        turn.cancelled().await;
                    }
                    tenure.begun().await;
                };
                crews.spawn(work(crew, started, may_start, stop.clone()));
            }
            while crews.join_next().await.is_some() {}
        }
        for queue in &self.queues {
            queue.shutdown();
        }
        informers.cancel();
        self.after_work.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

/// What the endpoints look at: informers without which there is no work, others, and the workers.
fn looked_after<'a>(
    needed: impl Iterator<Item = &'a Feed>,
    others: impl Iterator<Item = &'a Feed>,
    crews: &[Crew],
) -> (Vitals, Vec<Started>) {
    let mut vitals = Vitals::default();
    for feed in needed {
        vitals.informer(feed.seen(), Needed::Yes);
    }
    for feed in others {
        vitals.informer(feed.seen(), Needed::No);
    }
    let started = crews
        .iter()
        .map(|crew| vitals.workers(crew.name, crew.queue.clone()))
        .collect();
    (vitals, started)
}

/// Works on one queue until `stop` is cancelled and the work in flight is done. A crew that lacks
/// an informer waits for it; the others work.
async fn work(
    crew: Crew,
    started: Started,
    may_start: impl Future<Output = ()>,
    stop: CancellationToken,
) {
    // Where a kind is not served there is nothing to do before it is, and nothing to be ready for.
    let heard_of = crew.needs.iter().cloned().map(feed::heard_of);
    let heard_of = futures::future::join_all(heard_of);
    if stop.run_until_cancelled(heard_of).await.is_none() {
        return;
    }
    started.are_ready();
    let needs = crew.needs.into_iter().map(feed::synced);
    let synced = futures::future::join_all(needs);
    if stop.run_until_cancelled(synced).await.is_none() {
        return;
    }
    if stop.run_until_cancelled(may_start).await.is_none() {
        return;
    }
    tracing::info!(queue = crew.name, "synced; the workers start");
    started.tell();
    let workers = (crew.start)();
    let mut beside = JoinSet::new();
    for task in crew.beside {
        let task: Beside = task;
        beside.spawn(task(stop.clone()));
    }
    stop.cancelled().await;
    tracing::info!(
        queue = crew.name,
        "stopping: no new work is taken, work in flight is finished"
    );
    let ended = tokio::time::timeout(STOP_WITHIN, workers.shutdown()).await;
    if ended.is_err() {
        tracing::warn!(
            queue = crew.name,
            "work in flight took too long and was given up"
        );
    }
    while beside.join_next().await.is_some() {}
}
