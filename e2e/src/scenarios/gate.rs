//! The backlog gate: too many ended or deleting pods that are still held.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::{
    BelayerOptions, Cluster, HOLD, Scenario, eventually, finalizers, pod, throughout,
};
use crate::kinds;

const SOON: Duration = Duration::from_secs(30);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "backlog-gate",
        "a closed gate stops new holds, the policy's switch included, and never a release",
        backlog_gate,
    )]
}

async fn backlog_gate(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default().config("podFinalizer:\n  backlogThreshold: 6\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    let backlog: Vec<String> = (0..8).map(|index| format!("ended-{index}")).collect();
    for name in &backlog {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
    }
    for name in &backlog {
        cluster.finish(name, "Succeeded").await?;
    }
    gate_is(&cluster, "off").await?;
    let closed = belayer
        .metric("belayer_backlog_gate", &[("controller", "pod-finalizer")])
        .await?;
    cluster.note(format!("belayer_backlog_gate is {closed} while closed"));

    cluster.create(&pod("new").of(&workflow)).await?;
    throughout(
        "a new pod gets no hold",
        Duration::from_secs(3),
        async || {
            let seen = cluster.pods().get("new").await?;
            ensure!(!finalizers(&seen).contains(&HOLD), "it has one");
            Ok(())
        },
    )
    .await?;

    // Releases go on, and by them the gate opens again.
    for name in &backlog[..6] {
        cluster.consume(name).await?;
        cluster.is_not_held(name).await?;
    }
    gate_is(&cluster, "on").await?;
    cluster.is_held("new").await?;
    belayer.stop().await
}

/// The admission policy's parameter.
async fn gate_is(cluster: &Cluster, expected: &str) -> Result<()> {
    let maps = kinds::config_maps(cluster.client(), "belayer-system");
    eventually(
        &format!("the policy's switch is {expected}"),
        SOON,
        async || {
            let gate = maps.get("belayer-gate").await?;
            let hold = gate.data["data"]["hold"].as_str().context("no key hold")?;
            ensure!(hold == expected, "it is {hold}");
            Ok(())
        },
    )
    .await
}
