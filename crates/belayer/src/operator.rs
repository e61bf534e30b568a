//! The wiring: which informer feeds which component, what starts when, and how it all stops.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_core::events::{self, EventSender};
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::facts::{Facts, NamespaceOracle, OwnerOracle, Pace, Wake};
use belayer_core::informer::{Decoders, Event, Informer, InformerState, JsonDecoder, Store};
use belayer_core::names;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::runner::{self, Observer, Runner};
use belayer_core::slim::{DecodeContext, Interner, Keep, Namespace, OwnerMeta, Pod};
use belayer_core::workqueue::{Band, WorkQueue};
use belayer_metrics::{Known, KnownValues};
use belayer_pod_finalizer::component::{self, Parts, PodFinalizer};
use belayer_pod_finalizer::evidence;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_pod_finalizer::steward::Steward;

use crate::health::Vitals;

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
    /// What pod-finalizer does.
    pub pod_finalizer: Settings,
    /// Is told of everything that is executed.
    pub observer: Arc<dyn Observer>,
}

/// Belayer's controllers on one cluster.
pub struct Operator {
    workers: usize,
    queue: WorkQueue<ObjectKey>,
    runner: Runner<Pod>,
    finalizer: Arc<PodFinalizer>,
    steward: Steward,
    sender: EventSender,
    namespaces: (Informer<Namespace>, Store<Namespace>),
    owners: Vec<(Informer<OwnerMeta>, Store<OwnerMeta>)>,
    pods: (Informer<Pod>, Store<Pod>),
    vitals: Arc<Vitals>,
    /// Ends live looks and the telling of Events: after the workers have ended.
    after_work: CancellationToken,
}

impl Operator {
    /// Puts everything together. Nothing runs yet.
    pub fn new(options: Options) -> Self {
        let Options {
            client,
            namespace,
            bounds,
            writes,
            pod_finalizer: settings,
            observer,
        } = options;
        write_zeros(&settings);
        let executor = Arc::new(Executor::new(client.clone(), bounds, writes));
        let (recorder, sender) = events::recorder(Arc::clone(&executor));
        let queue = WorkQueue::new("pods");
        let after_work = CancellationToken::new();
        let interner = Interner::default();
        let profiles = &settings.profiles;

        let (mut namespace_informer, namespace_store) = Informer::builder(
            client.clone(),
            namespaces(),
            Decoders::new(JsonDecoder::new(context(
                component::keep_of_namespaces(),
                &interner,
            ))),
        )
        .build();
        let keep_of_owners = component::keep_of_owners(profiles);
        let mut owners: Vec<(Resource, Informer<OwnerMeta>, Store<OwnerMeta>)> = Vec::new();
        for kind in profiles.owners() {
            let decoders =
                Decoders::new(JsonDecoder::new(context(keep_of_owners.clone(), &interner)));
            let (informer, store) =
                Informer::builder(client.clone(), kind.clone(), decoders).build();
            owners.push((kind.clone(), informer, store));
        }
        let keep_of_pods = component::keep_of_pods(profiles);
        let pod_decoders = Decoders::new(JsonDecoder::<Pod>::new(context(keep_of_pods, &interner)));
        let (mut pod_informer, pod_store) = Informer::builder(client, pods(), pod_decoders.clone())
            .index(component::BY_OWNER, |pod: &Pod| {
                pod.meta
                    .controller
                    .as_ref()
                    .map(|owner| Arc::<str>::from(owner.uid.as_str()))
            })
            .index(component::BY_NAMESPACE, |pod: &Pod| {
                Some(Arc::clone(pod.meta.key.shared_namespace()))
            })
            .build();

        let wake: Wake = {
            let queue = queue.clone();
            Arc::new(move |key| queue.add(key, Band::Release))
        };
        let owner_oracle = OwnerOracle::new(
            Arc::clone(&executor),
            Decoders::new(JsonDecoder::new(context(keep_of_owners, &interner))),
        );
        let namespace_oracle = NamespaceOracle::new(
            Arc::clone(&executor),
            Decoders::new(JsonDecoder::new(context(
                component::keep_of_namespaces(),
                &interner,
            ))),
        );
        let pace = Pace::default();
        let finalizer = Arc::new(PodFinalizer::new(
            &settings,
            Parts {
                pods: pod_store.clone(),
                namespaces: namespace_store.clone(),
                owners: owners
                    .iter()
                    .map(|(kind, _, store)| (kind.clone(), store.clone()))
                    .collect(),
                owner_facts: Facts::new(
                    Arc::new(owner_oracle),
                    wake.clone(),
                    pace,
                    after_work.clone(),
                ),
                namespace_facts: Facts::new(
                    Arc::new(namespace_oracle),
                    wake,
                    pace,
                    after_work.clone(),
                ),
                queue: queue.clone(),
            },
        ));
        let runner = Runner::builder(runner::Parts {
            resource: pods(),
            ours: names::POD_HOLDS,
            store: pod_store.clone(),
            queue: queue.clone(),
            executor: Arc::clone(&executor),
            decoders: pod_decoders,
            events: recorder.clone(),
            clock: Arc::new(belayer_core::ambient::now),
            observer,
        })
        .component(Arc::clone(&finalizer))
        .build();

        // The census first, so that a decision finds the numbers that its event made.
        pod_informer.add_handler(handler(&finalizer, PodFinalizer::on_pod));
        pod_informer.add_handler(Arc::new(runner.clone()));
        namespace_informer.add_handler(handler(&finalizer, PodFinalizer::on_namespace));
        for (kind, informer, _) in &mut owners {
            let (finalizer, kind) = (Arc::clone(&finalizer), kind.clone());
            informer.add_handler(Arc::new(move |event: &Event<OwnerMeta>| {
                finalizer.on_owner(&kind, event);
            }));
        }

        let vitals = Arc::new(Vitals::new(
            queue.clone(),
            namespace_store.clone(),
            pod_store.clone(),
        ));
        let steward = Steward::new(Arc::clone(&finalizer), executor, recorder, &namespace);
        Self {
            workers: settings.workers,
            queue,
            runner,
            finalizer,
            steward,
            sender,
            namespaces: (namespace_informer, namespace_store),
            owners: owners
                .into_iter()
                .map(|(_, informer, store)| (informer, store))
                .collect(),
            pods: (pod_informer, pod_store),
            vitals,
            after_work,
        }
    }

