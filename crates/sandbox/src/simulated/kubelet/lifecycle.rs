//! The lifecycle of a pod's containers on a node: a state machine over time.

mod containers;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use self::containers::{Stop, earlier};
use super::plan::{RunFor, RunPlan};

/// The first delay before a container restarts; it doubles up to [`LAST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LAST_BACKOFF: Duration = Duration::from_secs(300);
/// The exit code of a container that was killed, or whose end was not observed.
const KILLED: i32 = 137;

/// One point in time on both clocks: tokio's for timers, the wall clock for what is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) wall: Timestamp,
}

impl Now {
    /// The wall clock's time at an instant that is not later than now.
    fn wall_of(&self, instant: Instant) -> Timestamp {
        let ago = self.instant.saturating_duration_since(instant);
        self.wall.saturating_sub(ago).unwrap_or(self.wall)
    }
}

/// `spec.restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    fn restarts_after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The last run of the containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
    pub(super) exit_code: i32,
}

/// The stage of the containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Being created.
    Starting { until: Instant },
    /// Running since then.
    Running {
        since: Instant,
        started: Timestamp,
        until: Option<Instant>,
    },
    /// Ended, and to be started again.
    BackOff { last: Run, until: Instant },
    /// Ended for good. Without a run, no container ever ran.
    Ended { last: Option<Run>, at: Timestamp },
}

/// The state of one pod in a node's container runtime. It exists also while the node is cut off.
#[derive(Debug, Clone)]
pub(super) struct Runtime {
    plan: Box<RunPlan>,
    policy: RestartPolicy,
    stop: Option<Stop>,
    /// Its volumes wait for a PVC: until then no container starts.
    unmounted: bool,
    pub(super) stage: Stage,
    pub(super) accepted: Timestamp,
    pub(super) restarts: u32,
    /// The containers that have ended before the others, and a failed init container.
    pub(super) ends: BTreeMap<String, Run>,
}

impl Runtime {
    pub(super) fn accept(plan: RunPlan, policy: RestartPolicy, now: Now) -> Self {
        let until = now.instant + plan.start_delay;
        Self {
            plan: Box::new(plan),
            policy,
            stop: None,
            unmounted: false,
            stage: Stage::Starting { until },
            accepted: now.wall,
            restarts: 0,
            ends: BTreeMap::new(),
        }
    }

    /// Marks its volumes as not mountable yet.
    pub(super) fn wait_for_volumes(&mut self) {
        self.unmounted = true;
    }

    /// Marks its volumes as mounted: it starts as if it had been accepted now.
    pub(super) fn mounted(&mut self, now: Now) {
        if std::mem::take(&mut self.unmounted) {
            let until = now.instant + self.plan.start_delay;
            self.stage = Stage::Starting { until };
        }
    }

    pub(super) fn waits_for_volumes(&self) -> bool {
        self.unmounted && matches!(self.stage, Stage::Starting { .. })
    }

    /// Asks the containers to stop within `grace`. A repeated request can only shorten it.
    pub(super) fn stop(&mut self, grace: Duration, now: Now) {
        let stop = self.stop.get_or_insert(Stop {
            asked: now.instant,
            grace,
        });
        stop.grace = stop.grace.min(grace);
    }

    /// The grace period of the stop request, if there was one.
    pub(super) fn grace(&self) -> Option<Duration> {
        self.stop.map(|stop| stop.grace)
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    /// Advances the state up to `now`.
    pub(super) fn advance(&mut self, now: Now) {
        while let Some(next) = self.next(now) {
            self.stage = next;
        }
    }

    /// When the state next changes by itself.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        match self.stage {
            Stage::Starting { .. } if self.unmounted => None,
            Stage::Starting { until } | Stage::BackOff { until, .. } => Some(until),
            Stage::Running { since, .. } if !self.plan.containers.is_empty() => {
                let open = self
                    .container_ends(since)
                    .filter(|(name, _)| !self.ends.contains_key(*name));
                open.filter_map(|(_, end)| Some(end?.0)).min()
            }
            Stage::Running { until, .. } => self.end(until).map(|(when, _)| when),
            Stage::Ended { .. } => None,
        }
    }

    /// When a run ends, and with which exit code.
    fn end(&self, natural: Option<Instant>) -> Option<(Instant, i32)> {
        let natural = natural.map(|when| (when, self.plan.exit_code));
        let stop = |stop: Stop| stop.end(self.plan.stop_time, self.plan.stop_exit_code);
        earlier(natural, self.stop.map(stop))
    }

    fn next(&mut self, now: Now) -> Option<Stage> {
        match self.stage {
            Stage::Ended { .. } => None,
            Stage::Starting { .. } if self.stop.is_some() => Some(Stage::Ended {
                last: None,
                at: now.wall,
            }),
            Stage::BackOff { last, .. } if self.stop.is_some() => Some(Stage::Ended {
                last: Some(last),
                at: now.wall,
            }),
            Stage::Starting { .. } if self.unmounted => None,
            Stage::Starting { until } if until > now.instant => None,
            Stage::Starting { until } => Some(match self.plan.failing_init.clone() {
                Some((name, exit_code)) => {
                    let finished = now.wall_of(until);
                    let started = self.accepted;
                    self.ends.insert(
                        name,
                        Run {
                            started,
                            finished,
                            exit_code,
                        },
                    );
                    Stage::Ended {
                        last: None,
                        at: finished,
                    }
                }
                None => self.run(until, now),
            }),
            Stage::BackOff { until, .. } => (until <= now.instant).then(|| {
                self.restarts = self.restarts.saturating_add(1);
                self.run(until, now)
            }),
            Stage::Running {
                since,
                started,
                until,
            } => {
                let (when, exit_code) = if self.plan.containers.is_empty() {
                    self.end(until)?
                } else {
                    self.end_containers(since, started, now)?
                };
                if when > now.instant {
                    return None;
                }
                let finished = now.wall_of(when);
                let last = Run {
                    started,
                    finished,
                    exit_code,
                };
                if self.stop.is_none() && self.policy.restarts_after(exit_code) {
                    let wait = FIRST_BACKOFF.saturating_mul(1 << self.restarts.min(8));
                    return Some(Stage::BackOff {
                        last,
                        until: when + wait.min(LAST_BACKOFF),
                    });
                }
                Some(Stage::Ended {
                    last: Some(last),
                    at: finished,
                })
            }
        }
    }

    fn run(&self, since: Instant, now: Now) -> Stage {
        let until = match self.plan.run_for {
            RunFor::Time(time) => Some(since + time),
            RunFor::Ever => None,
        };
        Stage::Running {
            since,
            started: now.wall_of(since),
            until,
        }
    }
}

