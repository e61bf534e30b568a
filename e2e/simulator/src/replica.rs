//! A replica of Belayer with leader election, which can be killed at any time.

use std::sync::Arc;
use std::time::Duration;

use belayer::health::Vitals;
use belayer::operator::{Components, Memory, Operator, Options};
use belayer::reload::warm;
use belayer_checker::BELAYER;
use belayer_core::client;
use belayer_core::election::{Elector, Leadership, Settings, Timing, identity};
use belayer_core::executor::{Bounds, Writes};
use belayer_core::informer::Store;
use belayer_core::object::ObjectKey;
use belayer_core::slim::Pod;
use belayer_demo::setup::{self, Tuning};
use belayer_holds::names;
use belayer_holds::runner::Observer;
use belayer_sandbox::Sandbox;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long after its end the kubelet starts it again.
const RESTART: Duration = Duration::from_secs(2);

/// How long two processes of one replica run beside each other.
const SURGE: Duration = Duration::from_secs(5);

/// How long a leader election gets no CPU time: longer than a Lease is valid.
const FREEZE: Duration = Duration::from_secs(25);

/// The actor name of requests for the Lease, which are not subject to the rules about writes.
pub(crate) const ELECTION: &str = "belayer-election";

/// The actor name of one replica.
pub(crate) fn instance(program: &str, replica: usize) -> String {
    format!("{program}/{replica}")
}

/// Name of the Lease.
const LEASE: &str = "belayer";

/// Which controllers run, by bits: pod-finalizer, workflow-finalizer, pvc-protection, pod-recreation. The fifth bit: pod-finalizer
/// only observes. The sixth: pvc-protection only advises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Controllers(u8);

impl Controllers {
    /// All of them.
    pub(crate) const ALL: Self = Self(0b1111);

    /// A choice of [`Self::some`]: all of them, and pvc-protection only advises.
    pub(crate) const ADVISES: u64 = 0b10_1111;

    /// Some of them, as the first `bits` of the choice say.
    pub(crate) fn some(choice: u64, bits: u32) -> Self {
        Self((choice % (1 << bits)) as u8)
    }

    fn components(self, tuning: Tuning) -> Components {
        let mut components = setup::components(Tuning {
            observes: self.0 & 16 != 0,
            advises: self.0 & 32 != 0,
            ..tuning
        });
        let mut number = 0;
        components.running.retain(|_| {
            number += 1;
            self.0 & (1 << (number - 1)) != 0
        });
        components
    }
}

/// A replica. While it is down, nothing of it runs.
pub(crate) struct Replica {
    setup: Setup,
    /// The controllers; changes reach a running process.
    controllers: watch::Sender<Controllers>,
    /// Until when its leader election gets no CPU time.
    frozen: watch::Sender<Instant>,
    process: Option<Process>,
}

/// What every process of a replica is started with.
#[derive(Clone)]
pub(crate) struct Setup {
    /// From 1 on.
    pub(crate) number: usize,
    pub(crate) sandbox: Sandbox,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tuning: Tuning,
    /// The durations of the election.
    pub(crate) timing: Timing,
    /// Whether it is the only replica, and has no leader election.
    pub(crate) is_alone: bool,
}

struct Process {
    /// Ends it as SIGTERM does.
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Process {
    /// It completes what it has begun and releases the Lease.
    async fn end(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

impl Replica {
    /// A replica that does not run yet.
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            setup,
            controllers: watch::Sender::new(Controllers::ALL),
            frozen: watch::Sender::new(Instant::now()),
            process: None,
        }
    }

    /// Starts it; it is started again whenever it loses an election.
    pub(crate) fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        let (setup, stopped) = (self.setup.clone(), stop.clone());
        let controllers = self.controllers.subscribe();
        let frozen = self.frozen.subscribe();
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                live(&setup, controllers.clone(), frozen.clone(), &stopped).await;
                let _ = stopped
                    .run_until_cancelled(tokio::time::sleep(RESTART))
                    .await;
            }
        });
        self.process = Some(Process { stop, task });
    }

    /// Whether it has these controllers, or starts with them.
    pub(crate) fn has(&self, controllers: Controllers) -> bool {
        *self.controllers.borrow() == controllers
    }

    /// Restarts it with these controllers, if it runs; else it starts with them later.
    pub(crate) async fn configure(&mut self, controllers: Controllers) {
        let runs = self.process.is_some();
        self.stop().await;
        self.controllers.send_replace(controllers);
        if runs {
            self.start();
        }
    }

    /// Changes its controllers while it runs.
    pub(crate) fn reload(&mut self, controllers: Controllers) {
        self.controllers.send_replace(controllers);
    }

    /// Starts another process, and stops this one once that has had time to fill its caches. Without an election this one
    /// ends first.
    pub(crate) async fn upgrade(&mut self) {
        if self.setup.is_alone {
            let same = *self.controllers.borrow();
            return self.configure(same).await;
        }
        if let Some(old) = self.process.take() {
            self.start();
            tokio::time::sleep(SURGE).await;
            old.end().await;
        }
    }

    /// Gives its leader election no CPU time for [`FREEZE`].
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(Instant::now() + FREEZE);
    }

    /// Kills it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.task.abort();
        }
    }

    /// Stops it gracefully: it completes what it has begun and releases the Lease.
    pub(crate) async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end().await;
        }
    }
}

