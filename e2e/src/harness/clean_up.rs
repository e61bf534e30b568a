//! Taking away all that a scenario has made.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use super::cluster::{Cluster, OWN_NODE};
use super::wait::{eventually, gone};
use crate::kinds;
use crate::providers::Capability;

/// How long a namespace may take to become empty.
const WITHIN: Duration = Duration::from_secs(60);
/// Requests that run at once.
const PARALLEL: usize = 32;

impl Cluster {
    /// Takes everything away, finalizers included, and waits until it is gone.
    ///
    /// # Errors
    /// When something stays.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let own = ListParams::default().labels(&format!("{OWN_NODE}={}", self.namespace()));
        let nodes = kinds::nodes(self.client());
        nodes
            .delete_collection(&DeleteParams::default(), &own)
            .await
            .context("remove the scenario's nodes")?;
        for namespace in self.all_namespaces() {
            self.clean_up_namespace(&namespace).await?;
        }
        Ok(())
    }

    async fn clean_up_namespace(&self, namespace: &str) -> Result<()> {
        let pods = self.pods_in(namespace);
        let workflows = kinds::workflows(self.client(), namespace);
        let claims = kinds::claims(self.client(), namespace);
        let api = kinds::namespaces(self.client());
        api.delete(namespace, &DeleteParams::default())
            .await
            .map(drop)
            .or_else(gone)?;
        eventually(
            &format!("the namespace {namespace} is empty"),
            WITHIN,
            async || {
                let now = DeleteParams::default().grace_period(0);
                pods.delete_collection(&now, &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                workflows
                    .delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                strip_finalizers(&pods).await?;
                strip_finalizers(&workflows).await?;
                claims
                    .delete_collection(&DeleteParams::default(), &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                strip_finalizers(&claims).await?;
                // The namespace takes these away by itself.
                strip_finalizers(&kinds::outcomes(self.client(), namespace)).await?;
                strip_finalizers(&kinds::config_maps(self.client(), namespace)).await?;
                let left = pods
                    .list_metadata(&ListParams::default().limit(1))
                    .await?
                    .items
                    .len();
                ensure!(left == 0, "pods are left");
                if self.can(Capability::NamespaceDeletion) {
                    ensure!(
                        api.get_opt(namespace).await?.is_none(),
                        "the namespace is there"
                    );
                }
                Ok(())
            },
        )
        .await
    }
}

async fn strip_finalizers(api: &Api<DynamicObject>) -> Result<()> {
    let all = match api.list_metadata(&ListParams::default()).await {
        Ok(all) => all.items,
        // The kind itself may have been deleted.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let none = json!({ "metadata": { "finalizers": null } });
    let held = all.into_iter().filter(|object| {
        !object
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
            .is_empty()
    });
    let mut patched = futures::stream::iter(held)
        .map(|object| {
            let none = &none;
            async move {
                let name = object.metadata.name.unwrap_or_default();
                let params = PatchParams::default();
                api.patch_metadata(&name, &params, &Patch::Merge(none))
                    .await
                    .map(drop)
                    .or_else(gone)
            }
        })
        .buffer_unordered(PARALLEL);
    while let Some(done) = patched.next().await {
        done?;
    }
    Ok(())
}
