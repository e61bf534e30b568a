//! `cargo xtask node`.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use crate::cargo::{compile, pass_through};
use crate::e2e::{build, program};

/// A cluster with real nodes on this machine: containerd and kubelets, without Docker
///
/// Needs root, Go 1.26.6 to build the programs (once per machine, three minutes after those of the control plane)
/// and a C compiler for runc. Every node has the image of this checkout under the name that the shipped manifests
/// refer to.
#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start it in the background, print `export KUBECONFIG=...` and what to try
    Up {
        /// How many nodes
        #[arg(long, default_value_t = 2, value_name = "N", value_parser = crate::count)]
        nodes: usize,
    },
    /// Stop it and remove everything it wrote
    Down,
    /// Print what is running
    Status,
    /// Print `export KUBECONFIG=...` again
    Env,
}

impl Node {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let Action::Up { nodes } = self.action else {
            return pass_through(command(match self.action {
                Action::Down => "down",
                Action::Status => "status",
                _ => "env",
            }));
        };
        compile(build())?;
        let mut up = command("up");
        up.args(["--real", "--nodes"]).arg(nodes.to_string());
        let status = up.status()?;
        ensure!(status.success(), "the nodes could not be started");
        println!("{TRY}");
        Ok(ExitCode::SUCCESS)
    }
}

fn command(action: &str) -> Command {
    let mut command = program();
    command.args(["control-plane", "--name", "node", action]);
    command
}

/// What a person may do with it. Comments, so that all output can be evaluated by a shell.
const TRY: &str = "\
# kubectl get nodes
# kubectl apply -f e2e/manifests/workflow-crd.yaml
# kubectl apply -k deploy/manifests
# kubectl -n belayer-system get pods,lease
# kubectl -n belayer-system logs -l app.kubernetes.io/name=belayer
# kubectl create ns try; kubectl -n try run a --image=registry.invalid/step:1 --image-pull-policy=Never --restart=Never
# cargo xtask node down";
