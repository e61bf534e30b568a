//! The script of a workflow, and the resulting script of each pod.

use std::ops::RangeInclusive;
use std::time::Duration;

use belayer_sandbox::simulated::kubelet::fingerprint;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

/// The script of a workflow. It is stored in the workflow's spec, so that one applied by hand runs
/// as well. [`workflow`](crate::workflow) takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowScript {
    /// How many pods.
    pub pods: usize,
    /// How many of them are created per second; zero or less creates all at once.
    pub pods_per_second: f64,
    /// How long they run.
    pub life: RangeInclusive<Duration>,
    /// The ratio of pods that fail, from 0 to 1.
    pub failure_ratio: f64,
    /// The ratio of pods that their node rejects, from 0 to 1.
    pub rejection_ratio: f64,
    /// When the simulated workflow controller deletes them.
    pub pod_gc: PodGc,
    /// Seed of the random choices, together with the workflow's name.
    pub seed: u64,
}

impl Default for WorkflowScript {
    /// One pod that runs for a second and succeeds.
    fn default() -> Self {
        Self {
            pods: 1,
            pods_per_second: 0.0,
            life: Duration::from_secs(1)..=Duration::from_secs(1),
            failure_ratio: 0.0,
            rejection_ratio: 0.0,
            pod_gc: PodGc::Never,
            seed: 0,
        }
    }
}

impl WorkflowScript {
    /// The `spec` of a workflow with this script.
    #[must_use]
    pub fn to_spec(&self) -> Value {
        let mut spec = json!({
            "entrypoint": "main",
            "sandbox": {
                "pods": self.pods,
                "podsPerSecond": self.pods_per_second,
                "minLifeSeconds": self.life.start().as_secs_f64(),
                "maxLifeSeconds": self.life.end().as_secs_f64(),
                "failureRatio": self.failure_ratio,
                "rejectionRatio": self.rejection_ratio,
                "seed": self.seed,
            },
        });
        if let Some(strategy) = self.pod_gc.strategy() {
            spec["podGC"] = json!({"strategy": strategy, "deleteDelayDuration": "0s"});
        }
        spec
    }

    /// The script of a workflow; missing and invalid fields have their defaults.
    #[must_use]
    pub fn read(workflow: &Value) -> Self {
        let default = Self::default();
        let field = |name: &str| workflow.pointer(&format!("/spec/sandbox/{name}"));
        let number = |name: &str| {
            field(name)
                .and_then(Value::as_f64)
                .filter(|n| n.is_finite())
        };
        let seconds = |name: &str| number(name).and_then(|n| Duration::try_from_secs_f64(n).ok());
        let least = seconds("minLifeSeconds").unwrap_or(*default.life.start());
        let most = seconds("maxLifeSeconds").unwrap_or(*default.life.end());
        let pods = field("pods").and_then(Value::as_u64);
        let strategy = workflow
            .pointer("/spec/podGC/strategy")
            .and_then(Value::as_str);
        Self {
            pods: pods
                .and_then(|pods| usize::try_from(pods).ok())
                .unwrap_or(default.pods),
            pods_per_second: number("podsPerSecond").unwrap_or(default.pods_per_second),
            life: least.min(most)..=most,
            failure_ratio: number("failureRatio").unwrap_or(default.failure_ratio),
            rejection_ratio: number("rejectionRatio").unwrap_or(default.rejection_ratio),
            pod_gc: PodGc::read(strategy),
            seed: field("seed")
                .and_then(Value::as_u64)
                .unwrap_or(default.seed),
        }
    }

    /// The script of one pod. It depends only on the seed, the workflow's name and the pod's
    /// number.
    #[must_use]
    pub fn pod(&self, workflow: &str, number: usize) -> PodScript {
        let own = fingerprint(&format!("{workflow}/{number}"));
        let mut luck = StdRng::seed_from_u64(self.seed ^ own);
        let (least, most) = (*self.life.start(), *self.life.end());
        let life = least + most.saturating_sub(least).mul_f64(luck.random::<f64>());
        let fails = luck.random::<f64>() < self.failure_ratio;
        let rejected = luck.random::<f64>() < self.rejection_ratio;
        PodScript {
            life,
            exit_code: if fails { 1 } else { 0 },
            reject_reason: rejected.then(|| "OutOfcpu".to_owned()),
        }
    }

