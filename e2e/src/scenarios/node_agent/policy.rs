//! What a compromised agent can do with its token (rule T6).

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::site::{Site, Timeout, wiped};
use crate::harness::{Cluster, SOON, eventually};
use crate::kinds;

async fn client_of(site: &Site) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(site.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// An agent without handlers, also after a scenario with handlers.
async fn forbid_handlers(cluster: &Cluster) -> Result<()> {
    let bindings = kinds::cluster_role_bindings(cluster.client());
    let name = "belayer-node-agent-handlers";
    if bindings.get_opt(name).await?.is_some() {
        bindings.delete(name, &Default::default()).await?;
    }
    Ok(())
}

pub(super) async fn knows_its_place(cluster: Cluster) -> Result<()> {
    forbid_handlers(&cluster).await?;
    let site = Site::new(&cluster, "one").await?;
    let other = Site::new(&cluster, "other").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let uid = site.pod("web").await?;
    site.reject("web").await?;
    eventually("the wipe is requested", SOON, async || {
        let listed = site.listed().await?;
        ensure!(listed == [uid.clone()], "{listed:?}");
        Ok(())
    })
    .await?;
    let report =
        |state: &str| json!({ "status": { "wipes": { uid.as_str(): { "state": state } } } });
    let write = async |from: &Site, patch: Value| -> kube::Result<()> {
        let client = client_of(from)
            .await
            .map_err(|error| kube::Error::Service(error.into()))?;
        kinds::node_wipes(&client)
            .patch_status(&site.node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    };
    // A policy is effective some time after it was created.
    eventually(
        "another node's agent is refused",
        SOON,
        async || match write(&other, report("Wiped")).await {
            Ok(()) => bail!("the write was allowed"),
            Err(error) => {
                let text = error.to_string();
                ensure!(
                    text.contains("reports of its own node"),
                    "refused, but: {text}"
                );
                Ok(())
            }
        },
    )
    .await?;
    let client = client_of(&site).await?;
    let wipes = kinds::node_wipes(&client);
    let pods = kinds::pods(&client, cluster.namespace());
    let records = kinds::records(&client, cluster.namespace());
    let params = PatchParams::default();
    let forged = json!({ "spec": { "wipes": { "0b1a2c3d-4e5f-4071-8293-a4b5c6d7e8f9": {
        "namespace": "prod", "podName": "db", "record": "x", "requestedAt": "2026-01-01T00:00:00Z",
    } } } });
    for denied in [
        wipes
            .patch(&site.node, &params, &Patch::Merge(forged))
            .await
            .map(drop),
        wipes
            .delete(&site.node, &Default::default())
            .await
            .map(drop),
        pods.get("web").await.map(drop),
        pods.list(&Default::default()).await.map(drop),
        pods.delete("web", &Default::default()).await.map(drop),
        records.list(&Default::default()).await.map(drop),
        kinds::nodes(&client).get(&site.node).await.map(drop),
    ] {
        let error = denied.err().context("the request was allowed")?;
        ensure!(error.to_string().contains("forbidden"), "{error}");
    }
    // Documented: the list of every node can be read.
    let others = kinds::node_wipes(&client_of(&other).await?);
    others.get(&site.node).await?;
    write(&site, report("Wiped")).await?;
    eventually("the record has the report", SOON, async || {
        let status = site.record().await?.data["status"].clone();
        ensure!(wiped(&status) == "True", "{status}");
        Ok(())
    })
    .await?;
    site.is_forgotten(&uid).await?;
    belayer.stop().await
}
