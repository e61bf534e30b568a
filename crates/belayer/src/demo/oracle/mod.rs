//! Whether the invariants held, judged by the API server's record of writes and by what is left.
//!
//! A second opinion: it shares no code with the rules it judges.

mod past;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::Write;
use serde_json::Value;

use super::BELAYER;
pub(super) use past::Why;
use past::{Node, Past, called, is_deleting, is_held, text};
use rules::{Step, Verdict};

/// Everything there is to judge by.
pub(super) struct Evidence<'a> {
    /// The record, from the start.
    pub(super) writes: &'a [Write],
    /// The pods, workflows and namespaces that are left.
    pub(super) left: &'a [Arc<Value>],
    /// How long nothing was asked of the cluster at the end.
    pub(super) quiet: Duration,
    /// What was written in that time, by whomever.
    pub(super) written_in_quiet: &'a [Write],
}

/// One promise, and whether it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// Its name.
    pub(super) name: &'static str,
    /// What was looked at and found, if all is well.
    pub(super) kept: String,
    /// Every time it was broken.
    pub(super) broken: Vec<String>,
}

/// The judgement.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The checks.
    pub(super) checks: Vec<Check>,
    /// Pods that were created by the workload.
    pub(super) pods: usize,
    /// Workflows that were created.
    pub(super) workflows: usize,
    /// Holds that Belayer's writes put on.
    pub(super) holds_added: usize,
    /// Holds that Belayer's writes took off, by why that was right.
    pub(super) releases: BTreeMap<Why, usize>,
    /// Results that stand in a workflow.
    pub(super) taken: usize,
    /// Pods that nobody ever held, and whose result was lost.
    pub(super) never_held: usize,
    /// Things that are as they are because somebody outside the story wanted it so.
    pub(super) by_hand: usize,
}

impl Findings {
    /// Whether everything is well.
    pub(super) fn all_kept(&self) -> bool {
        self.checks.iter().all(|check| check.broken.is_empty())
    }
}

/// Judges.
pub(super) fn judge(evidence: &Evidence<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut past = Past::default();
    let mut checks: Vec<(usize, Vec<String>)> = vec![(0, Vec::new()); rules::RULES.len()];
    for write in evidence.writes {
        if write.actor.as_str() == BELAYER {
            let step = Step {
                write,
                before: past.object(&write.uid),
                past: &past,
            };
            for (rule, (seen, broken)) in rules::RULES.iter().zip(&mut checks) {
                match (rule.judge)(&step) {
                    Verdict::NotConcerned => {}
                    Verdict::ByHand => findings.by_hand += 1,
                    Verdict::Kept => *seen += 1,
                    Verdict::Broken(how) => broken.push(format!("{} (write {})", how, write.index)),
                }
            }
            count(&mut findings, &step);
        }
        past.add(write);
    }
    for (rule, (seen, broken)) in rules::RULES.iter().zip(checks) {
        findings.checks.push(Check {
            name: rule.name,
            kept: format!("{seen} {}", rule.kept),
            broken,
        });
    }
    let results = results(&mut findings, &past);
    let liveness = liveness(&mut findings, &past, evidence.left);
    let quiet = quiet(evidence);
    findings.checks.extend([results, liveness, quiet]);
    findings
}

fn count(findings: &mut Findings, step: &Step<'_>) {
    match step.hold() {
        rules::Hold::Added => findings.holds_added += 1,
        rules::Hold::Removed => {
            if let Some(why) = step.before.and_then(|pod| step.past.why_may_go(pod)) {
                *findings.releases.entry(why).or_default() += 1;
            }
        }
        rules::Hold::Unchanged => {}
    }
}

/// No pod that was held vanished before its result was taken, unless its workflow or namespace
/// was to go with it.
fn results(findings: &mut Findings, past: &Past) -> Check {
    let mut broken = Vec::new();
    findings.workflows = past.all("Workflow").count();
    for pod in past.all("Pod") {
        findings.pods += 1;
        match past.node_of(pod) {
            Node::Taken => findings.taken += 1,
            Node::Open => {}
            // Nobody waits for the result of what is deleted as a whole.
            Node::Lost if past.why_may_go(pod).is_some() => {}
            Node::Lost if past.is_by_hand(pod) => findings.by_hand += 1,
            Node::Lost if past.was_held(text(pod, "/metadata/uid")) => {
                broken.push(format!("{} was held, and its result is lost", called(pod)));
            }
            Node::Lost => findings.never_held += 1,
        }
    }
    let unfinished = past.all("Workflow").filter(|workflow| {
        text(workflow, "/status/finishedAt").is_empty()
            && !past.is_doomed(workflow)
            && !past.is_by_hand(workflow)
    });
    broken.extend(unfinished.map(|workflow| format!("{} has not finished", called(workflow))));
    broken.sort();
    let kept = format!("{} taken, none lost of a pod that was held", findings.taken);
    Check {
        name: "RESULTS",
        kept,
        broken,
    }
}

/// Nothing is left hanging.
fn liveness(findings: &mut Findings, past: &Past, left: &[Arc<Value>]) -> Check {
    let mut broken = Vec::new();
    for object in left {
        let evidence = is_held(object).then(|| past.why_may_go(object)).flatten();
        let how = match (is_deleting(object), evidence) {
            (false, None) => continue,
            (_, Some(why)) => format!("{} is still held: {}", called(object), why.as_str()),
            (true, None) => format!("{} is still Terminating", called(object)),
        };
        if past.is_by_hand(object) {
            findings.by_hand += 1;
        } else {
            broken.push(how);
        }
    }
    let kept = format!(
        "{} objects are left, none Terminating, none held that may go",
        left.len()
    );
    Check {
        name: "LIVENESS",
        kept,
        broken,
    }
}

/// Belayer writes nothing in a settled cluster.
fn quiet(evidence: &Evidence<'_>) -> Check {
    let mut broken: Vec<String> = evidence
        .written_in_quiet
        .iter()
        .filter(|write| write.actor.as_str() == BELAYER)
        .map(Write::summary)
        .collect();
    let seconds = evidence.quiet.as_secs_f64();
    if evidence.quiet.is_zero() {
        broken.push("there was no quiet time to look at".to_owned());
    }
    Check {
        name: "QUIET",
        kept: format!("no write in {seconds:.1} s once all had settled"),
        broken,
    }
}
