//! Ways in which pods leave a node: the Eviction API, a taint, `kubectl drain`; and the commands of
//! `docs/src/tasks/drain-nodes.md`.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, EvictParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::nodes::in_phase;
use crate::harness::{Cluster, HOLD, Installed, SOON, Workflow, eventually, finalizers, pod};
use crate::kinds;

/// The taint of the scenario.
const TAINT: &str = "e2e.belayer.dev/evict";

/// Two pods of each way: one runs, one has ended.
const WAYS: [&str; 3] = ["evicted", "tainted", "drained"];

pub(super) async fn all_ways(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    // The standby leaves the node with the other pods; the leader stays.
    let leader = belayer.leader().await?;
    let leader = leader.data["spec"]["nodeName"].as_str().unwrap_or_default();
    let mut nodes = cluster.backend().nodes().iter();
    let node = nodes
        .find(|node| node.name() != leader)
        .context("one node")?;
    let node = node.name();
    let workflow = cluster.workflow("w").await?;

    evicted(cluster, &workflow, node).await?;
    tainted(cluster, &workflow, node).await?;
    belayer.is_rolled_out().await?;
    let drained = drained(cluster, &workflow, node).await;
    let event = match &drained {
        Ok(()) => event_names_the_node(cluster, node).await,
        Err(_) => Ok(()),
    };
    cluster.sh(&format!("kubectl uncordon {node}")).await?;
    drained?;
    event?;

    // Nothing was released: no result has been read.
    let held = cluster.held_count().await?;
    ensure!(held == 2 * WAYS.len(), "{held} pods are held");
    let since = Instant::now();
    let recipe = recipe(page())?.replace("NODE", node);
    cluster.sh(&recipe).await?;
    cluster.is_empty(SOON).await?;
    cluster.note(format!(
        "the commands of the page release all within {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    belayer.is_rolled_out().await
}

/// A pod that runs and one that has ended, both held.
async fn two(cluster: &Cluster, workflow: &Workflow, node: &str, way: &str) -> Result<()> {
    for (state, command, phase) in [("runs", "", "Running"), ("ended", "exit 0", "Succeeded")] {
        let name = format!("{way}-{state}");
        let step = pod(&name).of(workflow).on_node(node).runs(command);
        cluster.create(&step).await?;
        cluster.is_held(&name).await?;
        in_phase(cluster, &name, phase).await?;
    }
    Ok(())
}

/// Both are being deleted, have ended, and keep the hold.
async fn both_wait(cluster: &Cluster, way: &str) -> Result<()> {
    for state in ["runs", "ended"] {
        let name = format!("{way}-{state}");
        eventually(&format!("{name} has ended and waits"), SOON, async || {
            waits(&cluster.pods().get(&name).await?)
        })
        .await?;
    }
    Ok(())
}

fn waits(pod: &kube::api::DynamicObject) -> Result<()> {
    let phase = &pod.data["status"]["phase"];
    ensure!(
        pod.metadata.deletion_timestamp.is_some(),
        "it is not being deleted, in phase {phase}"
    );
    ensure!(
        phase == "Succeeded" || phase == "Failed",
        "its phase is {phase}"
    );
    ensure!(
        finalizers(pod).contains(&HOLD),
        "its finalizers are {:?}",
        finalizers(pod)
    );
    Ok(())
}

/// As the descheduler and the cluster autoscaler do it.
async fn evicted(cluster: &Cluster, workflow: &Workflow, node: &str) -> Result<()> {
    two(cluster, workflow, node, "evicted").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client().clone(), cluster.namespace());
    for state in ["runs", "ended"] {
        let name = format!("evicted-{state}");
        pods.evict(&name, &EvictParams::default())
            .await
            .with_context(|| format!("evict {name}"))?;
    }
    both_wait(cluster, "evicted").await
}

async fn tainted(cluster: &Cluster, workflow: &Workflow, node: &str) -> Result<()> {
    two(cluster, workflow, node, "tainted").await?;
    let since = Instant::now();
    taint(
        cluster.client(),
        node,
        json!([{ "key": TAINT, "effect": "NoExecute" }]),
    )
    .await?;
    let waited = both_wait(cluster, "tainted").await;
    taint(cluster.client(), node, Value::Null).await?;
    waited?;
    cluster.note(format!(
        "a NoExecute taint evicts both within {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn taint(client: &Client, node: &str, taints: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    kinds::nodes(client)
        .patch(node, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// With this option kubectl ignores pods whose deletion is older than five seconds.
async fn drained(cluster: &Cluster, workflow: &Workflow, node: &str) -> Result<()> {
    two(cluster, workflow, node, "drained").await?;
    let since = Instant::now();
    cluster
        .sh(&format!(
            "kubectl drain {node} --force --ignore-daemonsets --delete-emptydir-data \
             --skip-wait-for-delete-timeout=5 --timeout=90s"
        ))
        .await?;
    cluster.note(format!(
        "kubectl drain --skip-wait-for-delete-timeout=5 ends after {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    both_wait(cluster, "drained").await
}

/// By the command of the page.
async fn event_names_the_node(cluster: &Cluster, node: &str) -> Result<()> {
    let show = command(page(), "reason=HeldPodsWait")?;
    eventually("an Event on the Node names held pods", SOON, async || {
        let printed = cluster.sh(show).await?;
        ensure!(
            printed.contains(&format!("node/{node}")) && printed.contains(cluster.namespace()),
            "{printed}"
        );
        Ok(())
    })
    .await
}

fn page() -> &'static str {
    include_str!("../../../../docs/src/tasks/drain-nodes.md")
}

/// The line of the page with this text.
fn command<'a>(page: &'a str, text: &str) -> Result<&'a str> {
    let line = page.lines().find(|line| line.contains(text));
    line.with_context(|| format!("the page has no line with {text}"))
}

/// The commands that give up the results of a node's pods.
fn recipe(page: &str) -> Result<String> {
    let blocks = page.split("```sh\n").skip(1);
    let mut texts = blocks.filter_map(|block| block.split("```").next());
    let block = texts.find(|block| block.contains("belayer.dev/release=true"));
    Ok(block.context("the page has no such commands")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_commands() {
        let recipe = recipe(page()).unwrap();
        assert!(recipe.contains("spec.nodeName=NODE"), "{recipe}");
        assert!(recipe.trim_end().ends_with("done"), "{recipe}");
        let show = command(page(), "reason=HeldPodsWait").unwrap();
        assert!(show.starts_with("kubectl get events -A "), "{show}");
    }
}
