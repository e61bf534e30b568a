//! The `status` that a kubelet writes for a pod.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::lifecycle::{NEVER_RAN, Run, Runtime, Stage};
use super::plan::{Rejection, fingerprint};
use crate::clock::rfc3339;
use crate::simulated::object;

/// Where the pod runs.
pub(super) struct Place<'a> {
    pub(super) host_ip: &'a str,
    pub(super) pod_ip: &'a str,
}

/// Conditions that a kubelet writes, and that a new status removes.
const OWN_CONDITIONS: [&str; 4] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
];

/// The status of a pod that the node rejected: a new status without container statuses, also where
/// containers were running when the kubelet restarted. Only the first start time and fields of other
/// writers are kept.
pub(super) fn rejected(pod: &Value, rejection: &Rejection, now: Timestamp) -> Value {
    let started = object::text(pod, "/status/startTime");
    let mut status = json!({
        "phase": "Failed",
        "reason": rejection.reason,
        "message": rejection.message(),
        "startTime": started.map_or_else(|| rfc3339(now), str::to_owned),
    });
    let dropped = |field: &str| {
        pod.get("status")
            .is_some_and(|old| old.get(field).is_some())
    };
    for field in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
        "podIP",
        "podIPs",
        "hostIP",
        "hostIPs",
    ] {
        if dropped(field) {
            status[field] = Value::Null;
        }
    }
    let gone: Vec<Value> = object::items(pod, "/status/conditions")
        .iter()
        .filter_map(|condition| object::text(condition, "/type"))
        .filter(|kind| OWN_CONDITIONS.contains(kind))
        .map(|kind| json!({"$patch": "delete", "type": kind}))
        .collect();
    if !gone.is_empty() {
        status["conditions"] = Value::Array(gone);
    }
    status
}

/// The status of a pod that the node accepted, for a strategic merge: conditions of other writers
/// stay as they are.
pub(super) fn accepted(pod: &Value, runtime: &Runtime, place: &Place<'_>, now: Timestamp) -> Value {
    let phase = phase(runtime);
    let mut status = json!({
        "phase": phase,
        "hostIP": place.host_ip,
        "hostIPs": [{"ip": place.host_ip}],
        "startTime": rfc3339(runtime.accepted),
        "conditions": conditions(pod, runtime, phase, now),
        "containerStatuses": container_statuses(pod, runtime),
    });
    if !matches!(
        runtime.stage,
        Stage::Starting { .. } | Stage::Ended { last: None, .. }
    ) {
        status["podIP"] = json!(place.pod_ip);
        status["podIPs"] = json!([{"ip": place.pod_ip}]);
    }
    let init = init_container_statuses(pod, runtime);
    if !init.is_empty() {
        status["initContainerStatuses"] = Value::Array(init);
    }
    status
}

/// The status of a pod whose containers ran on an earlier machine of this name, with a real kubelet's texts.
pub(super) fn lost(pod: &Value) -> Value {
    let mut status = json!({});
    for list in ["initContainerStatuses", "containerStatuses"] {
        let mut containers = object::items(pod, &format!("/status/{list}")).to_vec();
        for container in &mut containers {
            if container.pointer("/state/running").is_some() {
                container["ready"] = json!(false);
                container["started"] = json!(false);
                container["state"] = json!({"terminated": {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "The container could not be located when the pod was terminated",
                    "startedAt": null,
                    "finishedAt": null,
                }});
            }
        }
        if !containers.is_empty() {
            status[list] = Value::Array(containers);
        }
    }
    if !object::is_ended(pod) {
        status["phase"] = json!("Failed");
    }
    status
}

fn phase(runtime: &Runtime) -> &'static str {
    match runtime.stage {
        Stage::Starting { .. } => "Pending",
        Stage::Running { .. } | Stage::BackOff { .. } => "Running",
        Stage::Ended {
            last: Some(Run { exit_code: 0, .. }),
            ..
        } => "Succeeded",
        Stage::Ended { .. } => "Failed",
    }
}

fn conditions(pod: &Value, runtime: &Runtime, phase: &str, now: Timestamp) -> Value {
    let running = matches!(runtime.stage, Stage::Running { .. });
    let sandbox = running || matches!(runtime.stage, Stage::BackOff { .. });
    let names: Vec<&str> = object::items(pod, "/spec/containers")
        .iter()
        .map(name)
        .collect();
    let unready = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ if running => None,
        _ => Some((
            "ContainersNotReady",
            format!("containers with unready status: [{}]", names.join(" ")),
        )),
    };
    let condition = |kind: &str, holds: bool, why: Option<&(&str, String)>| {
        // A condition keeps its old transition time unless its status changes.
        let old = object::items(pod, "/status/conditions")
            .iter()
            .find(|condition| object::text(condition, "/type") == Some(kind));
        let status = if holds { "True" } else { "False" };
        let since = old
            .filter(|old| object::text(old, "/status") == Some(status))
            .and_then(|old| object::text(old, "/lastTransitionTime"))
            .map_or_else(|| rfc3339(now), str::to_owned);
        let mut condition = json!({
            "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
            "reason": null, "message": null,
        });
        if let Some((reason, message)) = why {
            condition["reason"] = json!(reason);
            if !message.is_empty() {
                condition["message"] = json!(message);
            }
        }
        condition
    };
    let completed = unready
        .as_ref()
        .filter(|(reason, _)| *reason == "PodCompleted");
    json!([
        condition("PodReadyToStartContainers", sandbox, None),
        condition("Initialized", true, completed),
        condition("Ready", running, unready.as_ref()),
        condition("ContainersReady", running, unready.as_ref()),
    ])
}

