//! Containers with plans of their own, for pods whose containers do not all end together.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{RunFor, RunPlan};
use crate::simulated::object;

/// What happens to one container of a pod. Part of a
/// [`RunPlan`](crate::simulated::kubelet::RunPlan); the pod of the [example](crate::simulated) has
/// the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    /// How long it runs if it is not stopped.
    pub run_for: RunFor,
    /// Its exit code at its natural end.
    pub exit_code: i32,
    /// How long it takes to stop when asked to.
    pub stop_time: Duration,
    /// Its exit code if it is stopped early.
    pub stop_exit_code: i32,
}

/// A container in the annotation; seconds are decimal.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    run: Option<f64>,
    exit: Option<i32>,
    stop: Option<f64>,
    stop_exit: Option<i32>,
}

/// Gives each container of the pod its plan: the annotation's, completed by the plan of the pod.
pub(super) fn apply(plan: &mut RunPlan, pod: &Value, text: &str) {
    let written: BTreeMap<String, Written> = serde_json::from_str(text).unwrap_or_default();
    let names = |list: &str| {
        let containers = object::items(pod, &format!("/spec/{list}")).iter();
        containers.filter_map(|container| object::text(container, "/name"))
    };
    let seconds = |number: Option<f64>| Duration::try_from_secs_f64(number?).ok();
    plan.failing_init = names("initContainers").find_map(|name| {
        let exit = written.get(name)?.exit?;
        (exit != 0).then(|| (name.to_owned(), exit))
    });
    let default = Written::default();
    let own = names("containers").map(|name| {
        let written = written.get(name).unwrap_or(&default);
        let container = ContainerPlan {
            run_for: seconds(written.run).map_or(plan.run_for, RunFor::Time),
            exit_code: written.exit.unwrap_or(plan.exit_code),
            stop_time: seconds(written.stop).unwrap_or(plan.stop_time),
            stop_exit_code: written.stop_exit.unwrap_or(plan.stop_exit_code),
        };
        (name.to_owned(), container)
    });
    let own: BTreeMap<String, ContainerPlan> = own.collect();
    plan.containers = own;
}
