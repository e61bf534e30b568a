//! Decides what a node's kubelet does next about one pod.

use std::time::Duration;

use serde_json::Value;

use super::lifecycle::{Runtime, Stage};
use super::plan::{Rejection, annotations};
use crate::simulated::object;
use crate::simulated::quantity::Amount;

/// What the last status write reported about a pod's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    Nothing,
    Starting,
    Running { restarts: u32, ended: usize },
    BackingOff { restarts: u32 },
    Ended,
}

impl Reported {
    pub(super) fn about(runtime: &Runtime) -> Self {
        let restarts = runtime.restarts;
        match runtime.stage {
            Stage::Starting { .. } => Self::Starting,
            Stage::Running { .. } => Self::Running {
                restarts,
                ended: runtime.ends.len(),
            },
            Stage::BackOff { .. } => Self::BackingOff { restarts },
            Stage::Ended { .. } => Self::Ended,
        }
    }
}

/// The kubelet's state for a pod.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    /// Not processed yet.
    New,
    /// It runs here, or ran.
    Accepted {
        runtime: Runtime,
        reported: Reported,
    },
    /// Nothing more to do: removed from the API, or rejected.
    Settled,
}

/// The next write about a pod, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodStep {
    Nothing,
    /// Decide whether it may run here.
    Admit,
    /// It ran on an earlier machine of this name, and its containers are not on this one: report them as ended.
    ReportLost,
    /// It is being deleted and was never admitted: no container will run.
    GiveUp,
    /// Stop its containers within this time.
    Stop(Duration),
    /// Write the status of its containers.
    Report,
    /// It has ended and is being deleted: remove it from the API.
    Remove,
}

/// Decides about a pod that is bound to a connected node.
pub(super) fn decide(pod: &Value, progress: &Progress) -> PodStep {
    let deleting = object::is_deleting(pod);
    let ended = object::is_ended(pod);
    match progress {
        Progress::Settled => PodStep::Nothing,
        Progress::New if has_running_container(pod) && (deleting || is_run_once(pod)) => {
            PodStep::ReportLost
        }
        Progress::New => match (ended, deleting) {
            (true, true) => PodStep::Remove,
            (true, false) => PodStep::Nothing,
            (false, true) => PodStep::GiveUp,
            (false, false) => PodStep::Admit,
        },
        Progress::Accepted { runtime, reported } => {
            let over = runtime.has_ended();
            if !over
                && (deleting || ended || is_signalled(pod))
                && let Some(stop) = new_stop(pod, runtime)
            {
                return PodStep::Stop(stop);
            }
            if *reported != Reported::about(runtime) {
                return PodStep::Report;
            }
            if over && deleting {
                PodStep::Remove
            } else {
                PodStep::Nothing
            }
        }
    }
}

/// Whether its status shows a container that runs.
fn has_running_container(pod: &Value) -> bool {
    let statuses = object::items(pod, "/status/containerStatuses");
    statuses
        .iter()
        .any(|status| status.pointer("/state/running").is_some())
}

fn is_run_once(pod: &Value) -> bool {
    object::text(pod, "/spec/restartPolicy") == Some("Never")
}

/// Whether its containers are asked to stop from outside.
fn is_signalled(pod: &Value) -> bool {
    object::annotation(pod, annotations::SIGNAL) == Some("true")
}

/// The grace period to stop with, if the containers were not asked before or got a longer one.
fn new_stop(pod: &Value, runtime: &Runtime) -> Option<Duration> {
    let seconds = |pointer| pod.pointer(pointer).and_then(Value::as_u64);
    let seconds = seconds("/metadata/deletionGracePeriodSeconds")
        .or_else(|| seconds("/spec/terminationGracePeriodSeconds"))
        .unwrap_or(30);
    let grace = Duration::from_secs(seconds);
    runtime
        .grace()
        .is_none_or(|known| grace < known)
        .then_some(grace)
}

