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
mod owners;
#[cfg(feature = "pod-finalizer")]
mod pod_finalizer;
mod pods;
#[cfg(feature = "pod-recreation")]
mod recreations;
#[cfg(feature = "workflow-finalizer")]
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_core::election::Tenure;
use belayer_core::events::EventSender;
use belayer_core::executor::{Bounds, Writes};
use belayer_core::index;
use belayer_core::informer::InformerBuilder;
use belayer_core::owned;
use belayer_core::runner::Observer;
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::WorkQueue;
use belayer_metrics::{Known, KnownValues};
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::component as pod_finalizer_component;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::component::PodFinalizer;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::profile::config::Settings as PodFinalizerSettings;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::profile::{Cleanup, Profile};
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::PodRecreation;
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::Settings as PodRecreationSettings;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::component::PvcProtection;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::config::Settings as PvcProtectionSettings;

#[cfg(feature = "workflow-finalizer")]
use belayer_workflow_finalizer::component as workflow_finalizer_component;
#[cfg(feature = "workflow-finalizer")]
use belayer_workflow_finalizer::config::Settings as WorkflowFinalizerSettings;

use crate::config::Source;
use crate::controllers::Controller;
use crate::drain::switched_off::SwitchedOff;
use crate::exit::Failure;
#[cfg(feature = "pod-finalizer")]
use crate::gates::Gate;
use crate::gates::Gates;
use crate::health::{Needed, Started, Vitals};
use crate::server::Holds;
use feed::{Beside, Crew, Feed};
use ground::Ground;
use owners::Owners;
use pods::Pods;

/// How long work in flight may take to finish once the process is told to stop.
pub const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How long an owner kind may take to be listed before the workers start without it. Until it is
/// there its owners are asked for live.
const OWNERS_WITHIN: Duration = Duration::from_secs(10);

/// What an operator is made of.
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
    pub tenure: Tenure,
    /// Is told of everything that is executed.
    pub observer: Arc<dyn Observer>,
    /// What each component does.
    pub components: Components,
}

/// What each component does; `None` where it is switched off.
#[derive(Debug, Clone, Default)]
pub struct Components {
    /// pod-finalizer.
    #[cfg(feature = "pod-finalizer")]
    pub pod_finalizer: Option<PodFinalizerSettings>,
    /// pod-recreation.
    #[cfg(feature = "pod-recreation")]
    pub pod_recreation: Option<PodRecreationSettings>,
    /// pvc-protection.
    #[cfg(feature = "pvc-protection")]
    pub pvc_protection: Option<PvcProtectionSettings>,
    /// workflow-finalizer.
    #[cfg(feature = "workflow-finalizer")]
    pub workflow_finalizer: Option<WorkflowFinalizerSettings>,
    /// Those that are switched off and whose holds are taken off.
    pub switched_off: Vec<SwitchedOff>,
}

impl Components {
    /// The same with claims held as a flag says, if it says anything.
    #[cfg(feature = "pvc-protection")]
    #[must_use]
    pub fn with_claims_held_by(mut self, flag: Option<belayer_pvc_protection::Mode>) -> Self {
        if let (Some(settings), Some(mode)) = (&mut self.pvc_protection, flag) {
            settings.mode = mode;
        }
        self
    }

    /// Whether they use nothing that a feature gate switches off.
    ///
    /// # Errors
    /// With the key that does.
    pub fn allowed_by(&self, gates: &Gates, source: &Source) -> Result<(), Failure> {
        #[cfg(feature = "pod-finalizer")]
        if let Some(on) = self
            .pod_finalizer
            .as_ref()
            .filter(|_| !gates.is_on(Gate::PodCleanup))
        {
            let cleans = |profile: &Arc<Profile>| profile.cleanup != Cleanup::None;
            if let Some(index) = on.profiles.iter().position(cleans) {
                let key = format!("podFinalizer.profiles[{index}].cleanup");
                let message = "needs the feature gate PodCleanup, which is switched off: remove \
                               the key, or --feature-gates=PodCleanup=true";
                return Err(Failure::configuration(source.error(key, message)));
            }
        }
        #[cfg(not(feature = "pod-finalizer"))]
        let _ = (gates, source);
        Ok(())
    }

