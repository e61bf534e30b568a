//! Options of `run`: arguments and configuration, read and checked.

pub mod arguments;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::config::Source;
use crate::controllers::{CONTROLLERS, Components, Controllers, ControllersError, built};
use std::sync::Arc;

use belayer_controller::Configured;
use belayer_core::executor::Bounds;

use crate::drain::OnDisable;
use crate::election::Election;
use crate::exit::Failure;
use crate::feature_gates::{FeatureGate, FeatureGates, FeatureGatesError};
use crate::kubeconfig::Sources;
use crate::options::arguments::RunArguments;
use crate::server::{BindAddress, Protection};

/// Options of `belayer run`.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The cluster and the credentials.
    pub cluster: kube::Config,
    /// The checked settings.
    pub settings: Settings,
    /// The arguments, for a reload of the file.
    pub arguments: RunArguments,
    /// The configuration file.
    pub source: Source,
}

/// Settings from arguments and configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Belayer's own namespace.
    pub namespace: String,
    /// The controllers that run.
    pub controllers: Controllers,
    /// Whether writes are sent.
    pub dry_run: bool,
    /// The feature gates.
    pub gates: FeatureGates,
    /// The leader election, if it is on. A dry run takes no part in it.
    pub election: Option<Election>,
    /// Limits of requests.
    pub limits: Limits,
    /// Address of metrics and health.
    pub metrics_bind_address: BindAddress,
    /// Address of health alone.
    pub health_probe_bind_address: BindAddress,
    /// Address of the status page and `/debug/holds`.
    pub debug_bind_address: BindAddress,
    /// How the address of metrics is protected.
    pub protection: Protection,
    /// The configured controllers.
    pub components: Components,
}

/// Limits of requests to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second, not counting releases.
    pub qps: u32,
    /// Burst of requests after a pause, not counting releases.
    pub burst: u32,
    /// Concurrent releases.
    pub concurrent_releases: usize,
}

/// Default address of metrics and health.
const METRICS: BindAddress = BindAddress::Every(8080);

/// Default address of the status page and `/debug/holds`.
const DEBUG: BindAddress =
    BindAddress::One(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8081)));

impl RunOptions {
    /// Reads and checks arguments and configuration before anything is changed.
    ///
    /// # Errors
    /// Wrong usage or configuration, as a one-line message that names the correction.
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
    /// The leader election in which this process takes part: none in a dry run, because updating a Lease is a write.
    pub(crate) fn candidacy(&self) -> Option<&Election> {
        self.election.as_ref().filter(|_| !self.dry_run)
    }

    /// Merges arguments and file: a flag takes precedence over its environment variable, and that over the
    /// file.
    ///
    /// # Errors
    /// Wrong usage or configuration, as a one-line message that names the correction.
    pub fn resolve(
        arguments: &RunArguments,
        source: &Source,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let namespace = arguments.own.name(sources)?;
        let controllers = controllers(arguments.controllers.as_deref(), source)?;
        let gates = gates(arguments, source)?;
        let components = components(arguments, source, &controllers, &gates)?;
        let [metrics, health, debug] = source.endpoints().map_err(Failure::configuration)?;
        let protection = arguments.protection.resolve(&source.config.endpoints)?;
        let dry_run = arguments.dry_run.or(source.config.dry_run);
        let election = Election::resolve(&arguments.election, source, &namespace)?;
        let endpoint = |flag: &Option<BindAddress>, file: Option<BindAddress>, default| {
            flag.clone().or(file).unwrap_or(default)
        };
        Ok(Self {
            namespace,
            controllers,
            dry_run: dry_run.unwrap_or(false),
            gates,
            election,
            limits: limits(arguments, source)?,
            metrics_bind_address: endpoint(&arguments.metrics_bind_address, metrics, METRICS),
            health_probe_bind_address: endpoint(
                &arguments.health_probe_bind_address,
                health,
                BindAddress::Off,
            ),
            debug_bind_address: endpoint(&arguments.debug_bind_address, debug, DEBUG),
            protection,
            components,
        })
    }
}

/// The configured controllers: a flag takes precedence over the file.
fn components(
    arguments: &RunArguments,
    source: &Source,
    controllers: &Controllers,
    gates: &FeatureGates,
) -> Result<Components, Failure> {
    let mut flags = Vec::new();
    if let Some(workers) = arguments.workers {
        let keys = CONTROLLERS.iter().map(|controller| controller.key);
        flags.extend(keys.map(|key| (format!("{key}.workers"), workers.into())));
    }
    flags.extend(arguments.pvc.key());
    let source = source.with_flags(&flags).map_err(Failure::configuration)?;
    let configured = source.configured().map_err(Failure::configuration)?;
    let elsewhere = elsewhere(arguments, controllers)?;
    let mut components = Components::default();
    for one in configured {
        if elsewhere.contains(one.controller().name) {
            continue;
        }
        let runs = controllers.contains(one.controller().name);
        if runs {
            allowed_by(gates, &source, &*one)?;
        }
        if !(runs && one.adds_holds()) && arguments.on_disable == OnDisable::Drain {
            components.switched_off.push(Arc::clone(&one));
        }
        if runs {
            components.run(one);
        }
    }
    Ok(components)
}

