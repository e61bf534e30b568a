//! A replica of Belayer with leader election, which can be killed at any time.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::{Components, Operator, Options};
use belayer_checker::BELAYER;
use belayer_core::client;
use belayer_core::election::{Elector, Settings, Timing, identity};
use belayer_core::executor::{Bounds, Writes};
use belayer_core::object::ObjectKey;
use belayer_demo::setup;
use belayer_holds::names;
use belayer_holds::runner::Observer;
use belayer_sandbox::Sandbox;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long after its end the kubelet starts it again.
const RESTART: Duration = Duration::from_secs(2);

/// The actor name of requests for the Lease, which are not subject to the rules about writes.
pub(crate) const ELECTION: &str = "belayer-election";

/// Name of the Lease.
const LEASE: &str = "belayer";

/// Which controllers run, by bits: pod-finalizer, workflow-finalizer, pvc-protection, pod-recreation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Controllers(u8);

impl Controllers {
    /// All of them.
    pub(crate) const ALL: Self = Self(0b1111);

    /// Some of them.
    pub(crate) fn some(choice: u64) -> Self {
        Self((choice % 16) as u8)
    }

    fn components(self) -> Components {
        let mut components = setup::components(1);
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
    name: String,
    sandbox: Sandbox,
    observer: Arc<dyn Observer>,
    controllers: Controllers,
    process: Option<Process>,
}

struct Process {
    /// Ends it as SIGTERM does.
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    /// A replica that does not run yet.
    pub(crate) fn new(number: usize, sandbox: Sandbox, observer: Arc<dyn Observer>) -> Self {
        Self {
            name: format!("belayer-{number}"),
            sandbox,
            observer,
            controllers: Controllers::ALL,
            process: None,
        }
    }

    /// Starts it; it is started again whenever it loses an election.
    pub(crate) fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        let (name, sandbox) = (self.name.clone(), self.sandbox.clone());
        let (observer, stopped) = (Arc::clone(&self.observer), stop.clone());
        let controllers = self.controllers;
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                let components = controllers.components();
                live(&name, &sandbox, components, Arc::clone(&observer), &stopped).await;
                let _ = stopped
                    .run_until_cancelled(tokio::time::sleep(RESTART))
                    .await;
            }
        });
        self.process = Some(Process { stop, task });
    }

    /// Restarts it with these controllers, if it runs; else it starts with them later.
    pub(crate) async fn configure(&mut self, controllers: Controllers) {
        self.controllers = controllers;
        if self.process.is_some() {
            self.stop().await;
            self.start();
        }
    }

    /// Kills it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.task.abort();
        }
    }

    /// Stops it gracefully: it completes what it has begun and gives the Lease back.
    pub(crate) async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop.cancel();
            let _ = process.task.await;
        }
    }
}

/// One process, from its start to its end.
async fn live(
    name: &str,
    sandbox: &Sandbox,
    components: Components,
    observer: Arc<dyn Observer>,
    stop: &CancellationToken,
) {
    let client = |actor: &str| client::in_process(sandbox.service(actor), names::USER_AGENT);
    let settings = Settings {
        lease: ObjectKey::new(names::DEFAULT_NAMESPACE, LEASE),
        identity: identity(name),
        timing: Timing::default(),
        field_manager: names::FIELD_MANAGER,
    };
    let (elector, leadership) = Elector::new(client(ELECTION), settings);
    let resign = CancellationToken::new();
    let options = Options {
        client: client(BELAYER),
        watches: client(BELAYER),
        namespace: names::DEFAULT_NAMESPACE.to_owned(),
        bounds: Bounds::default(),
        writes: Writes::Sent,
        leadership,
        lease: None,
        observer,
    };
    let work = Operator::new(options, components).run(stop.clone());
    let election = elector.run(resign.clone());
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
