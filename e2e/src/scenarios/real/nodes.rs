//! Nodes that are drained or lost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use super::leader::{consume_all, wait_for_consumer};
use crate::harness::{Cluster, Installed, SOON, eventually, pod};
use crate::kinds;

/// Limit for pod garbage collection to delete the pods of a missing Node, and for Belayer to release them.
const BY_POD_GC: Duration = Duration::from_secs(240);

/// Waits until a pod has this phase.
pub(super) async fn in_phase(cluster: &Cluster, name: &str, phase: &str) -> Result<()> {
    eventually(&format!("the pod {name} is {phase}"), SOON, async || {
        let seen = cluster.pods().get(name).await?;
        let now = &seen.data["status"]["phase"];
        ensure!(now == phase, "its phase is {now}");
        Ok(())
    })
    .await
}

pub(super) async fn drained(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let leader = belayer.leader().await?;
    let holder = belayer.holder().await?;
    let node = leader.data["spec"]["nodeName"].as_str().unwrap_or_default();
    let workflow = cluster.workflow("w").await?;
    for (name, command, phase) in [("ran", "exit 0", "Succeeded"), ("runs", "", "Running")] {
        cluster
            .create(&pod(name).of(&workflow).on_node(node).runs(command))
            .await?;
        cluster.is_held(name).await?;
        in_phase(cluster, name, phase).await?;
    }
    let shown = drains(&belayer, node, &holder).await;
    cluster.sh(&format!("kubectl uncordon {node}")).await?;
    shown?;
    belayer.is_rolled_out().await
}

async fn drains(belayer: &Installed, node: &str, holder: &str) -> Result<()> {
    let cluster = &belayer.cluster;
    let drain = format!("kubectl drain {node} --force --ignore-daemonsets --delete-emptydir-data");
    let since = Instant::now();
    let waits = cluster.sh(&format!("{drain} --timeout=40s")).await;
    let printed = match waits {
        Ok(printed) => anyhow::bail!("the drain did not wait for the held pods: {printed}"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(
        ["\"ran\"", "\"runs\"", "context deadline exceeded"]
            .iter()
            .all(|text| printed.contains(text))
            && !printed.contains("waiting for pod \"belayer"),
        "{printed}"
    );
    let took = belayer.is_succeeded(holder, since).await?;
    // The running pod was ended by its eviction, and waits for its consumer like the other.
    let held: Vec<String> = {
        let pods = cluster.pods().list(&Default::default()).await?;
        pods.iter().map(|pod| pod.name_any()).collect()
    };
    cluster.note(format!(
        "after 12 s the drain waits for {}; another leader after at most {:.1} s",
        held.join(", "),
        took.as_secs_f64()
    ));
    let since = Instant::now();
    for name in &held {
        cluster.consume(name).await?;
    }
    cluster.sh(&format!("{drain} --timeout=60s")).await?;
    cluster.is_empty(SOON).await?;
    cluster.note(format!(
        "once they are consumed it ends within {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

pub(super) async fn lost(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let leader = belayer.leader().await?;
    let holder = belayer.holder().await?;
    let node = belayer.node_of(&leader)?;
    wait_for_consumer(cluster).await?;
    let workflow = cluster.workflow("on-the-node").await?;
    let step = pod("runs").of(&workflow).on_node(node.name());
    cluster.create(&step).await?;
    cluster.is_held("runs").await?;
    in_phase(cluster, "runs", "Running").await?;

    let since = Instant::now();
    node.power_off().await?;
    let shown = recovers(&belayer, node.name(), &holder, since).await;
    node.power_on().await?;
    shown?;
    eventually("the node is back", SOON, async || {
        let back = kinds::nodes(cluster.client()).get(node.name()).await?;
        let taints = &back.data["spec"]["taints"];
        ensure!(taints.is_null(), "its taints are {taints}");
        Ok(())
    })
    .await?;
    belayer.is_rolled_out().await
}

async fn recovers(belayer: &Installed, node: &str, holder: &str, since: Instant) -> Result<()> {
    let cluster = &belayer.cluster;
    consume_all(cluster).await?;
    let took = belayer.is_succeeded(holder, since).await?;
    cluster.note(format!("another leader after {:.1} s", took.as_secs_f64()));
    kinds::nodes(cluster.client())
        .delete(node, &DeleteParams::default())
        .await?;
    let deleted = Instant::now();
    // The workflow stays. Pod garbage collection finds a pod without a node after some 40 s, marks it Failed and deletes
    // it by force; its containers never end. Without the release it would stay held.
    eventually("all pods are removed", BY_POD_GC, async || {
        let pods = cluster.pods().list_metadata(&Default::default()).await?;
        let left: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
        ensure!(left.is_empty(), "{left:?} remain");
        Ok(())
    })
    .await?;
    let labels = [
        ("judgement", "NodeLost"),
        ("mode", "enforce"),
        ("pod_namespace", cluster.namespace()),
    ];
    // A pod may be seen to be removed before its release is counted.
    eventually("the release is counted", SOON, async || {
        let counted = belayer.metric("belayer_unread_pods_total", &labels).await?;
        ensure!(
            (counted - 1.0).abs() < f64::EPSILON,
            "{counted} releases are counted as NodeLost"
        );
        Ok(())
    })
    .await?;
    let workflow = cluster.workflows().get("on-the-node").await?;
    ensure!(
        workflow.metadata.deletion_timestamp.is_none(),
        "the workflow is being deleted"
    );
    cluster.note(format!(
        "the pods of the node are removed {:.0} s after its Node, and {:.0} s after its loss",
        deleted.elapsed().as_secs_f64(),
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}
