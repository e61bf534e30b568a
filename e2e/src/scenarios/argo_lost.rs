//! Pods of Argo whose node is lost.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::argo_deleted::{all_stay_held, counted, delete_at_once, exited, report, running};
use crate::harness::{Cluster, Scenario};
use crate::kinds;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::shared(
        "a2-node-lost",
        "a deleted pod of a lost node is released at once, unless its result can still be read",
        node_lost,
    )]
}

/// A node whose status only the scenario writes.
pub(super) async fn node(cluster: &Cluster, name: &str, ready: &str) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "spec": { "unschedulable": true },
    }))?;
    let nodes = kinds::nodes(cluster.client());
    nodes.create(&Default::default(), &object).await?;
    heartbeat(cluster, name, ready).await
}

/// Writes the node's status. A real control plane takes a node for lost that has sent nothing for fifty seconds.
async fn heartbeat(cluster: &Cluster, name: &str, ready: &str) -> Result<()> {
    let status = json!({ "status": { "conditions": [{
        "type": "Ready", "status": ready, "reason": "Scenario", "message": "as the scenario says",
        "lastHeartbeatTime": jiff::Timestamp::now().to_string(),
        "lastTransitionTime": jiff::Timestamp::now().to_string(),
    }] } });
    let patch = Patch::Merge(&status);
    let patched = kinds::nodes(cluster.client())
        .patch_status(name, &PatchParams::default(), &patch)
        .await;
    patched
        .map(drop)
        .with_context(|| format!("the status of node {name}"))
}

/// Writes what pod garbage collection writes for the pods of a missing node.
async fn collect(cluster: &Cluster, name: &str) -> Result<()> {
    let status = json!({ "status": {
        "phase": "Failed",
        "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC" }],
    } });
    let patch = Patch::Merge(&status);
    let pods = cluster.pods();
    pods.patch_status(name, &PatchParams::default(), &patch)
        .await?;
    delete_at_once(cluster, name).await
}

async fn node_lost(cluster: Cluster) -> Result<()> {
    let called = |what: &str| format!("{what}-{}", cluster.namespace());
    let (gone, silent, ready) = (called("gone"), called("silent"), called("ready"));
    for (name, says) in [(&gone, "True"), (&silent, "Unknown"), (&ready, "True")] {
        node(&cluster, name, says).await?;
    }
    let shown = tokio::select! {
        shown = released(&cluster, &gone, &silent, &ready) => shown,
        failed = stays_ready(&cluster, &ready) => failed,
    };
    let nodes = kinds::nodes(cluster.client());
    for name in [&silent, &ready] {
        nodes.delete(name, &DeleteParams::default()).await?;
    }
    shown
}

async fn stays_ready(cluster: &Cluster, node: &str) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        heartbeat(cluster, node, "True").await?;
    }
}

async fn released(cluster: &Cluster, gone: &str, silent: &str, ready: &str) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    for (name, node) in [
        ("lost", gone),
        ("saved", gone),
        ("forced", silent),
        ("alive", ready),
    ] {
        running(cluster, &workflow, name, node).await?;
    }
    let saved = [("main", exited(1)), ("wait", exited(0))];
    report(cluster, "saved", "Failed", &saved).await?;
    let nodes = kinds::nodes(cluster.client());
    nodes.delete(gone, &DeleteParams::default()).await?;

    collect(cluster, "lost").await?;
    collect(cluster, "saved").await?;
    delete_at_once(cluster, "forced").await?;
    delete_at_once(cluster, "alive").await?;
    cluster.is_removed("lost").await?;
    cluster.is_removed("forced").await?;
    // The result of one can still be read, and the kubelet of the other will report its end.
    all_stay_held(cluster, &["saved", "alive"]).await?;
    counted(cluster, "NodeLost", 2.0).await?;
    // Killed by force, it has no result either.
    let killed = [("main", exited(137)), ("wait", exited(137))];
    report(cluster, "alive", "Failed", &killed).await?;
    cluster.is_removed("alive").await?;
    counted(cluster, "EndedByDeletion", 1.0).await?;
    cluster.consume("saved").await?;
    cluster.is_removed("saved").await
}
