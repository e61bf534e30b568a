//! A cluster with its HTTP services, simulated controllers and faults.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::access::Authorization;
use crate::address::Actor;
use crate::clock::{Clock, Epoch, SharedRng};
use crate::cluster::Cluster;
use crate::faults::{FaultHandle, FaultPlan, Faults};
use crate::http::{Listener, SandboxService, Server};
use crate::recorder::{Recorder, Recording};
use crate::simulated::{RunningControllers, SimulatedControllers};

/// How many changes watches can go back by default.
const DEFAULT_LOG_LIMIT: usize = 100_000;
/// Start of a seeded sandbox's clock: 2026-01-01T00:00:00Z.
const SEEDED_EPOCH: i64 = 1_767_225_600;

/// An embedded API server.
///
/// Cheap to clone; every clone is the same server. It lives as long as a clone, a service or a listener of it.
///
/// The [crate's example](crate) runs a controller against one.
#[derive(Clone)]
pub struct Sandbox {
    server: Arc<Server>,
    controllers: Arc<RunningControllers>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("cluster", &self.server.cluster)
            .finish_non_exhaustive()
    }
}

/// Settings of a sandbox. The [crate's example](crate) sets the seed.
#[derive(Debug, Clone)]
pub struct SandboxBuilder {
    seed: Option<u64>,
    epoch: Option<Epoch>,
    log_limit: usize,
    recording: Recording,
    controllers: SimulatedControllers,
    authorization: Authorization,
}

impl Sandbox {
    /// A builder with the defaults: wall clock, random seed, no simulated controllers.
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder {
            seed: None,
            epoch: None,
            log_limit: DEFAULT_LOG_LIMIT,
            recording: Recording::Everything,
            controllers: SimulatedControllers::none(),
            authorization: Authorization::AllowAll,
        }
    }

    /// The cluster itself, for tests and simulated controllers.
    pub fn cluster(&self) -> &Cluster {
        &self.server.cluster
    }

    /// Fault injection.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// The simulated controllers.
    pub fn controllers(&self) -> &RunningControllers {
        &self.controllers
    }

    /// The record of all writes.
    pub fn recorder(&self) -> &Recorder {
        self.server.cluster.recorder()
    }

    /// An in-process connection for `kube::Client::new`; its requests are recorded under this name.
    pub fn service(&self, client: impl AsRef<str>) -> SandboxService {
        SandboxService::new(Arc::clone(&self.server), Some(Actor::new(client)))
    }

    /// A client in namespace `default`, whose requests are recorded under the name `client`.
    ///
    /// For another name or namespace: `kube::Client::new(sandbox.service("name"), "namespace")`.
    ///
    /// ```
    /// # use belayer_sandbox::Sandbox;
    /// use k8s_openapi::api::core::v1::Namespace;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> kube::Result<()> {
    /// let sandbox = Sandbox::default();
    /// let namespaces: kube::Api<Namespace> = kube::Api::all(sandbox.client());
    /// assert!(namespaces.get("default").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[cfg(feature = "client")]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service("client"), "default")
    }

    /// Injects the faults of a plan and runs its timeline from now on, as a task of the current
    /// tokio runtime. Returns the faults in the plan's order.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn follow(&self, plan: &FaultPlan) -> Vec<FaultHandle> {
        plan.start(self.cluster(), self.faults())
    }

    /// Listens on a loopback address; port zero picks a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        Listener::bind(Arc::clone(&self.server), addr).await
    }

    /// Listens on `127.0.0.1`, on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn listen_anywhere(&self) -> io::Result<Listener> {
        self.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox::builder().build()
    }
}

impl SandboxBuilder {
    /// Seeds all randomness, and fixes the clock's start too unless [`SandboxBuilder::epoch`] sets it, so
    /// that the same seed gives the same bytes.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the start of the wall clock.
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// How many changes watches, continue tokens and lists can go back; older versions get 410.
    pub fn log_limit(mut self, changes: usize) -> Self {
        self.log_limit = changes;
        self
    }

    /// What is recorded (default: everything).
    pub fn recording(mut self, recording: Recording) -> Self {
        self.recording = recording;
        self
    }

    /// The simulated controllers to run (default: none). They stop with the sandbox.
    pub fn controllers(mut self, controllers: SimulatedControllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Whether requests need permissions (default: everything is allowed).
    ///
    /// ```
    /// use belayer_sandbox::{Authorization, Sandbox};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sandbox = Sandbox::builder().authorization(Authorization::Rbac).build();
    /// // The manifests of the operator: its ServiceAccount, roles and bindings.
    /// sandbox.load_yaml("{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator, namespace: default}}")?;
    /// // A missing rule gives this client a 403 that names the verb and the resource.
    /// let service = sandbox.service("system:serviceaccount:default:operator");
    /// # drop(service);
    /// # Ok(())
    /// # }
    /// ```
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Builds the sandbox and starts its simulated controllers. The clock starts now.
    ///
    /// # Panics
    /// With simulated controllers, outside a tokio runtime.
    pub fn build(self) -> Sandbox {
        let seeded = Epoch::Fixed(Timestamp::from_second(SEEDED_EPOCH).unwrap_or_default());
        let default = if self.seed.is_some() {
            seeded
        } else {
            Epoch::WallClock
        };
        let seed = self.seed.unwrap_or_else(rand::random);
        let rng = SharedRng::new(seed);
        let clock = Clock::new(self.epoch.unwrap_or(default));
        let cluster = Cluster::recorded(clock, rng.clone(), self.log_limit, self.recording);
        let faults = Faults::new(rng.fork());
        let stop = CancellationToken::new();
        let controllers = Arc::new(self.controllers.start(&cluster, &stop));
        let server = Server {
            cluster,
            faults,
            authorization: self.authorization,
            _controllers: stop.drop_guard(),
        };
        Sandbox {
            server: Arc::new(server),
            controllers,
        }
    }
}
