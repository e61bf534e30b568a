//! The gate of earlier builds was a ConfigMap: what an admin turned off there is kept with the commands of the page *Upgrade*.

use anyhow::{Context as _, Result, ensure};

use super::{OLD_MANIFESTS, remove_rights};
use crate::harness::{Cluster, HOME, SOON, eventually, manifests};
use crate::kinds;
use crate::providers::apply;
use crate::scenarios::installation::{deployed, remove};

/// The shell block of the page.
fn recipe() -> Result<String> {
    let page = include_str!("../../../../docs/src/install/upgrade.md");
    let (_, section) = page
        .split_once("\n## From a build with the ConfigMap: keep what you turned off\n")
        .context("the page has no such section")?;
    let block = section.split("\n```sh\n").nth(1);
    let block = block.and_then(|rest| rest.split("\n```").next());
    let block = block.context("the section has no commands")?;
    let folder = manifests().display().to_string();
    Ok(format!(
        "set -e\n{}",
        block.replace("deploy/manifests", &folder)
    ))
}

pub(super) async fn kept(cluster: Cluster) -> Result<()> {
    let shown = stays_off(&cluster).await;
    cluster
        .sh("kubectl -n belayer-system delete configmap belayer-gate --ignore-not-found")
        .await?;
    remove_rights(cluster.client()).await?;
    remove(&cluster).await?;
    shown
}

async fn stays_off(cluster: &Cluster) -> Result<()> {
    let delete = "kubectl delete crd gates.belayer.dev --ignore-not-found && \
        kubectl -n belayer-system delete configmap belayer-gate --ignore-not-found";
    eventually(
        "the guard of an earlier scenario is gone",
        SOON,
        async || cluster.sh(delete).await,
    )
    .await?;
    apply(cluster.client(), OLD_MANIFESTS).await?;
    cluster
        .sh(
            "kubectl -n belayer-system patch configmap belayer-gate --type=merge \
             -p '{\"data\":{\"holdWorkflows\":\"off\",\"closed.shop\":\"maintenance\"}}'",
        )
        .await?;
    cluster.sh(&recipe()?).await?;
    let belayer = deployed(cluster, "belayer", "upgraded").await?;
    let gates = kinds::gates(cluster.client(), HOME);
    let soon = SOON;
    eventually(
        "the leader has opened the rest of the gate",
        soon,
        async || {
            let gate = gates.get("belayer-gate").await?;
            let data = &gate.data["data"];
            ensure!(data["hold"] == "on", "{data}");
            ensure!(
                data["holdWorkflows"] == "off" && data["closed.shop"] == "maintenance",
                "{data}"
            );
            let owners = gate.metadata.owner_references.unwrap_or_default();
            ensure!(owners.len() == 1, "{owners:?}");
            Ok(())
        },
    )
    .await?;
    belayer.kill().await
}
