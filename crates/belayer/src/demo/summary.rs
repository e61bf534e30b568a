//! The end of the demo: what there was, and whether every promise was kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belayer_sandbox::workload::WORKFLOWS;
use belayer_sandbox::{Gvr, ListOptions};
use owo_colors::OwoColorize as _;
use serde_json::Value;

use super::BELAYER;
use super::chronicle::{Flow, Hold, Now, Pod};
use super::neighbour::Mood;
use super::oracle::{self, Check, Evidence, Findings};
use super::telling::{Telling, span};
use super::world::World;

/// How long nothing is asked of the settled cluster, in seconds of the story; never less than a
/// second of real time.
const QUIET: f64 = 5.0;

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
    let mut findings = oracle::judge(&Evidence {
        writes: &writes,
        left: &left(world),
        quiet,
        written_in_quiet: &written_in_quiet,
    });
    let broken: Vec<String> = [trouble, settled.err(), still.err()]
        .into_iter()
        .flatten()
        .map(|error| format!("{error:#}"))
        .collect();
    findings.checks.insert(
        0,
        Check {
            name: "STORY",
            kept: "every chapter came to its end".to_owned(),
            broken,
        },
    );
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

fn has_settled(world: &World) -> bool {
    let open =
        |flow: &Flow| flow.now == Now::Terminating || (flow.now == Now::There && !flow.finished);
    let unsettled = |pod: &Pod| {
        let left = pod.now == Now::There && pod.kept_by_neighbour;
        pod.now == Now::Terminating || pod.hold == Hold::On || left
    };
    world.chronicle.count(unsettled) == 0
        && world.chronicle.count_flows(open) == 0
        && world.chronicle.terminating_namespaces() == 0
}

/// The pods, workflows and namespaces that are left.
fn left(world: &World) -> Vec<Arc<Value>> {
    [Gvr::PODS, WORKFLOWS, Gvr::NAMESPACES]
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
        let findings = &self.findings;
        telling.line("");
        telling.line(&format!(
            "{} (seed {}, {})",
            "Summary".bold(),
            self.seed,
            span(self.took)
        ));
        let row = |name: &str, text: String| telling.line(&format!("   {name:<10} {text}"));
        row(
            "workload",
            format!(
                "{} pods of {} workflows, {} writes of all kinds",
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
            format!("{} added; taken off: {releases}", findings.holds_added),
        );
        row(
            "told",
            format!(
                "by Belayer: {}",
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
        telling.line("");
        for check in &findings.checks {
            tell_check(telling, check);
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
    if check.broken.is_empty() {
        telling.line(&format!(
            "   {:<7}{:<13} {}",
            "ok".green(),
            check.name,
            check.kept
        ));
        return;
    }
    telling.line(&format!(
        "   {:<7}{:<13} {} times",
        "FAILED".red().bold(),
        check.name,
        check.broken.len()
    ));
    for how in check.broken.iter().take(TOLD) {
        telling.line(&format!("          {how}"));
    }
    if check.broken.len() > TOLD {
        telling.line(&format!("          and {} more", check.broken.len() - TOLD));
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
