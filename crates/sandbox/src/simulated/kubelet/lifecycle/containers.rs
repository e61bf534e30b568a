//! The ends of containers: natural ones and stops, also of containers that do not all end together.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::plan::RunFor;
use super::{KILLED, Now, Run, Runtime};

/// When the containers were asked to stop, and their grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) asked: Instant,
    pub(super) grace: Duration,
}

impl Stop {
    /// When a container has stopped, and with which exit code.
    pub(super) fn end(self, time: Duration, exit_code: i32) -> (Instant, i32) {
        let code = if time > self.grace { KILLED } else { exit_code };
        (self.asked + time.min(self.grace), code)
    }
}

/// The earlier of two ends; the natural one of two at the same time.
pub(super) fn earlier(
    natural: Option<(Instant, i32)>,
    stopped: Option<(Instant, i32)>,
) -> Option<(Instant, i32)> {
    match (natural, stopped) {
        (Some(natural), Some(stopped)) if stopped.0 < natural.0 => Some(stopped),
        (Some(natural), _) => Some(natural),
        (None, stopped) => stopped,
    }
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
    use std::time::Duration;

    use serde_json::{Value, json};

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
