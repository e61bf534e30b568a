//! What Helm refuses before it changes anything.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::release::Release;
use super::restored;
use crate::control_plane::Program;
use crate::harness::Cluster;

const OFF: &str = "controllers.podFinalizer.enabled=false,controllers.workflowFinalizer.enabled=false,\
                   controllers.pvcProtection.enabled=false";

pub(super) async fn each(cluster: Cluster) -> Result<()> {
    let release = Release::new(&cluster, Program::Helm4).await?;
    let shown = refusals(&release).await;
    let cleaned = restored(&cluster, &release).await;
    shown?;
    cleaned
}

async fn refusals(release: &Release) -> Result<()> {
    let chart = crate::chart::chart();
    let chart = chart.to_string_lossy();
    for (values, named) in [
        ("replica=3", "'replica' not allowed"),
        (
            "config.podFinaliser.resync=1m",
            "'podFinaliser' not allowed",
        ),
        (OFF, "no controller is enabled"),
    ] {
        let install = ["install", "belayer", &*chart, "--set", values];
        refused(release, &install, named).await?;
    }
    release.applied("install", &[]).await?;
    let before = release.remaining().await?;
    // The names of cluster-wide objects are fixed, so two releases cannot share them by mistake.
    let second = ["install", "second", &*chart];
    refused(release, &second, "belayer").await?;
    let elsewhere = release
        .cluster
        .another_namespace("second", json!({}))
        .await?;
    let elsewhere = release.in_namespace(&elsewhere);
    refused(
        &elsewhere,
        &["install", "belayer", &*chart],
        release.namespace.as_str(),
    )
    .await?;
    let after = release.remaining().await?;
    ensure!(before == after, "before: {before}, after: {after}");
    release.helm(&["status", "belayer"]).await.map(drop)
}

/// The command must fail with this in its message.
async fn refused(release: &Release, arguments: &[&str], named: &str) -> Result<()> {
    let command = arguments.join(" ");
    let done = release.helm(arguments).await;
    let why = done.err().with_context(|| format!("{command} succeeded"))?;
    ensure!(why.to_string().contains(named), "{command}: {why}");
    Ok(())
}