/// A kubelet's own check of a pod that was bound to it: whether it fits.
pub(super) fn check_room(need: &Amount, used: &Amount, capacity: &Amount) -> Option<Rejection> {
    let lack = (*capacity - *used).lacks(need).next()?;
    let of = |amount| lack.of(amount);
    Some(Rejection::out_of(
        lack.resource(),
        of(need),
        of(used),
        of(capacity),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::kubelet::lifecycle::{Now, RestartPolicy};
    use crate::simulated::kubelet::plan::{RunFor, RunPlan};
    use jiff::Timestamp;
    use rstest::rstest;
    use serde_json::json;
    use tokio::time::Instant;

    fn pod(phase: &str) -> Value {
        json!({
            "metadata": {"name": "a"},
            "spec": {"terminationGracePeriodSeconds": 30},
            "status": {"phase": phase},
        })
    }

    fn deleted(phase: &str, grace: u64) -> Value {
        let mut pod = pod(phase);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod
    }

    fn ran_elsewhere(phase: &str) -> Value {
        let mut pod = deleted(phase, 0);
        pod["status"]["containerStatuses"] = json!([{"name": "main", "state": {"running": {}}}]);
        pod
    }

    fn now() -> Now {
        Now {
            instant: Instant::now(),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn runtime(run_for: RunFor) -> Runtime {
        let plan = RunPlan {
            start_delay: Duration::ZERO,
            run_for,
            ..RunPlan::default()
        };
        let mut runtime = Runtime::accept(plan, RestartPolicy::Never, now());
        runtime.advance(now());
        runtime
    }

    fn running(reported: Reported) -> Progress {
        Progress::Accepted {
            runtime: runtime(RunFor::Ever),
            reported,
        }
    }

    fn stopping(grace: u64) -> Progress {
        let mut runtime = runtime(RunFor::Ever);
        runtime.stop(Duration::from_secs(grace), now());
        Progress::Accepted {
            runtime,
            reported: REPORTED,
        }
    }

    fn over(reported: Reported) -> Progress {
        Progress::Accepted {
            runtime: runtime(RunFor::Time(Duration::ZERO)),
            reported,
        }
    }

    const REPORTED: Reported = Reported::Running {
        restarts: 0,
        ended: 0,
    };

    fn stop(seconds: u64) -> PodStep {
        PodStep::Stop(Duration::from_secs(seconds))
    }

    #[rstest]
    #[case::a_new_pod_is_admitted_or_not(pod("Pending"), Progress::New, PodStep::Admit)]
    #[case::a_pod_that_ended_elsewhere_is_left_alone(
        pod("Failed"),
        Progress::New,
        PodStep::Nothing
    )]
    #[case::unless_it_is_to_go(deleted("Failed", 30), Progress::New, PodStep::Remove)]
    #[case::a_pod_deleted_before_it_started_never_runs(
        deleted("Pending", 30),
        Progress::New,
        PodStep::GiveUp
    )]
    #[case::running_is_reported(pod("Pending"), running(Reported::Starting), PodStep::Report)]
    #[case::once(pod("Running"), running(REPORTED), PodStep::Nothing)]
    #[case::a_deleted_pod_is_stopped(deleted("Running", 7), running(REPORTED), stop(7))]
    #[case::once_too(deleted("Running", 7), stopping(7), PodStep::Nothing)]
    #[case::or_again_with_less_grace(deleted("Running", 0), stopping(7), stop(0))]
    #[case::a_pod_with_phase_failed_is_stopped(pod("Failed"), running(REPORTED), stop(30))]
    #[case::its_end_is_reported_first(deleted("Running", 7), over(REPORTED), PodStep::Report)]
    #[case::then_it_is_removed(deleted("Succeeded", 7), over(Reported::Ended), PodStep::Remove)]
    #[case::an_ended_pod_that_is_not_deleted_stays(
        pod("Succeeded"),
        over(Reported::Ended),
        PodStep::Nothing
    )]
    #[case::and_only_once(deleted("Succeeded", 0), Progress::Settled, PodStep::Nothing)]
    #[case::lost_containers_are_reported(
        ran_elsewhere("Failed"),
        Progress::New,
        PodStep::ReportLost
    )]
    #[tokio::test(start_paused = true)]
    async fn steps(#[case] pod: Value, #[case] progress: Progress, #[case] expected: PodStep) {
        assert_eq!(decide(&pod, &progress), expected);
    }

    #[rstest]
    #[case::it_fits(1_000, 3_000, None)]
    #[case::it_does_not(
        2_000,
        3_000,
        Some(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
        )
    )]
    fn room(#[case] need: i128, #[case] used: i128, #[case] expected: Option<&str>) {
        let amount = |cpu, pods| Amount {
            cpu,
            memory: 0,
            pods,
        };
        let refused = check_room(&amount(need, 1), &amount(used, 1), &amount(4_000, 10));
        assert_eq!(refused.map(|r| r.message()).as_deref(), expected);
    }
}
