//! `cargo xtask test`: everything that must hold before a change is merged.

mod counts;
mod disk;
mod external;
mod features;
mod packages;
mod skips;
mod step;

use std::ops::Add as _;
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Result, anyhow};
use clap::Args;

use self::counts::Counts;
use self::features::Beside;
use self::skips::Skips;
use self::step::{Outcome, Step};
use crate::bench;
use crate::cargo::{AS_TESTS, built, cargo};
use crate::docs;
use crate::e2e::{self, Provider};
use crate::release;

/// Format, lints, docs, feature combinations, unit and doc tests, scenarios on sandbox, local and real nodes
///
/// Every step is one line; the log of a failed one is printed, and its start again at the end. The last line is
/// `N passed, N failed, N skipped`, and the exit code is 1 if anything failed. Without Go and
/// without KUBEBUILDER_ASSETS the scenarios on the local control plane are skipped, by name, and so are
/// those on real nodes without root. With CI=true a skip that is not listed in xtask/src/test/skips.txt is a failure.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// For development, about a minute when warm: lints, unit tests, the main scenarios on the sandbox
    #[arg(long)]
    quick: bool,

    /// Also the large tests: 10,000 pods on the sandbox, the slow scenarios, ignored tests, each feature of the binary
    /// compiled without the rest of the workspace, and each crate compiled as it would be published
    #[arg(long, conflicts_with = "quick")]
    nightly: bool,
}

