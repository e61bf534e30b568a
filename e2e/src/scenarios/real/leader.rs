//! The leader's pod ends in several ways.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use kube::api::ListParams;

use crate::harness::{Cluster, HOME, Installed, Workflow, eventually, pod};
use crate::kinds;

/// How many pods wait while the leader changes.
const WAITING: usize = 20;
/// How many pods are processed at the same time during an update.
const WORKERS: usize = 8;
/// How long a kubelet may need for a container that hangs.
const RESTART: Duration = Duration::from_secs(180);

pub(super) async fn killed(belayer: Installed) -> Result<()> {
    changes(&belayer, Loss::Killed).await?;
    // The kubelet starts the container again.
    belayer.is_rolled_out().await
}

pub(super) async fn evicted(belayer: Installed) -> Result<()> {
    changes(&belayer, Loss::Evicted).await?;
    belayer.is_rolled_out().await
}

/// The leader's processes get no CPU time any more. Its connections stay open, and it does not release the Lease.
pub(super) async fn hangs(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let leader = belayer.leader().await?.name_any();
    let since = Instant::now();
    changes(&belayer, Loss::Hangs).await?;
    eventually("the hanging replica is not ready", RESTART, async || {
        let pod = cluster.pods_in(HOME).get(&leader).await?;
        let status = &pod.data["status"]["containerStatuses"][0];
        ensure!(status["ready"] == false, "{status}");
        Ok(())
    })
    .await?;
    // Three failed probes, then the grace period, as a stopped process ignores SIGTERM.
    eventually("the container is restarted", RESTART, async || {
        let pod = cluster.pods_in(HOME).get(&leader).await?;
        let status = &pod.data["status"]["containerStatuses"][0];
        ensure!(
            status["restartCount"] == 1 && status["ready"] == true,
            "{status}"
        );
        Ok(())
    })
    .await?;
    cluster.note(format!(
        "its container is restarted and ready after {:.0} s",
        since.elapsed().as_secs_f64()
    ));
    reported_by_the_kubelet(cluster, &leader).await?;
    belayer.is_rolled_out().await
}

/// Both probes of the replica failed, in the words of the kubelet.
async fn reported_by_the_kubelet(cluster: &Cluster, replica: &str) -> Result<()> {
    let of_replica = format!("reason=Unhealthy,involvedObject.name={replica}");
    let events = kinds::events(cluster.client(), HOME);
    let events = events
        .list(&ListParams::default().fields(&of_replica))
        .await?;
    for probe in ["Liveness probe failed", "Readiness probe failed"] {
        let mut messages = events.iter().filter_map(|it| it.data["message"].as_str());
        ensure!(
            messages.any(|message| message.starts_with(probe)),
            "no Event begins with {probe:?}"
        );
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Loss {
    Killed,
    Evicted,
    Hangs,
}

/// Pods wait; the leader ends; what they wait for happens before there is another leader.
async fn changes(belayer: &Installed, loss: Loss) -> Result<()> {
    let cluster = &belayer.cluster;
    wait_for_consumer(cluster).await?;
    let leader = belayer.leader().await?;
    let holder = belayer.holder().await?;
    let since = Instant::now();
    match loss {
        Loss::Killed => belayer.container_of(&leader)?.kill()?,
        Loss::Hangs => belayer.container_of(&leader)?.stop()?,
        Loss::Evicted => belayer.evict(&leader.name_any()).await?,
    }
    consume_all(cluster).await?;
    let took = belayer.is_succeeded(&holder, since).await?;
    cluster.is_empty(Duration::from_secs(60)).await?;
    cluster.note(format!(
        "another leader after {:.1} s, all released after {:.1} s",
        took.as_secs_f64(),
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Ended and deleted pods that wait for their consumer.
pub(super) async fn wait_for_consumer(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    try_join_all((0..WAITING).map(|n| {
        let workflow = &workflow;
        async move {
            let name = format!("p-{n}");
            cluster.create(&pod(&name).of(workflow)).await?;
            cluster.is_held(&name).await?;
            cluster.finish(&name, "Succeeded").await?;
            cluster.delete(&name).await
        }
    }))
    .await?;
    let held = cluster.held_count().await?;
    ensure!(held == WAITING, "{held} of {WAITING} pods are held");
    Ok(())
}

pub(super) async fn consume_all(cluster: &Cluster) -> Result<()> {
    let names: Vec<String> = (0..WAITING).map(|n| format!("p-{n}")).collect();
    try_join_all(names.iter().map(|name| cluster.consume(name))).await?;
    Ok(())
}

pub(super) async fn updated(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let workflow = cluster.workflow("w").await?;
    let holder = belayer.holder().await?;
    let update = async {
        cluster
            .sh("kubectl -n belayer-system rollout restart deployment/belayer")
            .await?;
        belayer.is_rolled_out().await?;
        belayer.is_succeeded(&holder, Instant::now()).await?;
        Ok(())
    };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let load = try_join_all(
        (0..WORKERS).map(|worker| steady(cluster, &workflow, worker, stopped.clone())),
    );
    let update = async {
        let updated: Result<()> = update.await;
        stop.send_replace(true);
        updated
    };
    let (updated, processed) = tokio::join!(update, load);
    updated?;
    let processed = processed?;
    let pods: usize = processed.iter().map(|(pods, _)| pods).sum();
    let slowest = processed.iter().map(|(_, slowest)| *slowest).max();
    ensure!(pods >= WORKERS, "only {pods} pods were processed");
    cluster.note(format!(
        "{pods} pods, the slowest release took {:.1} s",
        slowest.unwrap_or_default().as_secs_f64()
    ));
    cluster.is_empty(Duration::from_secs(10)).await
}

/// Creates, ends, consumes and deletes one pod after the other. Each is held until it is consumed. Returns how
/// many there were, and the longest time from the consumption to the removal.
async fn steady(
    cluster: &Cluster,
    workflow: &Workflow,
    worker: usize,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> Result<(usize, Duration)> {
    let mut slowest = Duration::ZERO;
    let mut pods = 0;
    while !*stopped.borrow() {
        let name = format!("load-{worker}-{pods}");
        cluster.create(&pod(&name).of(workflow)).await?;
        cluster.is_held(&name).await?;
        cluster.finish(&name, "Succeeded").await?;
        cluster.delete(&name).await?;
        cluster.pods().get(&name).await?;
        let since = Instant::now();
        cluster.consume(&name).await?;
        cluster.is_removed(&name).await?;
        slowest = slowest.max(since.elapsed());
        pods += 1;
    }
    Ok((pods, slowest))
}
