//! The command line of `belayer-e2e`, usually run by `cargo xtask e2e` and `cargo xtask control-plane`.

mod chaos;
mod conformance;
mod control_plane;
mod envtest;
mod load;
mod manifests;
mod run;
mod support;

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
    Load(Box<load::Load>),
    Chaos(chaos::Chaos),
    Soak(chaos::Soak),
    Skew(chaos::Skew),
    Support(support::Support),
    Envtest(envtest::Envtest),
    /// Compare the responses of a server with recorded ones
    Conformance(conformance::Conformance),
    /// A real control plane on this machine, without containers
    ControlPlane(control_plane::ControlPlaneCommand),
    /// Render deploy/manifests from the Helm chart
    Manifests(manifests::Manifests),
    /// Check that Helm 3 and 4 accept a packed chart and render it as the chart of this repository
    ChartArchive(manifests::ChartArchive),
}

/// Parses the arguments and runs the command.
///
/// Exit codes: 0 success, 1 failure, 2 usage.
pub async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done: Result<ExitCode> = match cli.command {
        Command::Run(run) => run.execute().await,
        Command::Load(load) => load.execute().await,
        Command::Chaos(chaos) => chaos.execute().await,
        Command::Soak(soak) => soak.execute().await,
        Command::Skew(skew) => skew.execute().await,
        Command::Support(support) => support.execute().await,
        Command::Envtest(command) => command.execute().await,
        Command::Conformance(command) => command.execute().await,
        Command::ControlPlane(command) => command.execute().await.map(|()| ExitCode::SUCCESS),
        Command::Manifests(command) => command.execute(),
        Command::ChartArchive(command) => command.execute(),
    };
    done.unwrap_or_else(|error| {
        anstream::eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Exit code 0, or 1 if not all is good.
fn exit(is_good: bool) -> ExitCode {
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A whole number. The error names the expected form.
pub(super) fn count(text: &str) -> Result<usize, String> {
    let number = text.parse();
    number.map_err(|_| "expected a whole number (example: 10)".to_owned())
}
