//! The recorded workflows as scripts: what each runs, and what was done to it.

use std::time::Duration;

use belayer_sandbox::Propagation;
use belayer_sandbox::simulated::kubelet::annotations::{CONTAINERS, START_DELAY};
use serde_json::{Map, Value, json};

/// What was done to a workflow or around it. Pods are named by their step, or `agent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    DeletePod(&'static str),
    ForceDeletePod(&'static str),
    EvictPod(&'static str),
    DeleteWorkflow(Propagation),
    /// `spec.shutdown`.
    Shutdown(&'static str),
    /// The machine is lost with its containers, and its Node is deleted.
    LoseMachine,
    KillArgo,
    StartArgo,
}

use Action::{
    DeletePod, DeleteWorkflow, EvictPod, ForceDeletePod, KillArgo, LoseMachine, Shutdown, StartArgo,
};

/// A recorded workflow as a script.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) trace: &'static str,
    pub(super) spec: Value,
    /// When it happened, in milliseconds from the workflow's creation.
    pub(super) actions: Vec<(u64, Action)>,
}

impl Script {
    pub(super) fn actions(&self) -> impl Iterator<Item = (Duration, Action)> {
        let at = |(at, action): &(u64, Action)| (Duration::from_millis(*at), *action);
        self.actions.iter().map(at)
    }

    fn with(self, field: &str, value: Value) -> Self {
        let mut spec = self.spec;
        spec[field] = value;
        Self { spec, ..self }
    }

    fn then(mut self, at: u64, action: Action) -> Self {
        self.actions.push((at, action));
        self
    }
}

fn script(trace: &'static str, templates: Value) -> Script {
    Script {
        trace,
        spec: json!({ "entrypoint": "main", "templates": templates }),
        actions: vec![],
    }
}

/// A template that runs these groups of steps: each a name and a template.
fn main(groups: &[&[(&str, &str)]]) -> Value {
    let step = |(name, template): &(&str, &str)| json!({ "name": name, "template": template });
    let group = |steps: &&[(&str, &str)]| steps.iter().map(step).collect::<Vec<_>>();
    json!({ "name": "main", "steps": groups.iter().map(group).collect::<Vec<_>>() })
}

/// How a container behaves: it runs this long, ends with this exit code, and stops in half a second with this one.
fn container(run: f64, exit: i32, stop_exit: i32) -> Value {
    json!({ "run": run, "exit": exit, "stop": 0.5, "stopExit": stop_exit })
}

/// A template with these containers.
fn pod(name: &str, containers: Value) -> Value {
    json!({
        "name": name,
        "metadata": { "annotations": { CONTAINERS: containers.to_string(), START_DELAY: "1.9" } },
    })
}

/// A template whose main container runs this long.
fn step(name: &str, run: f64, exit: i32) -> Value {
    let wait = container(run, 0, 64);
    pod(
        name,
        json!({ "main": container(run, exit, 143), "wait": wait }),
    )
}

fn merged(mut template: Value, more: Value) -> Value {
    let more: Map<String, Value> = serde_json::from_value(more).unwrap();
    template.as_object_mut().unwrap().extend(more);
    template
}

/// Two steps side by side that run this long.
fn pair(trace: &'static str, run: f64) -> Script {
    script(
        trace,
        json!([
            main(&[&[("s0", "step"), ("s1", "step")]]),
            step("step", run, 0)
        ]),
    )
}

fn three(trace: &'static str) -> Script {
    let steps = main(&[&[("s0", "step"), ("s1", "step"), ("s2", "step")]]);
    script(trace, json!([steps, step("step", 5.0, 0)]))
}

fn failing(trace: &'static str) -> Script {
    let steps = main(&[&[("a", "step"), ("b", "bad")]]);
    script(
        trace,
        json!([steps, step("step", 5.0, 0), step("bad", 4.0, 1)]),
    )
}

fn one(trace: &'static str, template: Value) -> Script {
    script(trace, json!([main(&[&[("s0", "step")]]), template]))
}

fn two_steps(trace: &'static str) -> Script {
    let steps = main(&[&[("a", "step")], &[("b", "long")]]);
    script(
        trace,
        json!([steps, step("step", 5.0, 0), step("long", 20.0, 0)]),
    )
}

fn retry(trace: &'static str, policy: &str) -> Script {
    let retry = json!({ "retryStrategy": { "limit": 2, "retryPolicy": policy } });
    let template = merged(step("main", 15.0, 0), retry);
    let first = match trace {
        "retry-always" => "retry-always(0)",
        "retry-onerror" => "retry-onerror(0)",
        _ => "retry-onfailure(0)",
    };
    script(trace, json!([template])).then(2_100, DeletePod(first))
}

fn http(trace: &'static str) -> Script {
    let steps = main(&[&[("h", "h")], &[("s", "step")], &[("h2", "h")]]);
    let request = json!({ "name": "h", "http": { "url": "https://example.org" } });
    script(trace, json!([steps, request, step("step", 20.0, 0)]))
}

fn with_gc(script: Script, strategy: &str) -> Script {
    script.with(
        "podGC",
        json!({ "strategy": strategy, "deleteDelayDuration": "2s" }),
    )
}

/// All of them.
pub(super) fn all() -> Vec<Script> {
    let sequence = json!([[{ "name": "a", "template": "step", "withSequence": { "count": 3 } }]]);
    let compressed = json!([{ "name": "main", "steps": sequence }, step("step", 6.0, 0)]);
    let set = json!({ "containerSet": { "containers": [{ "name": "one" }, { "name": "main" }] } });
    let set = merged(
        pod(
            "step",
            json!({
                "one": container(3.0, 0, 143), "main": container(7.0, 0, 143), "wait": container(7.0, 0, 64),
            }),
        ),
        set,
    );
    let never = json!({ "stop": 0.5, "stopExit": 143 });
    let daemon = pod(
        "d",
        json!({ "main": never, "wait": { "stop": 0.5, "stopExit": 0 } }),
    );
    let daemon = merged(daemon, json!({ "daemon": true }));
    let steps = main(&[&[("d", "d")], &[("a", "step")]]);
    let with_daemon = json!([steps, daemon, step("step", 5.0, 0)]);
    let init = merged(
        pod("step", json!({ "pre": { "exit": 7 } })),
        json!({ "initContainers": [{ "name": "pre" }] }),
    );
    let sidecar = merged(
        pod(
            "step",
            json!({
                "main": container(4.0, 0, 143), "wait": container(4.0, 0, 64), "side": { "stop": 60.0 },
            }),
        ),
        json!({ "sidecars": [{ "name": "side" }] }),
    );
    let nowhere = merged(
        step("step", 5.0, 0),
        json!({ "nodeSelector": { "nowhere": "true" } }),
    );
    // A forced deletion leaves no time: the containers stop at once.
    let mut at_once = pair("pod-force-deleted", 20.0);
    let containers = json!({
        "main": { "run": 20.0, "stop": 0.0, "stopExit": 143 }, "wait": { "run": 20.0, "stop": 0.0, "stopExit": 64 },
    });
    at_once.spec["templates"][1] = pod("step", containers);
    let suspended = json!([
        main(&[&[("a", "step")], &[("w", "wait")], &[("b", "step")]]),
        step("step", 5.0, 0),
        { "name": "wait", "suspend": { "duration": "5" } },
    ]);
    let bye = || {
        json!([
            main(&[&[("s0", "step"), ("s1", "step")]]),
            step("step", 20.0, 0),
            step("bye", 3.0, 0),
        ])
    };
    let with_exit = |trace| script(trace, bye()).with("onExit", json!("bye"));
    let retry_exit = merged(
        step("main", 2.0, 1),
        json!({ "retryStrategy": { "limit": 2 } }),
    );
    vec![
        script("compressed", compressed),
        one("container-set", set),
        script("daemon", with_daemon),
        pair("deleted-foreground", 20.0).then(2_900, DeleteWorkflow(Propagation::Foreground)),
        pair("deleted-running-later", 30.0).then(14_450, DeletePod("s0")),
        pair("ended-deleted-while-down", 8.0)
            .then(4_000, KillArgo)
            .then(13_540, DeletePod("s0"))
            .then(13_610, DeletePod("s1"))
            .then(22_000, StartArgo),
        pair("evicted-running", 20.0).then(13_990, EvictPod("s0")),
        with_exit("exit-handler-deleted").then(2_750, DeleteWorkflow(Propagation::Background)),
        three("gc-none"),
        failing("gc-none-failing"),
        with_gc(three("gc-on-pod-completion"), "OnPodCompletion"),
        with_gc(failing("gc-on-pod-completion-failing"), "OnPodCompletion"),
        with_gc(three("gc-on-pod-success"), "OnPodSuccess"),
        with_gc(failing("gc-on-pod-success-failing"), "OnPodSuccess"),
        with_gc(three("gc-on-workflow-completion"), "OnWorkflowCompletion"),
        with_gc(
            failing("gc-on-workflow-completion-failing"),
            "OnWorkflowCompletion",
        ),
        with_gc(three("gc-on-workflow-success"), "OnWorkflowSuccess"),
        with_gc(
            failing("gc-on-workflow-success-failing"),
            "OnWorkflowSuccess",
        ),
        http("http-agent"),
        http("http-agent-deleted").then(32_900, DeletePod("agent")),
        one("init-failing", init),
        pair("node-lost", 60.0).then(5_000, LoseMachine),
        pair("pod-deleted-running", 20.0).then(2_310, DeletePod("s1")),
        at_once.then(2_350, ForceDeletePod("s1")),
        retry("retry-always", "Always"),
        script("retry-exit-1", json!([retry_exit])),
        retry("retry-onerror", "OnError"),
        retry("retry-onfailure", "OnFailure"),
        one("sidecar-deleted-late", sidecar).then(7_770, DeletePod("s0")),
        with_exit("stopped").then(2_260, Shutdown("Stop")),
        script("suspended", suspended),
        pair("terminated", 20.0).then(3_340, Shutdown("Terminate")),
        pair("ttl", 5.0).with("ttlStrategy", json!({ "secondsAfterCompletion": 5 })),
        with_gc(two_steps("two-steps-gc"), "OnPodCompletion"),
        two_steps("two-steps-none"),
        one("unscheduled-deleted", nowhere).then(13_260, DeletePod("s0")),
    ]
}