    /// How it is doing, for the endpoints.
    pub fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    /// The component, for `/debug/holds` and for those who want to look.
    pub fn finalizer(&self) -> &Arc<PodFinalizer> {
        &self.finalizer
    }

    /// Runs until `stop` is cancelled, then takes no new work, finishes what is in flight, and
    /// returns.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.sender.run(self.after_work.clone()));
        let informers = CancellationToken::new();
        let (namespace_informer, namespace_store) = self.namespaces;
        tasks.spawn(namespace_informer.run(informers.clone()));
        let mut owner_stores = Vec::new();
        for (informer, store) in self.owners {
            tasks.spawn(informer.run(informers.clone()));
            owner_stores.push(store);
        }
        let (pod_informer, pod_store) = self.pods;
        let started = async {
            // Pods last: what is noted about a pod when it is first seen depends on the others.
            let _ = namespace_store.synced().await;
            let heard_of = owner_stores.iter().map(heard_of);
            let _ = tokio::time::timeout(OWNERS_WITHIN, futures::future::join_all(heard_of)).await;
            tasks.spawn(pod_informer.run(informers.clone()));
            let _ = pod_store.synced().await;
        };
        let synced = stop.run_until_cancelled(started).await.is_some();
        if synced {
            tracing::info!(pods = pod_store.len(), "synced; the workers start");
            self.vitals.work_has_begun();
            let workers = self.runner.work(self.workers);
            tasks.spawn(self.steward.run(stop.clone()));
            stop.cancelled().await;
            tracing::info!("stopping: no new work is taken, work in flight is finished");
            if tokio::time::timeout(STOP_WITHIN, workers.shutdown())
                .await
                .is_err()
            {
                tracing::warn!("work in flight took too long and was given up");
            }
        }
        self.queue.shutdown();
        informers.cancel();
        self.after_work.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

/// Waits until an informer has synced or has learned that its kind is not served.
async fn heard_of(store: &Store<OwnerMeta>) {
    let mut state = store.watch_state();
    let heard = |state: &InformerState| {
        matches!(
            state,
            InformerState::Synced | InformerState::NotServed | InformerState::Stopped
        )
    };
    let _ = state.wait_for(heard).await;
}

fn handler<K: 'static>(
    finalizer: &Arc<PodFinalizer>,
    on: fn(&PodFinalizer, &Event<K>),
) -> Arc<dyn belayer_core::informer::Handler<K>> {
    let finalizer = Arc::clone(finalizer);
    Arc::new(move |event: &Event<K>| on(&finalizer, event))
}

fn context(keep: Keep, interner: &Interner) -> DecodeContext {
    DecodeContext {
        keep,
        interner: interner.clone(),
    }
}

fn pods() -> Resource {
    Resource::new("", "v1", "Pod", "pods")
}

fn namespaces() -> Resource {
    Resource::new("", "v1", "Namespace", "namespaces")
}

/// A series that appears with its first event looks as if nothing had happened before.
fn write_zeros(settings: &Settings) {
    // Informers label their series by kind, such as `Pod`.
    let kinds = [pods(), namespaces()].map(|resource| resource.kind.to_string());
    let owners = settings
        .profiles
        .owners()
        .into_iter()
        .map(|resource| resource.kind.to_string());
    KnownValues::new()
        .with(Known::Controller, [component::NAME])
        .with(Known::Evidence, evidence::EVIDENCE_NAMES.iter().copied())
        .with(Known::Queue, ["pods"])
        .with(Known::Kind, kinds.into_iter().chain(owners))
        .write_zeros();
    for (question, answers) in [
        ("owner", &["present", "gone", "unknown", "error"][..]),
        ("namespace", &["present", "gone", "error"]),
    ] {
        KnownValues::new()
            .with(Known::Question, [question])
            .with(Known::Answer, answers.iter().copied())
            .write_zeros();
    }
}