/// The exit code reported for containers that never ran although their pod has ended.
pub(super) const NEVER_RAN: i32 = KILLED;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const EVER: RunFor = RunFor::Ever;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn runs(run_for: RunFor, exit_code: i32) -> RunPlan {
        RunPlan {
            start_delay: secs(2),
            run_for,
            exit_code,
            stop_time: secs(5),
            ..RunPlan::default()
        }
    }

    /// The stage's name, and the exit code of the last run.
    fn outline(runtime: &Runtime) -> (&'static str, Option<i32>) {
        match runtime.stage {
            Stage::Starting { .. } => ("starting", None),
            Stage::Running { .. } => ("running", None),
            Stage::BackOff { last, .. } => ("back-off", Some(last.exit_code)),
            Stage::Ended { last, .. } => ("ended", last.map(|run| run.exit_code)),
        }
    }

    #[rstest]
    #[case::it_takes_its_time_to_start(runs(EVER, 0), None, 1, ("starting", None))]
    #[case::then_it_runs(runs(EVER, 0), None, 2, ("running", None))]
    #[case::for_ever(runs(EVER, 0), None, 100_000, ("running", None))]
    #[case::or_for_its_time(runs(RunFor::Time(secs(10)), 3), None, 12, ("ended", Some(3)))]
    #[case::stopped_before_it_ran(runs(EVER, 0), Some((1, 30)), 1, ("ended", None))]
    #[case::it_takes_its_time_to_stop(runs(EVER, 0), Some((10, 30)), 14, ("running", None))]
    #[case::and_then_has_stopped(runs(EVER, 0), Some((10, 30)), 15, ("ended", Some(143)))]
    #[case::too_slow_to_stop_it_is_killed(runs(EVER, 0), Some((10, 3)), 13, ("ended", Some(137)))]
    #[case::no_grace_at_all(runs(EVER, 0), Some((10, 0)), 10, ("ended", Some(137)))]
    #[case::done_while_being_stopped(runs(RunFor::Time(secs(10)), 0), Some((11, 30)), 12, ("ended", Some(0)))]
    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_never_restarted(
        #[case] plan: RunPlan,
        #[case] stopped: Option<(u64, u64)>,
        #[case] until: u64,
        #[case] expected: (&'static str, Option<i32>),
    ) {
        let start = now();
        let mut runtime = Runtime::accept(plan, RestartPolicy::Never, start);
        for second in 0..=until {
            let moment = later(start, second);
            if let Some((when, grace)) = stopped
                && when == second
            {
                runtime.stop(secs(grace), moment);
            }
            runtime.advance(moment);
        }
        assert_eq!(outline(&runtime), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_container_backs_off_ever_longer() {
        let start = now();
        let mut runtime = Runtime::accept(
            runs(RunFor::Time(secs(1)), 1),
            RestartPolicy::OnFailure,
            start,
        );
        let mut restarted_at = vec![];
        for second in 0..80 {
            let before = runtime.restarts;
            runtime.advance(later(start, second));
            if runtime.restarts > before {
                restarted_at.push(second);
            }
        }
        // Starts at 2, ends at 3, waits 10 s; ends at 14, waits 20 s; ends at 35, waits 40 s.
        assert_eq!(restarted_at, [13, 34, 75]);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_between_two_advances_keep_their_own_times() {
        let start = now();
        let mut runtime =
            Runtime::accept(runs(RunFor::Time(secs(10)), 0), RestartPolicy::Never, start);
        runtime.advance(later(start, 500));
        let Stage::Ended {
            last: Some(run),
            at,
        } = runtime.stage
        else {
            panic!("{:?}", runtime.stage);
        };
        assert_eq!(run.started, start.wall + secs(2));
        assert_eq!(
            (run.finished, at),
            (start.wall + secs(12), start.wall + secs(12))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_request_can_only_shorten_the_grace() {
        let start = now();
        let mut runtime = Runtime::accept(runs(EVER, 0), RestartPolicy::Never, start);
        runtime.advance(later(start, 2));
        runtime.stop(secs(4), later(start, 2));
        runtime.stop(secs(60), later(start, 3));
        assert_eq!(runtime.next_timer(), Some(start.instant + secs(6)));
        runtime.stop(secs(0), later(start, 4));
        runtime.advance(later(start, 4));
        assert_eq!(outline(&runtime), ("ended", Some(137)));
    }

    fn now() -> Now {
        Now {
            instant: Instant::now(),
            wall: Timestamp::from_second(1_700_000_000).unwrap(),
        }
    }

    fn later(start: Now, seconds: u64) -> Now {
        Now {
            instant: start.instant + secs(seconds),
            wall: start.wall + secs(seconds),
        }
    }
}
