//! What `run` and `config` take.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{ClusterArguments, OwnNamespace};
use crate::config::{Set, Source};
use crate::drain::OnDisable;
use crate::election::ElectionArguments;
use crate::exit::Failure;
use crate::gates;
use crate::server::BindAddress;

/// Arguments of `belayer run`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("own_namespace", |own| own.alias("namespace")))]
pub struct RunArguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Where Belayer is.
    #[command(flatten)]
    pub own: OwnNamespace,

    /// Requests per second to the API server: at least half for live reads, at
    /// least a fifth for writes. Releases do not count, nor do the lists and
    /// watches that fill the caches [default: 100]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Limits"
    )]
    pub kube_api_qps: Option<u32>,

    /// Such requests that may go at once after a pause [default: 200]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Limits"
    )]
    pub kube_api_burst: Option<u32>,

    /// Releases under way at once. Nothing else bounds releases but the API
    /// server's own 429 [default: 32]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024),
        help_heading = "Limits"
    )]
    pub concurrent_releases: Option<u32>,

    /// Objects worked on at once, per controller. An object that waits for
    /// --kube-api-qps needs no worker. Takes precedence over the configuration file [default: 32]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024),
        env = "BELAYER_WORKERS",
        hide_env_values = true,
        help_heading = "Limits"
    )]
    pub workers: Option<u32>,

    /// Decide and report, but send nothing that changes the cluster
    #[arg(
        long,
        env = "BELAYER_DRY_RUN",
        hide_env_values = true,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub dry_run: bool,

    /// Controllers to run: `*` is all of them, `name` switches one on, `-name`
    /// switches it off [default: *]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true,
        env = "BELAYER_CONTROLLERS",
        hide_env_values = true
    )]
    pub controllers: Option<Vec<String>>,

    /// What becomes of the holds of controllers that are switched off
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "drain",
        env = "BELAYER_ON_DISABLE",
        hide_env_values = true
    )]
    pub on_disable: OnDisable,

    /// Finalizer that PVCs are held by: belayer.dev/pvc-protection runs beside
    /// kube-controller-manager's own controller, kubernetes.io/pvc-protection in
    /// its place. Without it PVCs get no finalizer: Belayer only reports which
    /// pods they wait for. Takes precedence over the configuration file
    #[cfg(feature = "pvc-protection")]
    #[arg(
        long,
        value_name = "NAME",
        env = "BELAYER_PVC_PROTECTION_FINALIZER",
        hide_env_values = true,
        value_parser = belayer_pvc_protection::Mode::of
    )]
    pub pvc_protection_finalizer: Option<belayer_pvc_protection::Mode>,

    /// Configuration file (YAML); read again when it changes, and on SIGHUP
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,

    /// Set any key of the configuration file, as in podFinalizer.resync=5m. Counts
    /// more than the file
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Set>,

    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        env = "BELAYER_FEATURE_GATES",
        hide_env_values = true,
        help = gates::help()
    )]
    /// Feature gates, as `A=true`.
    pub feature_gates: Vec<String>,

    /// The leader election.
    #[command(flatten)]
    pub election: ElectionArguments,

    /// Where to serve /metrics, /livez and /readyz: `:8080` is every address,
    /// port 0 is any free port, `0` alone is off [default: :8080]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BELAYER_METRICS_BIND_ADDRESS",
        hide_env_values = true,
        help_heading = "Endpoints"
    )]
    pub metrics_bind_address: Option<BindAddress>,

    /// Where to serve /debug/holds, which names pods; `0` is off
    /// [default: 127.0.0.1:8081]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BELAYER_DEBUG_BIND_ADDRESS",
        hide_env_values = true,
        help_heading = "Endpoints"
    )]
    pub debug_bind_address: Option<BindAddress>,
}

impl RunArguments {
    /// The configuration file that they name, with what they set of it.
    ///
    /// # Errors
    /// If it cannot be read or makes no sense.
    pub fn source(&self) -> Result<Source, Failure> {
        Source::of(self.config.as_deref(), &self.set).map_err(Failure::configuration)
    }
}
