//! A node is lost with running steps of the real Argo on it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::{try_join, try_join_all};
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use super::{Case, Side, User, sides, spec, step};
use crate::control_plane::RealNode;
use crate::harness::{Installed, RealArgo, SOON, eventually};
use crate::kinds;

const NAME: &str = "node-lost";

/// PodGC looks every 20 s, and then waits for 40 s.
const GONE: Duration = Duration::from_secs(240);

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
        spec: spec(step(60, 0), &there, &json!({})),
        user: User::Waits,
    };
    let sides = sides(cluster, argo).await?;
    for side in &sides {
        side.submit(&case).await?;
        try_join_all(['a', 'b'].map(|step| side.running(NAME, step))).await?;
    }
    node.power_off().await?;
    let released = are_released(belayer, node, &sides).await;
    node.power_on().await?;
    released?;
    // Argo may have created the pods again, for the same node.
    let (with, without) = try_join(sides[0].end(NAME), sides[1].end(NAME)).await?;
    cluster.note(format!("{with} with Belayer, {without} without"));
    ensure!(with == without, "{with} with Belayer, {without} without");
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

/// The pods of the lost node are gone with Belayer as without it.
async fn are_released(belayer: &Installed, node: &RealNode, sides: &[Side<'_>; 2]) -> Result<()> {
    let cluster = &belayer.cluster;
    let lost = try_join_all(sides.iter().map(|side| side.pods(NAME))).await?;
    kinds::nodes(cluster.client())
        .delete(node.name(), &DeleteParams::default())
        .await?;
    let since = Instant::now();
    let gone = async |side: &Side<'_>, lost: &[DynamicObject]| -> Result<u64> {
        let lost: Vec<_> = lost.iter().filter_map(ResourceExt::uid).collect();
        eventually("the pods of the node are gone", GONE, async || {
            let pods = side.pods(NAME).await?;
            let is_lost = |pod: &DynamicObject| pod.uid().is_some_and(|uid| lost.contains(&uid));
            let left = pods.iter().filter(|pod| is_lost(pod)).count();
            ensure!(left == 0, "{left} are left");
            Ok(since.elapsed().as_secs())
        })
        .await
    };
    let (with, without) = try_join(gone(&sides[0], &lost[0]), gone(&sides[1], &lost[1])).await?;
    cluster.note(format!(
        "the pods were gone {with} s after the Node was deleted with Belayer, {without} s without"
    ));
    let labels = [
        ("judgement", "NodeLost"),
        ("mode", "enforce"),
        ("pod_namespace", cluster.namespace()),
    ];
    let counted = belayer.metric("belayer_unread_pods_total", &labels).await?;
    ensure!(counted > 1.0, "{counted} releases are counted as NodeLost");
    Ok(())
}
