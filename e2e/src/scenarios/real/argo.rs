//! The real Argo Workflows: workflows end as they do without Belayer, and results of ended pods are not lost.

pub(super) mod lost;

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join_all, try_join, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::control_plane::STEP_IMAGE;
use crate::harness::{Cluster, Installed, RealArgo, SOON, eventually};

/// Timeout of a workflow, beside all others on two cores.
const LONG: Duration = Duration::from_secs(400);

/// The controller looks at a pod that it has not heard of after ten seconds.
const LOOK: Duration = Duration::from_secs(60);

/// A workflow, and what a user does to it.
struct Case {
    name: &'static str,
    spec: Value,
    user: User,
}

impl Case {
    /// Whether the end with Belayer is permitted beside the end without it.
    fn permits(&self, with: &End, without: &End) -> bool {
        match self.user {
            // It may have read the output before the step was stopped.
            User::Stops => with.without_outputs() == without.without_outputs(),
            // The controller may see how the deletion ended the pod, or that it is gone, or create it again: by the
            // moment at which it looks. Belayer may make none of that worse.
            User::DeletesPod | User::ForceDeletesPod | User::EvictsPod => {
                DELETED_RUNNING.contains(&with.without_outputs().as_str())
                    && !with.is_worse(without)
            }
            User::Waits
            | User::DeletesUnscheduled
            | User::DeletesAgent
            | User::Retries
            | User::DeletesWorkflow => with == without,
        }
    }
}

/// How workflows of two steps may end of which one was deleted while it ran. The names with a number are attempts.
const DELETED_RUNNING: &[&str] = &[
    "Succeeded: a Succeeded, b Succeeded",
    "Failed: a Error, b Succeeded",
    "Failed: a Failed, b Succeeded",
    "Error: a Error, b Succeeded",
    "Succeeded: a(0) Succeeded, b(0) Succeeded",
    "Succeeded: a(0) Error, a(1) Succeeded, b(0) Succeeded",
    "Failed: a(0) Failed, b(0) Succeeded",
];

#[derive(Clone, Copy)]
enum User {
    /// Only waits.
    Waits,
    /// Deletes the first pod once the status of the workflow says that it runs.
    DeletesPod,
    /// The same without a grace period.
    ForceDeletesPod,
    /// The same by an eviction.
    EvictsPod,
    /// Deletes the agent pod once it has executed an HTTP template, while another step runs.
    DeletesAgent,
    /// Retries the failed workflow, as `argo retry` does.
    Retries,
    /// Deletes a pod that no node takes, waits for the next one, and terminates the workflow.
    DeletesUnscheduled,
    /// Stops the workflow once its pods run.
    Stops,
    /// Deletes the workflow once a pod runs.
    DeletesWorkflow,
}

/// A step that writes an output, and ends with `code` after `seconds`.
fn step(seconds: u32, code: u8) -> Value {
    json!({
        "name": "step",
        "container": {
            "image": STEP_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/belayer-pause"],
            "args": ["result", "/out", seconds.to_string(), code.to_string()],
        },
        "outputs": { "parameters": [{ "name": "out", "valueFrom": { "path": "/out" } }] },
    })
}

