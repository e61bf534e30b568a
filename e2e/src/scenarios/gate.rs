//! The backlog limit: too many terminating pods with holds in a namespace.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::{
    BelayerOptions, Cluster, HOLD, SOON, Scenario, eventually, finalizers, pod, throughout,
};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "backlog-gate",
        "a namespace over its backlog limit gets no new holds, not even from the policy, while releases continue",
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
    // A5: the result of none of them is awaited yet.
    cluster.belayer_has_caught_up().await?;
    gate_is(&cluster, Position::Open).await?;
    for name in &backlog {
        cluster.delete(name).await?;
    }
    gate_is(&cluster, Position::Closed).await?;

    cluster.create(&pod("new").of(&workflow)).await?;
    throughout(
        "a new pod gets no hold",
        Duration::from_secs(3),
        async || {
            let seen = cluster.pods().get("new").await?;
            ensure!(!finalizers(&seen).contains(&HOLD), "it has a hold");
            Ok(())
        },
    )
    .await?;

    // Releases continue and reopen the namespace.
    for name in &backlog[..6] {
        cluster.consume(name).await?;
        cluster.is_not_held(name).await?;
    }
    gate_is(&cluster, Position::Open).await?;
    cluster.is_held("new").await?;
    belayer.stop().await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Open,
    Closed,
}

/// The admission policy's parameter for the scenario's namespace. Its other namespaces are open.
async fn gate_is(cluster: &Cluster, expected: Position) -> Result<()> {
    let key = format!("closed.{}", cluster.namespace());
    let what = format!("the gate of the namespace is {expected:?}");
    eventually(&what, SOON, async || {
        let gate = cluster.gate().await?;
        let position = if gate[&key] == "backlog" {
            Position::Closed
        } else {
            Position::Open
        };
        ensure!(position == expected && gate["hold"] == "on", "{gate}");
        Ok(())
    })
    .await
}
