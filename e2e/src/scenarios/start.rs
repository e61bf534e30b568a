//! Starts with wrong input: one clear line, exit code 2, never a panic.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, eventually, pod};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "bad-start-is-refused",
            "bad kubeconfig, unknown controller, bad configuration: exit 2",
            refused,
        ),
        Scenario::alone(
            "server-not-there-yet",
            "Belayer waits for an unreachable API server",
            waits_for_server,
        ),
    ]
}

async fn refused(cluster: Cluster) -> Result<()> {
    let broken = cluster.dir().join("broken.kubeconfig");
    fs::write(&broken, "clusters: {this is no kubeconfig")?;
    let default = BelayerOptions::default;
    let cases = [
        (
            "an invalid kubeconfig",
            default().kubeconfig(&broken),
            "broken.kubeconfig",
        ),
        (
            "a missing kubeconfig",
            default().kubeconfig("/nowhere/kubeconfig"),
            "/nowhere/kubeconfig",
        ),
        (
            "an unknown controller",
            default().argument("--controllers=*,ropes"),
            "ropes",
        ),
        (
            "an unknown key",
            default().config("podFinaliser: {}\n"),
            "podFinaliser",
        ),
        (
            "an invalid duration",
            default().config("podFinalizer:\n  resync: soon\n"),
            "resync",
        ),
    ];
    for (what, options, named) in cases {
        let mut belayer = cluster.spawn_belayer(&options)?;
        let status = belayer.ended(SOON).await?;
        let log = belayer.log()?;
        ensure!(status.code() == Some(2), "{what}: {status}\n{log}");
        ensure!(
            log.contains(named),
            "{what}: the message does not contain {named}\n{log}"
        );
        ensure!(!log.contains("panicked"), "{what}: a panic\n{log}");
    }
    Ok(())
}

async fn waits_for_server(cluster: Cluster) -> Result<()> {
    // A port on which no process listens.
    let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut belayer = cluster.spawn_belayer(&BelayerOptions::default().through(closed))?;
    ensure!(
        belayer.ended(Duration::from_secs(4)).await.is_err(),
        "it exited"
    );
    eventually("the log reports that it waits", SOON, async || {
        ensure!(
            belayer.log()?.contains(&closed.to_string()),
            "the log does not name {closed}"
        );
        Ok(())
    })
    .await?;
    ensure!(
        belayer.holds().await.is_ok(),
        "its debug endpoint does not respond meanwhile"
    );
    belayer.stop().await?;
    // The cluster itself works as before.
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    belayer.stop().await
}
