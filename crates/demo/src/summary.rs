//! The end of the demo: figures, and the result of all checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belayer_checker::{BELAYER, Check, Evidence, Findings, Part, Settings, check};
use belayer_sandbox::{Gvr, ListOptions};
use belayer_workload::WORKFLOWS;
use owo_colors::OwoColorize as _;
use serde_json::Value;

use super::chapters::CHAPTERS;
use super::other_operator::Mode;
use super::output::{Output, fit};
use super::report::span;
use super::tracked::{Existence, Pod, Workflow};
use super::world::World;
use super::{BATCH, OTHER_OPERATOR};

/// How long no requests are sent to the settled cluster, in seconds of the demo; at least one
/// second of real time.
const QUIET: f64 = 2.0;

/// Column widths of the labels.
const NAMES: usize = 10;
const PROMISES: usize = 20;

/// The result of the demo.
pub(super) struct Summary {
    findings: Findings,
    seed: u64,
    writes: usize,
    /// Releases by evidence, as reported by Belayer.
    reported: BTreeMap<&'static str, usize>,
    /// Belayer's requests, by verb.
    requests: BTreeMap<&'static str, u64>,
    faults: Vec<(&'static str, u64)>,
    crashes: usize,
    took: Duration,
}

/// Waits until the cluster has settled, sends no requests for a while, and checks the invariants.
/// `trouble` is the error of the chapter that failed.
pub(super) async fn summarise(
    world: &World,
    output: &Output,
    trouble: Option<anyhow::Error>,
    begun: Instant,
) -> Summary {
    world.other_operator.set_mode(Mode::Releasing);
    // A failed chapter may have left it stopped.
    world.argo.start();
    let settled = world
        .until("no object has a hold or is Terminating", has_settled)
        .await;
    world.other_operator.set_mode(Mode::Resting);
    // Wait for requests that are still in flight.
    let still = world.still().await;
    let quiet = world.pace.of(QUIET).max(Duration::from_secs(1));
    output.line("");
    output.say(&format!(
        "The cluster has settled. The demo sends no requests for {}.",
        span(quiet)
    ));
    let recorder = world.sandbox.recorder();
    let mark = recorder.mark();
    tokio::time::sleep(quiet).await;
    let written_in_quiet = recorder.since(mark);
    let writes = recorder.writes();
    let mut findings = check(&Evidence {
        writes: &writes,
        left: &left(world),
        quiet,
        written_in_quiet: &written_in_quiet,
        others: &[OTHER_OPERATOR, BATCH],
        healthy_from: None,
        settings: Settings::default(),
    });
    let chapters = chapters_check([trouble, settled.err(), still.err()], &findings);
    findings.checks.insert(0, chapters);
    let mut requests = BTreeMap::new();
    for ((verb, _), count) in recorder.requests_by(BELAYER) {
        *requests.entry(verb.as_str()).or_default() += count;
    }
    Summary {
        findings,
        seed: world.seed,
        writes: writes.len(),
        reported: world.controller.release_log().by_evidence(),
        requests,
        faults: world
            .faults
            .iter()
            .map(|(name, fault)| (*name, fault.hits()))
            .collect(),
        crashes: world.controller.crashes,
        took: begun.elapsed(),
    }
}

/// Whether all chapters completed, and exercised every invariant.
fn chapters_check(trouble: [Option<anyhow::Error>; 3], findings: &Findings) -> Check {
    let trouble = trouble.into_iter().flatten();
    let untested = findings
        .checks
        .iter()
        .filter(|check| check.is_untested())
        .map(|check| format!("nothing happened to check {} on", check.name));
    Check {
        part: Part::AllOfBelayer,
        name: "CHAPTERS",
        seen: CHAPTERS,
        kept: "chapters completed".to_owned(),
        broken: trouble
            .map(|error| format!("{error:#}"))
            .chain(untested)
            .collect(),
    }
}

fn has_settled(world: &World) -> bool {
    let unsettled = |pod: &Pod| {
        let left = pod.object.now == Existence::Exists && pod.has_other_finalizer;
        pod.object.is_unsettled() || left
    };
    let state = &world.state;
    state.count(unsettled) == 0
        && state.count_workflows(Workflow::is_open) == 0
        && state.count_pvcs(|pvc| pvc.now == Existence::Terminating) == 0
        && state.terminating_namespaces() == 0
}

/// The pods, workflows, PVCs and namespaces that are left.
fn left(world: &World) -> Vec<Arc<Value>> {
    [
        Gvr::PODS,
        WORKFLOWS,
        Gvr::PERSISTENTVOLUMECLAIMS,
        Gvr::NAMESPACES,
    ]
    .iter()
    .filter_map(|gvr| {
        world
            .sandbox
            .cluster()
            .list(gvr, None, &ListOptions::default())
            .ok()
    })
    .flat_map(|page| page.items)
    .collect()
}

impl Summary {
    /// Whether no invariant was violated.
    pub(super) fn is_good(&self) -> bool {
        self.findings.all_kept()
    }

