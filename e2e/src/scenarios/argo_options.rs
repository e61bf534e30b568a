//! Options of pod-finalizer for Argo: adopt, clean up, observe.

use anyhow::{Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::json;

use super::argo::{COMPLETED, PHASE, STATUS, step};
use crate::harness::{BelayerOptions, Cluster, HOLD, SOON, Scenario, eventually, finalizers, pod};
use crate::providers::{apply, manifest};

const POD_GC: &str = "workflows.argoproj.io/pod-gc-strategy";
const FOREIGN: &str = "e2e.belayer.dev/keep";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "adopt-named-finalizers",
            "adopted finalizers are removed together with Belayer's hold, others never",
            adopted,
        ),
        Scenario::alone(
            "cleanup-by-annotation",
            "released pods are deleted according to their annotation",
            cleanup,
        ),
        Scenario::alone(
            "observe-lists-losses",
            "observe reports which pods would have lost their result",
            observed,
        ),
    ]
}

async fn adopted(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let both = |name: &str| step(name, &workflow).finalizer(STATUS).finalizer(FOREIGN);
    // Finalizers that are not configured are not removed.
    let belayer = cluster.start_belayer().await?;
    cluster.create(&both("not-named")).await?;
    cluster.is_held("not-named").await?;
    cluster.consume("not-named").await?;
    cluster.is_not_held("not-named").await?;
    has(&cluster, "not-named", &[STATUS, FOREIGN]).await?;
    belayer.stop().await?;

    let config = format!("podFinalizer: {{profiles: [{{builtIn: argo, adopt: [{STATUS}]}}]}}");
    let belayer = cluster
        .start_belayer_with(&BelayerOptions::default().config(&config))
        .await?;
    // Left by a workflow controller that labelled the pod and then stopped.
    has(&cluster, "not-named", &[FOREIGN]).await?;
    cluster.create(&both("named")).await?;
    cluster
        .create(&pod("not-selected").finalizer(STATUS))
        .await?;
    cluster.is_held("named").await?;
    cluster.finish("named", "Succeeded").await?;
    cluster.keeps_hold("named").await?;
    has(&cluster, "named", &[STATUS, FOREIGN, HOLD]).await?;
    cluster.consume("named").await?;
    has(&cluster, "named", &[FOREIGN]).await?;
    has(&cluster, "not-selected", &[STATUS]).await?;
    let adopted = [("evidence", "Adopted")];
    belayer
        .counts("belayer_releases_total", &adopted, 2.0)
        .await?;
    ensure!(
        belayer
            .log()?
            .contains("removed finalizers of other controllers"),
        "the log does not report the adopted finalizers"
    );
    belayer.stop().await
}

/// Waits until the pod has exactly these finalizers.
async fn has(cluster: &Cluster, name: &str, expected: &[&str]) -> Result<()> {
    eventually(&format!("{name} has {expected:?}"), SOON, async || {
        let seen = cluster.pods().get(name).await?;
        ensure!(finalizers(&seen) == expected, "{:?}", finalizers(&seen));
        Ok(())
    })
    .await
}

async fn cleanup(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("rbac-pod-cleanup")?).await?;
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, cleanup: argo}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    let other = cluster.workflow("orphans").await?;
    let cases = [
        ("on-completion", "OnPodCompletion/0s", "Failed"),
        ("on-success", "OnPodSuccess/1s", "Succeeded"),
        ("on-success-failed", "OnPodSuccess/0s", "Failed"),
        ("on-workflow", "OnWorkflowCompletion/0s", "Failed"),
        ("on-workflow-success", "OnWorkflowSuccess/0s", "Succeeded"),
        ("late", "OnPodCompletion/10m0s", "Succeeded"),
        ("empty", "", "Succeeded"),
        ("malformed", "OnPodCompletion", "Succeeded"),
        ("no-strategy", "/-1ns", "Succeeded"),
    ];
    for (name, annotation, phase) in cases {
        cluster
            .create(&step(name, &workflow).annotation(POD_GC, annotation))
            .await?;
        cluster.is_held(name).await?;
        cluster.finish(name, phase).await?;
        cluster.consume(name).await?;
    }
    cluster.is_removed("on-completion").await?;
    cluster.is_removed("on-success").await?;
    let stay = [
        "on-success-failed",
        "late",
        "empty",
        "malformed",
        "no-strategy",
    ];
    let are_there = async |names: &[&str]| -> Result<()> {
        for name in names {
            let seen: DynamicObject = cluster.pods().get(name).await?;
            if seen.metadata.deletion_timestamp.is_some() || finalizers(&seen).contains(&HOLD) {
                bail!("{name} has {:?}", seen.finalizers());
            }
        }
        Ok(())
    };
    cluster.is_not_held("on-workflow").await?;
    cluster.belayer_has_caught_up().await?;
    are_there(&["on-workflow", "on-workflow-success"]).await?;
    let ended = json!({ "metadata": { "labels": { COMPLETED: "true", PHASE: "Failed" } } });
    cluster.merge_workflow("w", ended).await?;
    cluster.is_removed("on-workflow").await?;
    are_there(&["on-workflow-success"]).await?;
    let succeeded = json!({ "metadata": { "labels": { PHASE: "Succeeded" } } });
    cluster.merge_workflow("w", succeeded).await?;
    cluster.is_removed("on-workflow-success").await?;
    are_there(&stay).await?;

    // Orphans, which Argo ignores for the strategies of workflows.
    let orphan = pod("orphan")
        .label("workflows.argoproj.io/workflow", &other.name)
        .annotation(POD_GC, "OnWorkflowCompletion/0s");
    cluster.create(&orphan).await?;
    cluster.finish("orphan", "Failed").await?;
    cluster.is_removed("orphan").await?;
    belayer.counts("belayer_cleanups_total", &[], 5.0).await?;
    belayer.stop().await
}

async fn observed(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, mode: observe}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    for name in ["taken", "lost"] {
        cluster.create(&step(name, &workflow)).await?;
        cluster.finish(name, "Succeeded").await?;
    }
    cluster.consume("taken").await?;
    eventually("both pods are counted", SOON, async || {
        let seen = belayer.metric("belayer_informer_objects", &[("kind", "Pod")]);
        ensure!(seen.await? >= 2.0, "fewer than two");
        Ok(())
    })
    .await?;
    let uid = cluster.pods().get("lost").await?.uid();
    for name in ["taken", "lost"] {
        cluster.delete(name).await?;
        cluster.is_removed(name).await?;
    }
    let reported = eventually("the lost result is reported", SOON, async || {
        let reported = belayer.holds().await?["pod-finalizer"].clone();
        ensure!(
            reported["observedLosses"] == 1,
            "{}",
            reported["observedLosses"]
        );
        Ok(reported)
    })
    .await?;
    let first = &reported["latestLosses"][0];
    ensure!(
        first["name"] == "lost" && first["uid"] == json!(uid) && first["at"].is_string(),
        "{first}"
    );
    let counted = belayer.metric("belayer_observed_losses_total", &[]).await?;
    ensure!((counted - 1.0).abs() < f64::EPSILON, "{counted} counted");
    belayer.stop().await
}
