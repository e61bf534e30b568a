//! What a compromised agent can do with its token.

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use super::site::{SOON, Site, Timeout, wiped};
use crate::harness::{Cluster, eventually};
use crate::kinds;

async fn client_of(site: &Site) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(site.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

pub(super) async fn knows_its_place(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let other = Site::new(&cluster, "other").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    site.pod("web").await?;
    site.reject("web").await?;
    let record = site.in_phase("Rejected").await?;
    let name = record.name_any();
    let conditions = record.data["status"]["conditions"].clone();
    let with = |status: &str| -> Value {
        let mut all = conditions.as_array().cloned().unwrap_or_default();
        for condition in &mut all {
            if condition["type"] == "StateWiped" {
                condition["status"] = status.into();
            }
        }
        all.into()
    };
    let mut without_ours = conditions.as_array().cloned().unwrap_or_default();
    without_ours.retain(|condition| condition["type"] == "StateWiped");
    let write = async |from: &Site, status: Value| -> Result<()> {
        let records: Api<_> = Api::namespaced_with(
            client_of(from).await?,
            cluster.namespace(),
            &kube::api::ApiResource::from_gvk_with_plural(
                &kube::core::GroupVersionKind::gvk("belayer.dev", "v1alpha1", "PodRecreation"),
                "podrecreations",
            ),
        );
        let patch = Patch::Merge(json!({ "status": status }));
        let _: kube::api::DynamicObject = records
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    };
    let refused = async |from: &Site, status: Value, says: &str| -> Result<()> {
        match write(from, status.clone()).await {
            Ok(()) => bail!("the write of {status} was allowed"),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(text.contains(says), "refused, but: {text}");
                Ok(())
            }
        }
    };
    // A policy is effective some time after it was created.
    eventually("another node's agent is refused", SOON, async || {
        let attempt = json!({ "conditions": with("Unknown") });
        refused(&other, attempt, "that its own node rejected").await
    })
    .await?;
    for status in [
        json!({ "phase": "Started" }),
        json!({ "rejectedUID": "0b1a2c3d-4e5f-4071-8293-a4b5c6d7e8f9" }),
        json!({ "attempts": 0, "podStarts": 9 }),
        json!({ "podMetadata": { "labels": { "a": "b" } } }),
        json!({ "nodeName": "elsewhere" }),
        json!({ "conditions": without_ours }),
    ] {
        let says = match status["nodeName"].is_null() {
            true => "StateWiped alone",
            false => "that its own node rejected",
        };
        refused(&site, status, says).await?;
    }
    let client = client_of(&site).await?;
    let pods = kinds::pods(&client, cluster.namespace());
    for denied in [
        pods.delete("web", &Default::default()).await.map(drop),
        pods.patch(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } })),
        )
        .await
        .map(drop),
        kinds::nodes(&client).get(&site.node).await.map(drop),
    ] {
        let error = denied.err().context("the request was allowed")?;
        ensure!(error.to_string().contains("forbidden"), "{error}");
    }
    write(&site, json!({ "conditions": with("True") })).await?;
    let status = site.record().await?.data["status"].clone();
    ensure!(wiped(&status) == "True", "{status}");
    belayer.stop().await
}
