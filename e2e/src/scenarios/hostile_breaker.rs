//! T8: a tenant pins pods to a node that has to reject them.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::recreation::nodes;
use crate::control_plane::STEP_IMAGE;
use crate::harness::{
    Belayer, BelayerOptions, Cluster, SOON, Scenario, TenantPermissions, eventually,
};
use crate::kinds;
use crate::providers::Capability::MoreKubelets;

/// More than the rejections that open a breaker.
const PODS: usize = 110;

/// What opens stays open until the end of the scenario.
const CONFIGURATION: &str = "podRecreation:
  backoffSeconds: 1
  storm:
    breaker: {rejections: 100, withinSeconds: 600, openSeconds: 3600}
";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "hostile-breaker",
            "a tenant has a node reject 110 pods: rejected pods of another namespace are still re-created (T8)",
            breaker,
        )
        .needs([MoreKubelets]),
    ]
}

async fn breaker(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .argument("--controllers=pod-recreation")
        .config(CONFIGURATION);
    let belayer = cluster.start_belayer_with(&options).await?;
    let node = format!("pinned-{}", cluster.namespace());
    let kubelet = cluster.backend().start_kubelet(&node).await?;
    let shown = pinned(&cluster, &node, &belayer).await;
    nodes(&cluster)
        .delete(&node, &DeleteParams::default())
        .await?;
    drop(kubelet);
    shown?;
    belayer.stop().await
}

async fn pinned(cluster: &Cluster, node: &str, belayer: &Belayer) -> Result<()> {
    eventually("the node is there", SOON, async || {
        let node = nodes(cluster).get(node).await?;
        ensure!(
            !node.data["status"]["allocatable"]["pods"].is_null(),
            "no capacity yet"
        );
        Ok(())
    })
    .await?;
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let theirs = kinds::pods(&tenant, cluster.namespace());
    stream::iter(0..PODS)
        .map(|number| {
            let theirs = &theirs;
            let pod = serde_json::from_value(rejected_by(node, &format!("pinned-{number}")));
            async move {
                theirs.create(&PostParams::default(), &pod?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(8)
        .try_collect::<()>()
        .await?;
    eventually("the breaker of the tenant is open", SOON, async || {
        let count = open(belayer).await?;
        ensure!(
            (count - 1.0).abs() < f64::EPSILON,
            "{count} breakers are open"
        );
        Ok(())
    })
    .await?;

    let other = cluster.another_namespace("other", json!({})).await?;
    let pods = kinds::pods(cluster.client(), &other);
    let pod = serde_json::from_value(rejected_by(node, "web"))?;
    let first = pods.create(&PostParams::default(), &pod).await?;
    let uid = first.uid().context("the pod has no UID")?;
    let since = Instant::now();
    eventually(
        "the pod of another namespace is re-created",
        SOON,
        async || {
            let now = pods.get("web").await?.uid();
            ensure!(now.as_ref() != Some(&uid), "it is still the first pod");
            Ok(())
        },
    )
    .await?;
    cluster.note(format!(
        "re-created {:.1} s after the first pod was created",
        since.elapsed().as_secs_f64()
    ));
    let still = open(belayer).await?;
    ensure!(
        (still - 1.0).abs() < f64::EPSILON,
        "{still} breakers are open"
    );
    Ok(())
}

/// The open breakers of single namespaces.
async fn open(belayer: &Belayer) -> Result<f64> {
    let labels = [("scope", "namespace")];
    belayer.metric("belayer_breaker_open", &labels).await
}

/// A pod on this node that does not match its selector: the kubelet rejects it with `NodeAffinity`.
fn rejected_by(node: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "annotations": { "belayer.dev/recreate": "true" } },
        "spec": {
            "nodeName": node,
            "nodeSelector": { "belayer.dev/e2e-no-node": "has-this" },
            "containers": [{ "name": "main", "image": STEP_IMAGE }],
        },
    })
}
