//! R2: what a re-created pod has of the metadata of the rejected one, by the `managedFields` of a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::recreation::{
    bind, create, held, in_phase, nodes, options, rejection, rich_pod, successor, write_status,
};
use super::recreation_server::report_wiped;
use crate::harness::{Cluster, Scenario};
use crate::providers::Capability::AdmissionPolicies;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "recreation-carries-metadata-by-writer",
            "R2: the new pod has the annotations of its user, and not those of a network or a scheduler",
            by_writer,
        )
        .needs([AdmissionPolicies]),
        Scenario::alone(
            "recreation-survives-a-rewritten-status",
            "R3: labels and a new status of a rejected pod end nothing, and the labels reach the new pod",
            rewritten,
        ),
        Scenario::alone(
            "recreation-keeps-a-chosen-node",
            "R12: a pod whose user chose its node is re-created on that node",
            chosen_node,
        ),
    ]
}

/// Runs `check` while a node of this name exists, which no kubelet serves.
async fn with_node(
    cluster: &Cluster,
    node: &str,
    check: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
    let object = serde_json::from_value(object)?;
    let all = nodes(cluster);
    all.create(&PostParams::default(), &object).await?;
    let checked = check().await;
    all.delete(node, &DeleteParams::default()).await?;
    checked
}

/// A kubelet that restarts writes ends of containers that never started. The record waits for the node agent meanwhile.
async fn rewritten(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = format!("rewrites-{}", cluster.namespace());
    with_node(&cluster, &node, async || {
        let mut pod = rich_pod("web");
        pod["metadata"]["annotations"]["belayer.dev/wipe"] = "true".into();
        let first = create(&cluster, pod).await?.uid().context("no uid")?;
        held(&cluster, "web").await?;
        bind(&cluster, "web", &node).await?;
        write_status(&cluster, "web", rejection()).await?;
        let record = in_phase(&cluster, "Rejected").await?.name_any();
        let end = json!({ "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null });
        let containers = json!([{ "name": "main", "image": "busybox", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "terminated": end } }]);
        write_status(&cluster, "web", json!({ "containerStatuses": containers })).await?;
        write(&cluster, "kubectl-label", json!({ "labels": { "late": "yes" } })).await?;
        cluster
            .stays_itself("web", &first, Duration::from_secs(2))
            .await?;
        report_wiped(&cluster, &record).await?;
        let second = successor(&cluster, "web", &first).await?;
        let late = second.labels().get("late").map(String::as_str);
        ensure!(late == Some("yes"), "{late:?}");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

async fn chosen_node(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = format!("chosen-{}", cluster.namespace());
    with_node(&cluster, &node, async || {
        let mut pod = rich_pod("web");
        pod["spec"]["nodeName"] = node.as_str().into();
        let first = create(&cluster, pod).await?.uid().context("no uid")?;
        held(&cluster, "web").await?;
        write_status(&cluster, "web", rejection()).await?;
        let second = successor(&cluster, "web", &first).await?;
        let on = &second.data["spec"]["nodeName"];
        ensure!(*on == *node, "{on}");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

/// Writes metadata as the field manager of another program.
async fn write(cluster: &Cluster, manager: &str, metadata: Value) -> Result<()> {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    cluster.pods().patch("web", &params, &patch).await?;
    Ok(())
}

async fn by_writer(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let first = create(&cluster, rich_pod("web")).await?;
    held(&cluster, "web").await?;
    let annotations = |pairs: Value| json!({ "annotations": pairs });
    let by_user = annotations(json!({ "late": "yes" }));
    write(&cluster, "kubectl-annotate", by_user).await?;
    let by_scheduler = annotations(json!({ "example.com/gpu-index": "3" }));
    write(&cluster, "gpu-scheduler", by_scheduler).await?;
    let of_node = json!({ "labels": { "topology.kubernetes.io/zone": "z", "team": "a" } });
    write(&cluster, "gpu-scheduler", of_node).await?;
    // As networks do: through the status, for which alone they have a permission.
    let network = PatchParams {
        field_manager: Some("network".to_owned()),
        ..PatchParams::default()
    };
    let addresses = annotations(json!({ "example.com/addresses": "10.0.0.7" }));
    let addresses = Patch::Merge(json!({ "metadata": addresses }));
    let pods = cluster.pods();
    pods.patch_status("web", &network, &addresses).await?;

    write_status(&cluster, "web", rejection()).await?;
    let second = successor(&cluster, "web", &first.uid().context("no uid")?).await?;
    let names = second.annotations().keys();
    let theirs: Vec<&str> = names
        .map(String::as_str)
        .filter(|name| !name.starts_with("belayer.dev/recreation"))
        .collect();
    ensure!(
        theirs == ["belayer.dev/recreate", "late", "note"],
        "{theirs:?}"
    );
    let labels: Vec<_> = second.labels().keys().map(String::as_str).collect();
    ensure!(labels == ["app", "rev", "team"], "{labels:?}");
    belayer.stop().await
}
