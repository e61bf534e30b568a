//! Pods that a kubelet runs, ends and deletes.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, eventually, pod};
use crate::providers::Capability::Kubelet;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "kubelet-runs-and-ends-pod",
            "a pod on a kubelet runs and is deleted, keeps its hold until its result is consumed, and is removed",
            lifecycle,
        )
        .smoke()
        .needs([Kubelet]),
    ]
}

async fn lifecycle(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, deletedWhileRunning: hold}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow).scheduled()).await?;
    eventually("the pod runs", SOON, async || {
        let seen = cluster.pods().get("a").await?;
        let phase = &seen.data["status"]["phase"];
        ensure!(phase == "Running", "its phase is {phase}");
        Ok(())
    })
    .await?;
    cluster.is_held("a").await?;
    cluster.delete("a").await?;
    eventually("its containers have ended", SOON, async || {
        let seen = cluster.pods().get("a").await?;
        let statuses = seen.data["status"]["containerStatuses"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ended = |status: &Value| status["state"]["terminated"].is_object();
        ensure!(
            !statuses.is_empty() && statuses.iter().all(ended),
            "they have not ended"
        );
        Ok(())
    })
    .await?;
    // The kubelet has finished with it; its result can still be read.
    cluster.stays_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_removed("a").await?;
    belayer.stop().await
}
