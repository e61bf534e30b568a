//! Belayer is killed or stopped during its work.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::harness::{
    Belayer, BelayerOptions, Cluster, Proxy, SOON, Scenario, eventually, finalizers,
};
use crate::providers::Capability::Recorder;

const PODS: usize = 300;
const FOREIGN: &str = "e2e.belayer.dev/keep";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "kill-9-in-the-middle",
            "kill -9 during releases; the next start completes them",
            kill_9,
        ),
        Scenario::alone(
            "sigterm-in-the-middle",
            "SIGTERM during releases: exit code 0, no partial release",
            sigterm,
        )
        .needs([Recorder]),
    ]
}

/// Many terminating pods of one deleted owner, while no Belayer runs.
async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.orphans(PODS, |pod| pod.finalizer(FOREIGN)).await
}

/// With one release at a time, all take half a minute: Belayer can be stopped in between also on a busy machine.
async fn slow_server(cluster: &Cluster) -> Result<Proxy> {
    Proxy::slow(cluster.server_address()?, Duration::from_millis(100)).await
}

/// Starts Belayer and returns it once it has released some pods, but not all.
async fn start_until_in_the_middle(cluster: &Cluster, slow: &Proxy) -> Result<Belayer> {
    let before = cluster.held_count().await?;
    let options = BelayerOptions::default()
        .argument("--concurrent-releases=1")
        .through(slow.address());
    let belayer = cluster.spawn_belayer(&options)?;
    eventually("a pod is released", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held < before, "{held} pods are held");
        Ok(())
    })
    .await?;
    Ok(belayer)
}

async fn all_released(cluster: &Cluster) -> Result<()> {
    eventually("all pods are released", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 0, "{held} still have the hold");
        Ok(())
    })
    .await?;
    // The other finalizer alone keeps every pod.
    let pods = cluster.pods().list(&Default::default()).await?;
    ensure!(
        pods.items.len() == PODS,
        "{} of {PODS} pods are left",
        pods.items.len()
    );
    for pod in &pods {
        ensure!(finalizers(pod) == [FOREIGN], "{:?}", finalizers(pod));
    }
    Ok(())
}

async fn kill_9(cluster: Cluster) -> Result<()> {
    prepare(&cluster).await?;
    let slow = slow_server(&cluster).await?;
    // Repeatedly, as in a crash loop.
    for kill in 1..=3 {
        let belayer = start_until_in_the_middle(&cluster, &slow).await?;
        belayer.kill().await?;
        let held = cluster.held_count().await?;
        ensure!(held > 0, "all pods were released before kill {kill}");
        cluster.note(format!("kill {kill}: {held} of {PODS} pods left"));
    }
    let belayer = cluster.start_belayer().await?;
    all_released(&cluster).await?;
    belayer.stop().await
}

async fn sigterm(cluster: Cluster) -> Result<()> {
    prepare(&cluster).await?;
    let slow = slow_server(&cluster).await?;
    let mark = cluster.recorder()?.mark()?;
    let belayer = start_until_in_the_middle(&cluster, &slow).await?;
    let asked = Instant::now();
    belayer.stop().await?;
    let held = cluster.held_count().await?;
    ensure!(held > 0, "all pods were released before SIGTERM");
    cluster.note(format!(
        "exited after {:.1} s with {held} of {PODS} pods left",
        asked.elapsed().as_secs_f64()
    ));
    // Every accepted patch has released one pod.
    eventually("as many patches are recorded", SOON, async || {
        let mut patches = cluster.recorder()?.writes_since(mark)?;
        patches.retain(|write| write.resource == "pods" && write.code == 200);
        ensure!(
            patches.len() == PODS - held,
            "{} patches were accepted but {} pods released",
            patches.len(),
            PODS - held
        );
        Ok(())
    })
    .await?;
    let belayer = cluster.start_belayer().await?;
    all_released(&cluster).await?;
    belayer.stop().await
}