/// Two steps at the same time; `more` is merged into the spec, `template` into the template of the steps.
fn spec(mut step: Value, template: &Value, more: &Value) -> Value {
    for (key, value) in template.as_object().into_iter().flatten() {
        step[key] = value.clone();
    }
    let both = json!([[
        { "name": "a", "template": "step" },
        { "name": "b", "template": "step" },
    ]]);
    let mut spec = json!({
        "entrypoint": "main",
        "templates": [{ "name": "main", "steps": both }, step],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

/// A step of two containers, of which the second one waits for the first one. A container set writes its outputs in the
/// container `main`.
fn set() -> Value {
    let container = |name: &str, seconds: u32| {
        json!({
            "name": name,
            "image": STEP_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/belayer-pause"],
            "args": ["result", "/out", seconds.to_string(), "0"],
        })
    };
    let mut main = container("main", 1);
    main["dependencies"] = json!(["first"]);
    json!({
        "name": "step",
        "containerSet": { "containers": [container("first", 1), main] },
        "outputs": { "parameters": [{ "name": "out", "valueFrom": { "path": "/out" } }] },
    })
}

/// An HTTP step beside one that runs for longer, and then another HTTP step: an agent pod executes both. What they read
/// is open to everybody: there is no DNS, so the API server is named by its address.
fn by_http() -> Value {
    let http = json!({
        "name": "http",
        "http": { "url": "https://10.96.0.1/livez", "insecureSkipVerify": true, "timeoutSeconds": 10 },
    });
    let steps = json!([
        [{ "name": "h", "template": "http" }, { "name": "s", "template": "step" }],
        [{ "name": "i", "template": "http" }],
    ]);
    json!({
        "entrypoint": "main",
        "templates": [{ "name": "main", "steps": steps }, http, step(25, 0)],
    })
}

fn cases() -> Vec<Case> {
    let none = json!({});
    let of = |name, user, spec| Case { name, spec, user };
    let nowhere = json!({ "nodeSelector": { "belayer.dev/no-such-node": "true" } });
    let gc =
        |strategy: &str| json!({ "podGC": { "strategy": strategy, "deleteDelayDuration": "2s" } });
    let retry = |policy: &str| json!({ "retryStrategy": { "limit": "1", "retryPolicy": policy } });
    vec![
        of("plain", User::Waits, spec(step(1, 0), &none, &none)),
        of("failing", User::Waits, spec(step(1, 3), &none, &none)),
        of(
            "gc-on-pod-completion",
            User::Waits,
            spec(step(1, 0), &none, &gc("OnPodCompletion")),
        ),
        of(
            "gc-on-workflow-success",
            User::Waits,
            spec(step(1, 0), &none, &gc("OnWorkflowSuccess")),
        ),
        of(
            "gc-on-pod-success-failing",
            User::Waits,
            spec(step(1, 1), &none, &gc("OnPodSuccess")),
        ),
        of(
            "retry-exit-1",
            User::Waits,
            spec(step(1, 1), &retry("Always"), &none),
        ),
        of(
            "exit-handler",
            User::Waits,
            spec(step(1, 0), &none, &json!({ "onExit": "step" })),
        ),
        of(
            "ttl",
            User::Waits,
            spec(
                step(1, 0),
                &none,
                &json!({ "ttlStrategy": { "secondsAfterCompletion": 8 } }),
            ),
        ),
        of(
            "deleted-running",
            User::DeletesPod,
            spec(step(90, 0), &none, &none),
        ),
        of(
            "force-deleted-running",
            User::ForceDeletesPod,
            spec(step(90, 0), &none, &none),
        ),
        of(
            "retry-on-error",
            User::DeletesPod,
            spec(step(90, 0), &retry("OnError"), &none),
        ),
        of(
            "evicted-running",
            User::EvictsPod,
            spec(step(90, 0), &none, &none),
        ),
        of("container-set", User::Waits, spec(set(), &none, &none)),
        of("http-agent-deleted", User::DeletesAgent, by_http()),
        of("retried", User::Retries, spec(step(1, 3), &none, &none)),
        of(
            "unscheduled-deleted",
            User::DeletesUnscheduled,
            spec(step(1, 0), &nowhere, &none),
        ),
        of("stopped", User::Stops, spec(step(90, 0), &none, &none)),
        of(
            "workflow-deleted",
            User::DeletesWorkflow,
            spec(step(90, 0), &none, &none),
        ),
    ]
}

/// What the end of a step with an output says.
const OUTPUT: &str = " with its output";

/// How a workflow ended.
#[derive(PartialEq, Eq, Clone)]
struct End(String);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl End {
    fn without_outputs(&self) -> String {
        self.0.replace(OUTPUT, "")
    }

    /// Whether it did not succeed although the other one did, or has more failed steps than the other one.
    fn is_worse(&self, than: &Self) -> bool {
        let succeeded = |end: &Self| end.0.starts_with("Succeeded");
        let failed = |end: &Self| {
            end.0
                .split([':', ','])
                .skip(1)
                .filter(|step| step.contains(" Failed"))
                .count()
        };
        succeeded(than) && !succeeded(self) || failed(self) > failed(than)
    }

    fn of(workflow: &DynamicObject) -> Option<Self> {
        let status = &workflow.data["status"];
        let phase = status["phase"].as_str()?;
        if !matches!(phase, "Succeeded" | "Failed" | "Error") {
            return None;
        }
        let nodes = status["nodes"].as_object()?.values();
        let pods = nodes.filter(|node| node["type"] == "Pod" || node["type"] == "HTTP");
        let mut pods: Vec<String> = pods
            .map(|node| {
                let outputs = &node["outputs"]["parameters"];
                let has_output = outputs[0]["value"].is_string();
                let output = if has_output { OUTPUT } else { "" };
                let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}{output}", text("displayName"), text("phase"))
            })
            .collect();
        pods.sort();
        Some(Self(format!("{phase}: {}", pods.join(", "))))
    }
}

/// One side of a comparison: a namespace with or without Belayer.
struct Side<'a> {
    cluster: &'a Cluster,
    argo: &'a RealArgo,
    namespace: String,
}

impl Side<'_> {
    async fn submit(&self, case: &Case) -> Result<()> {
        let workflow = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": { "name": case.name, "namespace": self.namespace },
            "spec": case.spec,
        });
        let workflow: DynamicObject = serde_json::from_value(workflow)?;
        let workflows = self.argo.workflows(&self.namespace);
        workflows.create(&PostParams::default(), &workflow).await?;
        Ok(())
    }

    async fn run(&self, case: &Case) -> Result<End> {
        self.submit(case).await?;
        match case.user {
            User::Waits => {}
            User::DeletesPod => self.delete_running(case.name, None).await?,
            User::ForceDeletesPod => self.delete_running(case.name, Some(0)).await?,
            User::EvictsPod => self.evict_running(case.name).await?,
            User::DeletesAgent => self.delete_agent(case.name).await?,
            User::Retries => self.retry(case.name).await?,
            User::DeletesUnscheduled => self.delete_unscheduled(case.name).await?,
            User::Stops => {
                // Argo deletes the pod of a step that does not run yet.
                self.running(case.name, 'a').await?;
                self.running(case.name, 'b').await?;
                self.shut_down(case.name, "Stop").await?;
            }
            User::DeletesWorkflow => {
                self.running(case.name, 'a').await?;
                let workflows = self.argo.workflows(&self.namespace);
                workflows
                    .delete(case.name, &DeleteParams::background())
                    .await?;
                self.is_gone(case.name).await?;
                return Ok(End("deleted".to_owned()));
            }
        }
        self.end(case.name).await
    }

    async fn end(&self, name: &str) -> Result<End> {
        let workflows = self.argo.workflows(&self.namespace);
        let what = format!("the workflow {}/{name} has ended", self.namespace);
        eventually(&what, LONG, async || {
            let workflow = workflows.get(name).await?;
            End::of(&workflow).with_context(|| format!("{}", workflow.data["status"]["nodes"]))
        })
        .await
    }

    async fn pods(&self, workflow: &str) -> Result<Vec<DynamicObject>> {
        let of = format!("workflows.argoproj.io/workflow={workflow}");
        let list = ListParams::default().labels(&of);
        Ok(self
            .cluster
            .pods_in(&self.namespace)
            .list(&list)
            .await?
            .items)
    }

    /// The pod of a step, once the status of the workflow says that it runs.
    async fn running(&self, workflow: &str, step: char) -> Result<String> {
        let workflows = self.argo.workflows(&self.namespace);
        eventually(&format!("a pod of {workflow} runs"), LONG, async || {
            let status = &workflows.get(workflow).await?.data["status"];
            let nodes = status["nodes"].as_object().context("no nodes")?;
            let pods = self.pods(workflow).await?;
            let is_running = |pod: &&DynamicObject| {
                let id = pod.annotations().get("workflows.argoproj.io/node-id");
                let node = id.and_then(|id| nodes.get(id));
                let is_of_the_step = |node: &Value| {
                    let name = node["displayName"].as_str();
                    name.is_some_and(|name| name.starts_with(step))
                };
                node.is_some_and(|node| node["phase"] == "Running" && is_of_the_step(node))
                    && pod.data["status"]["phase"] == "Running"
            };
            let running = pods.iter().find(is_running);
            Ok(running.context("none runs")?.name_any())
        })
        .await
    }

    async fn delete_running(&self, workflow: &str, grace: Option<u32>) -> Result<()> {
        let pod = self.running(workflow, 'a').await?;
        let with = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        self.cluster
            .pods_in(&self.namespace)
            .delete(&pod, &with)
            .await?;
        Ok(())
    }

    async fn evict_running(&self, workflow: &str) -> Result<()> {
        let name = self.running(workflow, 'a').await?;
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().clone(), &self.namespace);
        pods.evict(&name, &EvictParams::default()).await?;
        Ok(())
    }

    async fn delete_agent(&self, workflow: &str) -> Result<()> {
        let workflows = self.argo.workflows(&self.namespace);
        eventually("the first HTTP step has succeeded", LONG, async || {
            let status = &workflows.get(workflow).await?.data["status"];
            let nodes = status["nodes"].as_object().context("no nodes")?;
            let done = |node: &Value| node["displayName"] == "h" && node["phase"] == "Succeeded";
            ensure!(nodes.values().any(done), "{status}");
            Ok(())
        })
        .await?;
        let agents = self.pods(workflow).await?.into_iter();
        let mut agents = agents.filter(|pod| {
            let component = pod.labels().get("workflows.argoproj.io/component");
            component.is_some_and(|component| component == "agent")
        });
        let agent = agents.next().context("there is no agent pod")?.name_any();
        let pods = self.cluster.pods_in(&self.namespace);
        pods.delete(&agent, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes the pods of failed steps, and lets the workflow run again without their nodes.
    async fn retry(&self, workflow: &str) -> Result<()> {
        let first = self.end(workflow).await?;
        ensure!(first.0.starts_with("Failed"), "it ended as {first}");
        let workflows = self.argo.workflows(&self.namespace);
        let status = workflows.get(workflow).await?.data["status"].take();
        let nodes = status["nodes"].as_object().context("no nodes")?;
        let mut changed = serde_json::Map::new();
        for (id, node) in nodes {
            let change = match node["type"].as_str() {
                Some("Pod") => Value::Null,
                _ => {
                    json!({ "phase": "Running", "message": null, "finishedAt": null, "children": null, "outboundNodes": null })
                }
            };
            changed.insert(id.clone(), change);
        }
        let earlier = self.pods(workflow).await?;
        let pods = self.cluster.pods_in(&self.namespace);
        for pod in &earlier {
            pods.delete(&pod.name_any(), &DeleteParams::default())
                .await?;
        }
        let completed = "workflows.argoproj.io/completed";
        let patch = Patch::Merge(json!({
            "metadata": { "labels": { completed: "false", "workflows.argoproj.io/phase": "Running" } },
            "status": {
                "phase": "Running", "message": null, "finishedAt": null,
                "conditions": [{ "type": "Completed", "status": "False" }],
                "startedAt": jiff::Timestamp::now().to_string(), "nodes": changed,
            },
        }));
        workflows
            .patch(workflow, &PatchParams::default(), &patch)
            .await?;
        eventually("the steps run again", LONG, async || {
            let again = self.pods(workflow).await?;
            let old = |pod: &DynamicObject| earlier.iter().any(|before| before.uid() == pod.uid());
            ensure!(
                !again.is_empty() && !again.iter().any(old),
                "{} pods",
                again.len()
            );
            Ok(())
        })
        .await
    }

    async fn delete_unscheduled(&self, workflow: &str) -> Result<()> {
        let pods = self.cluster.pods_in(&self.namespace);
        let first = eventually("a pod waits for a node", LONG, async || {
            let all = self.pods(workflow).await?;
            all.into_iter().next().context("no pod")
        })
        .await?;
        let name = first.name_any();
        pods.delete(&name, &DeleteParams::default()).await?;
        eventually("Argo creates the pod again", LOOK, async || {
            let next = pods.get(&name).await?;
            ensure!(next.uid() != first.uid(), "it is still the first one");
            Ok(())
        })
        .await?;
        self.shut_down(workflow, "Terminate").await
    }

    async fn shut_down(&self, workflow: &str, how: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "shutdown": how } }));
        let workflows = self.argo.workflows(&self.namespace);
        workflows
            .patch(workflow, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Waits until the workflow and all its pods are gone.
    async fn is_gone(&self, workflow: &str) -> Result<()> {
        let workflows = self.argo.workflows(&self.namespace);
        eventually(
            &format!("{workflow} and its pods are gone"),
            LONG,
            async || {
                ensure!(workflows.get_opt(workflow).await?.is_none(), "it is there");
                let pods = self.pods(workflow).await?;
                ensure!(pods.is_empty(), "{} pods are there", pods.len());
                Ok(())
            },
        )
        .await
    }

    /// Deletes all workflows: no pod and no workflow may stay.
    async fn clear(&self, names: &[&str]) -> Result<()> {
        let workflows = self.argo.workflows(&self.namespace);
        for name in names {
            if workflows.get_opt(name).await?.is_some() {
                workflows.delete(name, &DeleteParams::background()).await?;
            }
        }
        try_join_all(names.iter().map(|name| self.is_gone(name))).await?;
        Ok(())
    }
}

