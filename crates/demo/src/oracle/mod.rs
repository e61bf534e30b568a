//! Whether the invariants held, judged by the API server's record of writes and by what is left.
//!
//! A second opinion: it shares no code with the rules it judges, only the names of finalizers and
//! annotations.

mod ends;
mod objects;
mod past;
mod reasons;
mod recreation;
mod rule;
#[cfg(test)]
mod tests;
mod waits;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::Write;
use serde_json::Value;

use super::BELAYER;
use past::Past;
pub(super) use reasons::Why;
pub(super) use rule::Part;
use rule::{Rule, Step, Verdict};

/// Everything there is to judge by.
pub(super) struct Evidence<'a> {
    /// The record, from the start.
    pub(super) writes: &'a [Write],
    /// The pods, workflows, claims and namespaces that are left.
    pub(super) left: &'a [Arc<Value>],
    /// How long nothing was asked of the cluster at the end.
    pub(super) quiet: Duration,
    /// What was written in that time, by whomever.
    pub(super) written_in_quiet: &'a [Write],
}

/// One promise, and whether it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// Whose promise it is.
    pub(super) part: Part,
    /// Its name.
    pub(super) name: &'static str,
    /// How often it could have been broken.
    pub(super) seen: usize,
    /// What follows that number, if all is well.
    pub(super) kept: String,
    /// Every time it was broken.
    pub(super) broken: Vec<String>,
}

impl Check {
    /// Whether nothing came about that could have broken it: no reason to call it kept.
    pub(super) fn is_vain(&self) -> bool {
        self.seen == 0 && self.broken.is_empty() && self.name != ends::QUIET
    }
}

/// The judgement.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The checks.
    pub(super) checks: Vec<Check>,
    /// Pods that there were.
    pub(super) pods: usize,
    /// Workflows that there were.
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

    /// The check of a promise that is there.
    fn check_mut(&mut self, name: &str) -> Option<&mut Check> {
        self.checks.iter_mut().find(|check| check.name == name)
    }
}

/// The rules about single writes, in the order in which they are told.
fn rules() -> impl Iterator<Item = &'static Rule> {
    [writes::RULES, waits::RULES, recreation::RULES]
        .into_iter()
        .flatten()
}

/// Judges.
pub(super) fn judge(evidence: &Evidence<'_>) -> Findings {
    let mut findings = Findings {
        checks: rules().map(unbroken).collect(),
        ..Findings::default()
    };
    let mut past = Past::default();
    for write in evidence.writes {
        if write.actor.as_str() == BELAYER {
            let step = Step {
                write,
                before: past.object(&write.uid),
                past: &past,
            };
            for (place, rule) in rules().enumerate() {
                apply(&mut findings, place, (rule.judge)(&step), write.index);
            }
            count(&mut findings, &step);
        }
        past.add(write);
    }
    if let Some(check) = findings.check_mut(recreation::NO_LOSS) {
        check.broken.extend(recreation::lost(&past));
    }
    let results = ends::results(&mut findings, &past);
    let liveness = ends::liveness(&mut findings, &past, evidence.left);
    let quiet = ends::quiet(evidence);
    findings.checks.extend([liveness, quiet, results]);
    findings
}

fn unbroken(rule: &Rule) -> Check {
    Check {
        part: rule.part,
        name: rule.name,
        seen: 0,
        kept: rule.kept.to_owned(),
        broken: Vec::new(),
    }
}

fn apply(findings: &mut Findings, place: usize, verdict: Verdict, index: usize) {
    let Some(check) = findings.checks.get_mut(place) else {
        return;
    };
    match verdict {
        Verdict::NotConcerned => {}
        Verdict::ByHand => findings.by_hand += 1,
        Verdict::Kept => check.seen += 1,
        Verdict::Broken(how) => check.broken.push(format!("{how} (write {index})")),
    }
}

fn count(findings: &mut Findings, step: &Step<'_>) {
    findings.holds_added += step.added().len();
    let Some(before) = step.before else { return };
    for hold in step.removed() {
        if let Some(why) = step.past.why_may_go(before, hold) {
            *findings.releases.entry(why).or_default() += 1;
        }
    }
}