/// The controllers that another process runs.
fn elsewhere(arguments: &RunArguments, here: &Controllers) -> Result<Controllers, Failure> {
    let wrong =
        |message| Failure::configuration(anyhow::anyhow!("--controllers-elsewhere: {message}"));
    let list = &arguments.controllers_elsewhere;
    let elsewhere = Controllers::parse(list).map_err(|error| wrong(error.to_string()))?;
    match built().find(|name| here.contains(name) && elsewhere.contains(name)) {
        Some(name) => Err(wrong(format!("{name} runs here (--controllers)"))),
        None => Ok(elsewhere),
    }
}

/// Checks that a controller uses no feature that a feature gate switches off.
fn allowed_by(gates: &FeatureGates, source: &Source, one: &dyn Configured) -> Result<(), Failure> {
    for used in one.gated() {
        let gate = FeatureGate::ALL
            .iter()
            .find(|gate| gate.name() == used.gate);
        if gate.is_none_or(|gate| gates.is_on(*gate)) {
            continue;
        }
        let message = format!(
            "requires the feature gate {0}, which is off: remove the key, or set --feature-gates={0}=true",
            used.gate
        );
        return Err(Failure::configuration(source.error(used.key, message)));
    }
    Ok(())
}

fn limits(arguments: &RunArguments, source: &Source) -> Result<Limits, Failure> {
    let file = source.limits().map_err(Failure::configuration)?;
    let concurrent = arguments.concurrent_releases.or(file.concurrent_releases);
    let by_default = Bounds::default();
    Ok(Limits {
        qps: arguments.kube_api_qps.or(file.qps).unwrap_or(100),
        burst: arguments
            .kube_api_burst
            .or(file.burst)
            .unwrap_or(by_default.burst),
        concurrent_releases: concurrent.map_or(by_default.concurrent_releases, to_usize),
    })
}

/// The controllers to run: a flag takes precedence over the file.
pub(crate) fn controllers(
    flag: Option<&[String]>,
    source: &Source,
) -> Result<Controllers, Failure> {
    let (controllers, key) = match (flag, &source.config.controllers) {
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
    let known: Vec<_> = built().collect();
    let message = format!("no controller runs (controllers: {})", known.join(", "));
    Err(match key {
        Some(key) => Failure::configuration(source.error(key, message)),
        None => Failure::configuration(anyhow::anyhow!("--controllers: {message}")),
    })
}

fn gates(arguments: &RunArguments, source: &Source) -> Result<FeatureGates, Failure> {
    let mut gates = FeatureGates::default();
    for (name, on) in &source.config.feature_gates {
        let wrong = |error: FeatureGatesError| {
            source.error(format!("featureGates.{name}"), error.to_string())
        };
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

#[cfg(test)]
#[cfg(all(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pvc-protection"
))]
mod tests {
    use belayer_holds::names;
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The finalizers that are removed with these arguments.
    fn off(arguments: &[&str]) -> Vec<&'static str> {
        let all = ["belayer", "run"].iter().chain(arguments);
        let Command::Run(arguments) = Cli::try_parse_from(all).unwrap().command else {
            panic!("no run");
        };
        let settings = Settings::resolve(&arguments, &Source::default(), &Sources::default());
        let off = settings.unwrap().components.switched_off;
        off.iter().map(|off| off.controller().finalizer).collect()
    }

    const ALL: &str = "--controllers=*,pod-recreation";

    const HOLD_PVCS: &str = "--pvc-protection-finalizer=belayer.dev/pvc-protection";

    #[test]
    fn finalizers_of_controllers_that_do_not_run_are_removed() {
        assert!(off(&[HOLD_PVCS, ALL]).is_empty());
        assert_eq!(
            off(&[HOLD_PVCS, "--controllers=*,pod-recreation,-pvc-protection"]),
            [names::PVC_PROTECTION_HOLD]
        );
        // pod-recreation is off by default.
        assert_eq!(off(&[HOLD_PVCS]), [names::POD_RECREATION_HOLD]);
        assert!(!off(&["--controllers=pod-finalizer"]).contains(&names::POD_STATUS_HOLD));
    }

    /// T2: the process with other permissions removes them.
    #[test]
    fn t2_finalizers_of_controllers_that_run_elsewhere_are_left() {
        let elsewhere = "--controllers-elsewhere=pod-recreation";
        assert!(off(&[HOLD_PVCS, "--controllers=*", elsewhere]).is_empty());
        let all = ["belayer", "run", ALL, elsewhere];
        let Command::Run(arguments) = Cli::try_parse_from(all).unwrap().command else {
            panic!("no run");
        };
        let settings = Settings::resolve(&arguments, &Source::default(), &Sources::default());
        let error = settings.unwrap_err().to_string();
        assert!(error.contains("pod-recreation runs here"), "{error}");
    }

    /// A18: finalizers of an earlier configuration are removed although the controller runs.
    #[test]
    fn a18_pvcs_are_released_if_belayer_only_advises() {
        assert_eq!(off(&[ALL]), [names::PVC_PROTECTION_HOLD]);
        assert!(off(&["--on-disable=keep"]).is_empty());
    }

    /// The finalizer of Kubernetes is handed over, not removed.
    #[test]
    fn the_finalizer_of_kubernetes_is_not_removed() {
        let replacing = "--pvc-protection-finalizer=kubernetes.io/pvc-protection";
        let off = off(&[replacing, "--controllers=pod-finalizer"]);
        assert!(!off.contains(&names::KUBERNETES_PVC_PROTECTION), "{off:?}");
    }
}
