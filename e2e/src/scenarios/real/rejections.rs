//! Pods that real kubelets reject.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::nodes::in_phase;
use crate::harness::{Cluster, Installed, PodBuilder, SOON, eventually, finalizers, pod};
use crate::kinds;
use crate::load::{self, Rejector};
use crate::scenarios::recreation::{bind, held, records};
use crate::scenarios::recreation_load;

/// The first pause before a re-creation is 15 s, the next 30 s.
const AFTER_PAUSES: Duration = Duration::from_secs(90);

pub(super) fn recreated(name: &str) -> PodBuilder {
    pod(name)
        .annotation("belayer.dev/recreate", "true")
        .scheduled()
}

/// More than half of a node's CPUs: a node has room for one pod that requests it.
pub(super) async fn most_cpus(cluster: &Cluster, node: &str) -> Result<String> {
    let node = kinds::nodes(cluster.client()).get(node).await?;
    let cpus = node.data["status"]["allocatable"]["cpu"].as_str();
    let cpus: u32 = cpus.unwrap_or_default().parse().context("a node's CPUs")?;
    Ok(format!("{}m", cpus * 600))
}

pub(super) async fn fill(cluster: &Cluster, node: &str, cpu: &str) -> Result<()> {
    let name = format!("filler-{node}");
    cluster.create(&pod(&name).on_node(node).cpu(cpu)).await?;
    in_phase(cluster, &name, "Running").await
}

/// The pod, once it is another one than `before` and ready to be bound.
pub(super) async fn successor(cluster: &Cluster, before: &DynamicObject) -> Result<DynamicObject> {
    eventually("the pod is re-created", AFTER_PAUSES, async || {
        let pod = cluster.pods().get(&before.name_any()).await?;
        ensure!(pod.uid() != before.uid(), "it is still the old pod");
        ensure!(pod.data["spec"]["nodeName"].is_null(), "it has a node");
        Ok(pod)
    })
    .await
}

/// The nodes that take pods.
async fn workers(cluster: &Cluster) -> Result<Vec<String>> {
    let nodes = kinds::nodes(cluster.client())
        .list(&ListParams::default())
        .await?;
    let workers = nodes
        .iter()
        .filter(|node| node.data["spec"]["taints"].is_null());
    Ok(workers.map(|node| node.name_any()).collect())
}

pub(super) async fn no_room(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let nodes = workers(cluster).await?;
    let cpu = most_cpus(cluster, &nodes[0]).await?;
    for node in &nodes {
        fill(cluster, node, &cpu).await?;
    }
    let mut web = cluster.create(&recreated("web").cpu(&cpu)).await?;
    held(cluster, "web").await?;
    for node in &nodes {
        // As in the race: bound to a node that another pod has filled meanwhile.
        bind(cluster, "web", node).await?;
        web = successor(cluster, &web).await?;
    }
    cluster.delete(&format!("filler-{}", nodes[0])).await?;
    in_phase(cluster, "web", "Running").await?;
    let record = eventually("its record is in phase Started", SOON, async || {
        let all = records(cluster).list(&ListParams::default()).await?;
        let record = all.items.into_iter().next().context("no record")?;
        let phase = &record.data["status"]["phase"];
        ensure!(phase == "Started", "its phase is {phase}");
        Ok(record)
    })
    .await?;
    let status = &record.data["status"];
    ensure!(
        status["reason"] == "OutOfcpu" && status["podStarts"] == 3 && status["podRecreated"] == 2,
        "{status}"
    );
    Ok(())
}

pub(super) async fn ran_once(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let node = &cluster.backend().nodes()[1];
    let room = format!("{}-room", cluster.namespace());
    label(cluster, node.name(), &room, "yes".into()).await?;
    let selects = json!({ "nodeSelector": { room.as_str(): "yes" }, "restartPolicy": "Always" });
    let web = cluster.create(&recreated("web").spec(selects)).await?;
    in_phase(cluster, "web", "Running").await?;
    label(cluster, node.name(), &room, Value::Null).await?;
    node.stop_kubelet().await?;
    node.start_kubelet().await?;
    eventually("the kubelet rejects the pod", SOON, async || {
        let events = kinds::events(cluster.client(), cluster.namespace());
        let events = events.list(&ListParams::default()).await?.items;
        let mut of_web = events.iter().map(|event| &event.data);
        let rejects = |event: &Value| {
            event["reason"] == "NodeAffinity" && event["involvedObject"]["name"] == "web"
        };
        ensure!(of_web.any(rejects), "no Event says so");
        // A restarted kubelet kills the container. It may never report its status, or report its end in place of the rejection:
        // the container exits with 0.
        let seen = cluster.pods().get("web").await?;
        let phase = &seen.data["status"]["phase"];
        ensure!(
            phase == "Failed" || phase == "Succeeded",
            "its phase is {phase}"
        );
        Ok(())
    })
    .await?;
    let uid = web.uid().context("no uid")?;
    cluster
        .stays_itself("web", &uid, Duration::from_secs(25))
        .await?;
    let seen = cluster.pods().get("web").await?;
    ensure!(finalizers(&seen).is_empty(), "{:?}", finalizers(&seen));
    let all = records(cluster).list(&ListParams::default()).await?;
    ensure!(all.items.is_empty(), "there is a record of the pod");
    Ok(())
}

/// The kubelets reject every third pod or so; what is left of a run is judged by a watch of the pods alone.
pub(super) async fn load(belayer: Installed) -> Result<()> {
    let mut leaders = load::Pods::of(&belayer);
    let plan = recreation_load::plan(&belayer.cluster, 300, Rejector::Kubelet);
    let plan = load::Plan {
        rate: 2.0,
        // Two kubelets on one machine report late if they start many pods at a time.
        at_once: Some(20),
        kill_leader: Some(Duration::from_secs(60)),
        ..plan
    };
    recreation_load::shown(&belayer.cluster, &plan, &mut leaders).await
}

async fn label(cluster: &Cluster, node: &str, label: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
    kinds::nodes(cluster.client())
        .patch(node, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
