//! A mistyped selector must not release all holds.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, eventually, pod, throughout};

const PODS: usize = 40;

/// A selector with one letter too many.
const MISTYPED: &str = "\
podFinalizer:
  profiles:
  - name: argo
    selector:
      matchExpressions:
      - {key: workflows.argoproj.io/workfllow, operator: Exists}
    owner: {group: argoproj.io, version: v1alpha1, kind: Workflow, resource: workflows}
    consumed: {labels: {workflows.argoproj.io/completed: \"true\"}}
";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "mistyped-selector",
        "a restart with a selector that matches nothing releases no hold",
        mistyped_selector,
    )]
}

async fn mistyped_selector(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster
        .create_all((0..PODS).map(|index| pod(format!("p{index}")).of(&workflow)))
        .await?;
    all_held(&cluster).await?;
    belayer.stop().await?;

    let belayer = cluster
        .start_belayer_with(&BelayerOptions::default().config(MISTYPED))
        .await?;
    // It is ready, so all pods have been listed. Give it time for a wrong release.
    throughout(
        "no hold may be removed",
        Duration::from_secs(5),
        async || {
            let held = cluster.held_count().await?;
            ensure!(held == PODS, "{held} of {PODS} have the hold");
            Ok(())
        },
    )
    .await?;
    // An admin's request for a single pod is still carried out.
    let release =
        serde_json::json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    cluster.merge("p0", release).await?;
    cluster.is_not_held("p0").await?;
    belayer.stop().await?;

    let belayer = cluster.start_belayer().await?;
    cluster.consume("p1").await?;
    cluster.is_not_held("p1").await?;
    let held = cluster.held_count().await?;
    ensure!(held == PODS - 2, "{held} have the hold");
    belayer.stop().await
}

async fn all_held(cluster: &Cluster) -> Result<()> {
    eventually("all pods have the hold", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == PODS, "{held} of {PODS} have the hold");
        Ok(())
    })
    .await
}
