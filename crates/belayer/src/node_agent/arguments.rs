//! Arguments of `belayer node-agent`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{ClusterArguments, ProtectionArguments, number};
use crate::server::BindAddress;

/// The text below the options.
pub const HELP: &str = "\
The agent removes only the directories that --path gives for a pod. It follows
no symbolic link, no `..` and no mount out of them. Before each attempt it
checks the node's cgroups and processes, and waits while anything of the pod
still runs. It needs Linux 5.8 or later, and root if it has to unmount.

Examples:
  belayer node-agent --node-name n1 --root /var/lib/workspaces
      removes /var/lib/workspaces/{podUID}
  belayer node-agent --root /srv/ws --path '/srv/ws/{podUID}/scratch'

Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  an error
  2  wrong usage or configuration; nothing was changed";

/// Arguments of `belayer node-agent`.
#[derive(Debug, Args)]
pub struct NodeAgentArguments {
    /// The cluster to connect to.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Name of this node. The agent removes only directories of its pods
    #[arg(long, value_name = "NAME", env = "NODE_NAME", help_heading = "Node")]
    pub node_name: Option<String>,

    /// Directory below which the agent may remove files; may be given several times.
    /// Takes precedence over the configuration file
    #[arg(long, value_name = "DIRECTORY", help_heading = "Node")]
    pub root: Vec<String>,

    /// Directory of a pod, with {podUID} as one component; may be given several times.
    /// Takes precedence over the configuration file [default: {podUID} in each root]
    #[arg(long, value_name = "TEMPLATE", help_heading = "Node")]
    pub path: Vec<String>,

    /// Directory where the node's `/` is mounted: proc and sys/fs/cgroup below it show
    /// which pods still run. Takes precedence over the configuration file [default: /]
    #[arg(long, value_name = "DIRECTORY", help_heading = "Node")]
    pub host_root: Option<String>,

    /// Configuration file (YAML); the agent's key is nodeAgent
    #[arg(long, value_name = "FILE", env = "BELAYER_CONFIG")]
    pub config: Option<PathBuf>,

    /// Requests per second to the API server
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = number(1..=u32::MAX),
        help_heading = "Limits"
    )]
    pub kube_api_qps: u32,

    /// Burst of requests after a pause
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = number(1..=u32::MAX),
        help_heading = "Limits"
    )]
    pub kube_api_burst: u32,

    /// Address that serves /metrics, /livez and /readyz: `:8080` is port 8080 of all
    /// addresses, port 0 is any free port, `0` alone is off
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":8080",
        env = "BELAYER_METRICS_BIND_ADDRESS",
        help_heading = "Endpoints"
    )]
    pub metrics_bind_address: BindAddress,

    /// Separate address for /livez and /readyz, so that a flood of requests for metrics does
    /// not block the probes; `0` is off
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        env = "BELAYER_HEALTH_PROBE_BIND_ADDRESS",
        help_heading = "Endpoints"
    )]
    pub health_probe_bind_address: BindAddress,

    /// How the address of metrics is protected.
    #[command(flatten)]
    pub protection: ProtectionArguments,
}
