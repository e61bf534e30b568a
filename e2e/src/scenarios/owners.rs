//! Workflows are deleted with each propagation policy, and their version or CRD is removed.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::harness::{Cluster, SOON, Scenario, Workflow, eventually, pod};
use crate::kinds;
use crate::providers::Capability::GarbageCollector;

const CRD: &str = "workflows.argoproj.io";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "workflow-deleted-background",
            "background deletion: its pods are deleted after it",
            |cluster| deleted(cluster, PropagationPolicy::Background),
        )
        .needs([GarbageCollector]),
        Scenario::shared(
            "workflow-deleted-foreground",
            "foreground deletion: its pods are removed, then the workflow",
            |cluster| deleted(cluster, PropagationPolicy::Foreground),
        )
        .needs([GarbageCollector]),
        Scenario::shared(
            "workflow-deleted-orphan",
            "orphan deletion: its pods stay and are released",
            orphaned,
        )
        .needs([GarbageCollector]),
        Scenario::alone(
            "crd-version-not-served",
            "a version that is no longer served releases nothing",
            version_not_served,
        ),
        Scenario::alone(
            "crd-deleted",
            "the deletion of the CRD releases the pods",
            kind_deleted,
        ),
    ]
}

async fn with_pods(cluster: &Cluster) -> Result<Workflow> {
    let workflow = cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    let names = ["running", "ended", "deleted"];
    cluster
        .create_all(names.map(|name| pod(name).of(&workflow)))
        .await?;
    for name in names {
        cluster.is_held(name).await?;
    }
    cluster.finish("ended", "Succeeded").await?;
    cluster.finish("deleted", "Failed").await?;
    cluster.delete("deleted").await?;
    Ok(workflow)
}

async fn deleted(cluster: Cluster, policy: PropagationPolicy) -> Result<()> {
    with_pods(&cluster).await?;
    cluster.delete_workflow("w", policy).await?;
    cluster.is_empty(SOON).await?;
    cluster.workflow_is_removed("w", SOON).await
}

async fn orphaned(cluster: Cluster) -> Result<()> {
    with_pods(&cluster).await?;
    cluster
        .delete_workflow("w", PropagationPolicy::Orphan)
        .await?;
    cluster.workflow_is_removed("w", SOON).await?;
    cluster.is_removed("deleted").await?;
    for name in ["running", "ended"] {
        cluster.is_not_held(name).await?;
        let left = cluster.pods().get(name).await?;
        ensure!(
            left.metadata.deletion_timestamp.is_none(),
            "the orphan {name} was deleted"
        );
        ensure!(
            left.metadata
                .owner_references
                .unwrap_or_default()
                .is_empty(),
            "{name} still has an owner"
        );
    }
    Ok(())
}

async fn version_not_served(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    with_pods(&cluster).await?;
    serve_old_version(&cluster, false).await?;
    cluster.delete("ended").await?;
    // Workflows cannot be read now: failed live reads are no evidence.
    for name in ["running", "ended", "deleted"] {
        cluster.keeps_hold(name).await?;
    }
    belayer.kill().await?;
    // Nor for a new Belayer that has never seen a workflow.
    let belayer = cluster.spawn_belayer(&Default::default())?;
    for name in ["running", "ended", "deleted"] {
        cluster.keeps_hold(name).await?;
    }
    serve_old_version(&cluster, true).await?;
    for name in ["ended", "deleted"] {
        cluster.consume(name).await?;
        cluster.is_removed(name).await?;
    }
    cluster.is_held("running").await?;
    belayer.stop().await
}

/// Adds a version v1, because a CRD must serve one while v1alpha1 is not served.
async fn serve_old_version(cluster: &Cluster, served: bool) -> Result<()> {
    let definitions = kinds::definitions(cluster.client());
    let schema: Value = json!({ "openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    let version = |name: &str, served: bool, storage: bool| json!({ "name": name, "served": served, "storage": storage, "schema": schema });
    let versions = if served {
        json!([version("v1alpha1", true, true)])
    } else {
        json!([version("v1alpha1", false, true), version("v1", true, false)])
    };
    let patch = Patch::Merge(json!({ "spec": { "versions": versions } }));
    definitions
        .patch(CRD, &PatchParams::default(), &patch)
        .await?;
    eventually("the change of versions is served", SOON, async || {
        let answer = cluster.workflows().list(&Default::default()).await;
        ensure!(
            answer.is_ok() == served,
            "v1alpha1 is {}",
            if served {
                "not served yet"
            } else {
                "still served"
            }
        );
        Ok(())
    })
    .await
}

async fn kind_deleted(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    with_pods(&cluster).await?;
    let definitions = kinds::definitions(cluster.client());
    definitions.delete(CRD, &DeleteParams::default()).await?;
    eventually("the CRD is removed", SOON, async || {
        ensure!(
            definitions.get_opt(CRD).await?.is_none(),
            "the CRD still exists"
        );
        Ok(())
    })
    .await?;
    eventually("all pods are released", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 0, "{held} still have the hold");
        Ok(())
    })
    .await?;
    crate::providers::ensure_workflow_crd(cluster.client()).await?;
    belayer.stop().await
}
