//! A node is lost with running steps of the real Argo on it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::{try_join, try_join_all};
use kube::api::DeleteParams;
use serde_json::json;

use super::{Case, End, SOON, Side, User, sides, spec, step};
use crate::control_plane::RealNode;
use crate::harness::{Installed, RealArgo, eventually};
use crate::kinds;

const NAME: &str = "node-lost";

/// A2: kubelet and containers are killed and the Node is deleted: workflows end with Belayer as without it.
pub(in super::super) async fn same_ends(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let mut argo = RealArgo::start(cluster).await?;
    let shown = loses(&belayer, &argo).await;
    argo.check_running()?;
    shown.and(argo.remove().await)
}

async fn loses(belayer: &Installed, argo: &RealArgo) -> Result<()> {
    let cluster = &belayer.cluster;
    let node = cluster.backend().nodes().last();
    let node = node.context("the provider has no real node")?;
    let there = json!({ "nodeSelector": { "kubernetes.io/hostname": node.name() } });
    let case = Case {
        name: NAME,
        spec: spec(step(90, 0), &there, &json!({})),
        user: User::Waits,
    };
    let sides = sides(cluster, argo).await?;
    for side in &sides {
        side.submit(&case).await?;
        try_join_all(['a', 'b'].map(|step| side.running(NAME, step))).await?;
    }
    node.power_off().await?;
    let shown = same_end(belayer, node, &sides).await;
    node.power_on().await?;
    shown?;
    eventually("the node is back", SOON, async || {
        let back = kinds::nodes(cluster.client()).get(node.name()).await?;
        let taints = &back.data["spec"]["taints"];
        ensure!(taints.is_null(), "its taints are {taints}");
        Ok(())
    })
    .await?;
    belayer.is_rolled_out().await?;
    try_join(sides[0].clear(&[NAME]), sides[1].clear(&[NAME])).await?;
    Ok(())
}

async fn same_end(belayer: &Installed, node: &RealNode, sides: &[Side<'_>; 2]) -> Result<()> {
    let cluster = &belayer.cluster;
    kinds::nodes(cluster.client())
        .delete(node.name(), &DeleteParams::default())
        .await?;
    let since = Instant::now();
    let timed = async |side: &Side<'_>| -> Result<(End, u64)> {
        let end = side.end(NAME).await?;
        Ok((end, since.elapsed().as_secs()))
    };
    let ends = try_join(timed(&sides[0]), timed(&sides[1])).await?;
    let ((with, after), (without, after_without)) = ends;
    cluster.note(format!(
        "{with} with Belayer {after} s after the Node was deleted, {without} without after {after_without} s"
    ));
    ensure!(with == without, "{with} with Belayer, {without} without");
    let labels = [
        ("judgement", "NodeLost"),
        ("mode", "enforce"),
        ("pod_namespace", cluster.namespace()),
    ];
    let counted = belayer.metric("belayer_unread_pods_total", &labels).await?;
    ensure!(counted > 1.0, "{counted} releases are counted as NodeLost");
    Ok(())
}
