//! What a workflow says of a node besides its phase, and what its pod may do then: whether the outputs
//! have arrived, and which pod of several it is about.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::argo::step;
use crate::harness::{BelayerOptions, Cluster, HOLD, Scenario, finalizers, pod, throughout};

const SOON: Duration = Duration::from_secs(60);
/// How long a cluster is watched for holds that must not come.
const WINDOW: Duration = Duration::from_secs(3);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "argo-restarts-a-pod",
            "a pod that Argo replaces by one of the same name makes room for it",
            restarted,
        ),
        Scenario::shared(
            "argo-outputs-still-arriving",
            "a final phase whose outputs have not arrived is no evidence",
            outputs,
        ),
        Scenario::shared(
            "argo-pods-of-all-ends",
            "deleted before they were bound, while they ran, after they ended: each goes once its result was taken",
            ends,
        ),
        Scenario::alone(
            "argo-other-instance",
            "pods of another instance of Argo's controller are left alone",
            other_instance,
        ),
    ]
}

/// Writes what the workflow `w` says of the node of one pod.
async fn says(cluster: &Cluster, name: &str, node: Value) -> Result<()> {
    let node = json!({ "status": { "nodes": { (format!("w-{name}")): node } } });
    cluster.merge_workflow("w", node).await
}

async fn uid(cluster: &Cluster, name: &str) -> Result<String> {
    let seen = cluster.pods().get(name).await?;
    seen.uid().context("a pod without a uid")
}

/// A node refused the pod, or evicted it before it began; Argo deletes it and starts another one under its
/// name, which nobody can as long as the old one is there.
async fn restarted(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Failed").await?;
    let first = uid(&cluster, "a").await?;
    // Of another pod, this says nothing.
    let pending = json!({ "phase": "Pending", "restartingPodUID": "3f1a", "failedPodRestarts": 1 });
    says(&cluster, "a", pending).await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    says(&cluster, "a", json!({ "restartingPodUID": first })).await?;
    cluster.is_gone("a").await?;

    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    // What was saved of the first is not what became of the second.
    let stale = json!({
        "phase": "Failed", "restartingPodUID": null, "capturedPodUID": first,
    });
    says(&cluster, "a", stale).await?;
    cluster.stays_held("a").await?;
    let second = uid(&cluster, "a").await?;
    let saved = json!({ "phase": "Succeeded", "capturedPodUID": second });
    says(&cluster, "a", saved).await?;
    cluster.is_gone("a").await
}

/// Outputs come by an object of their own. A pod that goes before they are there fails its node as deleted.
async fn outputs(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    let half = json!({ "phase": "Succeeded", "taskResultSynced": false });
    says(&cluster, "a", half).await?;
    cluster.stays_held("a").await?;
    says(&cluster, "a", json!({ "taskResultSynced": true })).await?;
    cluster.is_gone("a").await
}

/// Pods as people and clusters delete them, at every point of their lives.
async fn ends(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let names = ["pending", "running", "succeeded", "failed"];
    for name in names {
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
    }
    cluster.finish("running", "Running").await?;
    cluster.finish("succeeded", "Succeeded").await?;
    cluster.finish("failed", "Failed").await?;
    for name in names {
        cluster.delete(name).await?;
    }
    // One that had not started has no result.
    cluster.is_gone("pending").await?;
    for name in ["running", "succeeded", "failed"] {
        cluster.stays_held(name).await?;
    }
    cluster.finish("running", "Failed").await?;
    says(&cluster, "running", json!({ "phase": "Error" })).await?;
    cluster.is_gone("running").await?;
    cluster.stays_held("succeeded").await?;
    for (name, phase) in [("succeeded", "Succeeded"), ("failed", "Failed")] {
        says(&cluster, name, json!({ "phase": phase })).await?;
    }
    cluster.is_empty(SOON).await
}

async fn other_instance(cluster: Cluster) -> Result<()> {
    const INSTANCE: &str = "workflows.argoproj.io/controller-instanceid";
    let options = BelayerOptions::default().config(&format!(
        "podFinalizer: {{profiles: [{{builtIn: argo, selector: {{matchLabels: {{{INSTANCE}: team-a}}}}}}]}}"
    ));
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    cluster
        .create(&step("theirs", &workflow).label(INSTANCE, "team-b"))
        .await?;
    cluster.create(&step("nobodys", &workflow)).await?;
    cluster
        .create(&step("ours", &workflow).label(INSTANCE, "team-a"))
        .await?;
    cluster.create(&pod("plain")).await?;
    cluster.is_held("ours").await?;
    let others = ["theirs", "nobodys", "plain"];
    throughout("the others are left alone", WINDOW, async || {
        for name in others {
            let seen = cluster.pods().get(name).await?;
            ensure!(!finalizers(&seen).contains(&HOLD), "{name} is held");
        }
        Ok(())
    })
    .await?;
    for name in others {
        cluster.delete(name).await?;
        cluster.is_gone(name).await?;
    }
    cluster.consume("ours").await?;
    cluster.is_not_held("ours").await?;
    belayer.stop().await
}
