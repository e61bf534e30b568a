//! This build takes over a cluster of an earlier one: its manifests, its configuration file, and
//! everything that has a hold (row A23).
//!
//! One scenario creates what the earlier build leaves; in the other one that build itself runs first.

mod expectations;
mod gate;
mod left;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use belayer_sandbox::{Answer, Fault, Match, Verb};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

use self::expectations::Build;
use super::admission::{remove_cluster_wide, remove_policy};
use super::drain::back_to_work;
use crate::earlier;
use crate::harness::{Belayer, BelayerOptions, Cluster, Scenario, pod};
use crate::providers::Capability::{
    AdmissionPolicies, EarlierBelayer, IdleDeployments, Kubectl, Rbac,
};
use crate::providers::{BELAYER, apply, grant_permissions, manifest};

/// Output of `kubectl kustomize` at 9e06281.
const OLD_MANIFESTS: &str = include_str!("../../../fixtures/upgrade/manifests-9e06281.yaml");

/// A configuration file of 9e06281.
const OLD_CONFIG: &str = include_str!("../../../fixtures/upgrade/config-9e06281.yaml");

/// This build's admission policies.
const POLICIES: &[&str] = &[
    "namespace-guard-policy",
    "pod-write-policy",
    "pod-delete-policy",
    "owner-write-policy",
    "pod-hold-policy",
    "pod-recreation-hold-policy",
    "claim-hold-policy",
    "workflow-hold-policy",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "a23-upgrade",
            "this build takes over manifests, configuration and live holds of an earlier one: nothing is refused or stuck",
            |cluster| upgrade(cluster, None),
        )
        .needs([IdleDeployments]),
        Scenario::alone(
            "a23-upgrade-earlier-build",
            "the same if the earlier build itself, from the history of the repository, ran first and added the holds",
            |cluster| async {
                let earlier = earlier::find_or_build(earlier::FIRST).await?;
                upgrade(cluster, Some(earlier)).await
            },
        )
        .needs([EarlierBelayer, IdleDeployments])
        .within(Duration::from_secs(2_400))
        .nightly(),
        Scenario::alone(
            "upgrade-keeps-what-is-off",
            "with the commands of the page Upgrade, switches that an admin turned off in the ConfigMap of 0.1.0 stay off",
            gate::kept,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
    ]
}

async fn upgrade(cluster: Cluster, earlier: Option<PathBuf>) -> Result<()> {
    let done = taken_over(&cluster, earlier.as_deref()).await;
    let restored = restore(&cluster).await;
    done?;
    restored
}

async fn taken_over(cluster: &Cluster, earlier: Option<&Path>) -> Result<()> {
    remove_rights(cluster.client()).await?;
    apply(cluster.client(), OLD_MANIFESTS).await?;
    left::leave(cluster, earlier).await?;
    // The gate is another kind since: without its Role Belayer adds nothing and only releases.
    apply(cluster.client(), &manifest("rbac-core")?).await?;
    apply(cluster.client(), &manifest("rbac-pod-cleanup")?).await?;
    // A resource that this build reads and the earlier one did not.
    let unreadable = cluster.faults().ok().map(|faults| {
        let nodes = Match::verb(Verb::Get).resource("nodes").client(BELAYER);
        faults.inject(Fault::on(nodes).answer(Answer::forbidden("nodes is forbidden")))
    });

    accepts(cluster).await?;
    let belayer = cluster.start_belayer_with(&options()).await?;
    expectations::are_met(cluster, &belayer, Build::WithOldManifests).await?;
    belayer.stop().await?;

    if let Some(fault) = unreadable {
        fault.remove();
    }
    remove_rights(cluster.client()).await?;
    grant_permissions(cluster.client()).await?;
    apply(cluster.client(), &manifest("rbac-pod-cleanup")?).await?;
    for name in policies(cluster) {
        apply(cluster.client(), &manifest(name)?).await?;
    }
    let belayer = cluster.start_belayer_with(&options()).await?;
    expectations::are_met(cluster, &belayer, Build::WithItsOwnManifests).await?;

    if cluster.can(AdmissionPolicies) {
        left::agents_get_no_hold(cluster)
            .await
            .context("A3: the policy adds no hold to agent pods")?;
    }

    left::finish(cluster).await?;
    let last = cluster.workflow("last").await?;
    cluster.create(&pod("last").of(&last)).await?;
    cluster.is_held("last").await?;
    cluster.workflow_is_held("last").await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.nothing_is_held().await?;
    belayer.stop().await
}

fn options() -> BelayerOptions {
    BelayerOptions::default().config(OLD_CONFIG)
}

/// Starts the earlier build.
async fn start_earlier(cluster: &Cluster, binary: &Path) -> Result<Belayer> {
    // It is stopped while it waits with a re-creation.
    let config = OLD_CONFIG.replace("backoffSeconds: 2", "backoffSeconds: 15");
    // In its own folder, to keep the logs apart.
    let options = BelayerOptions::default()
        .config(&config)
        .binary(binary)
        .replica("earlier");
    cluster.start_belayer_with(&options).await
}

fn policies(cluster: &Cluster) -> &'static [&'static str] {
    if cluster.can(AdmissionPolicies) {
        POLICIES
    } else {
        &[]
    }
}

/// The file is valid for this build.
async fn accepts(cluster: &Cluster) -> Result<()> {
    let file = cluster.dir().join("old-config.yaml");
    let text = format!("apiVersion: config.belayer.dev/v1alpha1\n{OLD_CONFIG}");
    std::fs::write(&file, text)?;
    let kubeconfig = cluster.backend().admin_kubeconfig();
    let arguments = ["config", "--config", &*file.to_string_lossy()];
    cluster.belayer(kubeconfig, &arguments).await?.success()?;
    Ok(())
}

/// Deletes every role of Belayer's, so that none of another build remains.
async fn remove_rights(client: &Client) -> Result<()> {
    let belayers = ListParams::default().labels("app.kubernetes.io/name=belayer");
    for kind in ["ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"] {
        let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = if kind.starts_with("Cluster") {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), "belayer-system", &resource)
        };
        api.delete_collection(&DeleteParams::default(), &belayers)
            .await?;
    }
    Ok(())
}

/// Restores what other scenarios on this cluster expect.
async fn restore(cluster: &Cluster) -> Result<()> {
    remove_rights(cluster.client()).await?;
    grant_permissions(cluster.client()).await?;
    if cluster.can(AdmissionPolicies) {
        for name in [
            "pod-hold",
            "pod-recreation-hold",
            "claim-hold",
            "workflow-hold",
        ] {
            remove_policy(cluster, &format!("belayer-{name}")).await?;
        }
        for name in [
            "belayer-namespace-guard",
            "belayer-pod-writes",
            "belayer-pod-deletes",
            "belayer-owner-writes",
        ] {
            for kind in [
                "ValidatingAdmissionPolicyBinding",
                "ValidatingAdmissionPolicy",
            ] {
                remove_cluster_wide(cluster, kind, name).await?;
            }
        }
    }
    back_to_work(cluster).await
}