    /// Whether a component runs.
    fn runs(&self, controller: Controller) -> bool {
        match controller {
            #[cfg(feature = "pod-finalizer")]
            Controller::PodFinalizer => self.pod_finalizer.is_some(),
            #[cfg(feature = "pod-recreation")]
            Controller::PodRecreation => self.pod_recreation.is_some(),
            #[cfg(feature = "pvc-protection")]
            Controller::PvcProtection => self.pvc_protection.is_some(),
            #[cfg(feature = "workflow-finalizer")]
            Controller::WorkflowFinalizer => self.workflow_finalizer.is_some(),
            #[allow(unreachable_patterns, reason = "a build may leave components out")]
            _ => false,
        }
    }

    /// The labels and annotations of pods that some rule reads.
    fn keep_of_pods(&self) -> Keep {
        let keep = Keep::nothing();
        #[cfg(feature = "pod-finalizer")]
        let keep = match &self.pod_finalizer {
            Some(on) => keep.and(&pod_finalizer_component::keep_of_pods(&on.profiles)),
            None => keep,
        };
        #[cfg(feature = "pod-recreation")]
        let keep = match &self.pod_recreation {
            Some(on) => keep.and(&belayer_pod_recreation::component::keep_of_pods(on)),
            None => keep,
        };
        keep
    }

    /// The indexes by which some component finds pods: an index costs some thirty bytes per pod.
    fn index_pods(&self, builder: InformerBuilder<Pod>) -> InformerBuilder<Pod> {
        #[cfg(feature = "pod-finalizer")]
        let builder = match &self.pod_finalizer {
            Some(_) => builder
                .index(index::PODS_BY_OWNER, index::owner_of_pod)
                .index(index::PODS_BY_NAMESPACE, index::namespace_of_pod),
            None => builder,
        };
        #[cfg(feature = "pvc-protection")]
        let builder = match &self.pvc_protection {
            Some(_) => builder.index(index::PODS_BY_CLAIM, index::claims_of_bound_pod),
            None => builder,
        };
        #[cfg(feature = "workflow-finalizer")]
        let builder = match &self.workflow_finalizer {
            Some(_) => builder.index(owned::HELD_BY_OWNER, owned::held_by_owner),
            None => builder,
        };
        builder
    }

    /// The labels of namespaces that some rule reads.
    fn keep_of_namespaces(&self) -> Keep {
        let keep = Keep::nothing();
        #[cfg(feature = "pod-finalizer")]
        let keep = keep.and(&pod_finalizer_component::keep_of_namespaces());
        #[cfg(feature = "pod-recreation")]
        let keep = keep.and(&belayer_pod_recreation::component::keep_of_namespaces());
        #[cfg(feature = "workflow-finalizer")]
        let keep = keep.and(&workflow_finalizer_component::keep_of_namespaces());
        keep
    }

    /// Whether some component decides by what namespaces are like. Claims do not depend on it.
    fn read_namespaces(&self) -> bool {
        [
            Controller::PodFinalizer,
            Controller::PodRecreation,
            Controller::WorkflowFinalizer,
        ]
        .into_iter()
        .any(|controller| self.runs(controller))
    }

    /// The kinds that own pods, and the labels of them that some rule reads.
    fn owners(&self) -> (Vec<belayer_core::object::Resource>, Keep) {
        let (kinds, keep) = (Vec::new(), Keep::nothing());
        #[cfg(feature = "pod-finalizer")]
        let (kinds, keep) = match &self.pod_finalizer {
            Some(on) => (
                pod_finalizer::kinds(on),
                keep.and(&pod_finalizer_component::keep_of_owners(&on.profiles)),
            ),
            None => (kinds, keep),
        };
        #[cfg(feature = "workflow-finalizer")]
        let (kinds, keep) = match &self.workflow_finalizer {
            Some(on) => {
                let mut kinds: Vec<belayer_core::object::Resource> = kinds;
                kinds.extend(on.owners.iter().map(|rule| rule.kind.clone()));
                let read = workflow_finalizer_component::keep_of_owners(on);
                (kinds, keep.and(&read))
            }
            None => (kinds, keep),
        };
        (kinds, keep)
    }
}

