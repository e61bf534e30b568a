//! T7: a tenant invents owner names to keep a hold on a pod forever.

use anyhow::Result;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::harness::{BelayerOptions, Cluster, HOLD, Scenario, TenantPermissions, gone};
use crate::kinds;

/// Names that no object can have, and names that have to be escaped in a URL.
const NAMES: &[&str] = &[
    "w/x",
    "w/log",
    "../pods",
    "..",
    "w%2Fx",
    "w?watch=1",
    "w#x",
    "w x",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "hostile-owner-name",
        "whatever name a tenant gives an owner, its pods are released (T7)",
        names,
    )]
}

async fn names(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default().argument("--controllers=pod-finalizer");
    let belayer = cluster.start_belayer_with(&options).await?;
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());

    for (index, name) in NAMES.iter().enumerate() {
        // It has the hold already, as from a Belayer that could not read such an owner.
        let made = pod_of_missing_owner(&format!("p{index}"), name)?;
        pods.create(&PostParams::default(), &made).await?;
    }
    for index in 0..NAMES.len() {
        let name = format!("p{index}");
        // The garbage collector may have been faster: it finds no such owner either.
        let deleted = pods.delete(&name, &DeleteParams::default()).await;
        deleted.map(drop).or_else(gone)?;
        cluster.is_removed(&name).await?;
    }
    belayer.stop().await
}

/// A pod with a hold, of a workflow that does not exist.
fn pod_of_missing_owner(name: &str, owner: &str) -> Result<DynamicObject> {
    let pod: Value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "finalizers": [HOLD],
            "labels": { "workflows.argoproj.io/workflow": "w" },
            "ownerReferences": [{ "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "name": owner, "uid": "made-up", "controller": true }],
        },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "main", "image": "busybox" }] },
    });
    Ok(serde_json::from_value(pod)?)
}
