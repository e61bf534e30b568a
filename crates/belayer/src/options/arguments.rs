//! Arguments of `run` and `config`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{ClusterArguments, OwnNamespace, ProtectionArguments, PvcArguments, number};
use crate::config::{Set, Source};
use crate::drain::OnDisable;
use crate::election::ElectionArguments;
use crate::exit::Failure;
use crate::feature_gates;
use crate::server::BindAddress;

/// Arguments of `belayer run`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("own_namespace", |own| own.alias("namespace")))]
pub struct RunArguments {
    /// The cluster to connect to.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Belayer's own namespace.
    #[command(flatten)]
    pub own: OwnNamespace,

    /// Maximum requests per second to the API server. If requests of all kinds wait,
    /// live reads get 50 %, other writes 30 % and Events 20 %. Releases do not count, nor
    /// do the lists and watches that fill the caches [default: 100]
    #[arg(
        long,
        value_name = "N",
        value_parser = number(1..=u32::MAX),
        help_heading = "Limits"
    )]
    pub kube_api_qps: Option<u32>,

    /// Burst of such requests after a pause [default: 200]
    #[arg(
        long,
        value_name = "N",
        value_parser = number(1..=u32::MAX),
        help_heading = "Limits"
    )]
    pub kube_api_burst: Option<u32>,

    /// Releases of one kind in flight at once; fewer while the API server is
    /// overloaded. Effective maximum: `--workers`, and the 64 requests that a
    /// process may have in flight [default: 64]
    #[arg(
        long,
        value_name = "N",
        value_parser = number::<u32>(1..=1024),
        help_heading = "Limits"
    )]
    pub concurrent_releases: Option<u32>,

    /// Objects processed at once, per controller. An object that waits for
    /// --kube-api-qps occupies no worker. Takes precedence over the configuration file
    /// [default: 64, workflow-finalizer 16]
    #[arg(
        long,
        value_name = "N",
        value_parser = number::<u32>(1..=1024),
        env = "BELAYER_WORKERS",
        help_heading = "Limits"
    )]
    pub workers: Option<u32>,

    /// Decide and log, but send no request that changes the cluster
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "BELAYER_DRY_RUN",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub dry_run: Option<bool>,

    /// Controllers to run: `*` for all but pod-recreation, `name` enables one, `-name` disables one
    /// [default: *]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true,
        env = "BELAYER_CONTROLLERS"
    )]
    pub controllers: Option<Vec<String>>,

    /// Controllers that another process of Belayer runs in this cluster: their
    /// finalizers are neither added nor removed here
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub controllers_elsewhere: Vec<String>,

    /// What to do with the finalizers of controllers that are switched off
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "drain",
        env = "BELAYER_ON_DISABLE"
    )]
    pub on_disable: OnDisable,

    /// The finalizer that Belayer puts on PVCs.
    #[command(flatten)]
    pub pvc: PvcArguments,

    /// Configuration file (YAML); reloaded when it changes and on SIGHUP
    #[arg(long, value_name = "FILE", env = "BELAYER_CONFIG")]
    pub config: Option<PathBuf>,

    /// Set a key of the configuration file (example: podFinalizer.resync=5m). Takes
    /// precedence over the file
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Set>,

    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        env = "BELAYER_FEATURE_GATES",
        help = feature_gates::help()
    )]
    /// Feature gates, as `A=true`.
    pub feature_gates: Vec<String>,

    /// The leader election.
    #[command(flatten)]
    pub election: ElectionArguments,

    /// Address that serves /metrics, /livez and /readyz: `:8080` is port 8080 of all
    /// addresses, port 0 is any free port, `0` alone is off [default: :8080]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BELAYER_METRICS_BIND_ADDRESS",
        help_heading = "Endpoints"
    )]
    pub metrics_bind_address: Option<BindAddress>,

    /// Separate address for /livez and /readyz, so that a flood of requests for metrics does
    /// not block the probes; `0` is off [default: 0]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BELAYER_HEALTH_PROBE_BIND_ADDRESS",
        help_heading = "Endpoints"
    )]
    pub health_probe_bind_address: Option<BindAddress>,

    /// Address that serves the status page and /debug/holds, which name pods; `0` is off
    /// [default: 127.0.0.1:8081]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BELAYER_DEBUG_BIND_ADDRESS",
        help_heading = "Endpoints"
    )]
    pub debug_bind_address: Option<BindAddress>,

    /// How the address of metrics is protected.
    #[command(flatten)]
    pub protection: ProtectionArguments,
}

impl RunArguments {
    /// The configuration file of these arguments, with their `--set` flags.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn source(&self) -> Result<Source, Failure> {
        Source::of(self.config.as_deref(), &self.set).map_err(Failure::configuration)
    }
}
