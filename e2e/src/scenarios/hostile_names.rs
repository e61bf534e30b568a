//! T7: a tenant who makes up the names of owners, to hold a pod for ever.

use anyhow::Result;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::harness::{BelayerOptions, Cluster, HOLD, Scenario, TenantRights, gone};
use crate::kinds;

/// Names that no object can have, and names that have to be escaped on their way.
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
        "whatever a tenant calls an owner: its pods are released (T7)",
        names,
    )]
}

async fn names(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default().argument("--controllers=pod-finalizer");
    let belayer = cluster.start_belayer_with(&options).await?;
    let tenant = cluster.tenant(TenantRights::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());

    for (index, name) in NAMES.iter().enumerate() {
        // Held already, as by a Belayer that did not know whether such an owner is there.
        let made = held_by_nobody(&format!("p{index}"), name)?;
        pods.create(&PostParams::default(), &made).await?;
    }
    for index in 0..NAMES.len() {
        let name = format!("p{index}");
        // The garbage collector may have been faster: it knows no such owner either.
        let deleted = pods.delete(&name, &DeleteParams::default()).await;
        deleted.map(drop).or_else(gone)?;
        cluster.is_gone(&name).await?;
    }
    belayer.stop().await
}

/// A held pod of a workflow that somebody made up.
fn held_by_nobody(name: &str, owner: &str) -> Result<DynamicObject> {
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
