//! Killed or stopped in the middle of work.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::harness::{Belayer, Cluster, Scenario, eventually, finalizers};
use crate::providers::Capability::Recorder;

const PODS: usize = 300;
const FOREIGN: &str = "e2e.belayer.dev/keep";
const SOON: Duration = Duration::from_secs(60);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "kill-9-in-the-middle",
            "kill -9 while releasing; the next start finishes",
            kill_9,
        ),
        Scenario::alone(
            "sigterm-in-the-middle",
            "SIGTERM while releasing: exit 0, nothing half done",
            sigterm,
        )
        .needs([Recorder]),
    ]
}

/// Many terminating pods behind one deleted owner, and no Belayer to see it.
async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.orphans(PODS, |pod| pod.finalizer(FOREIGN)).await
}

/// Starts Belayer and returns it once some pods, but not all, have been released.
async fn start_until_in_the_middle(cluster: &Cluster) -> Result<Belayer> {
    let belayer = cluster.spawn_belayer(&Default::default())?;
    let deadline = Instant::now() + SOON;
    loop {
        let held = cluster.held_count().await?;
        if held < PODS {
            return Ok(belayer);
        }
        ensure!(
            Instant::now() < deadline,
            "no pod was released\n{}",
            belayer.log()?
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn all_released(cluster: &Cluster) -> Result<()> {
    eventually("all pods are released", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 0, "{held} are held");
        Ok(())
    })
    .await?;
    // Every one of them is kept by the other finalizer, and by nothing else.
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
    let mut kills = 0;
    // Again and again, as a crash loop would.
    for _ in 0..3 {
        let belayer = start_until_in_the_middle(&cluster).await?;
        belayer.kill().await?;
        kills += 1;
        if cluster.held_count().await? == 0 {
            break;
        }
    }
    cluster.note(format!(
        "{kills} kills, {} left to the last start",
        cluster.held_count().await?
    ));
    let belayer = cluster.start_belayer().await?;
    all_released(&cluster).await?;
    belayer.stop().await
}

async fn sigterm(cluster: Cluster) -> Result<()> {
    prepare(&cluster).await?;
    let mark = cluster.recorder()?.mark()?;
    let belayer = start_until_in_the_middle(&cluster).await?;
    let asked = Instant::now();
    belayer.stop().await?;
    let held = cluster.held_count().await?;
    cluster.note(format!(
        "ended after {:.1} s with {held} of {PODS} left",
        asked.elapsed().as_secs_f64()
    ));
    // What was begun was finished: as many accepted patches as pods released.
    let patches = cluster.recorder()?.writes_since(mark)?;
    let accepted = patches
        .iter()
        .filter(|write| write.resource == "pods" && write.code == 200)
        .count();
    ensure!(
        accepted == PODS - held,
        "{accepted} patches were accepted but {} pods released",
        PODS - held
    );
    let belayer = cluster.start_belayer().await?;
    all_released(&cluster).await?;
    belayer.stop().await
}