impl Test {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let plan = match (self.quick, self.nightly) {
            (true, _) => quick(),
            (false, true) => nightly()?,
            (false, false) => whole()?,
        };
        disk::warn_before();
        let outcomes = plan.run()?;
        for failure in outcomes
            .iter()
            .filter_map(|outcome| outcome.failure.as_ref())
        {
            println!("FAIL {failure}");
        }
        let counts = outcomes.iter().map(|outcome| outcome.counts);
        let counts = counts.fold(Counts::default(), Counts::add);
        if counts.failed > 0 {
            disk::explain_failure();
        }
        println!("{counts}");
        Ok(if counts.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// The steps, in their order.
#[derive(Default)]
struct Plan {
    first: Vec<Step>,
    /// They start processes and mostly wait, so these lists run side by side.
    scenarios: Vec<Vec<Step>>,
    /// The tests of the crates, beside the scenarios.
    tests: Vec<Step>,
    /// They compile or count instructions: they run while the scenarios wait, with the lowest priority, after `tests`,
    /// which would wait for them because Cargo compiles for one command at a time.
    meanwhile: Vec<Step>,
    last: Vec<Step>,
}

impl Plan {
    fn run(self) -> Result<Vec<Outcome>> {
        let mut outcomes = run(self.first)?;
        let mut lists = self.scenarios;
        let meanwhile = self.meanwhile.into_iter().map(Step::in_background);
        lists.push(self.tests.into_iter().chain(meanwhile).collect());
        let ended = thread::scope(|scope| {
            let start = |list| scope.spawn(|| run(list));
            let running: Vec<_> = lists.into_iter().map(start).collect();
            let ended = running.into_iter().map(|list| {
                let panicked = |_| Err(anyhow!("a list of steps panicked"));
                list.join().unwrap_or_else(panicked)
            });
            ended.collect::<Result<Vec<_>>>()
        });
        outcomes.extend(ended?.into_iter().flatten());
        outcomes.extend(run(self.last)?);
        Ok(outcomes)
    }
}

fn run(steps: Vec<Step>) -> Result<Vec<Outcome>> {
    let run = |step: Step| step.run(Skips::here());
    steps.into_iter().map(run).collect()
}

fn whole() -> Result<Plan> {
    let mut meanwhile = vec![
        Step::check("clippy", clippy()),
        Step::check("docs", rustdoc()),
    ];
    meanwhile.push(Step::check(
        "the binary as it is installed",
        features::installed(),
    ));
    for (name, command) in features::checks(Beside::Workspace)? {
        meanwhile.push(Step::check(&name, command));
    }
    meanwhile.push(Step::check(
        "format of the programs outside the workspace",
        external::format(),
    ));
    for (name, command) in external::examples().chain(external::programs()?) {
        meanwhile.push(Step::check(&name, command));
    }
    let files = "the files of a release, with the binary of the tests";
    meanwhile.push(match e2e::can_build_helm() {
        true => Step::check(files, release::with_test_binary()?),
        false => Step::skipped(files, "Go, which builds Helm, is not installed"),
    });
    for (name, command) in docs::site()? {
        meanwhile.push(Step::check(name, command));
    }
    meanwhile.extend([
        Step::check("build of the simulator", bench::build_counted(SIMULATOR)),
        Step::check("2,900 random clusters", random_clusters(80_000_000, 2_900)),
        Step::check("100 large ones", random_clusters(0, 100)),
    ]);
    if bench::has_valgrind() {
        meanwhile.push(Step::check(
            "build what is counted",
            bench::build_counted(bench::SUBJECT),
        ));
        meanwhile.push(Step::check(
            "instruction counts of the hot paths",
            bench::instructions(),
        ));
    } else {
        meanwhile.push(Step::skipped(
            "instruction counts of the hot paths",
            "valgrind is not installed: apt-get install valgrind",
        ));
    }
    let first = vec![
        format(),
        Step::check("build for the scenarios", e2e::build()),
        Step::check("build of the tests", tests(&["--no-run"])),
    ];
    // The longest list takes the whole time of the run, so it has only these.
    let local = vec![scenarios(Provider::Local, &[])];
    let sandbox = vec![
        conformance(Provider::Sandbox),
        scenarios(Provider::Sandbox, &[]),
        conformance(Provider::Local),
    ];
    let nodes = vec![
        scenarios(Provider::Node, &[]),
        Step::check("nothing is left of real nodes", e2e::leftovers()),
    ];
    Ok(Plan {
        first,
        scenarios: vec![local, sandbox, nodes],
        tests: vec![Step::tests("unit, integration and doc tests", tests(&[]))],
        meanwhile,
        last: Vec::new(),
    })
}

fn nightly() -> Result<Plan> {
    let mut plan = whole()?;
    for (name, command) in features::checks(Beside::Nothing)? {
        plan.meanwhile.push(Step::check(
            &format!("{name}, with nothing beside it"),
            command,
        ));
    }
    plan.meanwhile.push(Step::check(
        "the crates as they would be published",
        packages::verify()?,
    ));
    plan.meanwhile.push(packages::semver()?);
    plan.meanwhile.push(match packages::has_deny() {
        true => Step::check("licenses and sources of dependencies", packages::deny()),
        false => Step::skipped(
            "licenses and sources of dependencies",
            "cargo-deny is not installed: cargo install --locked cargo-deny",
        ),
    });
    let large = ["--pods=10000", "many-pods", "a8-many-workflows"];
    plan.last.extend([
        Step::tests(
            "the tests that are marked as ignored",
            tests(&["--", "--ignored"]),
        ),
        scenarios(Provider::Sandbox, &large),
        Step::scenarios(
            "scenarios on real nodes with the shipped binary, and the size of its image",
            Provider::Node.name(),
            e2e::with_the_shipped_binary()?,
        ),
        Step::check(
            "the files of a release, with the shipped binary",
            release::with_shipped_binary()?,
        ),
        scenarios(Provider::Local, &["--nightly"]),
        scenarios(Provider::Node, &["--nightly"]),
    ]);
    Ok(plan)
}

fn quick() -> Plan {
    // One scenario per rule of the decision table, and each way to delete a workflow: ten seconds.
    let main = [
        "row-",
        "workflow-deleted",
        "kill-9-in-the-middle",
        "pvc-in-use",
    ];
    let first = vec![
        format(),
        Step::check("clippy", clippy()),
        Step::tests(
            "unit and integration tests",
            tests(&["--lib", "--bins", "--tests"]),
        ),
        Step::check("build for the scenarios", e2e::build()),
        conformance(Provider::Sandbox),
        scenarios(Provider::Sandbox, &main),
    ];
    Plan {
        first,
        ..Plan::default()
    }
}

fn conformance(provider: Provider) -> Step {
    let name = format!("conformance on {}", provider.what());
    Step::scenarios(&name, provider.name(), e2e::conformance(provider))
}

fn scenarios(provider: Provider, options: &[&str]) -> Step {
    let mut name = format!("scenarios on {}", provider.what());
    if !options.is_empty() {
        name.push_str(&format!(": {}", options.join(" ")));
    }
    let mut command = e2e::scenarios(provider);
    command.args(options);
    Step::scenarios(&name, provider.name(), command)
}

/// In a build without optimization its runs take five times as long.
const SIMULATOR: &str = "belayer-simulator";

/// Runs so many random clusters from this seed on.
fn random_clusters(first: u64, seeds: u64) -> Command {
    let mut command = built(bench::COUNTED, SIMULATOR);
    command.args(["--first", &first.to_string()]);
    command.args(["--seeds", &seeds.to_string()]);
    command
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

fn rustdoc() -> Command {
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
