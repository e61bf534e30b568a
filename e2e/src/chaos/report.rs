//! The result of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::disruptor::Recoveries;
use super::growth::Growth;
use super::users::{Task, Work};
use crate::load::Summary;

/// The result of a run.
pub(crate) struct Report {
    pods: Summary,
    recoveries: Recoveries,
    /// Of a run that measures it.
    growth: Option<Growth>,
    tasks: BTreeMap<Task, usize>,
    /// How often a replica has ended by itself.
    ends: usize,
    problems: Vec<String>,
}

impl Report {
    pub(super) fn of(
        pods: Summary,
        recoveries: Recoveries,
        growth: Option<Growth>,
        users: Vec<Work>,
        ends: usize,
        mut problems: Vec<String>,
    ) -> Self {
        let mut tasks: BTreeMap<_, _> = Task::ALL.map(|task| (task, 0)).into();
        for work in users {
            *tasks.entry(work.task).or_default() += work.done;
            problems.extend(work.problems);
        }
        problems.extend(pods.problems().iter().cloned());
        Self {
            pods,
            recoveries,
            growth,
            tasks,
            ends,
            problems,
        }
    }

    /// Whether all users' work was done, and each pod ran once.
    pub(crate) fn is_good(&self) -> bool {
        self.pods.is_good() && self.problems.is_empty() && self.tasks.values().all(|done| *done > 0)
    }

    fn faults(&self) -> usize {
        self.recoveries.values().map(Vec::len).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<46}{:>6}{:>10}{:>10}",
            "fault", "times", "median", "longest"
        )?;
        for (fault, times) in &self.recoveries {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let seconds = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64);
            let (median, longest) = (sorted.get(sorted.len() / 2), sorted.last());
            writeln!(
                f,
                "{fault:<46}{:>6}{:>8.1} s{:>8.1} s",
                times.len(),
                seconds(median),
                seconds(longest)
            )?;
        }
        writeln!(
            f,
            "\n{} faults. Median and longest: until the API server answered, both",
            self.faults()
        )?;
        writeln!(
            f,
            "replicas were ready and one led, from the end of the fault.\n"
        )?;
        writeln!(
            f,
            "{:<52}{:>6}",
            "replicas that ended because they lost the Lease", self.ends
        )?;
        for (task, done) in &self.tasks {
            writeln!(f, "{task:<52}{done:>6}")?;
        }
        writeln!(f, "\npods that request re-creation:")?;
        for (name, count) in self.pods.pods() {
            writeln!(f, "{name:<52}{count:>6}")?;
        }
        writeln!(f)?;
        if let Some(growth) = &self.growth {
            writeln!(f, "{growth}")?;
        }
        for problem in &self.problems {
            writeln!(f, "PROBLEM {problem}")?;
        }
        write!(f, "{} problems", self.problems.len())
    }
}
