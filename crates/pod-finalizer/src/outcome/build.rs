//! Builds the outcome of a pod from its JSON. Results are never invented: unknown values are omitted, and their
//! containers are listed.

use serde::Deserialize;

use super::{ContainerOutcome, PodOutcomeSpec};
use crate::argo::MAIN;

/// The kubelet's reason for a container whose end it does not know; the exit code next to it is meaningless.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// An outcome. The kind is that of the [example](crate::outcome).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The known values.
    pub spec: PodOutcomeSpec,
    /// Whether the status shows a running container. Then the outcome is final only if the node is gone, because no
    /// kubelet will report how the container ended.
    pub running: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    name: String,
    pub(super) uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Debug, Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    image: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    start_time: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: Option<String>,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    restart_count: Option<i32>,
    #[serde(default)]
    state: Option<State>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<serde::de::IgnoredAny>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
    finished_at: Option<String>,
}

/// The outcome of a pod, from its JSON. The kind is that of the [example](crate::outcome).
///
/// # Errors
/// If it is not a pod.
pub fn build(pod: &[u8]) -> Result<Built, serde_json::Error> {
    Ok(serde_json::from_slice::<Pod>(pod)?.outcome())
}

impl Pod {
    pub(super) fn node_name(&self) -> Option<&str> {
        self.spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// Whether its phase is terminal.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether its kubelet, and not pod garbage collection in place of a lost kubelet, reported its end: then a container
    /// without a state never started.
    fn is_end_reported(&self) -> bool {
        let mut conditions = self.status.conditions.iter().flatten();
        let by_pod_gc = |one: &Condition| {
            one.kind.as_deref() == Some("DisruptionTarget")
                && one.reason.as_deref() == Some("DeletionByPodGC")
        };
        let is_lost = self.node_name().is_some() && conditions.any(by_pod_gc);
        self.is_ended() && !is_lost
    }

    /// Whether it is being deleted without a grace period.
    pub(super) fn is_shut_down(&self) -> bool {
        let Metadata {
            deletion_timestamp,
            deletion_grace_period_seconds: grace,
            ..
        } = &self.metadata;
        deletion_timestamp.is_some() && *grace == Some(0)
    }

    pub(super) fn outcome(&self) -> Built {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        let is_end_reported = self.is_end_reported();
        let mut unknown = Vec::new();
        let mut running = false;
        let mut containers = Vec::new();
        for (init, given, statuses) in [
            (false, &spec.containers, &status.container_statuses),
            (true, &spec.init_containers, &status.init_container_statuses),
        ] {
            for container in given.iter().flatten() {
                let status = statuses
                    .iter()
                    .flatten()
                    .find(|status| status.name == container.name);
                let (outcome, known) = container.outcome(status, init);
                let known = match known {
                    Known::NotStarted if is_end_reported => Known::Yes,
                    Known::NotStarted => Known::No,
                    known => known,
                };
                match known {
                    Known::Yes | Known::NotStarted => {}
                    Known::No => unknown.push(container.name.clone()),
                    Known::StillRunning => {
                        running = true;
                        unknown.push(container.name.clone());
                    }
                }
                containers.push(outcome);
            }
        }
        let finished_at = containers
            .iter()
            .filter_map(|container| container.finished_at.clone())
            .max();
        let spec = PodOutcomeSpec {
            pod_name: metadata.name.clone(),
            pod_uid: metadata.uid.clone(),
            node_name: self.node_name().map(str::to_owned),
            phase: status.phase.clone().unwrap_or_default(),
            reason: status.reason.clone().filter(|text| !text.is_empty()),
            message: status.message.clone().filter(|text| !text.is_empty()),
            started_at: status.start_time.clone(),
            finished_at: finished_at.filter(|_| unknown.is_empty()),
            complete: unknown.is_empty(),
            exit_code: exit_code(&containers, &unknown),
            unknown_containers: unknown,
            containers,
        };
        Built { spec, running }
    }
}

/// The exit code of a pod with these containers, of which the end of some is `unknown`. An init container counts only if
/// the others did not all run: a native sidecar is killed at the end.
fn exit_code(containers: &[ContainerOutcome], unknown: &[String]) -> Option<i32> {
    let others = || containers.iter().filter(|container| !container.init);
    let main = others().find(|container| container.name == MAIN);
    if let Some(code) = main.and_then(|main| main.exit_code) {
        return Some(code);
    }
    if !unknown.is_empty() {
        return None;
    }
    let failed = |one: &ContainerOutcome| one.exit_code.filter(|code| *code != 0);
    if others().all(|container| container.exit_code == Some(0)) {
        return Some(0);
    }
    // The init containers are last.
    containers.iter().find_map(failed)
}

/// Whether the end of a container is known.
enum Known {
    /// It ended.
    Yes,
    /// The status shows no start. It never started if the kubelet reported that the pod has ended.
    NotStarted,
    /// It ended, but how is unknown.
    No,
    /// The status shows it as running.
    StillRunning,
}

impl Container {
    fn outcome(&self, status: Option<&ContainerStatus>, init: bool) -> (ContainerOutcome, Known) {
        let mut outcome = ContainerOutcome {
            name: self.name.clone(),
            image: self.image.clone(),
            init,
            exit_code: None,
            signal: None,
            reason: None,
            finished_at: None,
            restarts: 0,
        };
        let Some(status) = status else {
            return (outcome, Known::NotStarted);
        };
        outcome.restarts = status.restart_count.unwrap_or_default();
        if let Some(image) = status.image.as_ref().filter(|image| !image.is_empty()) {
            outcome.image = Some(image.clone());
        }
        let Some(state) = &status.state else {
            return (outcome, Known::NotStarted);
        };
        if state.running.is_some() {
            return (outcome, Known::StillRunning);
        }
        let Some(terminated) = &state.terminated else {
            return (outcome, Known::NotStarted);
        };
        outcome.reason.clone_from(&terminated.reason);
        outcome.finished_at.clone_from(&terminated.finished_at);
        if terminated.reason.as_deref() == Some(STATUS_UNKNOWN) {
            outcome.finished_at = None;
            return (outcome, Known::No);
        }
        outcome.exit_code = terminated.exit_code;
        outcome.signal = terminated.signal;
        (outcome, Known::Yes)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn built(status: Value) -> Built {
        let pod = json!({
            "metadata": {"name": "step", "uid": "u-1"},
            "spec": {"nodeName": "node-1",
                "initContainers": [{"name": "init", "image": "init:1", "env": [{"name": "TOKEN", "value": "s3cret"}]}],
                "containers": [
                    {"name": "main", "image": "main:1", "args": ["--password=s3cret"]},
                    {"name": "wait", "image": "wait:1"}]},
            "status": status,
        });
        build(pod.to_string().as_bytes()).unwrap()
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({"name": name, "image": format!("{name}:1"), "restartCount": 1, "state": {"terminated": {
            "exitCode": code, "reason": "Completed", "finishedAt": format!("2026-11-21T12:00:0{code}Z")}}})
    }

    #[test]
    fn what_is_known_is_recorded_and_nothing_that_could_be_secret() {
        let built = built(
            json!({"phase": "Failed", "startTime": "2026-11-21T11:00:00Z",
            "initContainerStatuses": [ended("init", 0)],
            "containerStatuses": [ended("main", 3), ended("wait", 0)]}),
        );
        assert!(!built.running);
        assert!(built.spec.complete);
        assert_eq!(
            built.spec.finished_at.as_deref(),
            Some("2026-11-21T12:00:03Z")
        );
        let codes: Vec<_> = built.spec.containers.iter().map(|c| c.exit_code).collect();
        assert_eq!(codes, [Some(3), Some(0), Some(0)]);
        let text = serde_json::to_string(&built.spec).unwrap();
        assert!(
            !text.contains("s3cret") && !text.contains("TOKEN"),
            "{text}"
        );
    }

    /// Argo's own container `wait` comes first in its pods.
    #[rstest]
    #[case::of_main(&[("wait", Some(0)), ("main", Some(3))], Some(0), Some(3))]
    #[case::of_main_beside_a_killed_sidecar(&[("wait", Some(137)), ("main", Some(0))], Some(0), Some(0))]
    #[case::the_first_that_failed(&[("a", Some(0)), ("b", Some(2)), ("c", Some(3))], Some(0), Some(2))]
    #[case::all_succeeded(&[("a", Some(0)), ("b", Some(0))], Some(143), Some(0))]
    #[case::only_an_init_container_ran(&[("wait", None), ("main", None)], Some(64), Some(64))]
    #[case::main_never_ran(&[("wait", Some(0)), ("main", None)], Some(0), None)]
    fn the_exit_code_is_that_of_the_result(
        #[case] containers: &[(&str, Option<i32>)],
        #[case] init: Option<i32>,
        #[case] expected: Option<i32>,
    ) {
        let names = containers.iter().map(|(name, _)| json!({ "name": name }));
        let statuses = containers
            .iter()
            .filter_map(|(name, code)| code.map(|code| ended(name, code)));
        let pod = json!({
            "metadata": {"name": "step", "uid": "u-1"},
            "spec": {"initContainers": [{"name": "init"}], "containers": names.collect::<Vec<_>>()},
            "status": {"phase": "Failed", "containerStatuses": statuses.collect::<Vec<_>>(),
                "initContainerStatuses": init.map(|code| vec![ended("init", code)])},
        });
        let built = build(pod.to_string().as_bytes()).unwrap();
        assert_eq!(built.spec.exit_code, expected);
    }

    #[test]
    fn a_lost_node_makes_no_result_up() {
        let built = built(json!({"phase": "Failed", "reason": "NodeLost",
            "initContainerStatuses": [ended("init", 0)],
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "x"}}},
                {"name": "wait", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown",
                    "finishedAt": "2026-11-21T12:00:00Z"}}}]}));
        assert!(built.running);
        assert!(!built.spec.complete);
        assert_eq!(built.spec.unknown_containers, ["main", "wait"]);
        assert_eq!(built.spec.finished_at, None);
        assert_eq!(built.spec.exit_code, None);
        assert!(
            built.spec.containers[..2]
                .iter()
                .all(|c| c.exit_code.is_none())
        );
    }

    #[test]
    fn a12_before_the_end_of_the_pod_no_end_is_known() {
        let built = built(
            json!({"phase": "Running", "initContainerStatuses": [ended("init", 0)],
            "containerStatuses": [{"name": "main", "state": {"running": {}}}]}),
        );
        assert!(built.running);
        assert!(!built.spec.complete);
        assert_eq!(built.spec.unknown_containers, ["main", "wait"]);
    }

    /// The kubelet may have started the containers after its last report.
    #[test]
    fn of_a_pod_that_pod_gc_marked_no_start_is_no_end() {
        let status = |condition: Value| {
            json!({"phase": "Failed", "conditions": [condition],
            "initContainerStatuses": [ended("init", 0)],
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]})
        };
        let disrupted =
            |reason| json!({"type": "DisruptionTarget", "status": "True", "reason": reason});
        let lost = built(status(disrupted("DeletionByPodGC")));
        assert!(!lost.spec.complete);
        assert_eq!(lost.spec.unknown_containers, ["main", "wait"]);
        assert_eq!(lost.spec.finished_at, None);
        assert!(!lost.running, "no kubelet will report its end");
        let reported = built(status(disrupted("TerminationByKubelet")));
        assert!(reported.spec.complete);
    }

    #[test]
    fn what_never_started_is_no_unknown() {
        let built = built(json!({"phase": "Failed", "reason": "OutOfcpu",
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]}));
        assert!(built.spec.complete);
        assert!(built.spec.containers.iter().all(|c| c.exit_code.is_none()));
    }
}