    /// The findings, for tests.
    #[cfg(test)]
    pub(super) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Prints the summary.
    pub(super) fn print(&self, output: &Output) {
        output.line("");
        output.line(&format!(
            "{} (seed {}, {})",
            "Summary".bold(),
            self.seed,
            span(self.took)
        ));
        self.print_figures(output);
        self.print_checks(output);
    }

    fn print_figures(&self, output: &Output) {
        let findings = &self.findings;
        let row = |name: &str, text: String| {
            let text = fit(&text, 0, 3 + NAMES + 1);
            output.line(&format!("   {name:<NAMES$} {text}"));
        };
        row(
            "workload",
            format!(
                "{} pods, {} workflows, {} writes in total",
                findings.pods, findings.workflows, self.writes
            ),
        );
        let releases = list(
            findings
                .releases
                .iter()
                .map(|(why, count)| (why.as_str(), *count)),
        );
        row(
            "holds",
            format!("{} added; removed: {releases}", findings.holds_added),
        );
        row(
            "evidence",
            format!(
                "as reported by Belayer: {}",
                list(self.reported.iter().map(|(name, count)| (*name, *count)))
            ),
        );
        row(
            "results",
            format!(
                "{} consumed; {} lost of pods without a hold",
                findings.taken, findings.never_held
            ),
        );
        row(
            "faults",
            format!(
                "{} crash, {}",
                self.crashes,
                list(self.faults.iter().map(|(name, count)| (*name, *count)))
            ),
        );
        row(
            "requests",
            format!(
                "by Belayer: {}",
                list(self.requests.iter().map(|(verb, count)| (*verb, *count)))
            ),
        );
        if findings.by_hand > 0 {
            row(
                "by hand",
                format!("{} differences caused by manual changes", findings.by_hand),
            );
        }
    }

    fn print_checks(&self, output: &Output) {
        output.line("");
        output.line(&format!(
            "{}, checked against the API server's record of all writes",
            "Invariants".bold()
        ));
        for part in [
            Part::PodFinalizer,
            Part::WorkflowFinalizer,
            Part::PvcProtection,
            Part::PodRecreation,
            Part::AllOfBelayer,
        ] {
            output.line(&format!("   {}", part.as_str().cyan()));
            let checks = self.findings.checks.iter();
            for check in checks.filter(|check| check.part == part) {
                print_check(output, check);
            }
        }
        output.line("");
        if self.is_good() {
            output.line(&format!("   {}", "All invariants hold.".bold().green()));
        } else {
            output.line(&format!("   {}", "An invariant is violated.".bold().red()));
        }
    }
}

fn print_check(output: &Output, check: &Check) {
    /// Violations printed for one invariant.
    const SHOWN: usize = 5;
    let name = format!("{:<13}", check.name);
    if check.broken.is_empty() {
        let kept = fit(&format!("{} {}", check.seen, check.kept), 0, PROMISES);
        output.line(&format!("   {} {name} {kept}", "ok".green()));
        return;
    }
    let times = check.broken.len();
    let count = match times {
        1 => "once".to_owned(),
        _ => format!("{times} times"),
    };
    output.line(&format!("   {} {name} {count}", "FAILED".red().bold()));
    for how in check.broken.iter().take(SHOWN) {
        output.line(&fit(how, PROMISES, 0));
    }
    if times > SHOWN {
        output.line(&fit(&format!("and {} more", times - SHOWN), PROMISES, 0));
    }
}

/// `Consumed 20, OwnerGone 3`.
fn list<N: std::fmt::Display>(items: impl Iterator<Item = (&'static str, N)>) -> String {
    let all: Vec<String> = items
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}
