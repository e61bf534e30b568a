//! Ways to remove an installation of the shipped manifests (row *uninstall*).

use anyhow::{Context as _, Result, ensure};

use super::LONG;
use crate::harness::{
    Belayer, Cluster, HOME, SOON, Scenario, WORKFLOW_HOLD, eventually, finalizers, manifests, pod,
};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, IdleDeployments, Kubectl, Rbac};
use crate::scenarios::installation::{deployed, is_denied, remove_and_renew};

/// Output of `kubectl kustomize` at 9e06281.
const EARLIER: &str = "fixtures/upgrade/manifests-9e06281.yaml";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "uninstall-with-kubectl",
            "drain and kubectl delete -k leave nothing, and what is installed again under the same API server works",
            |cluster| renewed(cluster, installed_again),
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "uninstall-namespace-and-crds-first",
            "deleting the namespace or a CRD is refused until a drain; after it they can be deleted first",
            |cluster| renewed(cluster, namespace_and_crds_first),
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "uninstall-after-a-downgrade",
            "with the manifests of an earlier version on top, drain still removes every hold",
            |cluster| renewed(cluster, downgraded),
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments])
        .within(LONG),
    ]
}

/// Runs the steps, and restores what other scenarios on this cluster expect.
pub(super) async fn renewed(
    cluster: Cluster,
    steps: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let shown = steps(&cluster).await;
    let restored = remove_and_renew(&cluster).await;
    shown?;
    restored
}

/// Applies the manifests, starts Belayer, and waits until a workflow and a pod have its finalizers.
pub(super) async fn installed(cluster: &Cluster, replica: &'static str) -> Result<Belayer> {
    let install = format!("kubectl apply -k {}", manifests().display());
    // CRDs of an earlier installation may still be going.
    eventually("it is installed", SOON, async || {
        cluster.sh(&install).await.map(drop)
    })
    .await?;
    let belayer = deployed(cluster, "belayer", replica).await?;
    let workflow = cluster.workflow(replica).await?;
    eventually("pods are created with the hold", SOON, async || {
        let name = format!("{replica}-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        ensure!(!finalizers(&created).is_empty(), "no hold yet");
        Ok(())
    })
    .await?;
    cluster.workflow_is_held(replica).await?;
    is_denied(cluster, "the namespace of a Belayer that runs").await?;
    Ok(belayer)
}

/// `kubectl delete -k`, which leaves nothing.
async fn deleted(cluster: &Cluster) -> Result<()> {
    let home = manifests();
    let delete = format!("kubectl delete -k {} --ignore-not-found", home.display());
    cluster.sh(&delete).await?;
    cluster.nothing_is_held().await?;
    let script = "kubectl get crd,namespaces,clusterroles,validatingadmissionpolicies,mutatingadmissionpolicies -o name |
        grep belayer | grep -v node-agent; true";
    let left = cluster.sh(script).await?;
    // A Role of the node agent's is not part of this installation.
    ensure!(left.trim().is_empty(), "{left}");
    Ok(())
}

async fn installed_again(cluster: &Cluster) -> Result<()> {
    for replica in ["first", "second"] {
        let belayer = installed(cluster, replica).await?;
        cluster.drain(&[]).await?.exited_with(0)?;
        deleted(cluster).await?;
        belayer.kill().await?;
    }
    Ok(())
}

const CRDS: [&str; 4] = [
    "gates.belayer.dev",
    "podrecreations.belayer.dev",
    "nodewipes.belayer.dev",
    "podoutcomes.belayer.dev",
];

async fn namespace_and_crds_first(cluster: &Cluster) -> Result<()> {
    let belayer = installed(cluster, "guarded").await?;
    let definitions = kinds::definitions(cluster.client());
    let crds = CRDS.map(|name| format!("crd/{name}"));
    for what in crds
        .iter()
        .map(String::as_str)
        .chain(["namespace/belayer-system"])
    {
        let tried = cluster.sh(&format!("kubectl delete {what}")).await;
        let why = tried.err().context("it was deleted")?.to_string();
        ensure!(why.contains("run `belayer drain` first"), "{what}: {why}");
    }
    for name in CRDS {
        let there = definitions.get(name).await?;
        ensure!(there.metadata.deletion_timestamp.is_none(), "{name}");
    }
    let home = kinds::namespaces(cluster.client()).get(HOME).await?;
    ensure!(home.metadata.deletion_timestamp.is_none(), "{home:?}");

    cluster.drain(&[]).await?.exited_with(0)?;
    let delete = format!("kubectl delete namespace/belayer-system {}", crds.join(" "));
    cluster.sh(&delete).await?;
    cluster.nothing_is_held().await?;
    belayer.kill().await?;
    deleted(cluster).await
}

/// Both versions share the names of finalizers and policies; the kind of the gate is another one.
async fn downgraded(cluster: &Cluster) -> Result<()> {
    let belayer = installed(cluster, "newer").await?;
    belayer.stop().await?;
    let earlier = manifests().join("../../e2e").join(EARLIER);
    let earlier = earlier.display();
    cluster.sh(&format!("kubectl apply -f {earlier}")).await?;
    let workflow = cluster.workflows().get("newer").await?;
    ensure!(
        finalizers(&workflow).contains(&WORKFLOW_HOLD),
        "the hold was removed without Belayer"
    );
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.nothing_is_held().await?;
    cluster
        .sh(&format!("kubectl delete --ignore-not-found -f {earlier}"))
        .await?;
    deleted(cluster).await
}
