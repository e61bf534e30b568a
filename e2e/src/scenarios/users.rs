//! The roles for people: `view` and `edit` by aggregation, and those for the commands (row *user-facing roles*).

use anyhow::{Result, ensure};
use serde_json::Value;

use super::installation::{kubeconfig, printed};
use crate::harness::{Cluster, SOON, Scenario, eventually, manifests, pod};
use crate::providers::Capability::{GarbageCollector, KubeApiserver, Kubectl};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "roles-for-users",
            "who may view reads the records, who may edit deletes them; viewers run status and stuck, drainers drain",
            roles,
        )
        // kube-controller-manager aggregates.
        // The roles `view` and `edit` are kube-apiserver's own.
        .needs([Kubectl, KubeApiserver, GarbageCollector]),
    ]
}

async fn roles(cluster: Cluster) -> Result<()> {
    let namespace = cluster.namespace().to_owned();
    let script = format!(
        "set -e; kubectl apply -f {}/rbac-users.yaml
        for name in ann bob viewer drainer; do kubectl -n {namespace} create serviceaccount $name; done
        kubectl -n {namespace} create rolebinding ann --clusterrole=view --serviceaccount={namespace}:ann
        kubectl -n {namespace} create rolebinding bob --clusterrole=edit --serviceaccount={namespace}:bob
        for name in viewer drainer; do
            kubectl create clusterrolebinding e2e-$name --clusterrole=belayer-$name --serviceaccount={namespace}:$name
        done
        kubectl create clusterrolebinding e2e-view --clusterrole=view --serviceaccount={namespace}:viewer",
        manifests().display()
    );
    cluster.sh(&script).await?;
    let shown = each(&cluster).await;
    let remove = format!(
        "kubectl delete clusterrolebinding e2e-viewer e2e-drainer e2e-view
        kubectl delete -f {}/rbac-users.yaml",
        manifests().display()
    );
    cluster.sh(&remove).await?;
    shown
}

async fn each(cluster: &Cluster) -> Result<()> {
    for kind in ["podrecreations", "podoutcomes"] {
        may(cluster, kind).await?;
    }
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow).held()).await?;
    viewer_sees(cluster).await?;
    drainer_drains(cluster).await
}

/// What each account may do with records of this kind.
async fn may(cluster: &Cluster, kind: &str) -> Result<()> {
    let namespace = cluster.namespace();
    for (account, verb, place, expected) in [
        ("ann", "get", namespace, "yes"),
        ("ann", "delete", namespace, "no"),
        ("bob", "get", namespace, "yes"),
        ("bob", "delete", namespace, "yes"),
        ("bob", "create", namespace, "no"),
        ("bob", "delete", "default", "no"),
        ("viewer", "list", "default", "yes"),
        ("viewer", "delete", "default", "no"),
    ] {
        let script = format!(
            "kubectl auth can-i {verb} {kind}.belayer.dev -n {place} \
             --as=system:serviceaccount:{namespace}:{account} || true"
        );
        eventually(
            &format!("{account} {verb} {kind} in {place}: {expected}"),
            SOON,
            async || {
                let may = cluster.sh(&script).await?;
                ensure!(may.trim() == expected, "{may}");
                Ok(())
            },
        )
        .await?;
    }
    Ok(())
}

async fn viewer_sees(cluster: &Cluster) -> Result<()> {
    // The Lease of a Belayer that was killed before counts for a minute.
    let status = eventually("no Belayer runs", SOON, async || {
        let (code, status) = viewer(cluster, "status").await?;
        ensure!(
            code == 3 && status["unknown"].is_null(),
            "exit code {code}: {status}"
        );
        Ok(status)
    })
    .await?;
    ensure!(status["components"][0]["held"] == 1, "{status}");
    cluster.delete("a").await?;
    let (code, stuck) = eventually("the pod is stuck", SOON, async || {
        let (code, stuck) = viewer(cluster, "stuck").await?;
        ensure!(code == 3, "exit code {code}: {stuck}");
        Ok((code, stuck))
    })
    .await?;
    let unseen = stuck["unseen"].as_array().into_iter().flatten();
    let unseen: Vec<&str> = unseen.filter_map(|one| one["resource"].as_str()).collect();
    ensure!(unseen.contains(&"secrets"), "exit code {code}: {unseen:?}");
    for shown in [
        "pods",
        "nodes",
        "persistentvolumes",
        "workflows.argoproj.io",
    ] {
        ensure!(!unseen.contains(&shown), "{shown} is in {unseen:?}");
    }
    Ok(())
}

async fn viewer(cluster: &Cluster, command: &str) -> Result<(i32, Value)> {
    let kubeconfig = kubeconfig(cluster, cluster.namespace(), "viewer").await?;
    printed(cluster, &kubeconfig, &[command]).await
}

async fn drainer_drains(cluster: &Cluster) -> Result<()> {
    let drain = ["--configured-kinds"];
    let viewer = kubeconfig(cluster, cluster.namespace(), "viewer").await?;
    let refused = cluster.drain_as(&viewer, &drain).await?;
    ensure!(refused.code != 0, "it may drain: {}", refused.out);
    cluster.keeps_hold("a").await?;
    let drainer = kubeconfig(cluster, cluster.namespace(), "drainer").await?;
    cluster.drain_as(&drainer, &drain).await?.exited_with(0)?;
    cluster.nothing_is_held().await?;
    let resumed = cluster.drain_as(&drainer, &["--resume"]).await?;
    resumed.exited_with(0).map(drop)
}
