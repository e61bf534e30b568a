//! Belayer in place of kube-controller-manager's own PVC protection: users see no difference.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::control_plane::PvcController;
use crate::harness::{
    Belayer, BelayerOptions, Cluster, KUBERNETES_PVC_HOLD, SOON, Scenario, eventually, finalizers,
    pod, throughout,
};
use crate::kinds;
use crate::providers::Capability::{Kubectl, Kubelet, PvcController as InTree, UnprotectedPvcs};

const WINDOW: Duration = Duration::from_secs(5);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "pvc-replacing-in-use",
            "in place of the in-tree controller: a PVC is kept while used, and removed afterwards",
            in_use,
        )
        .needs([UnprotectedPvcs]),
        Scenario::alone(
            "pvc-replacing-kubectl-delete",
            "kubectl delete pvc waits exactly until the pod is removed",
            kubectl_delete,
        )
        .needs([Kubectl, UnprotectedPvcs]),
        Scenario::alone(
            "pvc-replacing-refuses-new-pods",
            "scheduler and kubelet refuse new pods with a terminating PVC",
            refuses_new_pods,
        )
        .needs([InTree, Kubelet]),
        Scenario::alone(
            "pvc-replacing-stateful-set",
            "a StatefulSet scales down and up; its PVCs stay until they are deleted",
            stateful_set,
        )
        .needs([InTree, Kubelet]),
    ]
}

async fn start(cluster: &Cluster) -> Result<Belayer> {
    cluster.switch_pvc_controller(PvcController::Off).await?;
    let options = BelayerOptions::default()
        .argument("--controllers=pvc-protection")
        .argument("--pvc-protection-finalizer=kubernetes.io/pvc-protection");
    cluster.start_belayer_with(&options).await
}

async fn end(cluster: &Cluster, belayer: Belayer) -> Result<()> {
    belayer.stop().await?;
    cluster.switch_pvc_controller(PvcController::On).await
}

async fn held(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.create_pvc(name, json!({})).await?;
    cluster.pvc_is_held(name, KUBERNETES_PVC_HOLD).await
}

async fn in_use(cluster: Cluster) -> Result<()> {
    let belayer = start(&cluster).await?;
    for name in ["a", "b", "c"] {
        held(&cluster, name).await?;
    }
    let log = belayer.log()?;
    ensure!(
        log.contains("--controllers=*,-persistentvolumeclaim-protection-controller"),
        "the log does not name the controller that must be off"
    );
    cluster.bound(pod("one").pvc("a").pvc("b").pvc("c")).await?;
    cluster.bound(pod("two").pvc("c")).await?;
    for name in ["a", "b", "c"] {
        cluster.delete_pvc(name).await?;
    }
    for name in ["a", "b", "c"] {
        cluster.pvc_stays_held(name, KUBERNETES_PVC_HOLD).await?;
    }
    cluster.remove("one").await?;
    cluster.pvc_is_removed("a").await?;
    cluster.pvc_is_removed("b").await?;
    cluster.pvc_stays_held("c", KUBERNETES_PVC_HOLD).await?;
    cluster.remove("two").await?;
    cluster.pvc_is_removed("c").await?;
    end(&cluster, belayer).await
}

