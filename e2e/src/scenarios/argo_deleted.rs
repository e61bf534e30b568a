//! Deleted Argo pods: those with a result that must be saved, and those without.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::argo::step;
use crate::harness::{Cluster, HOLD, Scenario, Workflow, finalizers, throughout};

/// How long the absence of releases is observed.
const WINDOW: Duration = Duration::from_secs(2);
const COMPONENT: &str = "workflows.argoproj.io/component";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "a6-deleted-while-running",
            "a pod that its deletion ended is released, one with a result keeps its hold",
            deleted_while_running,
        ),
        Scenario::shared(
            "a3-pods-that-argo-runs-for-itself",
            "agent pods and artifact garbage collection pods never get a hold",
            never_held,
        ),
    ]
}

/// One container as a kubelet reports it.
fn container(name: &str, state: &Value) -> Value {
    json!({
        "name": name, "image": "registry.invalid/step:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": state,
    })
}

fn runs() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

pub(super) fn exited(code: i32) -> Value {
    json!({ "terminated": {
        "exitCode": code, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z",
    } })
}

/// What the kubelet writes about a step.
pub(super) async fn report(
    cluster: &Cluster,
    name: &str,
    phase: &str,
    containers: &[(&str, Value)],
) -> Result<()> {
    let containers = containers
        .iter()
        .map(|(name, state)| container(name, state));
    let status = json!({ "status": {
        "phase": phase, "containerStatuses": containers.collect::<Vec<_>>(),
    } });
    let patch = Patch::Merge(&status);
    let pods = cluster.pods();
    let patched = pods
        .patch_status(name, &PatchParams::default(), &patch)
        .await;
    patched
        .map(drop)
        .with_context(|| format!("report on {name}"))
}

/// A running step, on a node without a kubelet: the scenario writes its status.
pub(super) async fn running(
    cluster: &Cluster,
    workflow: &Workflow,
    name: &str,
    node: &str,
) -> Result<()> {
    cluster.create(&step(name, workflow).on_node(node)).await?;
    cluster.is_held(name).await?;
    report(
        cluster,
        name,
        "Running",
        &[("main", runs()), ("wait", runs())],
    )
    .await
}

/// Deletes without grace: by force, or as the kubelet does after all containers have ended.
pub(super) async fn delete_at_once(cluster: &Cluster, name: &str) -> Result<()> {
    let how = DeleteParams::default().grace_period(0);
    let deleted = cluster.pods().delete(name, &how).await;
    deleted.map(drop).with_context(|| format!("delete {name}"))
}

/// Checks that all of these keep their hold for a while.
pub(super) async fn all_stay_held(cluster: &Cluster, names: &[&str]) -> Result<()> {
    cluster.belayer_has_caught_up().await?;
    throughout(
        "pods with a result must keep their hold",
        WINDOW,
        async || {
            for name in names {
                let seen = cluster.pods().get(name).await?;
                ensure!(finalizers(&seen).contains(&HOLD), "{name} has no hold");
            }
            Ok(())
        },
    )
    .await
}

async fn deleted_while_running(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let all = ["killed", "graceful", "sidecar", "ended"];
    let node = cluster.node_without_kubelet("busy").await?;
    for name in all {
        running(&cluster, &workflow, name, &node).await?;
    }
    cluster.create(&step("unscheduled", &workflow)).await?;
    cluster.is_held("unscheduled").await?;
    let (good, bad) = (exited(0), exited(143));
    let late = [
        ("main", good.clone()),
        ("side", runs()),
        ("wait", good.clone()),
    ];
    report(&cluster, "sidecar", "Running", &late).await?;
    let failed = [("main", exited(1)), ("wait", good.clone())];
    report(&cluster, "ended", "Failed", &failed).await?;

    for name in ["killed", "graceful", "sidecar", "ended", "unscheduled"] {
        cluster.delete(name).await?;
    }
    // It never ran, so there is no result to wait for.
    cluster.is_removed("unscheduled").await?;
    // A running pod may still end with a result within its grace period.
    all_stay_held(&cluster, &all).await?;

    let killed = [("main", bad), ("wait", good.clone())];
    report(&cluster, "killed", "Failed", &killed).await?;
    let well = [("main", good.clone()), ("wait", good.clone())];
    report(&cluster, "graceful", "Succeeded", &well).await?;
    let late = [
        ("main", good.clone()),
        ("side", exited(137)),
        ("wait", good),
    ];
    report(&cluster, "sidecar", "Failed", &late).await?;
    cluster.is_not_held("killed").await?;
    delete_at_once(&cluster, "killed").await?;
    cluster.is_removed("killed").await?;
    all_stay_held(&cluster, &["graceful", "sidecar", "ended"]).await?;
    counted(&cluster, "EndedByDeletion", 2.0).await?;
    for name in ["graceful", "sidecar", "ended"] {
        cluster.consume(name).await?;
        cluster.is_not_held(name).await?;
    }
    Ok(())
}

/// Each such release is counted for its namespace.
pub(super) async fn counted(cluster: &Cluster, evidence: &str, times: f64) -> Result<()> {
    let labels = [
        ("judgement", evidence),
        ("mode", "enforce"),
        ("pod_namespace", cluster.namespace()),
    ];
    let belayer = cluster.shared_belayer()?;
    belayer
        .counts("belayer_unread_pods_total", &labels, times)
        .await
}

async fn never_held(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    // As an older version left them.
    for of in ["agent", "artifact-gc"] {
        let left = step(&format!("old-{of}"), &workflow).label(COMPONENT, of);
        cluster.create(&left.held()).await?;
        cluster
            .create(&step(of, &workflow).label(COMPONENT, of))
            .await?;
    }
    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    for of in ["agent", "artifact-gc"] {
        cluster.is_not_held(&format!("old-{of}")).await?;
    }
    counted(&cluster, "NeverHeld", 2.0).await?;
    for of in ["agent", "artifact-gc"] {
        let seen = cluster.pods().get(of).await?;
        ensure!(!finalizers(&seen).contains(&HOLD), "{of} has a hold");
    }
    Ok(())
}
