//! Removes everything that a scenario has created.

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::cluster::{Cluster, OWN_NODE};
use crate::kinds;
use crate::providers::Capability;
use crate::wait::{SOON, eventually, gone};

/// Requests in parallel.
const PARALLEL: usize = 32;

impl Cluster {
    /// Removes everything, including finalizers, and waits until it is removed.
    ///
    /// # Errors
    /// When something remains.
    pub(crate) async fn clean_up(&self) -> Result<()> {
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

    /// Objects are deleted first: kube-controller-manager waits seconds before it checks a deleted
    /// namespace with content again (for the grace periods), an empty one is removed at once.
    async fn clean_up_namespace(&self, namespace: &str) -> Result<()> {
        let what = format!("the namespace {namespace} is empty");
        eventually(&what, SOON, async || self.empty(namespace).await).await?;
        let api = kinds::namespaces(self.client());
        api.delete(namespace, &DeleteParams::default())
            .await
            .map(drop)
            .or_else(gone)?;
        let what = format!("the namespace {namespace} is removed");
        eventually(&what, SOON, async || {
            // Objects created after the first pass, and those that are deleted only with the namespace.
            self.empty(namespace).await?;
            if self.can(Capability::NamespaceDeletion) {
                let there = api.get_opt(namespace).await?.is_some();
                ensure!(!there, "the namespace still exists");
            }
            Ok(())
        })
        .await
    }

    async fn empty(&self, namespace: &str) -> Result<()> {
        let pods = self.pods_in(namespace);
        let now = DeleteParams::default().grace_period(0);
        remove_all(&pods, &now).await?;
        let workflows = kinds::workflows(self.client(), namespace);
        remove_all(&workflows, &DeleteParams::background()).await?;
        let pvcs = kinds::pvcs(self.client(), namespace);
        remove_all(&pvcs, &DeleteParams::default()).await?;
        // Deleting the namespace removes these.
        strip_finalizers(&kinds::outcomes(self.client(), namespace)).await?;
        strip_finalizers(&kinds::config_maps(self.client(), namespace)).await?;
        for kind in [&pods, &workflows, &pvcs] {
            let left = list(kind, &ListParams::default().limit(1)).await?;
            ensure!(left.is_empty(), "objects remain");
        }
        Ok(())
    }
}

/// Deletes all objects of a kind in a namespace, and removes their finalizers.
async fn remove_all(api: &Api<DynamicObject>, how: &DeleteParams) -> Result<()> {
    api.delete_collection(how, &ListParams::default())
        .await
        .map(drop)
        .or_else(gone)?;
    strip_finalizers(api).await
}

/// The objects of a kind; empty if the kind itself has been deleted.
async fn list(
    api: &Api<DynamicObject>,
    params: &ListParams,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>> {
    match api.list_metadata(params).await {
        Ok(all) => Ok(all.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

async fn strip_finalizers(api: &Api<DynamicObject>) -> Result<()> {
    let all = list(api, &ListParams::default()).await?;
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
