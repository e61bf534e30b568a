//! From the manifests to the chart, as `docs/src/install/helm.md` describes it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::release::{CONTROLLERS, Release};
use super::restored;
use crate::control_plane::Program;
use crate::harness::{Cluster, HOME, SOON, eventually, manifests};
use crate::scenarios::installation::remove;

/// What the manifests have and the default values do not.
const VALUES: [&str; 2] = [
    "controllers.podRecreation.enabled=true",
    "rbac.also={outcome-capture}",
];

pub(super) async fn whole(cluster: Cluster) -> Result<()> {
    let release = Release::new(&cluster, Program::Helm4).await?;
    let release = release.in_namespace(HOME);
    let shown = taken_over(&release).await;
    let cleaned = restored(&cluster, &release).await;
    let removed = remove(&cluster).await;
    shown?;
    cleaned?;
    removed
}

async fn taken_over(release: &Release) -> Result<()> {
    let page = std::fs::read_to_string(manifests().join("../../docs/src/install/helm.md"))?;
    for value in VALUES {
        ensure!(page.contains(&format!("--set {value}")), "{value}");
    }
    let cluster = &release.cluster;
    let folder = manifests();
    let apply = format!("kubectl apply -k {}", folder.display());
    // CRDs of an earlier installation may still be going.
    eventually("the manifests are applied", SOON, async || {
        cluster.sh(&apply).await.map(drop)
    })
    .await?;
    release.applied("install", &VALUES).await?;
    let script = format!("kubectl get -k {} -o json", folder.display());
    let list: Value = serde_json::from_str(&cluster.sh(&script).await?)?;
    let objects = list["items"].as_array().context("no list")?;
    ensure!(objects.len() > 40, "{} objects", objects.len());
    for object in objects.iter().filter(|one| one["kind"] != "Namespace") {
        let owner = &object["metadata"]["annotations"]["meta.helm.sh/release-name"];
        let name = &object["metadata"]["name"];
        ensure!(
            owner == "belayer",
            "{} {name} is not taken over",
            object["kind"]
        );
    }
    let apart = format!("--service-account={HOME}/belayer-pod-recreation");
    let lease = "--leader-elect-resource-name=belayer-pod-recreation";
    for check in [
        &["check", "--service-account", CONTROLLERS][..],
        &["check", &apart, "--controllers=pod-recreation", lease],
    ] {
        let (code, report) = release.belayer(check).await?;
        ensure!(code == 0, "{report}");
    }
    // Without the values nothing of pod-recreation runs any more. kubectl is still an owner of the changed fields.
    release
        .applied_with("upgrade", &["--force-conflicts"])
        .await?;
    let script = format!("kubectl -n {HOME} get deployments,serviceaccounts -o name");
    let left = cluster.sh(&script).await?;
    ensure!(!left.contains("pod-recreation"), "{left}");
    Ok(())
}
