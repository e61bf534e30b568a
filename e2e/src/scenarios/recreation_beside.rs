//! pod-recreation and pod-finalizer on the same pod.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use super::recreation::{RECREATION_HOLD, create, in_phase, rejection, write_status};
use crate::harness::{
    BelayerOptions, Cluster, HOLD, NO_SCHEDULER, SOON, Scenario, eventually, finalizers,
};
use crate::providers::Capability::Recorder;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "two-holds-one-patch",
            "one patch removes both holds from a rejected pod; otherwise they are removed independently",
            two_holds,
        )
        .needs([Recorder]),
    ]
}

async fn two_holds(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .argument("--controllers=pod-finalizer,pod-recreation")
        .config("podRecreation:\n  backoffSeconds: 1\n  owners: [Workflow.argoproj.io]\n  allowArgo: true\n");
    let workflow = cluster.workflow("build").await?;
    let belayer = cluster.start_belayer_with(&options).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "step", "labels": { "workflows.argoproj.io/workflow": "build" },
            "annotations": { "belayer.dev/recreate": "true" },
            "ownerReferences": [{ "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "name": "build", "uid": workflow.uid.as_str(), "controller": true }],
        },
        "spec": { "schedulerName": NO_SCHEDULER, "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let first = create(&cluster, pod).await?.uid().context("no uid")?;
    held_by_both(&cluster, None).await?;
    // Each controller adds its finalizer as soon as it can, so that these may be one patch or two.
    let mark = cluster.recorder()?.mark()?;
    write_status(&cluster, "step", rejection()).await?;
    held_by_both(&cluster, Some(&first)).await?;
    write_status(&cluster, "step", json!({ "phase": "Running" })).await?;
    in_phase(&cluster, "Started").await?;
    held_by(&cluster, &[HOLD]).await?;
    cluster.finish("step", "Succeeded").await?;
    cluster.consume("step").await?;
    held_by(&cluster, &[]).await?;
    // Both removed by one patch; on the next pod pod-finalizer's added, then each removed separately.
    eventually("four patches are recorded", SOON, async || {
        let writes = cluster.recorder()?.writes_since(mark)?;
        let patches = writes
            .iter()
            .filter(|write| write.verb == "patch" && write.resource == "pods" && write.code == 200);
        let count = patches.count();
        ensure!(count == 4, "{count} patches: {writes:#?}");
        Ok(())
    })
    .await?;
    cluster.delete("step").await?;
    cluster.is_removed("step").await?;
    belayer.stop().await
}

async fn held_by_both(cluster: &Cluster, before: Option<&str>) -> Result<()> {
    eventually("the pod has both holds", SOON, async || {
        let pod = cluster.pods().get("step").await?;
        ensure!(pod.uid().as_deref() != before, "it is still the old pod");
        let all = finalizers(&pod);
        ensure!(
            all.contains(&HOLD) && all.contains(&RECREATION_HOLD),
            "{all:?}"
        );
        Ok(())
    })
    .await
}

async fn held_by(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    eventually(&format!("its holds are {expected:?}"), SOON, async || {
        let pod = cluster.pods().get("step").await?;
        let all = finalizers(&pod);
        ensure!(all == expected, "{all:?}");
        Ok(())
    })
    .await
}
