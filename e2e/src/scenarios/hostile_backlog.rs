//! A tenant that deletes, unselects and holds whatever it may in its own namespace: other tenants' holds
//! are not affected, and drain completes. Rows T4, A4 and A5.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;

use super::admission::remove_policy;
use crate::harness::{
    Belayer, BelayerOptions, Cluster, HOLD, PodBuilder, SOON, Scenario, TenantPermissions,
    Workflow, eventually, finalizers, pod, throughout,
};
use crate::kinds;
use crate::providers::Capability::AdmissionPolicies;
use crate::providers::{apply, manifest};

/// How long the absence of a change is observed.
const WINDOW: Duration = Duration::from_secs(2);
/// More pods than the namespace's limit of 20.
const BACKLOG: usize = 24;
/// More unselected pods than are released at once.
const BURST: usize = 60;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "hostile-backlog",
            "a tenant that deletes many pods of a live workflow reaches the limit of its own namespace only",
            backlog,
        ),
        Scenario::alone(
            "hostile-unselected",
            "a tenant's burst of unselected pods does not delay other tenants' releases, even after a restart",
            unselected,
        ),
        Scenario::alone(
            "hostile-drain",
            "a tenant that keeps adding holds to its own pods is reported, and drain completes",
            drain,
        ),
    ]
}

async fn create(pods: &Api<DynamicObject>, pod: &PodBuilder) -> Result<DynamicObject> {
    let created = pods.create(&PostParams::default(), &pod.build()?).await;
    created.context("create a pod as the tenant")
}

async fn backlog(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default().config("podFinalizer:\n  backlogThreshold: 20\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());
    let workflow = cluster.workflow("live").await?;
    let names: Vec<String> = (0..BACKLOG).map(|index| format!("p{index}")).collect();
    for name in &names {
        create(&pods, &pod(name).of(&workflow).held()).await?;
        // Ended, so that it waits until its result is consumed.
        cluster.finish(name, "Succeeded").await?;
    }
    for name in &names {
        pods.delete(name, &DeleteParams::default()).await?;
    }
    let key = format!("closed.{}", cluster.namespace());
    eventually("the tenant's namespace is closed", SOON, async || {
        let gate = cluster.gate().await?;
        ensure!(gate[&key] == "backlog", "the gate is {gate}");
        ensure!(
            gate["hold"] == "on",
            "the gate must stay open for others: {gate}"
        );
        Ok(())
    })
    .await?;
    says_so(&cluster, &belayer).await?;

    let other = cluster.another_namespace("other", json!({})).await?;
    let theirs = cluster.workflow_in(&other, "theirs", json!({})).await?;
    cluster.create_in(&other, &pod("a").of(&theirs)).await?;
    eventually("another tenant's pod gets the hold", SOON, async || {
        let seen = cluster.pods_in(&other).get("a").await?;
        ensure!(finalizers(&seen).contains(&HOLD), "it has no hold");
        Ok(())
    })
    .await?;
    create(&pods, &pod("new").of(&workflow)).await?;
    stays_free(&cluster, "new").await?;
    if cluster.can(AdmissionPolicies) {
        apply(cluster.client(), &manifest("pod-hold-policy")?).await?;
        let obeys = policy_obeys(&cluster, &workflow, (&other, &theirs)).await;
        remove_policy(&cluster, "belayer-pod-hold").await?;
        obeys?;
    }

    // Releases continue and reopen the namespace.
    for name in &names[..BACKLOG - 8] {
        cluster.consume(name).await?;
    }
    eventually("the namespace is open again", SOON, async || {
        let gate = cluster.gate().await?;
        ensure!(gate[&key].is_null(), "{gate}");
        Ok(())
    })
    .await?;
    cluster.is_held("new").await?;
    belayer.stop().await
}

/// Metrics, `status` and `explain` report a closed namespace.
async fn says_so(cluster: &Cluster, belayer: &Belayer) -> Result<()> {
    let labels = [("controller", "pod-finalizer")];
    eventually("the metrics report it", SOON, async || {
        let all = belayer.metric("belayer_backlog_gate", &labels).await?;
        let one = belayer
            .metric("belayer_backlog_namespaces_closed", &labels)
            .await?;
        ensure!((all, one) == (0.0, 1.0), "{all} and {one}");
        Ok(())
    })
    .await?;
    let holds = belayer.holds().await?;
    let closed = &holds["pod-finalizer"]["closedNamespaces"];
    ensure!(closed[0]["namespace"] == cluster.namespace(), "{closed}");
    Ok(())
}

async fn stays_free(cluster: &Cluster, name: &str) -> Result<()> {
    throughout(
        "a pod of the closed namespace gets no hold",
        WINDOW,
        async || {
            let seen = cluster.pods().get(name).await?;
            ensure!(!finalizers(&seen).contains(&HOLD), "it has a hold");
            Ok(())
        },
    )
    .await
}

/// A hold at creation was added by the policy.
async fn policy_obeys(
    cluster: &Cluster,
    closed: &Workflow,
    (other, theirs): (&str, &Workflow),
) -> Result<()> {
    eventually(
        "the policy adds the hold to another tenant's pod",
        SOON,
        async || {
            let name = format!("at-{}", jiff::Timestamp::now().as_microsecond());
            let created = cluster.create_in(other, &pod(name).of(theirs)).await?;
            ensure!(finalizers(&created).contains(&HOLD), "no hold yet");
            Ok(())
        },
    )
    .await?;
    let created = cluster.create(&pod("at-creation").of(closed)).await?;
    ensure!(
        !finalizers(&created).contains(&HOLD),
        "the policy added the hold to a pod of the closed namespace"
    );
    Ok(())
}

async fn unselected(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let other = cluster.another_namespace("other", json!({})).await?;
    let theirs = cluster.workflow_in(&other, "theirs", json!({})).await?;
    for name in ["a", "b"] {
        cluster
            .create_in(&other, &pod(name).of(&theirs).held())
            .await?;
    }
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());
    let workflow = cluster.workflow("w").await?;
    // All at once, however fast pods are created here: Belayer is paused until the last exists.
    belayer.signal(Signal::STOP)?;
    let burst = (0..BURST).map(|index| {
        let pods = pods.clone();
        async move { create(&pods, &pod(format!("p{index}")).held()).await }
    });
    let burst = futures::future::try_join_all(burst).await;
    belayer.signal(Signal::CONT)?;
    burst?;
    let labels = [("controller", "pod-finalizer")];
    eventually("pods beyond the limit keep their hold", SOON, async || {
        let kept = belayer.metric("belayer_unselected_kept", &labels).await?;
        ensure!(kept > 20.0, "{kept}");
        Ok(())
    })
    .await?;
    remove_label(&cluster, &other, "a").await?;

    // A4: the guard does not delay releases with other evidence, not even in that namespace.
    let done = pod("done").of(&workflow).held();
    create(&pods, &done).await?;
    let strip = json!({ "metadata": { "labels": {
        "workflows.argoproj.io/workflow": null, "workflows.argoproj.io/completed": "true",
    } } });
    cluster.merge("done", strip).await?;
    cluster.is_not_held("done").await?;

    belayer.stop().await?;
    let belayer = cluster.start_belayer().await?;
    remove_label(&cluster, &other, "b").await?;
    let kept = cluster.held_count().await?;
    ensure!(kept > 20, "{kept} of the burst are kept");
    belayer.stop().await
}

