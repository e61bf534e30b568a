//! T3: a tenant creates pods that are as large as the API server accepts.

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    Cluster, HOLD, NO_SCHEDULER, SOON, Scenario, TenantPermissions, eventually, finalizers,
};
use crate::kinds;
use crate::wait::gone;

/// A hostile tenant creates more: these already take twice what may be added, if they are kept.
const PODS: usize = 60;
/// What each field that a rule reads takes, in bytes.
const FIELD: usize = 220 << 10;
/// Maximum of the memory that they add to the process, in MiB.
const ADDED: u64 = 40;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "hostile-large-pods",
        "60 pods of 1 MB each, in the fields that Belayer reads, take little memory and are held and released (T3)",
        large_pods,
    )]
}

async fn large_pods(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let workflow = cluster.workflow("w").await?;
    let pods = kinds::pods(&tenant, cluster.namespace());
    let before = belayer.peak_memory()? >> 20;
    stream::iter(0..PODS)
        .map(|n| {
            let pod = large_pod(n, &workflow.uid);
            let pods = &pods;
            async move {
                pods.create(&PostParams::default(), &pod?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(4)
        .try_collect::<()>()
        .await?;
    // The first one is Belayer's to hold; its other finalizers stay as they are.
    let first = "large-0";
    eventually("a large pod is held", SOON, async || {
        let pod = cluster.pods().get(first).await?;
        ensure!(finalizers(&pod).contains(&HOLD), "no hold");
        Ok(())
    })
    .await?;
    cluster.belayer_has_caught_up().await?;
    let added = (belayer.peak_memory()? >> 20).saturating_sub(before);
    cluster.note(format!(
        "{added} MiB resident more than before, for {PODS} MB"
    ));
    ensure!(added < ADDED, "{added} MiB more");

    let theirs = |pod: &DynamicObject| -> Vec<String> {
        let mut all = pod.finalizers().to_vec();
        all.retain(|name| name != HOLD);
        all
    };
    let created = theirs(&cluster.pods().get(first).await?);
    ensure!(created.len() > 1000, "{} finalizers", created.len());
    cluster.delete(first).await?;
    cluster.consume(first).await?;
    eventually("a large pod is released", SOON, async || {
        let pod = cluster.pods().get(first).await?;
        ensure!(!pod.finalizers().iter().any(|name| name == HOLD), "held");
        Ok(())
    })
    .await?;
    let left = theirs(&cluster.pods().get(first).await?);
    ensure!(left == created, "the finalizers of others have changed");
    cluster
        .merge(first, json!({ "metadata": { "finalizers": null } }))
        .await?;
    eventually("a large pod is deleted", SOON, async || {
        let left = cluster.pods().get_opt(first).await?;
        ensure!(left.is_none(), "it still exists");
        Ok(())
    })
    .await?;
    let all = DeleteParams::default().grace_period(0);
    for n in 1..PODS {
        let deleted = pods.delete(&format!("large-{n}"), &all).await;
        // Their owner does not exist: the garbage collector may have been faster.
        deleted.map(drop).or_else(gone)?;
    }
    belayer.stop().await
}

/// A pod of about 1 MB in four fields. The first one has an owner and many finalizers instead.
fn large_pod(n: usize, owner: &str) -> Result<DynamicObject> {
    let long = |what: &str| format!("{what}-{n}-{}", "x".repeat(FIELD));
    let mut metadata = json!({
        "name": format!("large-{n}"),
        "labels": { "workflows.argoproj.io/workflow": "w" },
        "annotations": { "workflows.argoproj.io/node-id": long("node") },
        "ownerReferences": [{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "controller": true,
            "name": long("owner"), "uid": long("uid"),
        }],
    });
    if n == 0 {
        let finalizers: Vec<Value> = (0..2000)
            .map(|n| format!("example.com/f{n}").into())
            .collect();
        metadata["finalizers"] = finalizers.into();
        metadata["ownerReferences"][0]["name"] = "w".into();
        metadata["ownerReferences"][0]["uid"] = owner.into();
    }
    let volumes: Vec<Value> = (0..4)
        .map(|volume| {
            json!({
                "name": format!("v{volume}"),
                "persistentVolumeClaim": { "claimName": format!("{volume}-{}", "x".repeat(FIELD / 4)) },
            })
        })
        .collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "schedulerName": NO_SCHEDULER,
            "containers": [{ "name": "main", "image": "busybox" }],
            "volumes": volumes,
        },
    }))?)
}
