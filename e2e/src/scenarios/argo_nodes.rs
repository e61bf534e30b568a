//! Fields of a node in a workflow's status besides the phase, and their effect on its pod: whether the
//! outputs have arrived, and which of several pods the node describes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::argo::step;
use crate::harness::{BelayerOptions, Cluster, HOLD, SOON, Scenario, finalizers, pod, throughout};

/// How long the absence of holds is observed.
const WINDOW: Duration = Duration::from_secs(3);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "argo-restarts-a-pod",
            "a pod that Argo replaces by one of the same name is released",
            restarted,
        ),
        Scenario::shared(
            "argo-outputs-still-arriving",
            "a final phase whose outputs have not arrived is no evidence",
            outputs,
        ),
        Scenario::shared(
            "argo-pods-of-all-ends",
            "pods deleted before they were bound, while they ran and after they ended are released once their result was consumed",
            ends,
        ),
        Scenario::alone(
            "argo-other-instance",
            "pods of another instance of Argo's controller are ignored",
            other_instance,
        ),
    ]
}

/// Writes the node of one pod into the status of the workflow `w`.
async fn says(cluster: &Cluster, name: &str, node: Value) -> Result<()> {
    let node = json!({ "status": { "nodes": { (format!("w-{name}")): node } } });
    cluster.merge_workflow("w", node).await
}

async fn uid(cluster: &Cluster, name: &str) -> Result<String> {
    let seen = cluster.pods().get(name).await?;
    seen.uid().context("a pod without a uid")
}

/// A node rejected the pod, or evicted it before it started; Argo deletes it and creates another one of the
/// same name, which fails as long as the old one exists.
async fn restarted(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Failed").await?;
    let first = uid(&cluster, "a").await?;
    // It describes another pod, so it is no evidence.
    let pending = json!({ "phase": "Pending", "restartingPodUID": "3f1a", "failedPodRestarts": 1 });
    says(&cluster, "a", pending).await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    says(&cluster, "a", json!({ "restartingPodUID": first })).await?;
    cluster.is_removed("a").await?;

    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    // The result of the first pod is not the result of the second.
    let stale = json!({
        "phase": "Failed", "restartingPodUID": null, "capturedPodUID": first,
    });
    says(&cluster, "a", stale).await?;
    cluster.stays_held("a").await?;
    let second = uid(&cluster, "a").await?;
    let saved = json!({ "phase": "Succeeded", "capturedPodUID": second });
    says(&cluster, "a", saved).await?;
    cluster.is_removed("a").await
}

/// Outputs arrive in a separate object. A pod that is removed before fails its node as deleted.
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
    cluster.is_removed("a").await
}

/// Pods that are deleted at every stage of their lifecycle.
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
    // A pod that had not started has no result.
    cluster.is_removed("pending").await?;
    for name in ["running", "succeeded", "failed"] {
        cluster.stays_held(name).await?;
    }
    cluster.finish("running", "Failed").await?;
    says(&cluster, "running", json!({ "phase": "Error" })).await?;
    cluster.is_removed("running").await?;
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
    cluster.create(&step("unknown", &workflow)).await?;
    cluster
        .create(&step("ours", &workflow).label(INSTANCE, "team-a"))
        .await?;
    cluster.create(&pod("plain")).await?;
    cluster.is_held("ours").await?;
    let others = ["theirs", "unknown", "plain"];
    throughout("the other pods get no hold", WINDOW, async || {
        for name in others {
            let seen = cluster.pods().get(name).await?;
            ensure!(!finalizers(&seen).contains(&HOLD), "{name} has a hold");
        }
        Ok(())
    })
    .await?;
    for name in others {
        cluster.delete(name).await?;
        cluster.is_removed(name).await?;
    }
    cluster.consume("ours").await?;
    cluster.is_not_held("ours").await?;
    belayer.stop().await
}
