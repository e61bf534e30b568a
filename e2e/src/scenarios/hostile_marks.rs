//! T10: a tenant sets Belayer's own finalizers, annotations and labels wherever it may write.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    Belayer, BelayerOptions, Cluster, SOON, Scenario, TenantPermissions, Workflow, eventually,
    finalizers, pod, pvc,
};
use crate::kinds;
use crate::providers::Capability::Rbac;

/// How long the absence of a change is observed.
const WINDOW: Duration = Duration::from_secs(3);

/// A finalizer with Belayer's prefix that is none of Belayer's.
const UNKNOWN: &str = "belayer.dev/unknown";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "hostile-marks",
        "finalizers, annotations and labels of Belayer that a tenant sets affect its own objects only (T10)",
        marks,
    )]
}

async fn marks(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .argument("--controllers=*,pod-recreation")
        .config("podRecreation:\n  backoffSeconds: 1\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    let other = cluster.another_namespace("other", json!({})).await?;
    let theirs = cluster.workflow_in(&other, "theirs", json!({})).await?;
    let victim = cluster.create_in(&other, &pod("a").of(&theirs)).await?;
    eventually("another tenant's pod is held", SOON, async || {
        is_held(&cluster, &other, &victim).await
    })
    .await?;

    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    finalizers_on_pods(&cluster, &tenant).await?;
    a_pod_that_says_it_was_re_created(&cluster, &tenant, &victim).await?;
    its_own_results(&cluster, &tenant).await?;
    a_message_is_one_line(&cluster, &tenant, &belayer).await?;
    finalizers_on_owners_and_pvcs(&cluster, &tenant).await?;
    if cluster.can(Rbac) {
        what_it_may_not_write(&cluster, &tenant, &other).await?;
    }
    is_held(&cluster, &other, &victim).await?;
    belayer.stop().await
}

/// Another tenant's pod is the same one, and held.
async fn is_held(cluster: &Cluster, namespace: &str, pod: &DynamicObject) -> Result<()> {
    let seen = cluster.pods_in(namespace).get("a").await?;
    ensure!(seen.uid() == pod.uid(), "another pod has its name");
    ensure!(
        finalizers(&seen).contains(&"belayer.dev/pod-status"),
        "{:?}",
        finalizers(&seen)
    );
    Ok(())
}

/// Belayer's finalizers leave a pod that nothing selects. One that is not Belayer's is the tenant's own.
async fn finalizers_on_pods(cluster: &Cluster, tenant: &Client) -> Result<()> {
    let pods = kinds::pods(tenant, cluster.namespace());
    let marked = pod("marked")
        .held()
        .finalizer("belayer.dev/pod-recreation")
        .finalizer(UNKNOWN)
        .build()?;
    pods.create(&PostParams::default(), &marked).await?;
    pods.delete("marked", &DeleteParams::default()).await?;
    eventually("Belayer's finalizers are removed", SOON, async || {
        let seen = cluster.pods().get("marked").await?;
        ensure!(finalizers(&seen) == [UNKNOWN], "{:?}", finalizers(&seen));
        Ok(())
    })
    .await?;
    let none = json!({ "metadata": { "finalizers": null } });
    let options = PatchParams::default();
    pods.patch("marked", &options, &Patch::Merge(&none)).await?;
    cluster.is_removed("marked").await
}

/// Belayer neither deletes nor changes a pod that has the annotations of a re-created one, and names another
/// tenant's pod as its record.
async fn a_pod_that_says_it_was_re_created(
    cluster: &Cluster,
    tenant: &Client,
    victim: &DynamicObject,
) -> Result<()> {
    let pods = kinds::pods(tenant, cluster.namespace());
    let uid = victim.uid().context("a UID")?;
    let copy = pod("copy")
        .annotation("belayer.dev/recreate", "true")
        .annotation("belayer.dev/wipe", "true")
        .annotation("belayer.dev/recreation", "a")
        .annotation("belayer.dev/recreation-uid", &uid)
        .annotation("belayer.dev/recreation-attempt", "1")
        .finalizer("belayer.dev/pod-recreation")
        .build()?;
    let copy = pods.create(&PostParams::default(), &copy).await?;
    let copy_uid = copy.uid().context("a UID")?;
    cluster.stays_itself("copy", &copy_uid, WINDOW).await?;
    pods.delete("copy", &DeleteParams::default()).await?;
    cluster.is_removed("copy").await
}

/// Annotations and labels that release a pod release the tenant's own.
async fn its_own_results(cluster: &Cluster, tenant: &Client) -> Result<()> {
    let pods = kinds::pods(tenant, cluster.namespace());
    let workflow: Workflow = cluster.workflow("mine").await?;
    let marks = [
        (
            "released",
            json!({ "annotations": { "belayer.dev/release": "true" } }),
        ),
        (
            "consumed",
            json!({ "labels": { "workflows.argoproj.io/completed": "true" } }),
        ),
    ];
    for (name, metadata) in marks {
        let made = pod(name).of(&workflow).build()?;
        pods.create(&PostParams::default(), &made).await?;
        cluster.is_held(name).await?;
        let patch = json!({ "metadata": metadata });
        let options = PatchParams::default();
        pods.patch(name, &options, &Patch::Merge(&patch)).await?;
        cluster.is_not_held(name).await?;
    }
    Ok(())
}

/// A message with an annotation of the tenant stays one line of the log, which contains no escape sequence.
async fn a_message_is_one_line(
    cluster: &Cluster,
    tenant: &Client,
    belayer: &Belayer,
) -> Result<()> {
    const FORGED: &str = "2026-11-30T00:00:00Z  INFO belayer: released";
    let pods = kinds::pods(tenant, cluster.namespace());
    let workflow: Workflow = cluster.workflow("forges").await?;
    let node = format!("x\n{FORGED}\u{1b}[8m\u{202e}");
    let made = pod("forged").of(&workflow);
    let made = made.annotation("workflows.argoproj.io/node-id", &node);
    pods.create(&PostParams::default(), &made.build()?).await?;
    cluster.is_held("forged").await?;
    cluster.finish("forged", "Succeeded").await?;
    pods.delete("forged", &DeleteParams::default()).await?;
    eventually("the log contains it", SOON, async || {
        ensure!(belayer.log()?.contains(FORGED), "no such message");
        Ok(())
    })
    .await?;
    let log = belayer.log()?;
    ensure!(!log.contains(['\u{1b}', '\u{202e}']), "{log:?}");
    for line in log.lines().filter(|line| line.contains(FORGED)) {
        ensure!(line.contains(&format!("node x {FORGED}")), "{line:?}");
    }
    cluster.consume("forged").await?;
    cluster.is_removed("forged").await
}

/// A finalizer of Belayer on a workflow or PVC that nothing holds does not keep it.
async fn finalizers_on_owners_and_pvcs(cluster: &Cluster, tenant: &Client) -> Result<()> {
    let workflows = kinds::workflows(tenant, cluster.namespace());
    let created = cluster.workflow("finalized").await?;
    let on = json!({ "metadata": { "finalizers": ["belayer.dev/workflow-cleanup"] } });
    let options = PatchParams::default();
    let patch = Patch::Merge(&on);
    workflows.patch(&created.name, &options, &patch).await?;
    let background = DeleteParams::background();
    workflows.delete(&created.name, &background).await?;
    is_gone(&workflows, &created.name).await?;

    // A tenant with `edit` may write PVCs; the permissions of this one are about pods.
    let pvcs = kinds::pvcs(cluster.client(), cluster.namespace());
    let finalized = pvc(
        "data",
        json!({ "finalizers": ["belayer.dev/pvc-protection"] }),
    )?;
    pvcs.create(&PostParams::default(), &finalized).await?;
    pvcs.delete("data", &DeleteParams::default()).await?;
    is_gone(&pvcs, "data").await
}

async fn is_gone(objects: &Api<DynamicObject>, name: &str) -> Result<()> {
    eventually("it is removed", SOON, async || {
        let seen = objects.get_opt(name).await?;
        ensure!(
            seen.is_none(),
            "it has {:?}",
            seen.map(|seen| seen.metadata.finalizers)
        );
        Ok(())
    })
    .await
}

/// The label of namespaces, records, and the objects of others.
async fn what_it_may_not_write(cluster: &Cluster, tenant: &Client, other: &str) -> Result<()> {
    let ignore = json!({ "metadata": { "labels": { "belayer.dev/ignore": "true" } } });
    let own = cluster.namespace();
    refused(&kinds::namespaces(tenant), own, &ignore).await?;
    let release = json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    refused(&kinds::pods(tenant, other), "a", &release).await?;
    let gate = json!({ "data": { "hold": "off" } });
    refused(
        &kinds::gates(tenant, "belayer-system"),
        "belayer-gate",
        &gate,
    )
    .await
}

async fn refused(objects: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
    let options = PatchParams::default();
    match objects.patch(name, &options, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => bail!("{name}: {error}"),
        Ok(_) => bail!("a tenant may write {name}"),
    }
}
