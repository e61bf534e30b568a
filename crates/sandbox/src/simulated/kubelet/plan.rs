//! The plan of a pod on its node, made once, when the node first sees it.

mod containers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

pub use self::containers::ContainerPlan;
use crate::simulated::object;

/// What happens to a pod that its node accepts. Part of a [`PodPlan`](crate::simulated::PodPlan);
/// the pod of the [example](crate::simulated) has the default.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// From the time the node first sees it until its containers run.
    pub start_delay: Duration,
    /// How long the containers run if they are not stopped.
    pub run_for: RunFor,
    /// The exit code of every container at its natural end.
    pub exit_code: i32,
    /// How long the containers take to stop when asked to. At the end of the grace period they are
    /// killed (exit code 137).
    pub stop_time: Duration,
    /// The exit code of containers that are stopped early.
    pub stop_exit_code: i32,
    /// The plans of its containers by name, if they do not all end together.
    pub containers: BTreeMap<String, ContainerPlan>,
    /// The init container that fails, and its exit code.
    pub failing_init: Option<(String, i32)>,
}

/// How long containers run if they are not stopped. Part of a
/// [`ContainerPlan`](crate::simulated::kubelet::ContainerPlan); the pod of the
/// [example](crate::simulated) runs until it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFor {
    /// This long.
    Time(Duration),
    /// Until stopped.
    Ever,
}

impl Default for RunPlan {
    /// Starts within half a second, runs until stopped, stops within a tenth of a second.
    fn default() -> Self {
        Self {
            start_delay: Duration::from_millis(500),
            run_for: RunFor::Ever,
            exit_code: 0,
            stop_time: Duration::from_millis(100),
            stop_exit_code: 143,
            containers: BTreeMap::new(),
            failing_init: None,
        }
    }
}

/// Why a node rejects a pod that was bound to it, with a real kubelet's texts. Part of a
/// [`PodPlan`](crate::simulated::PodPlan); the pod of the [example](crate::simulated) is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`, such as `OutOfcpu` or `NodeAffinity`.
    pub reason: String,
    /// What follows `Pod was rejected: ` in `status.message`.
    pub detail: String,
}

impl Rejection {
    /// The rejection with this `status.reason` and the text that belongs to it.
    #[must_use]
    pub fn new(reason: &str) -> Self {
        let predicate = |why: &str| format!("Predicate {reason} failed: {why}");
        let detail = match reason {
            "NodeAffinity" => predicate("node(s) didn't match Pod's node affinity/selector"),
            "MatchNodeSelector" => predicate("node(s) didn't match Pod's node selector"),
            "NodeName" => predicate("node(s) didn't match the requested node name"),
            "NodePorts" => predicate("node(s) didn't have free ports for the requested pod ports"),
            "TaintToleration" => predicate("node(s) had taints that the pod didn't tolerate"),
            "UnexpectedAdmissionError" => {
                "Allocate failed due to no healthy devices present; cannot allocate unhealthy \
                 devices, which is unexpected"
                    .to_owned()
            }
            "InvalidNodeInfo" => "Kubelet cannot get node info.".to_owned(),
            "NodeShutdown" => "Pod was rejected as the node is shutting down.".to_owned(),
            "Evicted" => "The node had condition: [MemoryPressure]. ".to_owned(),
            "VolumeAttachmentLimitExceeded" => {
                "Node has reached its volume attachment limit".to_owned()
            }
            "TopologyAffinityError" => {
                "Resources cannot be allocated with Topology locality".to_owned()
            }
            "SMTAlignmentError" => {
                "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2".to_owned()
            }
            "AppArmor" => "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
            "SysctlForbidden" => "forbidden sysctl: \"kernel.msgmax\" not allowlisted".to_owned(),
            "PodOSNotSupported" => {
                "Failed to admit pod as the OS field doesn't match node OS".to_owned()
            }
            "PodOSSelectorNodeLabelDoesNotMatch" => {
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
                    .to_owned()
            }
            "PodFeatureUnsupported" => "Pod-level feature is not supported on this node".to_owned(),
            "PodLevelResourcesNotSupported" => {
                "Node does not support pod-level resources".to_owned()
            }
            "SupplementalGroupsPolicyNotSupported" => {
                "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned()
            }
            "InitContainerRestartPolicyForbidden" => {
                "Init container \"init\" may not have a non-default restartPolicy".to_owned()
            }
            "UnknownReason" => "Unexpected error: unknown reason".to_owned(),
            "UnexpectedPredicateFailureType" => {
                "GeneralPredicates failed due to an unknown error, which is unexpected.".to_owned()
            }
            other => match other.strip_prefix("OutOf") {
                Some(resource) => return Self::out_of(resource, 1_000, 3_500, 4_000),
                None => format!("Predicate {other} failed"),
            },
        };
        Self {
            reason: reason.to_owned(),
            detail,
        }
    }

