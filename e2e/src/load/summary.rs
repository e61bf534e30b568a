//! The result of a run.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::judge::Judge;
use super::plan::Plan;

/// Before the next kill of the leader another replica leads, on a busy machine after this time.
const SUCCESSION: Duration = Duration::from_secs(120);

/// How many problems are printed.
const PRINTED: usize = 20;

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
    created: usize,
    rejected: usize,
    recreated: usize,
    ran_once: usize,
    exhausted: usize,
    lost: usize,
    twice: usize,
    never_started: usize,
    leaders_killed: usize,
    interruptions: usize,
    recreation: Option<Times>,
    duration: Duration,
    is_complete: bool,
    problems: Vec<String>,
}

/// The times from a rejection to the next pod.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    p50: Duration,
    p99: Duration,
    longest: Duration,
}

impl Times {
    /// `sorted` begins with the shortest.
    fn of(sorted: &[Duration]) -> Option<Self> {
        let at = |percent: usize| {
            let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(at).copied()
        };
        Some(Self {
            p50: at(50)?,
            p99: at(99)?,
            longest: at(100)?,
        })
    }
}

/// What a run knows besides the fates of its pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) duration: Duration,
    pub(super) disruptions: usize,
    /// How often the watch was interrupted so that changes may be missing.
    pub(super) interruptions: usize,
    /// Whether all pods were created.
    pub(super) is_complete: bool,
}

impl Summary {
    pub(super) fn of(judge: &Judge, run: Run) -> Self {
        let counts = judge.counts();
        Self {
            created: counts.created,
            rejected: counts.rejected,
            recreated: counts.recreated,
            ran_once: counts.ran_once,
            exhausted: counts.exhausted,
            lost: counts.missing,
            twice: counts.twice,
            never_started: counts.waiting,
            leaders_killed: run.disruptions,
            interruptions: run.interruptions,
            recreation: Times::of(&judge.recreations()),
            duration: run.duration,
            is_complete: run.is_complete,
            problems: judge.problems(),
        }
    }

    /// Whether all pods were created.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether every pod ran exactly once, or was rejected as often as is allowed.
    pub(crate) fn is_good(&self) -> bool {
        self.is_complete && self.lost + self.twice + self.never_started == 0
    }

    /// Whether the run had what the plan asks for: its rejections with the pods after them, and its kills of the leader.
    pub(crate) fn is_telling(&self, plan: &Plan) -> bool {
        // The seed draws them, so that a run has more or fewer.
        let rejections = 0.8 * plan.rejected * self.created as f64;
        let shown = self.rejected.min(self.recreated) as f64;
        shown >= rejections && self.leaders_killed >= self.least_kills(plan)
    }

    fn least_kills(&self, plan: &Plan) -> usize {
        let Some(every) = plan.kill_leader else {
            return 0;
        };
        let is_long = self.duration >= 2 * (every + SUCCESSION);
        plan.disruptions.unwrap_or(if is_long { 2 } else { 1 })
    }

