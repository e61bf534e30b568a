//! `cargo xtask`: what contributors and continuous integration run.
//!
//! It compiles in seconds: everything that needs Kubernetes types is a separate program, built on
//! demand.

mod bench;
mod cargo;
mod control_plane;
mod demo;
mod docs;
mod e2e;
mod fuzz;
mod image;
mod lines;
mod manifests;
mod models;
mod mutants;
mod node;
mod passed;
mod release;
mod simulate;
mod support;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Belayer's developer commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Docs(docs::Docs),
    Test(test::Test),
    E2e(e2e::E2e),
    Fuzz(fuzz::Fuzz),
    Bench(bench::Bench),
    /// Kill and interrupt Belayer and a real control plane while users work, and check that nothing gets stuck or lost
    Chaos(passed::Passed),
    ControlPlane(control_plane::ControlPlane),
    /// Measure the sandbox beside etcd and kube-apiserver, which envtest runs
    Envtest(passed::Passed),
    Image(image::Image),
    Lines(lines::Lines),
    /// Create pods of which a share is rejected, kill the leader meanwhile, and check that each pod runs exactly once
    Load(passed::Passed),
    Manifests(manifests::Manifests),
    Models(models::Models),
    Mutants(mutants::Mutants),
    Node(node::Node),
    Release(release::Release),
    Simulate(simulate::Simulate),
    /// Run this build of Belayer and that of a commit on one Lease, and check that nothing gets stuck or lost
    Skew(passed::Passed),
    /// Run Belayer for hours, kill the leader every minute of the first half, and check that nothing grows
    Soak(passed::Passed),
    Support(support::Support),
}

fn main() -> ExitCode {
    let done: Result<ExitCode> = match Cli::parse().command {
        Command::Demo(command) => command.execute(),
        Command::Docs(command) => command.execute(),
        Command::Test(command) => command.execute(),
        Command::E2e(command) => command.execute(),
        Command::Fuzz(command) => command.execute(),
        Command::Bench(command) => command.execute(),
        Command::ControlPlane(command) => command.execute(),
        Command::Image(command) => command.execute(),
        Command::Lines(command) => command.execute(),
        Command::Chaos(options) => options.execute("chaos"),
        Command::Envtest(options) => options.execute("envtest"),
        Command::Soak(options) => options.execute("soak"),
        Command::Load(options) => options.execute("load"),
        Command::Manifests(command) => command.execute(),
        Command::Models(command) => command.execute(),
        Command::Mutants(command) => command.execute(),
        Command::Node(command) => command.execute(),
        Command::Release(command) => command.execute(),
        Command::Simulate(command) => command.execute(),
        Command::Skew(options) => options.execute("skew"),
        Command::Support(command) => command.execute(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// A whole number. The error names the expected form.
fn count(text: &str) -> Result<usize, String> {
    let number = text.parse();
    number.map_err(|_| "expected a whole number (example: 10)".to_owned())
}