/// One process, from its start to its end.
async fn live(
    setup: &Setup,
    controllers: watch::Receiver<Controllers>,
    frozen: watch::Receiver<Instant>,
    stop: &CancellationToken,
) {
    let client = |program: &str| {
        let actor = instance(program, setup.number);
        client::in_process(setup.sandbox.service(actor), names::USER_AGENT)
    };
    let memory = Memory::default();
    let options = |leadership: &Leadership| Options {
        client: client(BELAYER),
        watches: client(BELAYER),
        namespace: names::DEFAULT_NAMESPACE.to_owned(),
        bounds: Bounds::default(),
        writes: Writes::Sent,
        leadership: leadership.clone(),
        lease: None,
        memory: memory.clone(),
        observer: Arc::clone(&setup.observer),
    };
    if setup.is_alone {
        let options = || options(&Leadership::unlimited());
        return supervise(options, setup.tuning, controllers, stop).await;
    }
    let settings = Settings {
        lease: ObjectKey::new(names::DEFAULT_NAMESPACE, LEASE),
        identity: identity(&format!("belayer-{}", setup.number)),
        timing: setup.timing,
        field_manager: names::FIELD_MANAGER,
    };
    let (elector, leadership) = Elector::new(client(ELECTION), settings);
    let resign = CancellationToken::new();
    let options = || options(&leadership);
    let work = supervise(options, setup.tuning, controllers, stop);
    let election = unless_frozen(elector.run(resign.clone()), frozen);
    tokio::pin!(work, election);
    tokio::select! {
        // The election is lost: the process ends with all its tasks.
        _ = &mut election => {}
        () = &mut work => {
            resign.cancel();
            election.await;
        }
    }
}

/// Runs a task, except until these times.
async fn unless_frozen<T>(
    task: impl Future<Output = T>,
    mut frozen: watch::Receiver<Instant>,
) -> T {
    tokio::pin!(task);
    loop {
        let until = *frozen.borrow_and_update();
        tokio::time::sleep_until(until).await;
        tokio::select! {
            biased;
            Ok(()) = frozen.changed() => {}
            output = &mut task => return output,
        }
    }
}

/// Runs one set of controllers after the other, as `belayer run` does when its configuration changes.
async fn supervise(
    options: impl Fn() -> Options,
    tuning: Tuning,
    mut controllers: watch::Receiver<Controllers>,
    stop: &CancellationToken,
) {
    let mut tasks = JoinSet::new();
    let first = controllers.borrow_and_update().components(tuning);
    let mut current = Worker::start(Operator::new(options(), first), &mut tasks);
    while let Some(Ok(())) = stop.run_until_cancelled(controllers.changed()).await {
        let next = controllers.borrow_and_update().components(tuning);
        let mut operator = Operator::new(options(), next);
        let turn = operator.wait_for_turn();
        operator.pods().take_over(&current.pods);
        let next = Worker::start(operator, &mut tasks);
        let warm = warm(&*next.vitals, &*current.vitals);
        if stop.run_until_cancelled(warm).await.is_none() {
            next.stop.cancel();
            break;
        }
        current.stop.cancel();
        current.ended.cancelled().await;
        current = next;
        turn.cancel();
    }
    stop.cancelled().await;
    current.stop.cancel();
    while tasks.join_next().await.is_some() {}
}

/// A running set of controllers.
struct Worker {
    stop: CancellationToken,
    ended: CancellationToken,
    pods: Store<Pod>,
    vitals: Arc<Vitals>,
}

impl Worker {
    fn start(operator: Operator, tasks: &mut JoinSet<()>) -> Self {
        let worker = Self {
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            pods: operator.pods().clone(),
            vitals: Arc::clone(operator.vitals()),
        };
        let (stop, ended) = (worker.stop.clone(), worker.ended.clone());
        tasks.spawn(async move {
            operator.run(stop).await;
            ended.cancel();
        });
        worker
    }
}
