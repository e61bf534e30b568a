//! The end of the demo: what there was, and whether every promise was kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belayer_checker::{BELAYER, Check, Evidence, Findings, Part, check};
use belayer_sandbox::{Gvr, ListOptions};
use belayer_workload::WORKFLOWS;
use owo_colors::OwoColorize as _;
use serde_json::Value;

use super::life::{Flow, Now, Pod};
use super::neighbour::Mood;
use super::report::span;
use super::story::CHAPTERS;
use super::telling::{Telling, fit};
use super::world::World;
use super::{BATCH, NEIGHBOUR};

/// How long nothing is asked of the settled cluster, in seconds of the story; never less than a
/// second of real time.
const QUIET: f64 = 2.0;

/// Columns of what stands in front of a text.
const NAMES: usize = 10;
const PROMISES: usize = 20;

/// How it ended.
pub(super) struct Summary {
    findings: Findings,
    seed: u64,
    writes: usize,
    /// What Belayer itself told of its releases.
    told: BTreeMap<&'static str, usize>,
    /// Belayer's requests, by verb.
    requests: BTreeMap<&'static str, u64>,
    faults: Vec<(&'static str, u64)>,
    crashes: usize,
    took: Duration,
}

/// Waits until all has settled, keeps quiet for a while, and judges. `trouble` is what kept the
/// story from being told to its end.
pub(super) async fn draw(
    world: &World,
    telling: &Telling,
    trouble: Option<anyhow::Error>,
    begun: Instant,
) -> Summary {
    world.neighbour.be(Mood::LettingGo);
    // Where the story broke off it may be down.
    world.argo.start();
    let settled = world
        .until("nothing is held or Terminating, by whomever", has_settled)
        .await;
    world.neighbour.be(Mood::Resting);
    // A last look is let pass: whatever is under way may still be written.
    let still = world.still().await;
    let quiet = world.pace.of(QUIET).max(Duration::from_secs(1));
    telling.line("");
    telling.say(&format!(
        "All has settled. Nothing is asked of the cluster for {}.",
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
        others: &[NEIGHBOUR, BATCH],
    });
    let story = story([trouble, settled.err(), still.err()], &findings);
    findings.checks.insert(0, story);
    let mut requests = BTreeMap::new();
    for ((verb, _), count) in recorder.requests_by(BELAYER) {
        *requests.entry(verb.as_str()).or_default() += count;
    }
    Summary {
        findings,
        seed: world.seed,
        writes: writes.len(),
        told: world.controller.ledger().by_evidence(),
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

/// Whether the story came to its end, and was about every promise.
fn story(trouble: [Option<anyhow::Error>; 3], findings: &Findings) -> Check {
    let trouble = trouble.into_iter().flatten();
    let vain = findings
        .checks
        .iter()
        .filter(|check| check.is_untested())
        .map(|check| format!("nothing came about that {} could be judged by", check.name));
    Check {
        part: Part::Everybody,
        name: "STORY",
        seen: CHAPTERS,
        kept: "chapters came to their end".to_owned(),
        broken: trouble
            .map(|error| format!("{error:#}"))
            .chain(vain)
            .collect(),
    }
}

fn has_settled(world: &World) -> bool {
    let unsettled = |pod: &Pod| {
        let left = pod.life.now == Now::There && pod.kept_by_neighbour;
        pod.life.is_unsettled() || left
    };
    let chronicle = &world.chronicle;
    chronicle.count(unsettled) == 0
        && chronicle.count_flows(Flow::is_open) == 0
        && chronicle.count_claims(|claim| claim.now == Now::Terminating) == 0
        && chronicle.terminating_namespaces() == 0
}

/// The pods, workflows, claims and namespaces that are left.
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
    /// Whether every promise was kept.
    pub(super) fn is_good(&self) -> bool {
        self.findings.all_kept()
    }

    /// The judgement, for tests.
    #[cfg(test)]
    pub(super) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Tells it.
    pub(super) fn tell(&self, telling: &Telling) {
        telling.line("");
        telling.line(&format!(
            "{} (seed {}, {})",
            "Summary".bold(),
            self.seed,
            span(self.took)
        ));
        self.tell_figures(telling);
        self.tell_checks(telling);
    }

    fn tell_figures(&self, telling: &Telling) {
        let findings = &self.findings;
        let row = |name: &str, text: String| {
            let text = fit(&text, 0, 3 + NAMES + 1);
            telling.line(&format!("   {name:<NAMES$} {text}"));
        };
        row(
            "workload",
            format!(
                "{} pods, {} workflows, {} writes by all",
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
            format!("{} put on; taken off: {releases}", findings.holds_added),
        );
        row(
            "evidence",
            format!(
                "as Belayer told it: {}",
                list(self.told.iter().map(|(name, count)| (*name, *count)))
            ),
        );
        row(
            "results",
            format!(
                "{} taken; {} lost of pods that were never held",
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
                format!(
                    "{} things are as somebody with kubectl wanted them",
                    findings.by_hand
                ),
            );
        }
    }

    fn tell_checks(&self, telling: &Telling) {
        telling.line("");
        telling.line(&format!(
            "{}, judged by the API server's own record of all writes",
            "Promises".bold()
        ));
        for part in [
            Part::PodFinalizer,
            Part::WorkflowFinalizer,
            Part::PvcProtection,
            Part::PodRecreation,
            Part::Everybody,
        ] {
            telling.line(&format!("   {}", part.as_str().cyan()));
            let checks = self.findings.checks.iter();
            for check in checks.filter(|check| check.part == part) {
                tell_check(telling, check);
            }
        }
        telling.line("");
        if self.is_good() {
            telling.line(&format!("   {}", "Every promise was kept.".bold().green()));
        } else {
            telling.line(&format!("   {}", "A promise was broken.".bold().red()));
        }
    }
}

fn tell_check(telling: &Telling, check: &Check) {
    /// Instances told of one broken promise.
    const TOLD: usize = 5;
    let name = format!("{:<13}", check.name);
    if check.broken.is_empty() {
        let kept = fit(&format!("{} {}", check.seen, check.kept), 0, PROMISES);
        telling.line(&format!("   {} {name} {kept}", "ok".green()));
        return;
    }
    let times = check.broken.len();
    let said = match times {
        1 => "once".to_owned(),
        _ => format!("{times} times"),
    };
    telling.line(&format!("   {} {name} {said}", "FAILED".red().bold()));
    for how in check.broken.iter().take(TOLD) {
        telling.line(&fit(how, PROMISES, 0));
    }
    if times > TOLD {
        telling.line(&fit(&format!("and {} more", times - TOLD), PROMISES, 0));
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
