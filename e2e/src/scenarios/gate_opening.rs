//! What must be true before the leader turns on the switch of an admission policy.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::installation::{deployed, deployed_with, remove};
use crate::harness::{
    Belayer, Cluster, HOLD, SOON, Scenario, eventually, finalizers, manifests, pod, throughout,
};
use crate::providers::Capability::{AdmissionPolicies, IdleDeployments, Kubectl, Rbac};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "gate-waits-for-permissions",
            "without the permission to patch pods no policy adds holds, and the log names it; with it the gate opens",
            permissions,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
        Scenario::alone(
            "gate-opens-with-permissions-by-namespace",
            "RoleBindings in the only namespace that the configuration selects suffice for the gate to open (T2)",
            by_namespace,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
        Scenario::alone(
            "gate-waits-for-its-write-policy",
            "no policy adds holds while the one that limits Belayer's writes names an account of another namespace",
            write_policy,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
    ]
}

/// Takes the permission from every Role of the account that has it.
const NO_PATCH: &str = "set -e
    for role in belayer-pod-finalizer belayer-workflow-finalizer; do
        kubectl get clusterrole $role -o yaml | sed '/^  - patch$/d' | kubectl replace -f -
    done";

async fn permissions(cluster: Cluster) -> Result<()> {
    let named = "hold: no permission to patch pods";
    let shown = closed_by(&cluster, NO_PATCH, named).await;
    remove(&cluster).await?;
    shown
}

async fn by_namespace(cluster: Cluster) -> Result<()> {
    let shown = opens_for_one_namespace(&cluster).await;
    remove(&cluster).await?;
    shown
}

async fn opens_for_one_namespace(cluster: &Cluster) -> Result<()> {
    let (apply, here) = (manifests().display().to_string(), cluster.namespace());
    // As `rbac.namespaces` of the chart makes them.
    let script = format!(
        "set -e
        kubectl apply -k {apply}
        kubectl -n belayer-system delete gate belayer-gate --ignore-not-found
        {NO_PATCH}
        kubectl -n {here} create role belayer-writes --verb=patch --resource=pods
        kubectl -n {here} create rolebinding belayer-writes --role=belayer-writes \\
            --serviceaccount=belayer-system:belayer
        kubectl annotate validatingadmissionpolicy belayer-pod-writes belayer.dev/namespaces={here}
        kubectl patch mutatingadmissionpolicy belayer-pod-hold --type=merge -p '{{\"spec\": {{\"matchConstraints\":
            {{\"namespaceSelector\": {{\"matchLabels\": {{\"kubernetes.io/metadata.name\": \"{here}\"}}}}}}}}}}'"
    );
    cluster.sh(&script).await?;
    let profile = format!("{{builtIn: argo, namespaces: {{include: [{here}]}}}}");
    let only_here = format!("--set=podFinalizer.profiles=[{profile}]");
    let belayer = deployed_with(cluster, "belayer", "deployed", &[only_here]).await?;
    cluster.gate_shows("hold", "on").await?;
    belayer.stop().await
}

async fn write_policy(cluster: Cluster) -> Result<()> {
    let change = format!(
        "sed 's/system:serviceaccount:belayer-system:/system:serviceaccount:other:/g' {}/pod-write-policy.yaml |
        kubectl apply -f -",
        manifests().display()
    );
    let named = "hold: the policy belayer-pod-writes, which limits what Belayer writes, does not name \
                 system:serviceaccount:belayer-system:belayer";
    let shown = closed_by(&cluster, &change, named).await;
    remove(&cluster).await?;
    shown
}

/// Installs the manifests, changes them, and starts Belayer without a gate. It must open when they are restored.
async fn closed_by(cluster: &Cluster, change: &str, named: &str) -> Result<()> {
    let apply = format!("kubectl apply -k {}", manifests().display());
    cluster.sh(&apply).await?;
    cluster
        .sh("kubectl -n belayer-system delete gate belayer-gate --ignore-not-found")
        .await?;
    cluster.sh(change).await?;
    let belayer = deployed(cluster, "belayer", "deployed").await?;
    let shown = stays_closed(cluster, &belayer, named).await;
    cluster.sh(&apply).await?;
    shown?;
    cluster.gate_shows("hold", "on").await?;
    belayer.stop().await
}

async fn stays_closed(cluster: &Cluster, belayer: &Belayer, named: &str) -> Result<()> {
    eventually("the log names what is missing", SOON, async || {
        let log = belayer.log()?;
        ensure!(log.contains(named), "{log}");
        Ok(())
    })
    .await?;
    let workflow = cluster.workflow("w").await?;
    throughout(
        "the policy adds no hold",
        Duration::from_secs(5),
        async || {
            let gate = cluster.gate().await?;
            ensure!(gate.get("hold").is_none(), "{gate}");
            let name = format!("early-{}", jiff::Timestamp::now().as_microsecond());
            let created = cluster.create(&pod(name).of(&workflow)).await?;
            let held = finalizers(&created);
            ensure!(!held.contains(&HOLD), "{held:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok(())
        },
    )
    .await
}
