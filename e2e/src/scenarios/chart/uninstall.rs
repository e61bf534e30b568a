//! Uninstalls of a release in a bad state (row *uninstall*).

use anyhow::{Result, ensure};

use super::release::Release;
use super::restored;
use crate::control_plane::Program;
use crate::harness::{Belayer, Cluster, HOLD, SOON, WORKFLOW_HOLD, eventually, finalizers, pod};
use crate::kinds;

const UNINSTALL: [&str; 3] = ["uninstall", "belayer", "--timeout=4m"];

/// Runs the steps with a release, and restores what other scenarios on this cluster expect.
async fn with_release(
    cluster: Cluster,
    steps: impl AsyncFnOnce(&Release) -> Result<()>,
) -> Result<()> {
    let release = Release::new(&cluster, Program::Helm4).await?;
    let shown = steps(&release).await;
    let cleaned = restored(&cluster, &release).await;
    shown?;
    cleaned
}

pub(super) async fn crashing(cluster: Cluster) -> Result<()> {
    with_release(cluster, crash_loop).await
}

pub(super) async fn one_off(cluster: Cluster) -> Result<()> {
    with_release(cluster, without_pod_finalizer).await
}

/// Starts Belayer as its Deployment does, and waits until a workflow and its pod have finalizers.
async fn holding(release: &Release) -> Result<Belayer> {
    let cluster = &release.cluster;
    let belayer = cluster
        .start_belayer_with(&release.options().await?)
        .await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.workflow_is_held("w").await?;
    eventually("the gate is open for pods", SOON, async || {
        let gate = release.gate().await?;
        ensure!(gate["hold"] == "on", "{gate}");
        Ok(())
    })
    .await?;
    Ok(belayer)
}

async fn uninstalled(release: &Release) -> Result<()> {
    let (done, printed, code, report) = release.with_hook(&UNINSTALL, "belayer-drain").await?;
    ensure!(done && code == 0, "exit code {code}: {report}{printed}");
    release.cluster.nothing_is_held().await?;
    let left = release.remaining().await?;
    ensure!(left.is_empty(), "left: {left}");
    Ok(())
}

async fn crash_loop(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    // The CRDs go as well.
    release.applied("install", &["crds.keep=false"]).await?;
    holding(release).await?.stop().await?;
    let values = ["crds.keep=false", "extraArgs={--workers=0}"];
    release.applied("upgrade", &values).await?;
    let mut crashed = cluster.spawn_belayer(&release.options().await?)?;
    let status = crashed.ended(SOON).await?;
    ensure!(status.code() == Some(2), "{status}: {}", crashed.log()?);
    uninstalled(release).await?;
    let definitions = kinds::definitions(cluster.client());
    for name in [
        "gates.belayer.dev",
        "nodewipes.belayer.dev",
        "podoutcomes.belayer.dev",
        "podrecreations.belayer.dev",
    ] {
        eventually(&format!("{name} is deleted"), SOON, async || {
            ensure!(definitions.get_opt(name).await?.is_none(), "it exists");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The controller that is switched off has no process that removes its finalizers at the uninstall: they go before.
async fn without_pod_finalizer(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    release.applied("install", &[]).await?;
    holding(release).await?.stop().await?;
    let off = ["controllers.podFinalizer.enabled=false"];
    release.applied("upgrade", &off).await?;
    let belayer = cluster
        .start_belayer_with(&release.options().await?)
        .await?;
    eventually("the finalizer of the pod is removed", SOON, async || {
        let seen = cluster.pods().get("a").await?;
        ensure!(!finalizers(&seen).contains(&HOLD), "it is there");
        Ok(())
    })
    .await?;
    eventually("the gate names the controller", SOON, async || {
        let gate = release.gate().await?;
        ensure!(gate["hold"] == "switched-off", "{gate}");
        Ok(())
    })
    .await?;
    let workflow = cluster.workflows().get("w").await?;
    ensure!(finalizers(&workflow).contains(&WORKFLOW_HOLD), "no hold");
    uninstalled(release).await?;
    belayer.kill().await
}
