//! A mistyped selector must not drop every rope.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::{BelayerOptions, Cluster, Scenario, eventually, pod, throughout};

const PODS: usize = 40;

/// One letter too many.
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
        "a restart with a selector that matches nothing drops no rope",
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
    // It is ready: all pods have been listed. Give it time to do what it must not.
    throughout("no rope may drop", Duration::from_secs(5), async || {
        let held = cluster.held_count().await?;
        ensure!(held == PODS, "{held} of {PODS} are held");
        Ok(())
    })
    .await?;
    // What is asked for by the admin, pod by pod, is done all the same.
    let release =
        serde_json::json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    cluster.merge("p0", release).await?;
    cluster.is_not_held("p0").await?;
    belayer.stop().await?;

    let belayer = cluster.start_belayer().await?;
    cluster.consume("p1").await?;
    cluster.is_not_held("p1").await?;
    let held = cluster.held_count().await?;
    ensure!(held == PODS - 2, "{held} are held");
    belayer.stop().await
}

async fn all_held(cluster: &Cluster) -> Result<()> {
    eventually("all pods are held", Duration::from_secs(30), async || {
        let held = cluster.held_count().await?;
        ensure!(held == PODS, "{held} of {PODS} are held");
        Ok(())
    })
    .await
}