/// The two sides: with Belayer, and in a namespace that it ignores.
async fn sides<'a>(cluster: &'a Cluster, argo: &'a RealArgo) -> Result<[Side<'a>; 2]> {
    let labels = json!({ "belayer.dev/ignore": "true" });
    let ignored = cluster.another_namespace("free", labels).await?;
    let of = |namespace: &str| Side {
        cluster,
        argo,
        namespace: namespace.to_owned(),
    };
    let sides = [of(cluster.namespace()), of(&ignored)];
    for side in &sides {
        eventually("the account of the steps exists", SOON, async || {
            let accounts = crate::kinds::service_accounts(cluster.client(), &side.namespace);
            Ok(accounts.get("default").await?)
        })
        .await?;
        argo.permit(&side.namespace).await?;
    }
    Ok(sides)
}

/// A1 to A23: every workflow ends with Belayer as without it.
pub(super) async fn same_ends(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let mut argo = RealArgo::start(cluster).await?;
    let shown = compare(cluster, &argo).await;
    argo.check_running()?;
    shown.and(argo.remove().await)
}

/// How often a case is run whose ends differ. A difference that comes from the moment at which the controller looks goes
/// away; one that Belayer makes stays.
const RUNS: usize = 3;

async fn compare(cluster: &Cluster, argo: &RealArgo) -> Result<()> {
    let sides = sides(cluster, argo).await?;
    let cases = cases();
    let all = cases.iter().map(|case| repeat(cluster, &sides, case));
    let mut different = Vec::new();
    for difference in join_all(all).await {
        different.extend(difference?);
    }
    ensure!(different.is_empty(), "{}", different.join("; "));
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    try_join(sides[0].clear(&names), sides[1].clear(&names)).await?;
    Ok(())
}

