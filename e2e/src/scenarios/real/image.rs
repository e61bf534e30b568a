//! The shipped image and its limits.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;

use super::{hostile_status, install};
use crate::harness::{Cluster, Installed, SOON, eventually, finalizers, pod};

/// The memory limit of the shipped Deployment.
const LIMIT: u64 = 512 << 20;
/// How many large workflows a tenant creates at once.
const HOSTILE_WORKFLOWS: usize = 12;

pub(super) async fn runs_as_shipped(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let replicas = belayer.replicas().await?;
    let mut nodes = BTreeSet::new();
    for replica in &replicas {
        nodes.insert(belayer.node_of(replica)?.name());
        let status = &replica.data["status"]["containerStatuses"][0];
        ensure!(
            status["restartCount"] == 0 && status["ready"] == true,
            "{status}"
        );
        let container = belayer.container_of(replica)?;
        let limit = container.memory_limit()?;
        ensure!(limit == LIMIT, "the memory limit is {limit}");
        let processes = container.processes()?;
        ensure!(processes.len() == 1, "its processes: {processes:?}");
        restricted(processes[0])?;
    }
    ensure!(nodes.len() == 2, "both replicas are on one node");

    let report = install::check(cluster).await?;
    install::nothing_is_missing(&report)?;

    let workflow = cluster.workflow("w").await?;
    let step = pod("a").of(&workflow).scheduled().runs("exit 0");
    let created = cluster.create(&step).await?;
    ensure!(
        !finalizers(&created).is_empty(),
        "it was created without the hold"
    );
    eventually("the pod has run", SOON, async || {
        let phase = cluster.pods().get("a").await?.data["status"]["phase"].clone();
        ensure!(phase == "Succeeded", "its phase is {phase}");
        Ok(())
    })
    .await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_removed("a").await
}

/// What the manifests promise, as the kernel sees it.
fn restricted(pid: u32) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).with_context(|| format!("no {name}"))
    };
    for ids in [field("Uid:")?, field("Gid:")?] {
        let all: Vec<&str> = ids.split_whitespace().collect();
        ensure!(all.iter().all(|id| *id == "65532"), "{all:?}");
    }
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        let capabilities = field(set)?;
        ensure!(
            capabilities.trim_matches('0').is_empty(),
            "{set} {capabilities}"
        );
    }
    ensure!(field("NoNewPrivs:")? == "1", "it may gain privileges");
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(4) == Some("/"));
    let options = root.and_then(|line| line.split(' ').nth(5));
    let options = options.context("no root mount")?;
    ensure!(
        options.split(',').any(|option| option == "ro"),
        "its root is mounted {options}"
    );
    Ok(())
}

pub(super) async fn memory_limit(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let set = "kubectl -n belayer-system set resources deployment/belayer";
    // A replica needs about 6 MB.
    cluster
        .sh(&format!("{set} --requests=memory=4Mi --limits=memory=4Mi"))
        .await?;
    eventually("the kernel kills a replica", SOON, async || {
        let replicas = belayer.replicas().await?;
        let ends: Vec<_> = replicas
            .iter()
            .map(|pod| {
                let status = &pod.data["status"]["containerStatuses"][0];
                let last = &status["lastState"]["terminated"];
                let now = &status["state"]["terminated"];
                format!("{last}{now}")
            })
            .collect();
        // With so little, the kernel may also kill what runc starts first: "container init was OOM-killed".
        let killed = |end: &String| end.contains("OOMKilled") || end.contains("OOM-killed");
        ensure!(ends.iter().any(killed), "{ends:?}");
        Ok(())
    })
    .await?;
    // The update waits, and a replica of the old version works on.
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.delete("a").await?;
    cluster.is_removed("a").await?;
    cluster
        .sh("kubectl -n belayer-system rollout undo deployment/belayer")
        .await?;
    belayer.is_rolled_out().await
}

/// T3, with the memory limit as the kernel enforces it: one replica after the other leads during the attack.
pub(super) async fn hostile_memory(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let first = belayer.leader().await?.name_any();
    attacked(&belayer, cluster).await?;
    let holder = belayer.holder().await?;
    belayer.evict(&first).await?;
    belayer.is_succeeded(&holder, Instant::now()).await?;
    belayer.is_rolled_out().await?;
    let again = cluster.beside("again").await?;
    let shown = attacked(&belayer, &again).await;
    again.clean_up().await?.removed().await?;
    shown
}

async fn attacked(belayer: &Installed, cluster: &Cluster) -> Result<()> {
    let leader = belayer.leader().await?.name_any();
    let released = hostile_status::attack(cluster, HOSTILE_WORKFLOWS).await?;
    let workflow = cluster.workflow("other").await?;
    cluster.create(&pod("other").of(&workflow)).await?;
    cluster.is_held("other").await?;
    ensure!(
        belayer.leader().await?.name_any() == leader,
        "the leader has changed"
    );
    for replica in belayer.replicas().await? {
        let status = &replica.data["status"]["containerStatuses"][0];
        ensure!(status["restartCount"] == 0, "{status}");
        let peak = belayer.container_of(&replica)?.peak_memory()? >> 20;
        let role = if replica.name_any() == leader {
            "leader"
        } else {
            "standby"
        };
        belayer.cluster.note(format!(
            "{role}: {peak} MiB in its cgroup at most; released after {:.1} s",
            released.as_secs_f64()
        ));
        ensure!(
            peak < hostile_status::PEAK,
            "{peak} MiB in the cgroup of {role}"
        );
    }
    Ok(())
}
