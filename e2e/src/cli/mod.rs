//! The command line of `belayer-e2e`. People come by `cargo xtask e2e` and `cargo xtask control-plane`.

mod conformance;
mod control_plane;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "belayer-e2e",
    about = "Belayer's end-to-end scenarios",
    version
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios on a provider
    Run(run::Run),
    /// Small cases of what a client sees, the same on every server
    Conformance(conformance::Conformance),
    /// Print the digest of a server's types that the sandbox is built with
    Types {
        /// The server
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// Print the digest of the numbers of fields in protobuf that the sandbox is built with
    Numbers {
        /// A folder of the Go modules k8s.io/api, apimachinery, apiextensions-apiserver and kube-aggregator
        #[arg(long = "protos", value_name = "DIR", required = true)]
        protos: Vec<PathBuf>,
    },
    /// A real control plane on this machine, without containers
    ControlPlane(control_plane::ControlPlaneCommand),
}

/// Parses the arguments and runs the command.
///
/// Exit codes: 0 done, 1 something failed, 2 usage.
pub async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done: Result<ExitCode> = match cli.command {
        Command::Run(run) => run.execute().await,
        Command::Conformance(command) => command.execute().await,
        Command::Types { kubeconfig } => types(&kubeconfig).await,
        Command::Numbers { protos } => numbers(&protos),
        Command::ControlPlane(command) => command.execute().await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        anstream::eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn types(kubeconfig: &Path) -> Result<ExitCode> {
    let client = crate::control_plane::client(kubeconfig).await?;
    anstream::print!("{}", crate::types::digest(&client).await?);
    Ok(ExitCode::SUCCESS)
}

fn numbers(protos: &[PathBuf]) -> Result<ExitCode> {
    anstream::print!("{}", crate::numbers::digest(protos)?);
    Ok(ExitCode::SUCCESS)
}
