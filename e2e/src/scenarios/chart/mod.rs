//! The Helm chart on a real API server: install, upgrade, roll back, uninstall, and every set of controllers.

mod life;
mod refusals;
pub(super) mod release;
mod smoke;
mod takeover;
#[cfg(test)]
mod tests;
mod toggles;
mod uninstall;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::release::Release;
use super::installation;
use crate::control_plane::Program;
use crate::harness::{Cluster, Scenario, eventually};
use crate::providers::Capability::{AdmissionPolicies, Helm, IdleDeployments, Kubectl, Rbac};
use crate::providers::grant_permissions;

const LONG: Duration = Duration::from_secs(600);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "chart-life-helm3",
            "Helm 3 installs, upgrades, rolls back and uninstalls Belayer in any namespace, and keeps the gate (H3); no hold is left, and it can be installed in another one",
            |cluster| life::whole(cluster, Program::Helm3),
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-life-helm4",
            "the same with Helm 4",
            |cluster| life::whole(cluster, Program::Helm4),
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-on-any-release",
            "Helm installs, upgrades and uninstalls Belayer on every supported release of Kubernetes; no hold is left",
            smoke::whole,
        )
        .needs([Helm, Kubectl, Rbac, IdleDeployments])
        .within(LONG)
        .smoke(),
        Scenario::alone(
            "chart-uninstall-waits-for-pvcs",
            "a PVC in use that only Belayer protects stops the uninstall, named; nothing is deleted",
            life::refused,
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-uninstall-crashing",
            "an uninstall leaves no hold while Belayer crashes at each start, also if the CRDs go",
            uninstall::crashing,
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-uninstall-one-off",
            "an upgrade that switches a controller off removes its holds; an uninstall then leaves none",
            uninstall::one_off,
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-takes-over-the-manifests",
            "with the documented values Helm takes over every object of the manifests, and check finds nothing missing",
            takeover::whole,
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-refusals",
            "Helm refuses a second release, unknown keys and a release without controllers; the first one is unchanged",
            refusals::each,
        )
        .needs([Helm, Kubectl, Rbac, AdmissionPolicies, IdleDeployments])
        .within(LONG),
        Scenario::alone(
            "chart-controllers",
            "with every set of controllers check finds nothing missing, and without any one rule it does",
            toggles::all_sets,
        )
        .needs([Helm, Kubectl, Rbac])
        .within(3 * LONG),
        Scenario::alone(
            "manifests-in-another-namespace",
            "an overlay with another namespace leaves the default one nowhere, and the server accepts it",
            another_namespace,
        )
        .needs([Kubectl])
        .within(LONG),
    ]
}

/// H2: kustomize's `namespace:` with the replacements.
async fn another_namespace(cluster: Cluster) -> Result<()> {
    let namespace = cluster
        .another_namespace("ops", serde_json::json!({}))
        .await?;
    let folder = cluster.dir().join("overlay");
    let manifests = crate::harness::manifests();
    let script = format!(
        "set -e; mkdir -p {folder}/deploy; cp -r {manifests} {folder}/deploy/manifests
        cat >{folder}/kustomization.yaml <<END
namespace: {namespace}
resources: [deploy/manifests]
replacements: [{{path: deploy/manifests/replacements.yaml}}]
END
        kubectl kustomize {folder} >{folder}/all.yaml
        kubectl apply --dry-run=server -f {folder}/all.yaml >&2
        cat {folder}/all.yaml",
        folder = folder.display(),
        manifests = manifests.display(),
    );
    let text = cluster.sh(&script).await?;
    ensure!(!text.contains("belayer-system"), "{text}");
    for (account, policies) in [("belayer", 4), ("belayer-pod-recreation", 6)] {
        let account = format!("system:serviceaccount:{namespace}:{account}'");
        ensure!(text.matches(&account).count() == policies, "{text}");
    }
    Ok(())
}

/// Restores what other scenarios on this cluster expect.
pub(super) async fn restored(cluster: &Cluster, release: &Release) -> Result<()> {
    release.removed_by_force().await?;
    // The server learns a moment later that the guard is gone.
    let script = format!(
        "kubectl delete namespace {} --dry-run=server",
        release.namespace
    );
    eventually("the release's namespace may be deleted", LONG, async || {
        cluster.sh(&script).await.map(drop)
    })
    .await?;
    grant_permissions(cluster.client())
        .await
        .context("restore the RBAC permissions")
}