#[cfg(feature = "workflow-finalizer")]
impl Components {
    /// Whether somebody but workflow-finalizer asks whether the owners of pods are gone.
    fn asks_for_gone_owners(&self) -> workflows::GoneOwners {
        #[cfg(feature = "pod-finalizer")]
        if self.pod_finalizer.is_some() {
            return workflows::GoneOwners::AskedByOthers;
        }
        workflows::GoneOwners::AskedHere
    }
}

/// What a component says for `/debug/holds`.
type HoldsOf = Box<dyn Fn() -> Value + Send + Sync>;

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
    queues: Vec<WorkQueue<belayer_core::object::ObjectKey>>,
    started: Vec<Started>,
    vitals: Arc<Vitals>,
    holds: Arc<Vec<(&'static str, HoldsOf)>>,
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
        let mut holds: Vec<(&'static str, HoldsOf)> = Vec::new();

        #[cfg(feature = "pod-finalizer")]
        let finalizer = components.pod_finalizer.as_ref().map(|settings| {
            let finalizer = pod_finalizer::join(settings, &mut ground, &mut pods, &mut owners);
            holds.push(pod_finalizer::holds(&finalizer));
            finalizer
        });

        #[cfg(feature = "pod-recreation")]
        let recreations = components.pod_recreation.as_ref().map(|settings| {
            let joined = recreations::join(settings, &mut ground, &mut pods);
            holds.push(recreations::holds(&joined.0));
            joined
        });

        #[cfg(feature = "pvc-protection")]
        let claims = components.pvc_protection.as_ref().map(|settings| {
            let joined = claims::join(settings, &ground, &mut pods);
            holds.push(claims::holds(&joined.0));
            joined
        });
        // After pod-finalizer, whose word about a pod comes first.
        #[cfg(feature = "workflow-finalizer")]
        let workflows = components.workflow_finalizer.as_ref().map(|settings| {
            let others = components.asks_for_gone_owners();
            let joined = workflows::join(settings, others, &mut ground, &mut pods, &mut owners);
            holds.push(workflows::holds(&joined.kinds));
            joined
        });

        let gate = draining::join(&options, &mut ground, &mut pods);
        let after_work = ground.after_work.clone();
        let namespaces = ground.namespaces.into_feed();
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

        let mut vitals = Vitals::default();
        vitals.informer(namespaces.seen(), Needed::Yes);
        for feed in &objects {
            vitals.informer(feed.seen(), Needed::Yes);
        }
        for feed in owners.iter().chain(&optional) {
            vitals.informer(feed.seen(), Needed::No);
        }
        let started = crews
            .iter()
            .map(|crew| vitals.workers(crew.name, crew.queue.clone()))
            .collect();
        objects.append(&mut optional);
        write_zeros(
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
            holds: Arc::new(holds),
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
        let holds = Arc::clone(&self.holds);
        Arc::new(move || {
            let told = holds.iter();
            Value::Object(
                told.map(|(name, tell)| ((*name).to_owned(), tell()))
                    .collect::<Map<_, _>>(),
            )
        })
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

/// A series that appears with its first event looks as if nothing had happened before.
fn write_zeros<'a>(feeds: impl Iterator<Item = &'a Feed>, crews: &[Crew]) {
    // Informers label their series by kind, such as `Pod`.
    KnownValues::new()
        .with(Known::Kind, feeds.map(Feed::kind))
        .with(Known::Queue, crews.iter().map(|crew| crew.name))
        .write_zeros();
}