    /// What became of the pods.
    pub(crate) fn pods(&self) -> [(&'static str, usize); 8] {
        [
            ("created", self.created),
            ("rejected", self.rejected),
            ("re-created", self.recreated),
            ("ran once", self.ran_once),
            ("exhausted", self.exhausted),
            ("lost", self.lost),
            ("started twice", self.twice),
            ("never started", self.never_started),
        ]
    }

    /// The pods that did not end as they should.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The main counts in one line.
    pub(crate) fn line(&self) -> String {
        let times = self.recreation.map(|times| {
            let [p50, p99] = [times.p50, times.p99].map(|time| time.as_secs_f64());
            format!(", re-created after {p50:.1} s (p50), {p99:.1} s (p99)")
        });
        format!(
            "{} pods, {} rejected, {} re-created, {} ran once, {} exhausted, {} leaders killed{}",
            self.created,
            self.rejected,
            self.recreated,
            self.ran_once,
            self.exhausted,
            self.leaders_killed,
            times.unwrap_or_default()
        )
    }

    /// For `-o json`.
    pub(crate) fn json(&self) -> Value {
        let seconds =
            |time: fn(&Times) -> Duration| self.recreation.map(|times| time(&times).as_secs_f64());
        json!({
            "created": self.created,
            "rejected": self.rejected,
            "recreated": self.recreated,
            "ranOnce": self.ran_once,
            "exhausted": self.exhausted,
            "lost": self.lost,
            "startedTwice": self.twice,
            "neverStarted": self.never_started,
            "leadersKilled": self.leaders_killed,
            "watchInterruptions": self.interruptions,
            "recreationSeconds": {
                "p50": seconds(|times| times.p50),
                "p99": seconds(|times| times.p99),
                "max": seconds(|times| times.longest),
            },
            "durationSeconds": self.duration.as_secs_f64(),
            "complete": self.is_complete,
            "problems": self.problems,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.pods() {
            writeln!(f, "{name:<16}{count:>8}")?;
        }
        writeln!(f, "{:<16}{:>8}", "leaders killed", self.leaders_killed)?;
        if let Some(times) = self.recreation {
            let [p50, p99, longest] =
                [times.p50, times.p99, times.longest].map(|time| time.as_secs_f64());
            writeln!(
                f,
                "re-creation after the rejection: p50 {p50:.1} s, p99 {p99:.1} s, longest {longest:.1} s"
            )?;
        }
        if self.interruptions > 0 {
            writeln!(f, "the watch was interrupted {} times", self.interruptions)?;
        }
        if !self.is_complete {
            writeln!(f, "the run was stopped before all pods were created")?;
        }
        for problem in self.problems.iter().take(PRINTED) {
            writeln!(f, "{problem}")?;
        }
        if self.problems.len() > PRINTED {
            writeln!(f, "and {} more", self.problems.len() - PRINTED)?;
        }
        write!(f, "{:.0} s", self.duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::load::Rejector;

    fn summary(rejected: usize, recreated: usize, leaders_killed: usize, seconds: u64) -> Summary {
        Summary {
            created: 200,
            rejected,
            recreated,
            ran_once: 200,
            exhausted: 0,
            lost: 0,
            twice: 0,
            never_started: 0,
            leaders_killed,
            interruptions: 0,
            recreation: None,
            duration: Duration::from_secs(seconds),
            is_complete: true,
            problems: Vec::new(),
        }
    }

    #[rstest]
    #[case::r13_all(summary(60, 60, 2, 60), Some(2), true)]
    #[case::r13_one_rejection(summary(1, 1, 2, 60), Some(2), false)]
    #[case::r13_half_of_the_rejections(summary(30, 30, 2, 60), Some(2), false)]
    #[case::r13_pods_that_were_not_created_again(summary(60, 30, 2, 60), Some(2), false)]
    #[case::r13_one_kill_of_two(summary(60, 60, 1, 60), Some(2), false)]
    #[case::r13_no_kill(summary(60, 60, 0, 60), None, false)]
    #[case::r13_one_kill_in_a_short_run(summary(60, 60, 1, 60), None, true)]
    #[case::r13_one_kill_in_a_long_run(summary(60, 60, 1, 600), None, false)]
    #[case::r13_two_kills_in_a_long_run(summary(60, 60, 2, 600), None, true)]
    fn a_run_is_telling(
        #[case] summary: Summary,
        #[case] disruptions: Option<usize>,
        #[case] expected: bool,
    ) {
        let plan = Plan {
            pods: 200,
            rate: 15.0,
            at_once: None,
            namespaces: vec!["ns".into()],
            rejected: 0.3,
            rejector: Rejector::Status,
            kill_leader: Some(Duration::from_secs(12)),
            disruptions,
            max_retries: 3,
            image: "pause".into(),
            seed: 1,
            patience: Duration::ZERO,
            settle: Duration::ZERO,
        };
        assert_eq!(summary.is_telling(&plan), expected);
    }

    #[test]
    fn r13_percentiles_are_times_that_occurred() {
        let seconds: Vec<_> = (1..=200).map(Duration::from_secs).collect();
        let times = Times::of(&seconds).unwrap();
        let seconds = [times.p50, times.p99, times.longest].map(|time| time.as_secs());
        assert_eq!(seconds, [100, 198, 200]);
        assert_eq!(Times::of(&[]), None);
    }
}