    /// When a pod is created, from the creation of the first.
    pub(crate) fn created_after(&self, number: usize) -> Duration {
        at_pace(number, self.pods_per_second)
    }
}

/// The script of one pod of a workflow. Part of a [`WorkflowScript`](crate::WorkflowScript), which
/// [`workflow`](crate::workflow) takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodScript {
    /// How long it runs.
    pub life: Duration,
    /// The exit code of its containers.
    pub exit_code: i32,
    /// The reason for which its node rejects it, if it does.
    pub reject_reason: Option<String>,
}

/// `spec.podGC.strategy` of a workflow: when the controller deletes pods. Part of a
/// [`WorkflowScript`](crate::WorkflowScript), which [`workflow`](crate::workflow) takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodGc {
    /// Never: they are deleted with their workflow.
    Never,
    /// As soon as the result is consumed, without labelling the pod first.
    OnPodCompletion,
    /// As before, but failed pods stay.
    OnPodSuccess,
    /// When the workflow has finished.
    OnWorkflowCompletion,
    /// When the workflow has succeeded.
    OnWorkflowSuccess,
}

impl PodGc {
    /// The strategy's name in a workflow's `spec.podGC.strategy`; none for [`PodGc::Never`].
    #[must_use]
    pub fn strategy(self) -> Option<&'static str> {
        match self {
            Self::Never => None,
            Self::OnPodCompletion => Some("OnPodCompletion"),
            Self::OnPodSuccess => Some("OnPodSuccess"),
            Self::OnWorkflowCompletion => Some("OnWorkflowCompletion"),
            Self::OnWorkflowSuccess => Some("OnWorkflowSuccess"),
        }
    }

    pub(crate) fn read(strategy: Option<&str>) -> Self {
        let all = [
            Self::OnPodCompletion,
            Self::OnPodSuccess,
            Self::OnWorkflowCompletion,
            Self::OnWorkflowSuccess,
        ];
        all.into_iter()
            .find(|gc| gc.strategy() == strategy)
            .unwrap_or(Self::Never)
    }
}

/// When the item of that number is due at a rate.
pub(crate) fn at_pace(number: usize, per_second: f64) -> Duration {
    if per_second.is_nan() || per_second <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(number as f64 / per_second).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_survives_a_round_trip_through_a_workflow() {
        let script = WorkflowScript {
            pods: 7,
            pods_per_second: 2.5,
            life: Duration::from_millis(1_500)..=Duration::from_secs(9),
            failure_ratio: 0.25,
            rejection_ratio: 0.125,
            pod_gc: PodGc::OnWorkflowSuccess,
            seed: 42,
        };
        assert_eq!(
            WorkflowScript::read(&json!({"spec": script.to_spec()})),
            script
        );
    }

    #[test]
    fn invalid_fields_of_a_workflow_have_their_defaults() {
        let spec = json!({"spec": {
            "sandbox": {"pods": -1, "minLifeSeconds": -5, "failureRatio": "often", "seed": 1.5},
            "podGC": {"strategy": "Sometimes"},
        }});
        assert_eq!(WorkflowScript::read(&spec), WorkflowScript::default());
        assert_eq!(WorkflowScript::read(&json!({})), WorkflowScript::default());
    }

    #[test]
    fn a_pods_script_depends_only_on_seed_workflow_and_number() {
        let script = WorkflowScript {
            life: Duration::from_secs(2)..=Duration::from_secs(8),
            failure_ratio: 0.3,
            ..WorkflowScript::default()
        };
        let fates = |seed, workflow| {
            let script = WorkflowScript {
                seed,
                ..script.clone()
            };
            (0..1_000)
                .map(|number| script.pod(workflow, number))
                .collect::<Vec<_>>()
        };
        let some = fates(1, "flow-0");
        assert_eq!(some, fates(1, "flow-0"));
        assert_ne!(some, fates(2, "flow-0"));
        assert_ne!(some, fates(1, "flow-1"));
        assert!(some.iter().all(|pod| script.life.contains(&pod.life)));
        let failed = some.iter().filter(|pod| pod.exit_code != 0).count();
        assert!((250..350).contains(&failed), "{failed}");
    }

    #[test]
    fn without_a_rate_all_pods_are_due_at_once() {
        for pace in [0.0, -1.0, f64::NAN] {
            let script = WorkflowScript {
                pods_per_second: pace,
                ..WorkflowScript::default()
            };
            assert_eq!(script.created_after(1_000), Duration::ZERO);
        }
    }
}