    /// Reasons for which real nodes reject pods; first those for which a retry can help. `OutOf` stands for
    /// any resource.
    pub const REASONS: [&'static str; 25] = [
        "NodeAffinity",
        "MatchNodeSelector",
        "NodePorts",
        "TaintToleration",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "UnexpectedAdmissionError",
        "InvalidNodeInfo",
        "NodeShutdown",
        "Evicted",
        "VolumeAttachmentLimitExceeded",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "AppArmor",
        "SysctlForbidden",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "SupplementalGroupsPolicyNotSupported",
        "InitContainerRestartPolicyForbidden",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
    ];

    /// The rejection for lack of a resource, with the figures in the units of a kubelet's message:
    /// milli-cores, bytes, pods.
    #[must_use]
    pub fn out_of(resource: &str, requested: i128, used: i128, capacity: i128) -> Self {
        Self {
            reason: format!("OutOf{resource}"),
            detail: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, \
                 used: {used}, capacity: {capacity}"
            ),
        }
    }

    /// The whole `status.message`.
    #[must_use]
    pub fn message(&self) -> String {
        format!("Pod was rejected: {}", self.detail)
    }
}

/// What happens to a pod on its node. [`KubeletScript`](crate::simulated::KubeletScript) returns
/// it; without one, pods run as in the [example](crate::simulated).
#[derive(Debug, Clone, PartialEq)]
pub enum PodPlan {
    /// The node rejects it: phase `Failed`, no container ever runs.
    Reject(Rejection),
    /// The node runs it.
    Run(RunPlan),
}

/// A program that can change the plans of pods.
///
/// It is called once for each pod, with the `plan` that follows from annotations and probabilities.
/// Any `Fn(&str, &Value, PodPlan) -> PodPlan` is a script.
///
/// Part of the [`KubeletConfig`](crate::simulated::KubeletConfig); without one, pods run as in the
/// [example](crate::simulated).
pub trait KubeletScript: Send + Sync {
    /// The plan of `pod` on `node`.
    fn plan(&self, node: &str, pod: &Value, plan: PodPlan) -> PodPlan;
}

impl<F: Fn(&str, &Value, PodPlan) -> PodPlan + Send + Sync> KubeletScript for F {
    fn plan(&self, node: &str, pod: &Value, plan: PodPlan) -> PodPlan {
        self(node, pod, plan)
    }
}

/// Random rejections, drawn from the seed and the pod's UID: the result for a pod depends on
/// nothing else. Part of the [`KubeletConfig`](crate::simulated::KubeletConfig); the pod of the
/// [example](crate::simulated) is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectionChance {
    /// From 0 (never) to 1 (always).
    pub probability: f64,
    /// The reasons to choose from.
    pub reasons: Vec<String>,
}

/// Annotations that script what happens to a pod. Numbers are decimal seconds. A pod without any,
/// as in the [example](crate::simulated), runs until it is deleted.
pub mod annotations {
    /// How long the containers run if they are not stopped, such as `2.5`.
    pub const RUN_SECONDS: &str = "sandbox.belayer.dev/run-seconds";
    /// The exit code of the containers.
    pub const EXIT_CODE: &str = "sandbox.belayer.dev/exit-code";
    /// Seconds until the containers run.
    pub const START_DELAY: &str = "sandbox.belayer.dev/start-delay";
    /// `"true"`: the containers run until stopped.
    pub const NEVER_FINISH: &str = "sandbox.belayer.dev/never-finish";
    /// The node rejects the pod for this reason, such as `OutOfcpu`.
    pub const REJECT_REASON: &str = "sandbox.belayer.dev/reject-reason";
    /// Seconds that the containers take to stop.
    pub const STOP_SECONDS: &str = "sandbox.belayer.dev/stop-seconds";
    /// The exit code of containers that are stopped early.
    pub const STOP_EXIT_CODE: &str = "sandbox.belayer.dev/stop-exit-code";
    /// The same for single containers, as JSON: `{"main": {"run": 5, "exit": 0, "stop": 1, "stopExit": 143}}`. Of an
    /// init container only a failing exit code counts.
    pub const CONTAINERS: &str = "sandbox.belayer.dev/containers";
    /// `"true"`: the containers are asked to stop, as by a signal from outside; the pod is not deleted.
    pub const SIGNAL: &str = "sandbox.belayer.dev/signal";
}

/// Makes the plans.
#[derive(Clone, Default)]
pub(super) struct Planner {
    pub(super) default: RunPlan,
    pub(super) chance: Option<RejectionChance>,
    pub(super) script: Option<Arc<dyn KubeletScript>>,
    pub(super) seed: u64,
}

impl Planner {
    pub(super) fn plan(&self, node: &str, pod: &Value) -> PodPlan {
        let plan = self.before_script(pod);
        match &self.script {
            Some(script) => script.plan(node, pod, plan),
            None => plan,
        }
    }

    fn before_script(&self, pod: &Value) -> PodPlan {
        let asked = object::annotation(pod, annotations::REJECT_REASON);
        if let Some(reason) = asked.filter(|reason| !reason.is_empty()) {
            return PodPlan::Reject(Rejection::new(reason));
        }
        match self.random_rejection(pod) {
            Some(rejection) => PodPlan::Reject(rejection),
            None => PodPlan::Run(annotated(&self.default, pod)),
        }
    }

