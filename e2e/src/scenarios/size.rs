//! Many pods at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::harness::{Cluster, Load, Scenario, eventually};
use crate::providers::Capability::Recorder;

/// How many pods Argo's own controller releases per second (argo-workflows#13212).
const PEER_PER_SECOND: usize = 10;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "many-pods-one-deleted-owner",
            "thousands of terminating pods are released, with one live read of their owner",
            drain,
        )
        .needs([Recorder])
        .with_load(Load::Heavy),
    ]
}

async fn drain(cluster: Cluster) -> Result<()> {
    let pods = cluster.setting().large;
    cluster.ended_orphans(pods).await?;

    let before = cluster.recorder()?.gets("workflows")?;
    let started = Instant::now();
    let belayer = cluster.spawn_belayer(&Default::default())?;
    eventually(
        "all pods are removed",
        Duration::from_secs(200),
        async || {
            let left = cluster
                .pods()
                .list_metadata(&Default::default())
                .await?
                .items
                .len();
            ensure!(left == 0, "{left} remain");
            Ok(())
        },
    )
    .await?;
    let took = started.elapsed().as_secs_f64();
    let looks = cluster.recorder()?.gets("workflows")? - before;
    cluster.note(format!(
        "{pods} pods in {took:.1} s from process start with {looks} live reads of the owner (Argo's 10/s would take {} s)",
        pods / PEER_PER_SECOND
    ));
    ensure!(looks == 1, "the owner was read {looks} times");
    belayer.stop().await
}
