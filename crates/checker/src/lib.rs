#![doc = include_str!("../README.md")]

mod delays;
mod ends;
mod history;
mod objects;
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

use belayer_holds::names;
use belayer_sandbox::Write;
use serde_json::Value;

use delays::Delays;
use history::History;
use rule::{Rule, Step, Verdict};

pub use reasons::Why;
pub use rule::Part;

/// The actor name that Belayer's requests have in the record. A replica may append its number: `belayer/1`.
pub const BELAYER: &str = "belayer";

/// Prefix of Belayer's finalizers and annotations.
const BELAYERS: &str = "belayer.dev/";
/// Belayer's hold (finalizer) on pods whose result is not consumed yet.
const POD_HOLD: &str = names::POD_STATUS_HOLD;
/// Its hold on pods that are re-created if their node rejects them.
const RECREATION_HOLD: &str = names::POD_RECREATION_HOLD;
/// Its hold on workflows.
const WORKFLOW_HOLD: &str = names::WORKFLOW_HOLD;
/// Its hold on PVCs.
const PVC_HOLD: &str = names::PVC_PROTECTION_HOLD;

/// What the checks read. The [crate's example](crate) collects all of it.
pub struct Evidence<'a> {
    /// The API server's record of writes, from the start.
    pub writes: &'a [Write],
    /// The pods, workflows, PVCs and namespaces that exist at the end.
    pub left: &'a [Arc<Value>],
    /// How long no request was sent to the settled cluster at the end.
    pub quiet: Duration,
    /// What was written in that time, by any actor.
    pub written_in_quiet: &'a [Write],
    /// Further actors of the test, in addition to Belayer, the workload's user and workflow controller, and the
    /// sandbox's own controllers. Writes of any other actor count as made by hand: see [`Findings::by_hand`].
    pub others: &'a [&'a str],
    /// The write from which on all faults had ended and Belayer ran. What was created later must have been held.
    pub healthy_from: Option<usize>,
    /// Belayer's configuration.
    pub settings: Settings,
}

/// What Belayer's configuration says, by its keys there. Part of [`Evidence`], of which the [crate's example](crate) has one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// `nodeLostDelay` of the profile for Argo.
    pub node_lost_delay: Duration,
    /// `releaseAfter` of the profile for Argo.
    pub release_after: Option<Duration>,
    /// Whether its `deletedWhileRunning` is `hold`.
    pub holds_deleted: bool,
    /// Whether its `cleanup` is `argo`.
    pub cleans_up: bool,
    /// Its `adopt`: a finalizer of another controller.
    pub adopts: Option<&'static str>,
    /// Its `capture`.
    pub captures: bool,
    /// Whether workflows are held until they are archived (`until: archived`).
    pub until_archived: bool,
    /// The label `app` of pods of another profile, whose consumer reads the records of their outcomes.
    pub recorded_app: Option<&'static str>,
}

impl Settings {
    /// Whether Belayer records outcomes of pods.
    pub fn records_outcomes(&self) -> bool {
        self.captures || self.recorded_app.is_some()
    }
}

/// One invariant and its result. [`check`] returns one per invariant. The [crate's example](crate)
/// prints them if one was violated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The controller that guarantees it.
    pub part: Part,
    /// Its name, such as `FOREIGN`.
    pub name: &'static str,
    /// How many writes or objects it was checked on.
    pub seen: usize,
    /// Text that follows that number, such as `pods re-created, none after it had run`.
    pub kept: String,
    /// One text for every violation.
    pub broken: Vec<String>,
}

impl Check {
    /// Whether nothing happened that could have violated it.
    pub fn is_untested(&self) -> bool {
        self.seen == 0 && self.broken.is_empty() && self.name != ends::QUIET
    }
}

/// The results of all checks. Returned by [`check`], as in the [crate's
/// example](crate).
#[derive(Debug, Default)]
pub struct Findings {
    /// The checks: rules about single writes first, then checks of the final state.
    pub checks: Vec<Check>,
    /// How many pods were created.
    pub pods: usize,
    /// How many workflows were created.
    pub workflows: usize,
    /// How many finalizers Belayer's writes added.
    pub holds_added: usize,
    /// How many finalizers Belayer's writes removed, by the reason that permitted it.
    pub releases: BTreeMap<Why, usize>,
    /// How many pods' results are in their workflow's status.
    pub taken: usize,
    /// How many pods had no finalizer of Belayer's and were deleted before their result was consumed.
    pub never_held: usize,
    /// How many violations are not counted because an actor outside the test had changed the object.
    pub by_hand: usize,
}

impl Findings {
    /// Whether no invariant was violated.
    pub fn all_kept(&self) -> bool {
        self.checks.iter().all(|check| check.broken.is_empty())
    }

    /// The check of this name.
    fn check_mut(&mut self, name: &str) -> Option<&mut Check> {
        self.checks.iter_mut().find(|check| check.name == name)
    }
}

/// The rules about single writes, in the order in which they are printed.
fn rules() -> impl Iterator<Item = &'static Rule> {
    [writes::RULES, waits::RULES, recreation::RULES]
        .into_iter()
        .flatten()
}

/// Checks every invariant against the record and the objects that are left. The [crate's
/// example](crate) calls it at the end of a run.
pub fn check(evidence: &Evidence<'_>) -> Findings {
    let mut findings = Findings {
        checks: rules().map(unbroken).collect(),
        ..Findings::default()
    };
    let mut history = History::new(evidence.others, evidence.settings);
    let mut delays = Delays::default();
    for write in evidence.writes {
        history.now = write.at;
        history.is_late = write.actor.is_late();
        if write.actor.program() == BELAYER {
            let step = Step {
                write,
                before: history.object(&write.uid),
                history: &history,
            };
            for (place, rule) in rules().enumerate() {
                apply(
                    &mut findings,
                    place,
                    (rule.check_script)(&step),
                    write.index,
                );
            }
            count(&mut findings, &step);
        }
        history.add(write);
        if evidence
            .healthy_from
            .is_some_and(|from| write.index >= from)
        {
            delays.follow(&history, write);
        }
    }
    // The checks below are about the end of the run, and not about its last write.
    history.is_late = false;
    history.now = history
        .now
        .checked_add(evidence.quiet)
        .unwrap_or(history.now);
    if let Some(check) = findings.check_mut(recreation::NO_LOSS) {
        check.broken.extend(recreation::lost(&history));
    }
    let results = ends::results(&mut findings, &history);
    let liveness = ends::liveness(&mut findings, &history, evidence.left);
    let quiet = ends::quiet(evidence);
    findings.checks.extend([liveness, quiet, results]);
    if let Some(from) = evidence.healthy_from {
        let mut prompt = ends::prompt(&history, evidence.left, from);
        prompt.broken.extend(delays.late);
        findings.checks.extend([ends::held(&history, from), prompt]);
        if evidence.settings.records_outcomes() {
            findings.checks.push(ends::recorded(&history, from));
        }
    }
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
        if let Some(why) = step.history.release_reason(before, hold) {
            *findings.releases.entry(why).or_default() += 1;
        }
    }
}
