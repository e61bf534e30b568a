//! `cargo xtask`: what contributors and continuous integration run.
//!
//! It compiles in seconds: everything that needs Kubernetes types is a separate program, built on
//! demand.

mod bench;
mod cargo;
mod docs;
mod e2e;
mod fuzz;
mod image;
mod lines;
mod mutants;
mod node;
mod passed;
mod release;
mod support;
mod survivors;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::passed::Passed;

/// Belayer's developer commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show Belayer on an embedded API server: half a minute, once it is compiled
    Demo(Passed),
    Docs(docs::Docs),
    Test(test::Test),
    E2e(e2e::E2e),
    Fuzz(fuzz::Fuzz),
    Bench(bench::Bench),
    /// Kill and interrupt Belayer and a real control plane while users work, and check that nothing gets stuck or lost
    Chaos(Passed),
    /// A real Kubernetes control plane on this machine, without containers
    ControlPlane(Passed),
    /// Measure the sandbox beside etcd and kube-apiserver, which envtest runs
    Envtest(Passed),
    Image(image::Image),
    Lines(lines::Lines),
    /// Create pods of which a share is rejected, kill the leader meanwhile, and check that each pod runs exactly once
    Load(Passed),
    /// Render deploy/manifests from the Helm chart
    Manifests(Passed),
    /// Explore every state of small models around Belayer's decisions
    Models(Passed),
    Mutants(mutants::Mutants),
    Node(node::Node),
    Release(release::Release),
    /// Run Belayer on random clusters with random faults on simulated time, and check every invariant
    Simulate(Passed),
    /// Run this build of Belayer and that of a commit on one Lease, and check that nothing gets stuck or lost
    Skew(Passed),
    /// Run Belayer for hours, kill the leader every minute of the first half, and check that nothing grows
    Soak(Passed),
    Support(support::Support),
    Survivors(survivors::Survivors),
}

fn main() -> ExitCode {
    let done: Result<ExitCode> = match Cli::parse().command {
        Command::Demo(options) => options.with("belayer-demo"),
        Command::Docs(command) => command.execute(),
        Command::Test(command) => command.execute(),
        Command::E2e(command) => command.execute(),
        Command::Fuzz(command) => command.execute(),
        Command::Bench(command) => command.execute(),
        Command::ControlPlane(options) => options.with_e2e("control-plane"),
        Command::Image(command) => command.execute(),
        Command::Lines(command) => command.execute(),
        Command::Chaos(options) => options.with_scenarios("chaos"),
        Command::Envtest(options) => options.with_scenarios("envtest"),
        Command::Soak(options) => options.with_scenarios("soak"),
        Command::Load(options) => options.with_scenarios("load"),
        Command::Manifests(options) => options.with_e2e("manifests"),
        Command::Models(options) => options.with_optimized("belayer-models"),
        Command::Mutants(command) => command.execute(),
        Command::Node(command) => command.execute(),
        Command::Release(command) => command.execute(),
        Command::Simulate(options) => options.with_optimized("belayer-simulator"),
        Command::Skew(options) => options.with_scenarios("skew"),
        Command::Support(command) => command.execute(),
        Command::Survivors(command) => command.execute(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whether this is continuous integration, where a missing prerequisite is a failure and not a skip.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// A whole number. The error names the expected form.
fn count(text: &str) -> Result<usize, String> {
    let number = text.parse();
    number.map_err(|_| "expected a whole number (example: 10)".to_owned())
}
