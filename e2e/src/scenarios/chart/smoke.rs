//! A release from its installation to its end, on every supported release of Kubernetes.

use anyhow::{Result, ensure};

use super::release::{CONTROLLERS, Release};
use super::restored;
use crate::control_plane::Program;
use crate::harness::{Cluster, pod};

pub(super) async fn whole(cluster: Cluster) -> Result<()> {
    let release = Release::new(&cluster, Program::Helm4).await?;
    let lived = lives(&release).await;
    let cleaned = restored(&cluster, &release).await;
    lived?;
    cleaned
}

async fn lives(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    release.applied("install", &[]).await?;
    let (code, report) = release
        .belayer(&["check", "--service-account", CONTROLLERS])
        .await?;
    ensure!(code == 0, "{report}");
    let options = release.options().await?;
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    for name in ["consumed", "stays"] {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
    }
    cluster.finish("consumed", "Succeeded").await?;
    cluster.delete("consumed").await?;
    cluster.stays_held("consumed").await?;
    cluster.consume("consumed").await?;
    cluster.is_removed("consumed").await?;

    // Not of `config`: the file is in a container, and this harness runs the hook on the host.
    release.applied("upgrade", &["replicas=3"]).await?;
    let uninstall = ["uninstall", "belayer", "--timeout=4m"];
    let (done, printed, code, report) = release.with_hook(&uninstall, "belayer-drain").await?;
    ensure!(done && code == 0, "exit code {code}: {report}{printed}");
    cluster.nothing_is_held().await?;
    let left = release.remaining().await?;
    ensure!(left.is_empty(), "left: {left}");
    belayer.kill().await
}
