//! Removes everything that a scenario has created.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use super::cluster::{Cluster, OWN_NODE};
use crate::kinds;
use crate::providers::{Backend, Capability};
use crate::wait::{SOON, eventually, gone};

/// Requests in parallel.
const PARALLEL: usize = 32;

/// How long the namespaces of a scenario may exist after it: a later one may stop the controllers that remove them.
const REMOVED_WITHIN: Duration = Duration::from_secs(600);

/// The namespaces of a scenario that has ended, which are being deleted.
#[must_use]
pub(crate) struct Leaving {
    backend: Arc<dyn Backend>,
    namespaces: Vec<String>,
}

impl Cluster {
    /// Removes all objects, including those with finalizers, and begins to delete the namespaces:
    /// kube-controller-manager waits five seconds before it works on a deleted one.
    pub(crate) async fn clean_up(&self) -> Result<Leaving> {
        let client = self.client();
        let own = ListParams::default().labels(&format!("{OWN_NODE}={}", self.namespace()));
        let nodes = kinds::nodes(client);
        nodes
            .delete_collection(&DeleteParams::default(), &own)
            .await
            .context("remove the scenario's nodes")?;
        let namespaces = self.all_namespaces();
        for namespace in &namespaces {
            let what = format!("the namespace {namespace} is empty");
            eventually(&what, SOON, async || empty(client, namespace).await).await?;
            kinds::namespaces(client)
                .delete(namespace, &DeleteParams::default())
                .await
                .map(drop)
                .or_else(gone)?;
        }
        Ok(Leaving {
            backend: self.shared_backend(),
            namespaces,
        })
    }
}

impl Leaving {
    /// Waits until the namespaces are removed.
    pub(crate) async fn removed(self) -> Result<()> {
        let client = self.backend.client();
        let are_removed = self
            .backend
            .capabilities()
            .contains(&Capability::NamespaceDeletion);
        let api = kinds::namespaces(client);
        for namespace in &self.namespaces {
            let what = format!("the namespace {namespace} is removed");
            eventually(&what, REMOVED_WITHIN, async || {
                // Objects created after the first pass, and those that are deleted only with the namespace.
                empty(client, namespace).await?;
                if are_removed {
                    let there = api.get_opt(namespace).await?.is_some();
                    ensure!(!there, "the namespace still exists");
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

async fn empty(client: &Client, namespace: &str) -> Result<()> {
    let pods = kinds::pods(client, namespace);
    let now = DeleteParams::default().grace_period(0);
    remove_all(&pods, &now).await?;
    let workflows = kinds::workflows(client, namespace);
    let pvcs = kinds::pvcs(client, namespace);
    let (records, outcomes) = (
        kinds::records(client, namespace),
        kinds::outcomes(client, namespace),
    );
    let removed = [&pods, &workflows, &pvcs, &records, &outcomes];
    for kind in &removed[1..] {
        remove_all(kind, &DeleteParams::background()).await?;
    }
    // Deleting the namespace removes these.
    strip_finalizers(&kinds::config_maps(client, namespace)).await?;
    for kind in removed {
        let left = list(kind, &ListParams::default().limit(1)).await?;
        ensure!(left.is_empty(), "objects remain");
    }
    Ok(())
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
