//! Pods that a kubelet runs, ends and deletes.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::{Cluster, Scenario, eventually, pod};
use crate::providers::Capability::Kubelet;

const SOON: Duration = Duration::from_secs(60);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared("kubelet-runs-and-ends-pod", "a real pod runs, is deleted, held, consumed, gone", lifecycle)
            .needs([Kubelet]),
    ]
}

async fn lifecycle(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow).scheduled()).await?;
    eventually("the pod runs", SOON, async || {
        let seen = cluster.pods().get("a").await?;
        let phase = seen.status.and_then(|status| status.phase).unwrap_or_default();
        ensure!(phase == "Running", "its phase is {phase:?}");
        Ok(())
    })
    .await?;
    cluster.is_held("a").await?;
    cluster.delete("a").await?;
    eventually("its containers have ended", SOON, async || {
        let seen = cluster.pods().get("a").await?;
        let statuses = seen.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let ended = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
            status.state.as_ref().is_some_and(|state| state.terminated.is_some())
        };
        ensure!(!statuses.is_empty() && statuses.iter().all(ended), "they have not");
        Ok(())
    })
    .await?;
    // The kubelet is done with it; what it came to can still be read.
    cluster.stays_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_gone("a").await
}
