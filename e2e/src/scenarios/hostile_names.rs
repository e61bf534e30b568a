//! T7: a tenant invents owner names to keep a hold on a pod forever. T9: a node reports a time that cannot be represented.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    BelayerOptions, Cluster, HOLD, NO_SCHEDULER, Scenario, TenantPermissions, gone, pod,
};
use crate::kinds;
use crate::providers::Capability::KubeApiserver;

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
    vec![
        Scenario::alone(
            "hostile-owner-name",
            "whatever name a tenant gives an owner, its pods are released (T7)",
            names,
        ),
        Scenario::alone(
            "hostile-times",
            "a pod that started at the end of the year 9999 is read, held and released (T9)",
            times,
        )
        // A real API server: the sandbox cannot represent such a time either.
        .needs([KubeApiserver]),
    ]
}

async fn times(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Failed").await?;
    let status = json!({ "status": { "startTime": "9999-12-31T23:59:59Z" } });
    let options = PatchParams::default();
    let patch = Patch::Merge(&status);
    cluster.pods().patch_status("a", &options, &patch).await?;
    cluster.belayer_has_caught_up().await?;
    let kinds = belayer
        .metric("belayer_informer_bad_objects_total", &[])
        .await?;
    ensure!(
        kinds.abs() < f64::EPSILON,
        "{kinds} objects could not be read"
    );
    cluster.delete("a").await?;
    cluster.keeps_hold("a").await?;
    cluster.consume("a").await?;
    cluster.is_removed("a").await?;
    belayer.stop().await
}

async fn names(cluster: Cluster) -> Result<()> {
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());

    for (index, owner) in NAMES.iter().enumerate() {
        let name = format!("p{index}");
        // It has the hold already, as from a Belayer that could not read such an owner.
        let made = pod_of_missing_owner(&name, owner)?;
        pods.create(&PostParams::default(), &made).await?;
        // With a result, so that its deletion does not release it: only its owner does.
        cluster.finish(&name, "Succeeded").await?;
    }
    let options = BelayerOptions::default().argument("--controllers=pod-finalizer");
    let belayer = cluster.start_belayer_with(&options).await?;
    for (index, owner) in NAMES.iter().enumerate() {
        let name = format!("p{index}");
        // The garbage collector may have been faster: it finds no such owner either.
        let deleted = pods.delete(&name, &DeleteParams::default()).await;
        deleted.map(drop).or_else(gone)?;
        cluster.is_removed(&name).await.context(*owner)?;
        let released = belayer.released_for(cluster.namespace(), &name, &["OwnerGone"]);
        released.await.context(*owner)?;
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
        "spec": { "schedulerName": NO_SCHEDULER, "containers": [{ "name": "main", "image": "busybox" }] },
    });
    Ok(serde_json::from_value(pod)?)
}
