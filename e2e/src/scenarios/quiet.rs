//! The absence of writes.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;

use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, pod, throughout};
use crate::providers::Capability::Recorder;
use crate::providers::{Mark, Request};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "settled-cluster-sees-no-write",
            "Belayer writes nothing to a settled cluster for a minute",
            settled,
        )
        .needs([Recorder]),
        Scenario::alone(
            "dry-run-sends-no-write",
            "in a dry run no mutating request reaches the server",
            dry_run,
        )
        .needs([Recorder]),
    ]
}

async fn settled(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    // A pod in each state in which nothing is due.
    let names = ["running", "ended", "deleted", "consumed"];
    for name in names {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
    }
    cluster.create(&pod("plain")).await?;
    cluster
        .create(&pod("bare").label("workflows.argoproj.io/workflow", "none"))
        .await?;
    cluster.finish("ended", "Failed").await?;
    cluster.finish("deleted", "Failed").await?;
    cluster.delete("deleted").await?;
    cluster.consume("consumed").await?;
    cluster.is_not_held("consumed").await?;
    cluster.belayer_has_caught_up().await?;
    wait_for_its_event(&cluster).await?;

    let mark = cluster.recorder()?.mark()?;
    let window = cluster.setting().quiet;
    throughout("a settled cluster gets no write", window, async || {
        no_write(&cluster, mark)
    })
    .await?;
    cluster.note(format!("no write in {} s", window.as_secs()));
    belayer.stop().await
}

/// A waiting deletion is reported once, some seconds after it began to wait: that Event is part
/// of settling.
async fn wait_for_its_event(cluster: &Cluster) -> Result<()> {
    let quiet = Duration::from_secs(5);
    let event_is_sent = Duration::from_secs(15);
    let started = std::time::Instant::now();
    loop {
        let mark = cluster.recorder()?.mark()?;
        let still = throughout("nothing is written", quiet, async || {
            no_write(cluster, mark)
        })
        .await;
        if still.is_ok() && started.elapsed() > event_is_sent {
            return Ok(());
        }
        ensure!(
            started.elapsed() < SOON,
            "the cluster does not settle: {still:?}"
        );
    }
}

fn no_write(cluster: &Cluster, mark: Mark) -> Result<()> {
    let writes: Vec<Request> = cluster.recorder()?.writes_since(mark)?;
    let other_than_leases: Vec<_> = writes
        .iter()
        .filter(|write| write.resource != "leases")
        .collect();
    ensure!(
        other_than_leases.is_empty(),
        "{} ({} in all)",
        other_than_leases[0],
        other_than_leases.len()
    );
    Ok(())
}

async fn dry_run(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let gone = cluster.workflow("gone").await?;
    for name in ["new", "ended"] {
        cluster.create(&pod(name).of(&workflow)).await?;
    }
    for name in ["consumed", "asked", "deleted"] {
        cluster.create(&pod(name).of(&workflow).held()).await?;
    }
    cluster.create(&pod("orphan").of(&gone).held()).await?;
    cluster
        .workflows()
        .delete("gone", &DeleteParams::background())
        .await?;
    cluster.finish("ended", "Failed").await?;
    cluster.consume("consumed").await?;
    let release =
        serde_json::json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    cluster.merge("asked", release).await?;
    cluster.finish("deleted", "Failed").await?;
    cluster.delete("deleted").await?;

    let mark = cluster.recorder()?.mark()?;
    let options = BelayerOptions::default().argument("--dry-run");
    let belayer = cluster.start_belayer_with(&options).await?;
    // Long enough for the Event about a waiting deletion.
    throughout("nothing is written", Duration::from_secs(15), async || {
        let writes = cluster.recorder()?.writes_since(mark)?;
        ensure!(writes.is_empty(), "{} ({} in all)", writes[0], writes.len());
        Ok(())
    })
    .await?;
    let log = belayer.log()?;
    for name in ["new", "consumed", "asked", "orphan"] {
        let reported = log
            .lines()
            .any(|line| line.contains(cluster.namespace()) && line.contains(name));
        ensure!(
            reported,
            "the log does not report the dry-run decision about the pod {name}"
        );
    }
    belayer.stop().await?;
    let writes = cluster.all_writes_since(mark).await?;
    ensure!(
        writes.is_empty(),
        "at the end: {} ({} in all)",
        writes[0],
        writes.len()
    );
    Ok(())
}