async fn kubectl_delete(cluster: Cluster) -> Result<()> {
    let belayer = start(&cluster).await?;
    let kubectl = cluster.kubectl();
    held(&cluster, "free").await?;
    let printed = kubectl.run(["delete", "pvc", "free"]).await?;
    ensure!(printed.contains("deleted"), "the output is {printed}");

    held(&cluster, "used").await?;
    cluster.bound(pod("web").pvc("used")).await?;
    let mut waits = kubectl
        .command()
        .args(["delete", "pvc", "used"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .context("start kubectl")?;
    cluster.pvc_stays_held("used", KUBERNETES_PVC_HOLD).await?;
    let shown = kubectl.run(["get", "pvc", "used"]).await?;
    ensure!(shown.contains("Terminating"), "get pvc printed\n{shown}");
    ensure!(waits.try_wait()?.is_none(), "kubectl delete did not wait");
    cluster.remove("web").await?;
    let status = tokio::time::timeout(SOON, waits.wait())
        .await
        .context("kubectl delete did not exit in time")??;
    ensure!(status.success(), "kubectl delete exited with {status}");
    end(&cluster, belayer).await
}

async fn refuses_new_pods(cluster: Cluster) -> Result<()> {
    let belayer = start(&cluster).await?;
    volume(&cluster, "v0").await?;
    cluster
        .create_pvc_of_class("data", cluster.namespace())
        .await?;
    cluster.pvc_is_held("data", KUBERNETES_PVC_HOLD).await?;
    cluster
        .create(&pod("first").pvc("data").scheduled())
        .await?;
    runs(&cluster, "first").await?;
    // Another finalizer keeps the PVC too, so that it remains after Belayer's is removed.
    let finalizers =
        json!({ "metadata": { "finalizers": [KUBERNETES_PVC_HOLD, "e2e.belayer.dev/keep"] } });
    cluster.merge_pvc("data", finalizers).await?;
    cluster.delete_pvc("data").await?;
    cluster.pvc_stays_held("data", KUBERNETES_PVC_HOLD).await?;

    cluster
        .create(&pod("second").pvc("data").scheduled())
        .await?;
    eventually("the scheduler reports why", SOON, async || {
        let seen = cluster.pods().get("second").await?;
        let text = seen.data["status"]["conditions"].to_string();
        ensure!(
            text.contains("is being deleted"),
            "its conditions are {text}"
        );
        ensure!(seen.data["spec"]["nodeName"].is_null(), "it was bound");
        Ok(())
    })
    .await?;

    cluster.remove("first").await?;
    cluster.pvc_is_not_held("data", KUBERNETES_PVC_HOLD).await?;
    cluster.bound(pod("third").pvc("data")).await?;
    throughout("the kubelet must not start it", WINDOW, async || {
        let seen = cluster.pods().get("third").await?;
        let phase = &seen.data["status"]["phase"];
        ensure!(phase == "Pending", "its phase is {phase}");
        Ok(())
    })
    .await?;
    let none = json!({ "metadata": { "finalizers": null } });
    cluster.merge_pvc("data", none).await?;
    cluster.pvc_is_removed("data").await?;
    remove_volumes(&cluster).await?;
    end(&cluster, belayer).await
}

async fn stateful_set(cluster: Cluster) -> Result<()> {
    let belayer = start(&cluster).await?;
    for n in 0..3 {
        volume(&cluster, &format!("v{n}")).await?;
    }
    let sets = kinds::stateful_sets(cluster.client(), cluster.namespace());
    let class = cluster.namespace();
    let document: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "serviceName": "db", "replicas": 2,
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "main", "image": "registry.invalid/db:1",
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": { "requests": { "storage": "1Mi" } },
                },
            }],
        },
    }))?;
    sets.create(&PostParams::default(), &document).await?;
    runs(&cluster, "db-0").await?;
    runs(&cluster, "db-1").await?;
    for pvc in ["data-db-0", "data-db-1"] {
        cluster.pvc_is_held(pvc, KUBERNETES_PVC_HOLD).await?;
    }
    // Down and up again: the PVC stays and is used again.
    let before = cluster.pvcs().get("data-db-1").await?.metadata.uid;
    scale(&cluster, 1).await?;
    cluster.is_removed("db-1").await?;
    scale(&cluster, 2).await?;
    runs(&cluster, "db-1").await?;
    let after = cluster.pvcs().get("data-db-1").await?.metadata.uid;
    ensure!(before == after, "the PVC was re-created");
    // Deleted under a running pod: kept until the set deletes the pod, then created again.
    cluster.delete_pvc("data-db-1").await?;
    cluster
        .pvc_stays_held("data-db-1", KUBERNETES_PVC_HOLD)
        .await?;
    scale(&cluster, 1).await?;
    cluster.pvc_is_removed("data-db-1").await?;
    scale(&cluster, 2).await?;
    runs(&cluster, "db-1").await?;
    let anew = cluster.pvcs().get("data-db-1").await?;
    ensure!(anew.metadata.uid != before, "the old PVC still exists");
    ensure!(
        finalizers(&anew).contains(&KUBERNETES_PVC_HOLD),
        "{:?}",
        finalizers(&anew)
    );
    sets.delete("db", &Default::default()).await?;
    cluster.is_removed("db-0").await?;
    cluster.is_removed("db-1").await?;
    remove_volumes(&cluster).await?;
    end(&cluster, belayer).await
}

async fn scale(cluster: &Cluster, replicas: u32) -> Result<()> {
    let sets = kinds::stateful_sets(cluster.client(), cluster.namespace());
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    sets.patch("db", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn runs(cluster: &Cluster, pod: &str) -> Result<()> {
    eventually(&format!("the pod {pod} runs"), SOON, async || {
        let seen = cluster.pods().get(pod).await?;
        let status = &seen.data["status"];
        if status["phase"] == "Running" {
            return Ok(());
        }
        let pvcs = cluster.pvcs().list(&Default::default()).await?.items;
        let phase = |pvc: &DynamicObject| {
            let name = pvc.metadata.name.as_deref().unwrap_or_default();
            format!("{name} {}", pvc.data["status"]["phase"])
        };
        let pvcs: Vec<_> = pvcs.iter().map(phase).collect();
        bail!("its status is {status}; claims: {}", pvcs.join(", "))
    })
    .await
}

/// A PV of this scenario's storage class, for the first PVC of that class.
async fn volume(cluster: &Cluster, name: &str) -> Result<()> {
    let document: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": volume_name(cluster, name) },
        "spec": {
            "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": cluster.namespace(),
            "hostPath": { "path": "/tmp" },
        },
    }))?;
    kinds::volumes(cluster.client())
        .create(&PostParams::default(), &document)
        .await?;
    Ok(())
}

async fn remove_volumes(cluster: &Cluster) -> Result<()> {
    let volumes = kinds::volumes(cluster.client());
    let prefix = volume_name(cluster, "");
    for volume in volumes.list(&Default::default()).await?.items {
        let name = volume.metadata.name.unwrap_or_default();
        if name.starts_with(&prefix) {
            volumes.delete(&name, &Default::default()).await?;
        }
    }
    Ok(())
}

fn volume_name(cluster: &Cluster, name: &str) -> String {
    format!("{}-{name}", cluster.namespace())
}
