//! One scenario per rule of pod-finalizer's decision table, with the rule's number.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Cluster, HOLD, SOON, Scenario, eventually, finalizers, pod};
use crate::kinds;
use crate::providers::Capability::NamespaceDeletion;

/// A finalizer of another controller that keeps an object from being removed.
const KEEP: &str = "e2e.belayer.dev/keep";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "row-01-not-selected",
            "a pod that no profile selects gets no hold",
            row_01,
        ),
        Scenario::shared(
            "row-02-admin-asked",
            "an admin's annotation releases the pod for good",
            row_02,
        )
        .smoke(),
        Scenario::shared(
            "row-03-namespace-terminating",
            "a namespace's deletion is not delayed",
            row_03,
        )
        .smoke()
        .needs([NamespaceDeletion]),
        Scenario::shared(
            "row-04-unselected",
            "a pod that loses its label is released",
            row_04,
        ),
        Scenario::shared(
            "row-05-owner-gone",
            "pods of a removed workflow are released",
            row_05,
        )
        .smoke(),
        Scenario::shared(
            "row-06-owner-deleting",
            "the pods of a terminating workflow are released",
            row_06,
        )
        .smoke(),
        Scenario::shared(
            "row-08-no-owner",
            "a pod with a hold and without an owner is released",
            row_08,
        ),
        Scenario::shared(
            "row-09-consumed",
            "a pod labelled completed is released",
            row_09,
        )
        .smoke(),
        Scenario::shared(
            "row-09-owner-finished",
            "pods of a completed workflow are released",
            row_09_owner,
        ),
        Scenario::shared(
            "row-12-keep",
            "an ended, deleted pod waits until its result is consumed",
            row_12,
        ),
        Scenario::shared(
            "row-13-hold-added",
            "a workflow's pod gets the hold",
            row_13,
        ),
        Scenario::shared(
            "row-13-ignored-namespace",
            "an ignored namespace gets no holds",
            row_13_ignored,
        ),
        Scenario::shared(
            "row-14-too-late",
            "no hold is added to a pod being deleted",
            row_14,
        ),
    ]
}

async fn row_01(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("plain")).await?;
    cluster.create(&pod("selected").of(&workflow)).await?;
    cluster.is_held("selected").await?;
    cluster.stays_free("plain").await
}

async fn row_02(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("asked").of(&workflow)).await?;
    cluster.is_held("asked").await?;
    cluster
        .merge(
            "asked",
            json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } }),
        )
        .await?;
    cluster.is_not_held("asked").await?;
    cluster.released_for("asked", &["AdminAsked"]).await?;
    cluster.stays_free("asked").await
}

async fn row_03(cluster: Cluster) -> Result<()> {
    let namespace = cluster.another_namespace("doomed", json!({})).await?;
    let workflow = cluster
        .workflow_in(&namespace, "w", json!({ "finalizers": [KEEP] }))
        .await?;
    cluster
        .create_in(&namespace, &pod("a").of(&workflow).finalizer(KEEP))
        .await?;
    let pods = cluster.pods_in(&namespace);
    let hold = |expected: bool| {
        let pods = pods.clone();
        async move {
            eventually("the pod's hold is as expected", SOON, async || {
                let seen = pods.get("a").await?;
                ensure!(
                    finalizers(&seen).contains(&HOLD) == expected,
                    "{:?}",
                    finalizers(&seen)
                );
                Ok(())
            })
            .await
        }
    };
    hold(true).await?;
    kinds::namespaces(cluster.client())
        .delete(&namespace, &DeleteParams::default())
        .await?;
    // Another finalizer keeps the workflow and the pod: only Belayer's hold is removed.
    hold(false).await
}

async fn row_04(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster
        .merge(
            "a",
            json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": null } } }),
        )
        .await?;
    cluster.is_not_held("a").await?;
    cluster.released_for("a", &["Unselected"]).await
}

