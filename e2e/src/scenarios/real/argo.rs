//! The real Argo Workflows: workflows end as they do without Belayer, and results of ended pods are not lost.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join_all, try_join, try_join_all};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::SOON;
use crate::control_plane::STEP_IMAGE;
use crate::harness::{Cluster, Installed, RealArgo, eventually};

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
    /// Whether the ends with and without Belayer are the same, as far as they do not depend on the moment at which the
    /// controller looks.
    fn is_same(&self, with: &End, without: &End) -> bool {
        match self.user {
            // The controller may see how the deletion ended the pod, or that it is gone, or create it again.
            User::DeletesPod | User::ForceDeletesPod => true,
            // It may have read the output before the step was stopped.
            User::Stops => with.without_outputs() == without.without_outputs(),
            User::Waits | User::DeletesUnscheduled | User::DeletesWorkflow => with == without,
        }
    }
}

#[derive(Clone, Copy)]
enum User {
    /// Only waits.
    Waits,
    /// Deletes the first pod once the status of the workflow says that it runs.
    DeletesPod,
    /// The same without a grace period.
    ForceDeletesPod,
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

    fn of(workflow: &DynamicObject) -> Option<Self> {
        let status = &workflow.data["status"];
        let phase = status["phase"].as_str()?;
        if !matches!(phase, "Succeeded" | "Failed" | "Error") {
            return None;
        }
        let nodes = status["nodes"].as_object()?.values();
        let pods = nodes.filter(|node| node["type"] == "Pod");
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
        argo.permit(&side.namespace).await?;
        eventually("the account of the steps exists", SOON, async || {
            let accounts = crate::kinds::service_accounts(cluster.client(), &side.namespace);
            Ok(accounts.get("default").await?)
        })
        .await?;
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

async fn compare(cluster: &Cluster, argo: &RealArgo) -> Result<()> {
    let sides = sides(cluster, argo).await?;
    let cases = cases();
    let both = cases
        .iter()
        .map(|case| try_join(sides[0].run(case), sides[1].run(case)));
    let mut different = Vec::new();
    for (case, ends) in cases.iter().zip(join_all(both).await) {
        let (with, without) = ends.with_context(|| format!("the workflow {}", case.name))?;
        let name = case.name;
        if with == without {
            cluster.note(format!("{name}: {with}"));
        } else if case.is_same(&with, &without) {
            cluster.note(format!("{name}: {with} with Belayer, {without} without"));
        } else {
            different.push(format!(
                "{}: {with} with Belayer, {without} without",
                case.name
            ));
        }
    }
    ensure!(different.is_empty(), "{}", different.join("; "));
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    try_join(sides[0].clear(&names), sides[1].clear(&names)).await?;
    Ok(())
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
