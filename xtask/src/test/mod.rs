//! `cargo xtask test`: everything that must hold before a change is merged.

mod counts;
mod features;
mod step;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use self::counts::Counts;
use self::features::Beside;
use self::step::Step;
use crate::bench;
use crate::cargo::{AS_TESTS, cargo};
use crate::e2e::{self, Provider};

/// Format, lints, docs, feature combinations, unit and doc tests, scenarios on sandbox, local and real nodes
///
/// Every step is one line; the log of a failed one is printed. The last line is
/// `N passed, N failed, N skipped`, and the exit code is 1 if anything failed. Without Go and
/// without KUBEBUILDER_ASSETS the scenarios on the local control plane are skipped, by name, and so are
/// those on real nodes without root; with CI=true that is a failure.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// For development, about a minute when warm: lints, unit tests, the main scenarios on the sandbox
    #[arg(long)]
    quick: bool,

    /// Also the large tests: 10,000 pods on the sandbox, the slow scenarios, ignored tests, and each feature of
    /// the binary compiled without the rest of the workspace
    #[arg(long, conflicts_with = "quick")]
    nightly: bool,
}

impl Test {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let steps = match (self.quick, self.nightly) {
            (true, _) => quick(),
            (false, true) => nightly()?,
            (false, false) => whole()?,
        };
        let mut counts = Counts::default();
        for step in steps {
            counts = counts + step.run()?;
        }
        println!("{counts}");
        Ok(if counts.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn whole() -> Result<Vec<Step>> {
    let mut steps = vec![
        format(),
        Step::check("clippy", clippy()),
        Step::check("docs", docs()),
    ];
    for (name, command) in features::checks(Beside::Workspace)? {
        steps.push(Step::check(&name, command));
    }
    steps.extend([
        Step::tests("unit, integration and doc tests", tests(&[])),
        Step::check("build for the scenarios", e2e::build()),
        Step::scenarios(
            "conformance of the sandbox",
            e2e::conformance(Provider::Sandbox),
        ),
        Step::scenarios(
            "conformance of the local control plane",
            e2e::conformance(Provider::Local),
        ),
        Step::scenarios(
            "scenarios on the sandbox",
            e2e::scenarios(Provider::Sandbox),
        ),
        Step::scenarios(
            "scenarios on the local control plane",
            e2e::scenarios(Provider::Local),
        ),
        Step::scenarios("scenarios on real nodes", e2e::scenarios(Provider::Node)),
        Step::check("nothing is left of real nodes", e2e::leftovers()),
    ]);
    if bench::has_valgrind() {
        steps.push(Step::check("build what is counted", bench::build_subject()));
        steps.push(Step::check(
            "instruction counts of the hot paths",
            bench::instructions(),
        ));
    } else {
        steps.push(Step::skipped(
            "instruction counts of the hot paths",
            "valgrind is not installed",
        ));
    }
    Ok(steps)
}

fn nightly() -> Result<Vec<Step>> {
    let mut steps = whole()?;
    for (name, command) in features::checks(Beside::Nothing)? {
        steps.push(Step::check(
            &format!("{name}, with nothing beside it"),
            command,
        ));
    }
    let mut large = e2e::scenarios(Provider::Sandbox);
    large.arg("--pods=10000").arg("many-pods");
    steps.extend([
        Step::tests(
            "the tests that are marked as ignored",
            tests(&["--", "--ignored"]),
        ),
        Step::scenarios("scenarios of 10,000 pods on the sandbox", large),
    ]);
    for (name, provider) in [
        (
            "nightly scenarios on the local control plane",
            Provider::Local,
        ),
        ("nightly scenarios on real nodes", Provider::Node),
    ] {
        let mut nightly = e2e::scenarios(provider);
        nightly.arg("--nightly");
        steps.push(Step::scenarios(name, nightly));
    }
    Ok(steps)
}

fn quick() -> Vec<Step> {
    let mut scenarios = e2e::scenarios(Provider::Sandbox);
    // One scenario per rule of the decision table, and each way to delete a workflow: ten seconds.
    scenarios.args([
        "row-",
        "workflow-deleted",
        "kill-9-in-the-middle",
        "pvc-in-use",
    ]);
    vec![
        format(),
        Step::check("clippy", clippy()),
        Step::tests(
            "unit and integration tests",
            tests(&["--lib", "--bins", "--tests"]),
        ),
        Step::check("build for the scenarios", e2e::build()),
        Step::scenarios(
            "conformance of the sandbox",
            e2e::conformance(Provider::Sandbox),
        ),
        Step::scenarios("scenarios on the sandbox", scenarios),
    ]
}

fn format() -> Step {
    let mut command = cargo();
    command.args(["fmt", "--all", "--check"]);
    Step::check("format", command)
}

fn clippy() -> Command {
    let mut command = cargo();
    command.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]);
    command
}

fn docs() -> Command {
    let mut command = cargo();
    command
        .args(["doc", "--no-deps", "--lib", "--bin", "xtask"])
        .args(AS_TESTS)
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn tests(which: &[&str]) -> Command {
    let mut command = cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(which);
    command
}