async fn row_05(cluster: Cluster) -> Result<()> {
    // The workflow's removal must not be seen, or it would release the pod.
    let workflow = cluster.workflow("w").await?;
    cluster.force_workflow_removal("w").await?;
    cluster
        .create(&pod("a").of(&workflow).held().finalizer(KEEP))
        .await?;
    cluster.is_not_held("a").await?;
    // The garbage collector may be faster: a pod deleted before it started has no result.
    cluster
        .released_for("a", &["OwnerGone", "EndedByDeletion"])
        .await
}

async fn row_06(cluster: Cluster) -> Result<()> {
    let namespace = cluster.namespace().to_owned();
    let workflow = cluster
        .workflow_in(&namespace, "w", json!({ "finalizers": [KEEP] }))
        .await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster
        .workflows()
        .delete("w", &DeleteParams::background())
        .await?;
    // An unfinished workflow that another finalizer keeps would not release its pods (A16).
    cluster.workflow_has_finished("w").await?;
    cluster.is_not_held("a").await?;
    cluster.released_for("a", &["OwnerDeleting"]).await?;
    let owner = cluster.workflows().get("w").await?;
    ensure!(
        owner.metadata.deletion_timestamp.is_some(),
        "the workflow should still be terminating"
    );
    Ok(())
}

async fn row_08(cluster: Cluster) -> Result<()> {
    let label = "workflows.argoproj.io/workflow";
    cluster
        .create(&pod("bare").label(label, "none").held())
        .await?;
    cluster.is_not_held("bare").await?;
    cluster.released_for("bare", &["NoOwner"]).await?;
    // No hold is added that would have to be removed at once.
    cluster.create(&pod("never").label(label, "none")).await?;
    cluster.stays_free("never").await
}

async fn row_09(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    cluster.released_for("a", &["Consumed"]).await?;
    cluster.stays_free("a").await
}

async fn row_09_owner(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Failed").await?;
    let completed =
        json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
    cluster
        .workflows()
        .patch("w", &PatchParams::default(), &Patch::Merge(&completed))
        .await?;
    cluster.is_not_held("a").await?;
    cluster.released_for("a", &["Consumed"]).await
}

async fn row_12(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_removed("a").await
}

async fn row_13(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster
        .create(&pod("a").of(&workflow).finalizer(KEEP))
        .await?;
    let held = cluster.is_held("a").await?;
    ensure!(finalizers(&held) == [KEEP, HOLD], "{:?}", finalizers(&held));
    Ok(())
}

async fn row_13_ignored(cluster: Cluster) -> Result<()> {
    let ignored = cluster
        .another_namespace("ignored", json!({ "belayer.dev/ignore": "true" }))
        .await?;
    let workflow = cluster.workflow_in(&ignored, "w", json!({})).await?;
    cluster.create_in(&ignored, &pod("a").of(&workflow)).await?;
    cluster.belayer_has_caught_up().await?;
    let seen = cluster.pods_in(&ignored).get("a").await?;
    ensure!(finalizers(&seen).is_empty(), "{:?}", finalizers(&seen));
    Ok(())
}

async fn row_14(cluster: Cluster) -> Result<()> {
    let missed = async || {
        let belayer = cluster.shared_belayer()?;
        belayer.metric("belayer_missed_holds_total", &[]).await
    };
    let before = missed().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").finalizer(KEEP)).await?;
    cluster.finish("a", "Failed").await?;
    cluster.delete("a").await?;
    let selected = pod("a").of(&workflow).build()?;
    cluster
        .merge(
            "a",
            json!({ "metadata": {
                "labels": selected.metadata.labels,
                "ownerReferences": selected.metadata.owner_references,
            }}),
        )
        .await?;
    cluster.stays_free("a").await?;
    ensure!(
        missed().await? > before,
        "a pod that was too late for a hold is not counted as missed"
    );
    Ok(())
}
