//! Owners are matched by UID, never by name, and only in the pod's own namespace.

use anyhow::Result;
use kube::ResourceExt as _;
use serde_json::json;

use crate::harness::{Cluster, PodBuilder, Scenario, Workflow, pod};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "same-name-other-uid",
            "a workflow re-created under the same name is a different owner",
            same_name_other_uid,
        ),
        Scenario::shared(
            "owner-in-other-namespace",
            "a workflow of that UID in another namespace is not the owner",
            owner_in_other_namespace,
        ),
        Scenario::shared(
            "same-pod-name-again",
            "a pod re-created under an old name gets a hold again",
            same_pod_name,
        ),
    ]
}

async fn same_name_other_uid(cluster: Cluster) -> Result<()> {
    let first = cluster.workflow("w").await?;
    cluster.force_workflow_removal("w").await?;
    let second = cluster.workflow("w").await?;
    cluster.create(&pod("of-the-second").of(&second)).await?;
    ended_and_held(&cluster, pod("of-the-first").of(&first)).await?;
    cluster.is_not_held("of-the-first").await?;
    cluster.released_for("of-the-first", &["OwnerGone"]).await?;
    cluster.is_held("of-the-second").await?;
    cluster.stays_held("of-the-second").await
}

async fn owner_in_other_namespace(cluster: Cluster) -> Result<()> {
    let elsewhere = cluster.another_namespace("elsewhere", json!({})).await?;
    let there = cluster.workflow_in(&elsewhere, "w", json!({})).await?;
    let here = Workflow {
        name: "other".into(),
        uid: there.uid.clone(),
    };
    for (name, owner) in [("by-name-and-uid", &there), ("by-uid", &here)] {
        ended_and_held(&cluster, pod(name).of(owner)).await?;
        cluster.is_not_held(name).await?;
        cluster.released_for(name, &["OwnerGone"]).await?;
    }
    Ok(())
}

/// A pod that had ended before Belayer saw its owner: its deletion by the garbage collector does not release it, nor does
/// a deletion of its owner, which Belayer did not see.
async fn ended_and_held(cluster: &Cluster, of_owner: PodBuilder) -> Result<()> {
    let selected = of_owner.held().build()?;
    let name = selected.name_any();
    cluster.create(&pod(&name)).await?;
    cluster.finish(&name, "Succeeded").await?;
    let metadata = selected.metadata;
    let patch = json!({ "metadata": { "labels": metadata.labels, "finalizers": metadata.finalizers,
        "ownerReferences": metadata.owner_references } });
    cluster.merge(&name, patch).await?;
    Ok(())
}

async fn same_pod_name(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    for _ in 0..5 {
        cluster.create(&pod("again").of(&workflow)).await?;
        cluster.is_held("again").await?;
        cluster.finish("again", "Failed").await?;
        cluster.consume("again").await?;
        cluster.is_not_held("again").await?;
        cluster.delete("again").await?;
        cluster.is_removed("again").await?;
    }
    Ok(())
}
