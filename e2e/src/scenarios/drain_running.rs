//! `belayer drain` while controllers run: no replica adds a hold again, not even a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::admission::with_write_policies;
use super::drain::back_to_work;
use crate::harness::{
    BELAYERS, BelayerOptions, Cluster, HOLD, Load, PVC_HOLD, SOON, Scenario, WORKFLOW_HOLD,
    eventually, finalizers, pod, throughout,
};
use crate::providers::Capability::AdmissionPolicies;

/// Objects with holds.
const MANY: usize = 2_000;
/// How long the absence of holds is observed.
const WINDOW: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(600);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "drain-running",
            "2,000 objects with holds, controllers running: all released, none added again, even after a restart",
            running,
        )
        .with_load(Load::Heavy)
        .within(LONG),
        Scenario::alone(
            "drain-crash-looping",
            "the same with a controller that is repeatedly killed and started",
            crash_looping,
        )
        .with_load(Load::Heavy)
        .within(LONG),
        Scenario::alone(
            "drain-component-off",
            "a controller that is switched off releases its holds, the others keep theirs",
            component_off,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
        Scenario::alone(
            "drain-component-off-keep",
            "with --on-disable=keep the holds stay",
            component_off_keep,
        ),
    ]
}

async fn running(cluster: Cluster) -> Result<()> {
    cluster.fill(MANY).await?;
    let belayer = cluster
        .start_belayer_with(&BelayerOptions::holding_pvcs())
        .await?;
    let fresh = cluster.workflow("fresh").await?;
    cluster.create(&pod("fresh").of(&fresh)).await?;
    cluster.is_held("fresh").await?;
    cluster.workflow_is_held("fresh").await?;
    let printed = cluster.drain(&["-o", "json"]).await?.exited_with(0)?;
    let report = printed.json()?;
    cluster.note(format!(
        "{} objects in {} s, {} passes",
        report["objectsReleased"], report["seconds"], report["passes"]
    ));
    let after = cluster.held_objects().await?;
    ensure!(
        after.belayers.is_empty(),
        "remaining holds: {:?}",
        after.belayers
    );

    // New objects get no hold from any controller.
    let late = cluster.workflow("late").await?;
    cluster.create(&pod("late").of(&late)).await?;
    cluster.create_pvc("late", json!({})).await?;
    stays_free(&cluster).await?;
    // Releases continue.
    cluster.delete("late").await?;
    cluster.is_removed("late").await?;
    belayer.stop().await?;
    let belayer = cluster
        .start_belayer_with(&BelayerOptions::holding_pvcs())
        .await?;
    cluster.create(&pod("after-restart").of(&late)).await?;
    stays_free(&cluster).await?;

    back_to_work(&cluster).await?;
    cluster.is_held("after-restart").await?;
    cluster.workflow_is_held("late").await?;
    cluster.pvc_is_held("late", PVC_HOLD).await?;
    belayer.stop().await
}

async fn stays_free(cluster: &Cluster) -> Result<()> {
    throughout("no object gets a hold", WINDOW, async || {
        let seen = cluster.held_objects().await?;
        ensure!(seen.belayers.is_empty(), "{:?}", seen.belayers);
        Ok(())
    })
    .await
}

async fn crash_looping(cluster: Cluster) -> Result<()> {
    cluster.fill(MANY / 4).await?;
    let fresh = cluster.workflow("fresh").await?;
    cluster.create(&pod("fresh").of(&fresh)).await?;
    let over = Arc::new(AtomicBool::new(false));
    let starts = Arc::new(AtomicU32::new(0));
    let looping = {
        let (cluster, over, starts) = (cluster.clone(), Arc::clone(&over), Arc::clone(&starts));
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let belayer = cluster.start_belayer().await?;
                let started = starts.fetch_add(1, Ordering::Relaxed);
                // Sometimes it runs for longer than its first list.
                let lives = Duration::from_millis(300 + u64::from(started % 3) * 700);
                tokio::time::sleep(lives).await;
                belayer.kill().await?;
            }
            anyhow::Ok(())
        })
    };
    eventually("the controller has started once", SOON, async || {
        ensure!(starts.load(Ordering::Relaxed) > 0, "no start yet");
        Ok(())
    })
    .await?;
    let printed = cluster.drain(&[]).await;
    let later = stays_free(&cluster).await;
    over.store(true, Ordering::Relaxed);
    looping.await??;
    printed?.exited_with(0)?;
    later?;
    cluster.note(format!("killed {} times", starts.load(Ordering::Relaxed)));
    back_to_work(&cluster).await
}

async fn component_off(cluster: Cluster) -> Result<()> {
    with_write_policies(&cluster, switched_off_and_on(&cluster)).await
}

async fn switched_off_and_on(cluster: &Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.workflow_is_held("w").await?;
    belayer.stop().await?;

    let options = BelayerOptions::default().argument("--controllers=*,-workflow-finalizer");
    let belayer = cluster.start_belayer_with(&options).await?;
    eventually("the workflow's hold is removed", SOON, async || {
        let seen = cluster.workflows().get("w").await?;
        ensure!(
            !finalizers(&seen)
                .iter()
                .any(|name| name.starts_with(BELAYERS)),
            "{:?}",
            finalizers(&seen)
        );
        Ok(())
    })
    .await?;
    cluster.is_held("a").await?;
    cluster.gate_shows("holdWorkflows", "switched-off").await?;
    cluster.gate_shows("hold", "on").await?;
    // It is counted after two passes.
    eventually("the release is counted", SOON, async || {
        let labels = [
            ("controller", "workflow-finalizer"),
            ("evidence", "SwitchedOff"),
        ];
        let released = belayer.metric("belayer_releases_total", &labels).await?;
        ensure!(released >= 1.0, "{released}");
        Ok(())
    })
    .await?;
    belayer.stop().await?;

    // After it is switched on again, it adds holds, and so may its policy.
    let belayer = cluster.start_belayer().await?;
    cluster.workflow_is_held("w").await?;
    cluster.gate_shows("holdWorkflows", "on").await?;
    belayer.stop().await
}

async fn component_off_keep(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    belayer.stop().await?;
    let options = BelayerOptions::default()
        .argument("--controllers=*,-workflow-finalizer")
        .argument("--on-disable=keep");
    let belayer = cluster.start_belayer_with(&options).await?;
    cluster.belayer_has_caught_up_without_workflows().await?;
    throughout("the workflow keeps its hold", WINDOW, async || {
        let seen = cluster.workflows().get("w").await?;
        ensure!(
            finalizers(&seen).contains(&WORKFLOW_HOLD),
            "the hold was removed"
        );
        Ok(())
    })
    .await?;
    belayer.stop().await
}

impl Cluster {
    /// Waits until pod-finalizer adds a hold to a new pod, so that its start is complete.
    async fn belayer_has_caught_up_without_workflows(&self) -> Result<()> {
        let workflow = self.workflow("sentinel").await?;
        self.create(&pod("sentinel").of(&workflow)).await?;
        let seen = self.is_held("sentinel").await?;
        ensure!(finalizers(&seen).contains(&HOLD));
        Ok(())
    }
}
