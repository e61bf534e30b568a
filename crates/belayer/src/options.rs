//! What `run` is to do: arguments and configuration, read and checked.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::components::Components;
use crate::config::Source;
use crate::controllers::{Controller, Controllers, ControllersError};
use crate::drain::OnDisable;
use crate::drain::switched_off::SwitchedOff;
use crate::election::Election;
use crate::exit::Failure;
use crate::gates::{Gates, GatesError};
use crate::kubeconfig::Sources;
use crate::run::arguments::RunArguments;
use crate::server::BindAddress;

/// What `belayer run` is to do.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The cluster, and who we are there.
    pub cluster: kube::Config,
    /// What is to be done there.
    pub settings: Settings,
    /// The arguments, for when the file is read again.
    pub arguments: RunArguments,
    /// The configuration file.
    pub source: Source,
}

/// Everything that arguments and configuration say about what is to be done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Belayer's own namespace.
    pub namespace: String,
    /// The controllers that run.
    pub controllers: Controllers,
    /// Whether anything is sent that changes the cluster.
    pub dry_run: bool,
    /// What is switched on that is not stable.
    pub gates: Gates,
    /// The leader election, if there is one.
    pub election: Option<Election>,
    /// Bounds of requests.
    pub limits: Limits,
    /// Where metrics and health are served.
    pub metrics_bind_address: BindAddress,
    /// Where `/debug/holds` is served.
    pub debug_bind_address: BindAddress,
    /// What those that run do.
    pub components: Components,
}

/// How much may be asked of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second, releases apart.
    pub qps: u32,
    /// Requests that may go at once after a pause, releases apart.
    pub burst: u32,
    /// Releases under way at once.
    pub concurrent_releases: usize,
}

/// Where metrics and health are served, unless told otherwise.
const METRICS: BindAddress = BindAddress::Every(8080);

/// Where `/debug/holds` is served, unless told otherwise.
const DEBUG: BindAddress =
    BindAddress::One(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8081)));

impl RunOptions {
    /// Reads what the arguments name, and checks all of it before anything is touched.
    ///
    /// # Errors
    /// Wrong usage or configuration, as one line that says what to change.
    pub async fn resolve(
        arguments: RunArguments,
        source: Source,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let settings = Settings::resolve(&arguments, &source, sources)?;
        let cluster = arguments.cluster.find(sources).await?;
        Ok(Self {
            cluster,
            settings,
            arguments,
            source,
        })
    }
}

impl Settings {
    /// What arguments and file say together: a flag counts more than its variable, and that more
    /// than the file.
    ///
    /// # Errors
    /// Wrong usage or configuration, as one line that says what to change.
    pub fn resolve(
        arguments: &RunArguments,
        source: &Source,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let namespace = arguments.own.name(sources)?;
        let controllers = controllers(arguments, source)?;
        let gates = gates(arguments, source)?;
        #[allow(
            unused_variables,
            reason = "a build without components has nothing to take over"
        )]
        let workers = arguments.workers.map(to_usize);
        let components =
            Components::of(source, &controllers, workers).map_err(Failure::configuration)?;
        #[cfg(feature = "pvc-protection")]
        let components = components.with_claims_held_by(arguments.pvc_protection_finalizer);
        let mut components = components;
        if arguments.on_disable == OnDisable::Drain {
            components.switched_off =
                SwitchedOff::all(source, &components).map_err(Failure::configuration)?;
        }
        components.allowed_by(&gates, source)?;
        let [metrics, debug] = source.endpoints().map_err(Failure::configuration)?;
        let dry_run = arguments.dry_run || source.config.dry_run.unwrap_or(false);
        let election = Election::resolve(&arguments.election, source, &namespace)?;
        let endpoint = |flag: &Option<BindAddress>, file: Option<BindAddress>, default| {
            flag.clone().or(file).unwrap_or(default)
        };
        Ok(Self {
            namespace,
            controllers,
            dry_run,
            gates,
            // A Lease is a write as well.
            election: election.filter(|_| !dry_run),
            limits: limits(arguments, source)?,
            metrics_bind_address: endpoint(&arguments.metrics_bind_address, metrics, METRICS),
            debug_bind_address: endpoint(&arguments.debug_bind_address, debug, DEBUG),
            components,
        })
    }
}

fn limits(arguments: &RunArguments, source: &Source) -> Result<Limits, Failure> {
    let file = source.limits().map_err(Failure::configuration)?;
    let concurrent = arguments.concurrent_releases.or(file.concurrent_releases);
    Ok(Limits {
        qps: arguments.kube_api_qps.or(file.qps).unwrap_or(100),
        burst: arguments.kube_api_burst.or(file.burst).unwrap_or(200),
        concurrent_releases: to_usize(concurrent.unwrap_or(32)),
    })
}

fn controllers(arguments: &RunArguments, source: &Source) -> Result<Controllers, Failure> {
    let (controllers, said) = match (&arguments.controllers, &source.config.controllers) {
        (Some(list), _) => {
            let wrong = |error| anyhow::anyhow!("--controllers: {error}");
            let read = Controllers::parse(list).map_err(wrong);
            (read.map_err(Failure::configuration)?, None)
        }
        (None, Some(list)) => {
            let wrong = |error: ControllersError| source.error("controllers", error.to_string());
            let read = Controllers::parse(list).map_err(wrong);
            (read.map_err(Failure::configuration)?, Some("controllers"))
        }
        (None, None) => {
            let read = Controllers::parse(&["*"]).map_err(Failure::configuration);
            (read?, None)
        }
    };
    if !controllers.is_empty() {
        return Ok(controllers);
    }
    let known: Vec<_> = Controller::built().map(Controller::name).collect();
    let message = format!(
        "nothing is left to run; the controllers are {}",
        known.join(", ")
    );
    Err(match said {
        Some(key) => Failure::configuration(source.error(key, message)),
        None => Failure::configuration(anyhow::anyhow!("--controllers: {message}")),
    })
}

fn gates(arguments: &RunArguments, source: &Source) -> Result<Gates, Failure> {
    let mut gates = Gates::default();
    for (name, on) in &source.config.feature_gates {
        let wrong =
            |error: GatesError| source.error(format!("featureGates.{name}"), error.to_string());
        gates
            .set(name, *on)
            .map_err(wrong)
            .map_err(Failure::configuration)?;
    }
    let wrong = |error| Failure::configuration(anyhow::anyhow!("--feature-gates: {error}"));
    gates.set_all(&arguments.feature_gates).map_err(wrong)?;
    Ok(gates)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
