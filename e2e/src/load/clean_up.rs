//! The namespaces of a run, and the removal of all that it created.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::nodes::Nodes;
use super::plan::{Plan, RUN};
use crate::kinds;
use crate::wait::{eventually, gone};

/// Until the pods and the namespaces of a run are removed.
const WITHIN: Duration = Duration::from_secs(180);

/// Creates the namespaces that do not exist.
pub(super) async fn namespaces(client: &Client, plan: &Plan) -> Result<()> {
    let api = kinds::namespaces(client);
    for name in &plan.namespaces {
        if api.get_opt(name).await?.is_none() {
            let namespace = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": { RUN: plan.run() } },
            }))?;
            api.create(&PostParams::default(), &namespace)
                .await
                .with_context(|| format!("create the namespace {name}"))?;
        }
    }
    Ok(())
}

/// Removes the pods, the nodes and the namespaces of the run. Belayer removes its own finalizers.
pub(super) async fn remove(client: &Client, plan: &Plan) -> Result<()> {
    let own = ListParams::default().labels(&plan.selector());
    eventually("the pods of the run are removed", WITHIN, async || {
        for namespace in &plan.namespaces {
            let pods = kinds::pods(client, namespace);
            // Pods that are bound to a node without a kubelet would wait for it for ever.
            let now = DeleteParams::default().grace_period(0);
            pods.delete_collection(&now, &own).await?;
        }
        let left = kinds::all_pods(client).list_metadata(&own).await?;
        ensure!(left.items.is_empty(), "{} remain", left.items.len());
        Ok(())
    })
    .await?;
    Nodes::remove(client, plan).await?;
    let namespaces = kinds::namespaces(client);
    for namespace in namespaces.list_metadata(&own).await? {
        let name = namespace.metadata.name.unwrap_or_default();
        let how = DeleteParams::default();
        namespaces
            .delete(&name, &how)
            .await
            .map(drop)
            .or_else(gone)?;
    }
    Ok(())
}
