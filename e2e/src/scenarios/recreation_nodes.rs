//! Re-creation with kubelets that run no containers: a full node, a permanent rejection, a removed node.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::recreation::{bind, create, held, in_phase, nodes, options, records, successor};
use crate::control_plane::STEP_IMAGE;
use crate::harness::{Cluster, SOON, Scenario, eventually, finalizers, throughout};
use crate::providers::Capability::MoreKubelets;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "kubelet-without-room-rejects-pod",
            "a full node rejects a pod with OutOfcpu; it is scheduled to another node and runs",
            no_room,
        )
        .smoke()
        .needs([MoreKubelets]),
        Scenario::alone(
            "kubelet-rejects-for-good",
            "a rejection for a permanent reason is reported and not re-created",
            for_good,
        )
        .needs([MoreKubelets]),
        Scenario::alone(
            "node-deleted-while-wiping-is-awaited",
            "a node that is removed counts as wiped",
            node_deleted,
        )
        .needs([MoreKubelets]),
    ]
}

fn asking(name: &str, annotations: Value, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "image": STEP_IMAGE }] },
    });
    pod["metadata"]["annotations"]["belayer.dev/recreate"] = "true".into();
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A node's capacity, in whole CPUs.
async fn cpus(cluster: &Cluster, node: &str) -> Result<u64> {
    eventually("the node reports its capacity", SOON, async || {
        let node = nodes(cluster).get(node).await?;
        let cpu = node.data["status"]["allocatable"]["cpu"].as_str();
        let cpu = cpu.context("no capacity yet")?;
        cpu.parse()
            .with_context(|| format!("invalid CPU capacity {cpu}"))
    })
    .await
}

async fn label(cluster: &Cluster, node: &str, label: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
    nodes(cluster)
        .patch(node, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn no_room(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let others = nodes(&cluster).list(&ListParams::default()).await?;
    let other = others
        .items
        .first()
        .context("the cluster has no other node")?
        .name_any();
    let full = format!("full-{}", cluster.namespace());
    let kubelet = cluster.backend().start_kubelet(&full).await?;
    let shown = rejected_for_room(&cluster, &full, &other).await;
    nodes(&cluster)
        .delete(&full, &DeleteParams::default())
        .await?;
    drop(kubelet);
    shown?;
    belayer.stop().await
}

async fn rejected_for_room(cluster: &Cluster, full: &str, other: &str) -> Result<()> {
    let cpu = cpus(cluster, full).await?;
    let requests = |cpu: u64| json!([{ "name": "main", "image": STEP_IMAGE, "resources": { "requests": { "cpu": cpu.to_string() } } }]);
    let filler = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "filler" },
        "spec": { "nodeName": full, "containers": requests(cpu) },
    });
    create(cluster, filler).await?;
    eventually("the node is full", SOON, async || {
        let pod = cluster.pods().get("filler").await?;
        ensure!(pod.data["status"]["phase"] == "Running", "not running yet");
        Ok(())
    })
    .await?;
    let room = format!("{}-room", cluster.namespace());
    let spec = json!({ "nodeSelector": { room.as_str(): "yes" }, "containers": requests(1) });
    let uid = create(cluster, asking("web", json!({}), spec))
        .await?
        .uid()
        .context("no uid")?;
    held(cluster, "web").await?;
    // As in the race: bound to a node that another pod has filled meanwhile.
    bind(cluster, "web", full).await?;
    successor(cluster, "web", &uid).await?;
    label(cluster, full, &room, "yes".into()).await?;
    label(cluster, other, &room, "yes".into()).await?;
    let record = in_phase(cluster, "Started").await?;
    label(cluster, other, &room, Value::Null).await?;
    let status = &record.data["status"];
    ensure!(
        status["reason"] == "OutOfcpu" && status["podStarts"] == 2 && status["podRecreated"] == 1,
        "{status}"
    );
    let pod = cluster.pods().get("web").await?;
    ensure!(
        pod.data["spec"]["nodeName"] == other,
        "{}",
        pod.data["spec"]
    );
    Ok(())
}

/// A sysctl that the kubelet does not allow: a retry cannot help.
async fn for_good(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let all = nodes(&cluster).list(&ListParams::default()).await?;
    let node = all
        .items
        .first()
        .context("the cluster has no node")?
        .name_any();
    let sysctl = json!([{ "name": "kernel.msgmax", "value": "65536" }]);
    let room = format!("{}-room", cluster.namespace());
    let spec = json!({
        "securityContext": { "sysctls": sysctl },
        "nodeSelector": { room.as_str(): "yes" },
    });
    label(&cluster, &node, &room, "yes".into()).await?;
    let uid = create(&cluster, asking("web", json!({}), spec))
        .await?
        .uid()
        .context("no uid")?;
    let rejected = eventually("the kubelet rejects the pod", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(pod.data["status"]["phase"] == "Failed", "not rejected yet");
        Ok(pod)
    })
    .await?;
    label(&cluster, &node, &room, Value::Null).await?;
    let reason = &rejected.data["status"]["reason"];
    ensure!(reason == "SysctlForbidden", "{reason}");
    eventually("the pod is released", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(finalizers(&pod).is_empty(), "{:?}", finalizers(&pod));
        Ok(())
    })
    .await?;
    throughout(
        "the pod is not changed",
        Duration::from_secs(3),
        async || {
            let pod = cluster.pods().get("web").await?;
            ensure!(pod.uid().as_deref() == Some(&*uid), "it was re-created");
            let records = records(&cluster).list(&ListParams::default()).await?;
            ensure!(records.items.is_empty(), "there is a record of the pod");
            Ok(())
        },
    )
    .await?;
    belayer.stop().await
}

async fn node_deleted(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = format!("gone-{}", cluster.namespace());
    let room = format!("{}-room", cluster.namespace());
    let kubelet = cluster.backend().start_kubelet(&node).await?;
    cpus(&cluster, &node).await?;
    let spec = json!({ "nodeSelector": { room.as_str(): "yes" } });
    let wipe = json!({ "belayer.dev/wipe": "true" });
    let uid = create(&cluster, asking("web", wipe, spec))
        .await?
        .uid()
        .context("no uid")?;
    held(&cluster, "web").await?;
    bind(&cluster, "web", &node).await?;
    in_phase(&cluster, "Rejected").await?;
    cluster
        .stays_itself("web", &uid, Duration::from_secs(3))
        .await?;
    drop(kubelet);
    nodes(&cluster)
        .delete(&node, &DeleteParams::default())
        .await?;
    successor(&cluster, "web", &uid).await?;
    let records = records(&cluster).list(&ListParams::default()).await?;
    let record = records.items.first().context("no record")?;
    let conditions = record.data["status"]["conditions"].as_array();
    let wiped = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "StateWiped");
    ensure!(
        wiped.is_some_and(|wiped| wiped["reason"] == "NodeGone"),
        "{wiped:?}"
    );
    belayer.stop().await
}
