//! `cargo xtask control-plane`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::cargo::{pass_through, run_package};

/// A real Kubernetes control plane on this machine, without containers
///
/// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and hollow kubelets, which do not
/// run containers. Needs Go 1.26, or KUBEBUILDER_ASSETS with a folder that has the programs. The
/// first build takes about seven minutes on two cores; the programs are kept in $BELAYER_CACHE
/// (by default ~/.cache/belayer) and used by every clone.
#[derive(Debug, Args)]
pub(crate) struct ControlPlane {
    #[command(subcommand)]
    action: Action,

    /// The minor version of Kubernetes, from 1.32 to 1.37
    #[arg(long, global = true, default_value = "1.36", value_name = "MINOR")]
    kubernetes: String,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start one in the background and print `export KUBECONFIG=...`
    Up {
        /// Nodes with a hollow kubelet, which does not run containers
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = crate::count)]
        nodes: usize,
    },
    /// Stop it and remove everything it wrote
    Down,
    /// Print what is running
    Status,
    /// Print `export KUBECONFIG=...` again
    Env,
    /// Build the programs, or print their paths
    Build,
}

impl ControlPlane {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut command = run_package("belayer-e2e");
        command.arg("control-plane");
        match self.action {
            Action::Up { nodes } => command.args(["up", "--nodes"]).arg(nodes.to_string()),
            Action::Down => command.arg("down"),
            Action::Status => command.arg("status"),
            Action::Env => command.arg("env"),
            Action::Build => command.arg("build"),
        };
        command.args(["--kubernetes", &self.kubernetes]);
        pass_through(command)
    }
}