    fn random_rejection(&self, pod: &Value) -> Option<Rejection> {
        let chance = self.chance.as_ref()?;
        if chance.reasons.is_empty() {
            return None;
        }
        let mut luck = StdRng::seed_from_u64(self.seed ^ fingerprint(object::uid(pod)));
        if luck.random::<f64>() >= chance.probability {
            return None;
        }
        let reason = luck.random_range(0..chance.reasons.len());
        chance
            .reasons
            .get(reason)
            .map(|reason| Rejection::new(reason))
    }
}

fn annotated(default: &RunPlan, pod: &Value) -> RunPlan {
    let read = |key| object::annotation(pod, key);
    let seconds = |key| read(key).and_then(parse_seconds);
    let number = |key| read(key).and_then(|text| text.parse::<i32>().ok());
    let run_for = match read(annotations::NEVER_FINISH) {
        Some("true") => RunFor::Ever,
        _ => seconds(annotations::RUN_SECONDS).map_or(default.run_for, RunFor::Time),
    };
    let mut plan = RunPlan {
        start_delay: seconds(annotations::START_DELAY).unwrap_or(default.start_delay),
        run_for,
        exit_code: number(annotations::EXIT_CODE).unwrap_or(default.exit_code),
        stop_time: seconds(annotations::STOP_SECONDS).unwrap_or(default.stop_time),
        stop_exit_code: number(annotations::STOP_EXIT_CODE).unwrap_or(default.stop_exit_code),
        ..default.clone()
    };
    if let Some(text) = read(annotations::CONTAINERS) {
        containers::apply(&mut plan, pod, text);
    }
    plan
}

fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
}

/// A hash of a text that is the same in every run (FNV-1a). The standard library's hashes may change
/// between versions.
///
/// ```
/// use belayer_sandbox::simulated::kubelet::fingerprint;
///
/// assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
/// ```
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn pod(annotations: &Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u-1", "annotations": annotations}})
    }

    fn run() -> RunPlan {
        RunPlan::default()
    }

    #[rstest]
    #[case::nothing_said(json!({}), PodPlan::Run(run()))]
    #[case::a_life_time(
        json!({annotations::RUN_SECONDS: "2.5", annotations::EXIT_CODE: "3"}),
        PodPlan::Run(RunPlan { run_for: RunFor::Time(Duration::from_millis(2_500)), exit_code: 3, ..run() })
    )]
    #[case::never_finishing_wins_over_a_life_time(
        json!({annotations::RUN_SECONDS: "2", annotations::NEVER_FINISH: "true"}),
        PodPlan::Run(run())
    )]
    #[case::slow_to_start_and_to_stop(
        json!({annotations::START_DELAY: "9", annotations::STOP_SECONDS: "30", annotations::STOP_EXIT_CODE: "0"}),
        PodPlan::Run(RunPlan {
            start_delay: Duration::from_secs(9),
            stop_time: Duration::from_secs(30),
            stop_exit_code: 0,
            ..run()
        })
    )]
    #[case::nonsense_counts_as_nothing_said(
        json!({annotations::RUN_SECONDS: "-1", annotations::EXIT_CODE: "bad", annotations::START_DELAY: "NaN"}),
        PodPlan::Run(run())
    )]
    #[case::a_rejection(
        json!({annotations::REJECT_REASON: "OutOfmemory"}),
        PodPlan::Reject(Rejection::out_of("memory", 1_000, 3_500, 4_000))
    )]
    fn annotations_set_the_plan(#[case] annotations: Value, #[case] expected: PodPlan) {
        assert_eq!(
            Planner::default().plan("node-1", &pod(&annotations)),
            expected
        );
    }

    #[test]
    fn a_script_can_change_the_plan() {
        let planner = Planner {
            script: Some(Arc::new(|node: &str, _: &Value, _: PodPlan| {
                PodPlan::Reject(Rejection::new(node))
            })),
            ..Planner::default()
        };
        let expected = PodPlan::Reject(Rejection::new("node-1"));
        assert_eq!(planner.plan("node-1", &pod(&json!({}))), expected);
    }

    #[test]
    fn random_rejections_match_the_probability_and_repeat_for_a_seed() {
        let draw = |seed| {
            let chance = RejectionChance {
                probability: 0.25,
                reasons: vec!["OutOfcpu".into()],
            };
            let planner = Planner {
                chance: Some(chance),
                seed,
                ..Planner::default()
            };
            (0..1_000)
                .map(|i| json!({"metadata": {"uid": format!("u-{i}")}}))
                .map(|pod| matches!(planner.plan("n", &pod), PodPlan::Reject(_)))
                .collect::<Vec<_>>()
        };
        let rejected = draw(7).iter().filter(|rejected| **rejected).count();
        assert!((200..300).contains(&rejected), "{rejected}");
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