/// Runs a case until its ends are permitted. Returns the last ends if they never are.
async fn repeat(cluster: &Cluster, sides: &[Side<'_>; 2], case: &Case) -> Result<Option<String>> {
    let name = case.name;
    let mut last = None;
    for run in 0..RUNS {
        if run > 0 {
            try_join(sides[0].clear(&[name]), sides[1].clear(&[name])).await?;
        }
        let ends = try_join(sides[0].run(case), sides[1].run(case)).await;
        let (with, without) = ends.with_context(|| format!("the workflow {name}"))?;
        if with == without {
            cluster.note(format!("{name}: {with}"));
            return Ok(None);
        }
        let both = format!("{name}: {with} with Belayer, {without} without");
        cluster.note(both.clone());
        if case.permits(&with, &without) {
            return Ok(None);
        }
        last = Some(both);
    }
    Ok(last)
}

/// The controller is killed, pods end and are deleted: only with Belayer their results are read later.
pub(super) async fn results_survive(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let mut argo = RealArgo::start(cluster).await?;
    let shown = while_down(cluster, &mut argo).await;
    argo.check_running()?;
    shown.and(argo.remove().await)
}

async fn while_down(cluster: &Cluster, argo: &mut RealArgo) -> Result<()> {
    let none = json!({});
    let sidecar = json!({ "sidecars": [{
        "name": "beside",
        "image": STEP_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/belayer-pause"],
    }] });
    let cases = [
        ("ended", spec(step(20, 0), &none, &none)),
        ("sidecar-runs", spec(step(20, 0), &sidecar, &none)),
    ];
    let cases = cases.map(|(name, spec)| Case {
        name,
        spec,
        user: User::Waits,
    });
    let namespaces = {
        let sides = sides(cluster, argo).await?;
        for side in &sides {
            for case in &cases {
                side.submit(case).await?;
            }
        }
        for side in &sides {
            try_join_all(cases.iter().map(|case| side.running(case.name, 'a'))).await?;
        }
        sides.map(|side| side.namespace)
    };
    argo.kill().await?;
    for namespace in &namespaces {
        for case in &cases {
            delete_ended(cluster, namespace, case.name).await?;
        }
    }
    argo.resume()?;
    let argo = &*argo;
    let [with, without] = namespaces.map(|namespace| Side {
        cluster,
        argo,
        namespace,
    });
    for case in &cases {
        let end = with.end(case.name).await?;
        let other = without.end(case.name).await?;
        let name = case.name;
        cluster.note(format!("{name}: {end} with Belayer, {other} without"));
        let all = End("Succeeded: a Succeeded with its output, b Succeeded with its output".into());
        if end != all {
            bail!("{name} ended as {end}");
        }
    }
    let names = cases.map(|case| case.name);
    try_join(with.clear(&names), without.clear(&names)).await?;
    Ok(())
}

/// Deletes the pods of a workflow once their main containers and those of Argo have ended.
async fn delete_ended(cluster: &Cluster, namespace: &str, workflow: &str) -> Result<()> {
    let pods = cluster.pods_in(namespace);
    let of = ListParams::default().labels(&format!("workflows.argoproj.io/workflow={workflow}"));
    let ended = eventually(
        &format!("the steps of {workflow} have ended"),
        LONG,
        async || {
            let all = pods.list(&of).await?.items;
            for pod in &all {
                let containers = pod.data["status"]["containerStatuses"].as_array();
                let mut own = containers
                    .into_iter()
                    .flatten()
                    .filter(|container| container["name"] != "beside");
                let has_ended = |container: &Value| container["state"]["terminated"].is_object();
                ensure!(own.all(has_ended), "{} has not", pod.name_any());
            }
            ensure!(all.len() == 2, "it has {} pods", all.len());
            Ok(all)
        },
    )
    .await?;
    for pod in ended {
        pods.delete(&pod.name_any(), &DeleteParams::default())
            .await?;
    }
    Ok(())
}