fn container_statuses(pod: &Value, runtime: &Runtime) -> Vec<Value> {
    let container = |container: &Value| {
        let id = container_id(pod, container, runtime.restarts);
        let terminated = |run: &Run| {
            json!({"terminated": {
                "exitCode": run.exit_code,
                "reason": if run.exit_code == 0 { "Completed" } else { "Error" },
                "startedAt": rfc3339(run.started),
                "finishedAt": rfc3339(run.finished),
                "containerID": id,
            }})
        };
        let own_end = runtime.ends.get(name(container));
        let (state, last) = match &runtime.stage {
            Stage::Running { .. } | Stage::Ended { .. } if own_end.is_some() => {
                (own_end.map(terminated).unwrap_or_default(), json!({}))
            }
            Stage::Ended { last: None, .. } if !runtime.ends.is_empty() => {
                (json!({"waiting": {"reason": "PodInitializing"}}), json!({}))
            }
            Stage::Starting { .. } => (
                json!({"waiting": {"reason": "ContainerCreating"}}),
                json!({}),
            ),
            Stage::Running { started, .. } => (
                json!({"running": {"startedAt": rfc3339(*started)}}),
                json!({}),
            ),
            Stage::BackOff { last, .. } => (
                json!({"waiting": {"reason": "CrashLoopBackOff"}}),
                terminated(last),
            ),
            Stage::Ended {
                last: Some(run), ..
            } => (terminated(run), json!({})),
            Stage::Ended { last: None, .. } => (never_ran(), json!({})),
        };
        let running = matches!(runtime.stage, Stage::Running { .. }) && own_end.is_none();
        let created = !matches!(
            runtime.stage,
            Stage::Starting { .. } | Stage::Ended { last: None, .. }
        );
        let mut status = describe(container);
        status.insert("ready".into(), json!(running));
        status.insert("started".into(), json!(running));
        status.insert("restartCount".into(), json!(runtime.restarts));
        status.insert("state".into(), state);
        status.insert("lastState".into(), last);
        if created {
            status.insert("containerID".into(), json!(id));
        }
        Value::Object(status)
    };
    object::items(pod, "/spec/containers")
        .iter()
        .map(container)
        .collect()
}

/// Init containers end at once, before the others start.
fn init_container_statuses(pod: &Value, runtime: &Runtime) -> Vec<Value> {
    let ran = !matches!(
        runtime.stage,
        Stage::Starting { .. } | Stage::Ended { last: None, .. }
    );
    let starting = matches!(runtime.stage, Stage::Starting { .. });
    let container = |container: &Value| {
        let failed = runtime.ends.get(name(container));
        let state = if let Some(run) = failed {
            json!({"terminated": {
                "exitCode": run.exit_code, "reason": "Error",
                "startedAt": rfc3339(run.started), "finishedAt": rfc3339(run.finished),
            }})
        } else if ran || !runtime.ends.is_empty() {
            json!({"terminated": {
                "exitCode": 0, "reason": "Completed",
                "startedAt": rfc3339(runtime.accepted), "finishedAt": rfc3339(runtime.accepted),
            }})
        } else if starting {
            json!({"waiting": {"reason": "PodInitializing"}})
        } else {
            never_ran()
        };
        let mut status = describe(container);
        status.insert("ready".into(), json!(ran));
        status.insert("restartCount".into(), json!(0));
        status.insert("state".into(), state);
        status.insert("lastState".into(), json!({}));
        Value::Object(status)
    };
    object::items(pod, "/spec/initContainers")
        .iter()
        .map(container)
        .collect()
}

/// The status of a container that a kubelet cannot find after the pod has ended.
fn never_ran() -> Value {
    json!({"terminated": {
        "exitCode": NEVER_RAN,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": null,
        "finishedAt": null,
    }})
}

fn describe(container: &Value) -> Map<String, Value> {
    let image = object::text(container, "/image").unwrap_or_default();
    let mut status = Map::new();
    status.insert("name".into(), json!(name(container)));
    status.insert("image".into(), json!(image));
    status.insert("imageID".into(), json!(image));
    status
}

fn container_id(pod: &Value, container: &Value, restarts: u32) -> String {
    let seed = format!("{}/{}/{restarts}", object::uid(pod), name(container));
    format!("sandbox://{:016x}", fingerprint(&seed))
}

fn name(container: &Value) -> &str {
    object::text(container, "/name").unwrap_or_default()
}
