//! T7: a tenant who makes up the names of owners, to hold a pod for ever or to look into other
//! namespaces by Belayer's eyes.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::recreation::{SOON, held, records, rejection, successor, told};
use crate::harness::{BelayerOptions, Cluster, HOLD, Scenario, eventually, gone, pod};
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
        "whatever a tenant calls an owner: its pods go, and nobody else's are looked at (T7)",
        names,
    )]
}

async fn names(cluster: Cluster) -> Result<()> {
    let others = cluster.another_namespace("prod", json!({})).await?;
    let victim = cluster.create_in(&others, &pod("db-0")).await?;
    let victim = victim.uid().context("no uid")?;
    let options = BelayerOptions::default()
        .argument("--controllers=pod-finalizer,pod-recreation")
        .config("podRecreation:\n  backoffSeconds: 1\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    let tenant = cluster.tenant().await?;
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

    let spy = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "spy", "annotations": { "belayer.dev/recreate": "true" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Namespace", "uid": "made-up",
                "name": format!("{others}/pods/db-0") }],
        },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let spy: DynamicObject = serde_json::from_value(spy)?;
    let first = pods.create(&PostParams::default(), &spy).await?;
    held(&cluster, "spy").await?;
    told(&cluster, "spy", rejection()).await?;
    // Such an owner is no evidence that the pod is not wanted.
    let first = first.uid().context("no uid")?;
    successor(&cluster, "spy", &first).await?;

    let log = belayer.log()?;
    ensure!(!log.contains(&victim), "the log names another tenant's pod");
    let events = kinds::events(cluster.client(), cluster.namespace());
    eventually("the re-creation is told of", SOON, async || {
        let all = events.list(&Default::default()).await?;
        ensure!(!all.items.is_empty(), "no Event");
        Ok(())
    })
    .await?;
    let mut told = events.list(&Default::default()).await?.items;
    told.extend(records(&cluster).list(&Default::default()).await?.items);
    for object in told {
        let text = serde_json::to_string(&object)?;
        ensure!(!text.contains(&victim), "{text}");
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
