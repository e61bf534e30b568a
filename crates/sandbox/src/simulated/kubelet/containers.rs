//! Containers with plans of their own, for pods whose containers do not all end together.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::lifecycle::{Now, Run, Runtime, Stop, earlier};
use super::plan::{RunFor, RunPlan};
use crate::simulated::object;

/// What happens to one container of a pod.
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

impl Runtime {
    /// When each container with a plan of its own ends, and with which exit code.
    pub(super) fn container_ends(
        &self,
        since: Instant,
    ) -> impl Iterator<Item = (&str, Option<(Instant, i32)>)> {
        self.plan.containers.iter().map(move |(name, plan)| {
            let natural = match plan.run_for {
                RunFor::Time(time) => Some((since + time, plan.exit_code)),
                RunFor::Ever => None,
            };
            let stop = |stop: Stop| stop.end(plan.stop_time, plan.stop_exit_code);
            (name.as_str(), earlier(natural, self.stop.map(stop)))
        })
    }

    /// Notes the containers that have ended. Returns the end of the last one, if all have.
    pub(super) fn end_containers(
        &mut self,
        since: Instant,
        started: Timestamp,
        now: Now,
    ) -> Option<(Instant, i32)> {
        let due = |end: &(Instant, i32)| end.0 <= now.instant;
        let ends: Vec<_> = self
            .container_ends(since)
            .map(|(name, end)| (name.to_owned(), end.filter(due)))
            .collect();
        let mut last = Some((since, 0));
        for (name, end) in ends {
            last = last
                .zip(end)
                .map(|(last, end)| (last.0.max(end.0), if last.1 == 0 { end.1 } else { last.1 }));
            if let Some((when, exit_code)) = end {
                let finished = now.wall_of(when);
                self.ends.entry(name).or_insert(Run {
                    started,
                    finished,
                    exit_code,
                });
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::address::Gvr;
    use crate::simulated::kubelet::annotations::{CONTAINERS, SIGNAL, START_DELAY};
    use crate::simulated::kubelet::{KubeletConfig, NodeSpec};
    use crate::simulated::testing::{World, bound, world};
    use crate::simulated::{SimulatedControllers, object};

    /// A pod with an init container, main and a sidecar, on its node.
    fn run(script: &Value) -> World {
        let kubelet = KubeletConfig {
            nodes: NodeSpec::many(1),
            ..KubeletConfig::default()
        };
        let world = world(SimulatedControllers::none().kubelet(kubelet));
        let script = json!({START_DELAY: "2", CONTAINERS: script.to_string()});
        let mut pod = bound("p", "node-1", script);
        let container = |name: &str| json!({"name": name, "image": "busybox:1"});
        pod["spec"]["initContainers"] = json!([container("pre")]);
        pod["spec"]["containers"] = json!([container("main"), container("side")]);
        world.create(&Gvr::PODS, pod);
        world
    }

    /// The phase, and the state of each container: its exit code if it has ended.
    fn states(world: &World) -> (String, Vec<String>) {
        let pod = world.pod("p");
        let state = |status: &Value| match status["state"]["terminated"]["exitCode"].as_i64() {
            Some(code) => code.to_string(),
            None if status["state"]["running"].is_object() => "runs".to_owned(),
            None => "waits".to_owned(),
        };
        let lists = ["initContainerStatuses", "containerStatuses"];
        let statuses = lists
            .iter()
            .flat_map(|list| object::items(&pod, &format!("/status/{list}")));
        let phase = object::text(&pod, "/status/phase").unwrap();
        (phase.to_owned(), statuses.map(state).collect())
    }

    fn expect(world: &World, phase: &str, expected: [&str; 3]) {
        assert_eq!(
            states(world),
            (phase.to_owned(), expected.map(str::to_owned).to_vec())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn containers_end_one_by_one_and_a_signal_stops_the_rest() {
        let script = json!({"main": {"run": 4.0}, "side": {"stop": 1.0, "stopExit": 7}});
        let world = run(&script);
        world.pass(Duration::from_millis(2_100)).await;
        expect(&world, "Running", ["0", "runs", "runs"]);
        world.pass(Duration::from_secs(4)).await;
        expect(&world, "Running", ["0", "0", "runs"]);
        world.patch(
            &Gvr::PODS,
            "p",
            json!({"metadata": {"annotations": {SIGNAL: "true"}}}),
        );
        world.pass(Duration::from_millis(1_100)).await;
        expect(&world, "Failed", ["0", "0", "7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_init_container_ends_the_pod() {
        let world = run(&json!({"pre": {"exit": 7}}));
        world.pass(Duration::from_millis(2_100)).await;
        expect(&world, "Failed", ["7", "waits", "waits"]);
    }
}
