//! R2: what a re-created pod has of the metadata of the rejected one, by the `managedFields` of a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::recreation::{create, held, options, rejection, rich_pod, successor, write_status};
use crate::harness::{Cluster, Scenario};
use crate::providers::Capability::AdmissionPolicies;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "recreation-carries-metadata-by-writer",
            "R2: the new pod has the annotations of its user, and not those of a network or a scheduler",
            by_writer,
        )
        .needs([AdmissionPolicies])
        .within(Duration::from_secs(120)),
    ]
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
