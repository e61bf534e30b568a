//! A node with too many volumes: the kubelet rejects a pod two minutes after it accepted it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::rejections::{recreated, successor};
use crate::harness::{Cluster, Installed, NO_SCHEDULER, SOON, eventually};
use crate::kinds::{self, Objects};
use crate::scenarios::recreation::{bind, held, records};

const DRIVER: &str = "full.csi.belayer.dev";
const VOLUME: &str = "belayer-attach-limit";

/// What a CSI driver answers if a node has no room for another volume (gRPC `RESOURCE_EXHAUSTED`).
const RESOURCE_EXHAUSTED: u8 = 8;

/// A kubelet waits two minutes and three seconds for volumes, and may wait twice.
const REJECTED_WITHIN: Duration = Duration::from_secs(300);

pub(super) async fn recreated_after(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let node = cluster.backend().nodes().first().context("no node")?.name();
    let shown = match attach_fails(cluster, node).await {
        Ok(()) => rejected(cluster, node).await,
        Err(error) => Err(error.context("prepare the volume")),
    };
    let removed = remove(cluster, node).await;
    shown?;
    removed
}

/// A volume of a CSI driver that cannot attach it to the node. Nothing but these objects exists: the controller that
/// attaches volumes does not run here.
async fn attach_fails(cluster: &Cluster, node: &str) -> Result<()> {
    let client = cluster.client();
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
        // Without this period the kubelet does not look for the error.
        "spec": { "attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 60 },
    });
    create(&kinds::csi_drivers(client), driver).await?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": VOLUME },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Mi" },
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": DRIVER, "volumeHandle": VOLUME },
            "claimRef": { "namespace": cluster.namespace(), "name": "data" },
        },
    });
    create(&kinds::volumes(client), volume).await?;
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": VOLUME,
            "resources": { "requests": { "storage": "1Mi" } },
        },
    });
    let pvcs = kinds::pvcs(client, cluster.namespace());
    create(&pvcs, pvc).await?;
    eventually("the PVC is bound", SOON, async || {
        let phase = &pvcs.get("data").await?.data["status"]["phase"];
        ensure!(phase == "Bound", "its phase is {phase}");
        Ok(())
    })
    .await?;
    let name = attachment(node);
    let attachments = kinds::volume_attachments(client);
    let attaching = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": node, "source": { "persistentVolumeName": VOLUME } },
    });
    create(&attachments, attaching).await?;
    let failed = Patch::Merge(json!({ "status": {
        "attached": false,
        "attachError": { "message": "the node has no room for the volume", "errorCode": RESOURCE_EXHAUSTED },
    } }));
    attachments
        .patch_status(&name, &PatchParams::default(), &failed)
        .await?;
    Ok(())
}

async fn rejected(cluster: &Cluster, node: &str) -> Result<()> {
    // With its token as a mounted volume: the kubelet then writes that the containers ended, which never began.
    let unscheduled =
        json!({ "schedulerName": NO_SCHEDULER, "automountServiceAccountToken": true });
    let web = cluster
        .create(&recreated("web").pvc("data").spec(unscheduled))
        .await?;
    held(cluster, "web").await?;
    let since = Instant::now();
    bind(cluster, "web", node).await?;
    // The record is the first thing that lasts: the rejected pod is soon deleted.
    let record = eventually("the kubelet rejects the pod", REJECTED_WITHIN, async || {
        let all = records(cluster).list(&Default::default()).await?;
        let Some(record) = all.items.into_iter().next() else {
            let pod = cluster.pods().get("web").await?;
            anyhow::bail!(
                "there is no record; the pod's status is {}",
                pod.data["status"]
            );
        };
        let reason = &record.data["status"]["reason"];
        ensure!(
            reason == "VolumeAttachmentLimitExceeded",
            "its reason is {reason}"
        );
        Ok(record)
    })
    .await?;
    let waited = since.elapsed();
    // Fewer would mean that the kubelet did not wait for the volume.
    ensure!(
        waited > Duration::from_secs(100),
        "rejected after {waited:?}"
    );
    successor(cluster, &web).await?;
    let seen = records(cluster).get(&record.name_any()).await?;
    let status = &seen.data["status"];
    ensure!(
        status["podStarts"] == 2 && status["podRecreated"] == 1,
        "{status}"
    );
    cluster.note(format!(
        "rejected {:.0} s after it was bound, re-created {:.0} s later",
        waited.as_secs_f64(),
        (since.elapsed() - waited).as_secs_f64()
    ));
    Ok(())
}

/// The name that the kubelet expects.
fn attachment(node: &str) -> String {
    let hash = Sha256::digest(format!("{VOLUME}{DRIVER}{node}"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hash}")
}

async fn create(api: &Objects, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let name = object.name_any();
    let created = api.create(&PostParams::default(), &object).await;
    created.map(drop).with_context(|| format!("create {name}"))
}

/// These belong to no namespace.
async fn remove(cluster: &Cluster, node: &str) -> Result<()> {
    let client = cluster.client();
    let now = DeleteParams::default().grace_period(0);
    cluster
        .pods()
        .delete("web", &now)
        .await
        .map(drop)
        .or_else(crate::harness::gone)?;
    for (api, name) in [
        (kinds::volume_attachments(client), attachment(node)),
        (kinds::pvcs(client, cluster.namespace()), "data".to_owned()),
        (kinds::volumes(client), VOLUME.to_owned()),
        (kinds::csi_drivers(client), DRIVER.to_owned()),
    ] {
        let how = DeleteParams::default();
        api.delete(&name, &how)
            .await
            .map(drop)
            .or_else(crate::harness::gone)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_the_attachment_has_the_name_that_the_kubelet_reads() {
        let name = attachment("node-1");
        assert_eq!(name.len(), "csi-".len() + 64);
        assert_ne!(name, attachment("node-2"));
    }
}
