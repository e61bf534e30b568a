//! The shipped node agent on real nodes: what it wipes, and what it refuses.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::nodes::in_phase;
use super::rejections::{fill, most_cpus, recreated, successor};
use crate::control_plane::RealNode;
use crate::harness::{
    Cluster, Installed, NO_SCHEDULER, PodBuilder, SOON, eventually, manifests, throughout,
};
use crate::kinds;
use crate::scenarios::recreation::{bind, held};

/// How long the files of a running pod are watched.
const WINDOW: Duration = Duration::from_secs(3);

/// The account that writes lists of wipes.
const RECREATOR: &str = "system:serviceaccount:belayer-system:belayer-pod-recreation";

/// Applies one of the folders of manifests.
pub(super) async fn start_agents(cluster: &Cluster, folder: &str) -> Result<()> {
    let agent = manifests().join(folder);
    let rollout = "kubectl -n belayer-node-agent rollout status daemonset/belayer-node-agent";
    let script = format!(
        "kubectl apply -k {} && {rollout} --timeout=240s",
        agent.display()
    );
    cluster.sh(&script).await.map(drop)
}

pub(super) fn to_wipe(name: &str) -> PodBuilder {
    recreated(name).annotation("belayer.dev/wipe", "true")
}

/// A pod that runs on the node, and one that its kubelet will reject. Both have files there, as a CSI driver prepares
/// them before the kubelet admits the pod.
struct Pods {
    running: DynamicObject,
    running_files: PathBuf,
    web: DynamicObject,
    web_files: PathBuf,
}

impl Pods {
    async fn create(cluster: &Cluster, node: &RealNode) -> Result<Self> {
        let running = cluster
            .create(&to_wipe("running").on_node(node.name()))
            .await?;
        in_phase(cluster, "running", "Running").await?;
        let cpu = most_cpus(cluster, node.name()).await?;
        fill(cluster, node.name(), &cpu).await?;
        let unscheduled = json!({ "schedulerName": NO_SCHEDULER });
        let web = cluster
            .create(&to_wipe("web").cpu(&cpu).spec(unscheduled))
            .await?;
        held(cluster, "web").await?;
        Ok(Self {
            running_files: files(node, &running).await?,
            running,
            web_files: files(node, &web).await?,
            web,
        })
    }
}

/// Creates the directory of a pod with a file. Returns its path.
pub(super) async fn files(node: &RealNode, pod: &DynamicObject) -> Result<PathBuf> {
    let uid = pod.uid().context("no uid")?;
    let folder = node.path(&format!("/var/lib/workspaces/{uid}")).await?;
    fs::create_dir_all(folder.join("cache"))?;
    fs::write(folder.join("cache/file"), "secret")?;
    Ok(folder)
}

/// Binds the pod, which is then rejected, wiped and created again.
async fn rejected_and_wiped(cluster: &Cluster, node: &RealNode, pods: &Pods) -> Result<()> {
    let since = std::time::Instant::now();
    bind(cluster, "web", node.name()).await?;
    eventually(
        "the rejected pod's directory is removed",
        SOON,
        async || {
            ensure!(!pods.web_files.exists(), "it exists");
            Ok(())
        },
    )
    .await?;
    cluster.note(format!(
        "wiped {:.1} s after the pod was bound",
        since.elapsed().as_secs_f64()
    ));
    successor(cluster, &pods.web).await?;
    ensure!(
        pods.running_files.join("cache/file").exists(),
        "the directory of a running pod was wiped"
    );
    Ok(())
}

pub(super) async fn wipes(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    start_agents(cluster, "node-agent").await?;
    let node = cluster.backend().nodes().first().context("no node")?;
    let pods = Pods::create(cluster, node).await?;
    rejected_and_wiped(cluster, node, &pods).await
}

pub(super) async fn unmounts(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    start_agents(cluster, "node-agent-unmount").await?;
    let node = cluster.backend().nodes().first().context("no node")?;
    let pods = Pods::create(cluster, node).await?;
    let uid = pods.web.uid().context("no uid")?;
    let mount = format!(
        "set -e; cd /var/lib/workspaces/{uid}; mkdir mounted
        mount -t tmpfs tmpfs mounted; echo secret >mounted/file"
    );
    node.sh(&mount).await?;
    rejected_and_wiped(cluster, node, &pods).await?;
    let mounts = node.sh("cat /proc/self/mountinfo").await?;
    ensure!(!mounts.contains(&uid), "it is still mounted: {mounts}");
    refuses(cluster, node, &pods).await
}

/// An entry with the UID of a pod that runs: the agent sees its processes, refuses, and wipes once they have ended.
async fn refuses(cluster: &Cluster, node: &RealNode, pods: &Pods) -> Result<()> {
    let uid = pods.running.uid().context("no uid")?;
    let entry = json!({
        "namespace": cluster.namespace(), "podName": "running", "record": "forged",
        "requestedAt": jiff::Timestamp::now().to_string(),
    });
    forge(cluster, node, &uid, &entry).await?;
    let shown = async {
        eventually("the agent refuses", SOON, async || {
            let list = kinds::node_wipes(cluster.client()).get(node.name()).await?;
            let report = &list.data["status"]["wipes"][&uid];
            let message = report["message"].as_str().unwrap_or_default();
            ensure!(
                report["state"] == "NotWiped" && message.contains("still runs"),
                "{report}"
            );
            Ok(())
        })
        .await?;
        throughout("the files of a running pod stay", WINDOW, async || {
            ensure!(pods.running_files.join("cache/file").exists(), "removed");
            Ok(())
        })
        .await?;
        cluster.delete("running").await?;
        eventually(
            "the directory of the ended pod is removed",
            SOON,
            async || {
                ensure!(!pods.running_files.exists(), "it exists");
                Ok(())
            },
        )
        .await
    }
    .await;
    forge(cluster, node, &uid, &Value::Null).await?;
    shown
}

/// Writes an entry of a node's list as Belayer's account, as the policy refuses everybody else.
async fn forge(cluster: &Cluster, node: &RealNode, uid: &str, entry: &Value) -> Result<()> {
    let patch = json!({ "spec": { "wipes": { uid: entry } } });
    let script = format!(
        "kubectl --as={RECREATOR} patch nodewipes {} --type=merge -p '{patch}'",
        node.name()
    );
    cluster.sh(&script).await.map(drop)
}
