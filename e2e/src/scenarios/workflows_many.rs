//! Thousands of workflows, and one workflow with thousands of pods.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::api::{ListParams, PropagationPolicy};
use serde_json::json;

use crate::harness::{
    BelayerOptions, Cluster, Load, SOON, Scenario, WORKFLOW_HOLD, eventually, pod,
};
use crate::kinds;
use crate::providers::Capability::{Faults, GarbageCollector, Recorder};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "workflow-deleting-goes-first",
            "the release of one workflow does not wait behind thousands of others",
            deleting_first,
        )
        .needs([Recorder])
        .with_load(Load::Heavy),
        Scenario::alone(
            "workflow-of-thousands-of-pods",
            "one PATCH per pod and one live read",
            thousands,
        )
        .needs([Recorder])
        .within(Duration::from_secs(600))
        .with_load(Load::Heavy),
    ]
}

/// Thousands of workflows that only need a hold, and one that is being deleted.
async fn deleting_first(cluster: Cluster) -> Result<()> {
    let ordinary = if cluster.can(Faults) { 5_000 } else { 500 };
    let metadata = json!({ "finalizers": [WORKFLOW_HOLD] });
    let urgent = cluster
        .workflow_in(cluster.namespace(), "urgent", metadata)
        .await?;
    cluster
        .create_all((0..5).map(|index| pod(format!("p{index}")).of(&urgent).held()))
        .await?;
    let mut created = futures::stream::iter(0..ordinary)
        .map(|index| {
            let cluster = cluster.clone();
            async move { cluster.workflow(&format!("w{index}")).await }
        })
        .buffer_unordered(32);
    while let Some(workflow) = created.next().await {
        workflow?;
    }
    cluster
        .delete_workflow("urgent", PropagationPolicy::Background)
        .await?;
    let mark = cluster.recorder()?.mark()?;
    let belayer = cluster.spawn_belayer(&BelayerOptions::default())?;
    cluster.workflow_is_removed("urgent", SOON).await?;
    let urgent = format!("{}/urgent", cluster.namespace());
    let before = eventually("its release is recorded", SOON, async || {
        let writes = cluster.recorder()?.writes_since(mark)?;
        let release = writes.iter().position(|write| write.object == urgent);
        let earlier = &writes[..release.context("no release")?];
        let of_workflows = earlier.iter().filter(|write| write.resource == "workflows");
        Ok(of_workflows.count())
    })
    .await?;
    cluster.note(format!(
        "{before} of {ordinary} other workflows were patched before the deleted one was released"
    ));
    // Workers finish the key they have; the queue must not delay the release.
    ensure!(
        before <= ordinary / 2,
        "{before} of {ordinary} were patched before it"
    );
    belayer.stop().await
}

async fn thousands(cluster: Cluster) -> Result<()> {
    let pods = if cluster.can(Faults) { 10_000 } else { 2_000 };
    let workflow = cluster.workflow("w").await?;
    cluster
        .create_all((0..pods).map(|index| pod(format!("p{index}")).of(&workflow).held()))
        .await?;
    let belayer = cluster.start_belayer().await?;
    cluster.workflow_is_held("w").await?;
    let mark = cluster.recorder()?.mark()?;
    let gets = cluster.recorder()?.gets("workflows")?;
    let started = Instant::now();
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    cluster
        .workflow_is_removed("w", Duration::from_secs(300))
        .await?;
    let took = started.elapsed().as_secs_f64();
    let gets = cluster.recorder()?.gets("workflows")? - gets;
    let (of_pods, of_workflows, others) =
        eventually("the workflow's release is recorded", SOON, async || {
            let writes = cluster.recorder()?.writes_since(mark)?;
            let patches = |resource: &str| {
                let patches = writes
                    .iter()
                    .filter(|write| write.resource == resource && write.verb == "patch");
                patches.count()
            };
            let (of_pods, of_workflows) = (patches("pods"), patches("workflows"));
            ensure!(
                of_pods >= pods && of_workflows > 0,
                "{of_pods} of {pods} releases of pods"
            );
            Ok((of_pods, of_workflows, writes.len() - of_pods - of_workflows))
        })
        .await?;
    let pods_list = [("question", "pods")];
    let looks = belayer.metric("belayer_facts_total", &pods_list).await?;
    cluster.note(format!(
        "{pods} pods in {took:.1} s: {of_pods} patches of pods, {of_workflows} of the workflow, {others} other \
         writes, {looks} lists of pods, {gets} live reads of the workflow"
    ));
    ensure!(of_pods == pods, "{of_pods} patches for {pods} pods");
    ensure!(of_workflows == 1, "{of_workflows} patches of the workflow");
    // Without the list there is no proof that no pod is left.
    ensure!(
        (looks - 1.0).abs() < f64::EPSILON && gets <= 1,
        "{looks} lists, {gets} live reads"
    );
    let reported = kinds::events(cluster.client(), cluster.namespace())
        .list(&ListParams::default())
        .await?;
    let waits = reported.items.iter().find(|event| {
        event.data["reason"] == "DeletionWaits"
            && event.data["involvedObject"]["kind"] == "Workflow"
    });
    match waits {
        Some(event) => cluster.note(event.data["message"].to_string()),
        None => bail!("no Event reports that the deletion waits"),
    }
    if cluster.can(GarbageCollector) {
        cluster.is_empty(Duration::from_secs(240)).await?;
    }
    belayer.stop().await
}