/// Removes the label, and so the hold, of another tenant's pod.
async fn remove_label(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let strip = json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": null } } });
    let pods = cluster.pods_in(namespace);
    pods.patch(name, &PatchParams::default(), &Patch::Merge(strip))
        .await?;
    eventually("another tenant's pod is released", SOON, async || {
        let seen = pods.get(name).await?;
        ensure!(!finalizers(&seen).contains(&HOLD), "it still has the hold");
        Ok(())
    })
    .await
}

/// No Belayer runs. Only unselected objects are drained, so that no policy has to become effective.
async fn drain(cluster: Cluster) -> Result<()> {
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());
    let hostile = tokio::spawn(async move {
        for index in 0.. {
            create(&pods, &pod(format!("p{index}")).held()).await?;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        anyhow::Ok(())
    });
    let ended = ends(&cluster).await;
    hostile.abort();
    ended?;
    // The remaining holds are the scenario's own.
    let printed = cluster.drain(&["--unselected"]).await?.exited_with(0)?;
    cluster.note(printed.out.trim().to_owned());
    Ok(())
}

async fn ends(cluster: &Cluster) -> Result<()> {
    let printed = cluster.drain(&["--unselected", "-o", "json"]).await?;
    let report = printed.exited_with(3)?.json()?;
    let new = &report["newHolds"];
    ensure!(
        report["outcome"] == "new-holds"
            && new["namespaces"][cluster.namespace()].as_u64() > Some(0),
        "{report}"
    );
    let seconds = report["seconds"].as_f64().unwrap_or_default();
    ensure!(seconds < 150.0, "it took {seconds} s");
    let except = format!("--except-namespace={}", cluster.namespace());
    cluster
        .drain(&["--unselected", &except])
        .await?
        .exited_with(0)?;
    Ok(())
}
