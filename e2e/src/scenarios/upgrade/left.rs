//! The objects that an earlier build leaves in a cluster, and their deletion at the end.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use super::start_earlier;
use crate::control_plane;
use crate::harness::{
    Cluster, HOLD, KUBERNETES_PVC_HOLD, NO_SCHEDULER, PVC_HOLD, PodBuilder, SOON, WORKFLOW_HOLD,
    Workflow, eventually, finalizers, pod,
};
use crate::kinds;
use crate::scenarios::recreation::{in_phase, records, rejection, write_status};

/// The hold of pod-recreation.
pub(super) const RECREATION_HOLD: &str = "belayer.dev/pod-recreation";

/// Distinguishes pods that Argo creates for itself from those of steps.
const COMPONENT: &str = "workflows.argoproj.io/component";

const NODE_ID: &str = "workflows.argoproj.io/node-id";

/// Pods of the running workflow.
const STEPS: [&str; 3] = ["done", "killed", "unread"];

/// The pod that its node rejected, to be re-created.
pub(super) const REJECTED: &str = "web";

/// PVCs with both finalizers, not deleted: one is used.
pub(super) const PVCS: [&str; 2] = ["used", "unused"];

/// Deleted PVCs with Belayer's finalizer only, as after Kubernetes' controller has removed its own.
pub(super) const DELETED_PVCS: [&str; 2] = ["used-deleted", "unused-deleted"];

/// Who adds the holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// This scenario.
    Written,
    /// The earlier build itself.
    Earlier,
}

impl Holds {
    fn on(self, mut pod: PodBuilder, holds: &[&str]) -> PodBuilder {
        for hold in holds.iter().filter(|_| self == Self::Written) {
            pod = pod.finalizer(hold);
        }
        pod
    }
}

/// Creates holds of every kind, and changes objects while no Belayer runs.
pub(super) async fn leave(cluster: &Cluster, earlier: Option<&Path>) -> Result<()> {
    let holds = match earlier {
        Some(_) => Holds::Earlier,
        None => Holds::Written,
    };
    let workflows = workflows(cluster, holds).await?;
    pods(cluster, holds, &workflows).await?;
    pvcs(cluster).await?;
    match earlier {
        Some(binary) => {
            let belayer = start_earlier(cluster, binary).await?;
            everything_is_held(cluster).await?;
            rejected(cluster).await?;
            belayer.kill().await?;
        }
        None => record(cluster).await?,
    }
    close_gate(cluster).await?;
    meanwhile(cluster).await
}

struct Workflows {
    live: Workflow,
    finished: Workflow,
    going: Workflow,
    gone: Workflow,
}

async fn workflows(cluster: &Cluster, holds: Holds) -> Result<Workflows> {
    let workflows = Workflows {
        live: workflow(cluster, holds, "live").await?,
        finished: workflow(cluster, holds, "finished").await?,
        going: workflow(cluster, holds, "going").await?,
        gone: workflow(cluster, holds, "gone").await?,
    };
    let node = |phase: &str| json!({ "phase": phase, "type": "Pod", "taskResultSynced": phase == "Pending" });
    let nodes: serde_json::Map<String, Value> = STEPS
        .iter()
        .map(|name| ((*name).to_owned(), node("Running")))
        .chain([("pending".to_owned(), node("Pending"))])
        .collect();
    let status = json!({ "status": { "phase": "Running", "nodes": nodes } });
    cluster.merge_workflow("live", status).await?;
    Ok(workflows)
}

async fn workflow(cluster: &Cluster, holds: Holds, name: &str) -> Result<Workflow> {
    let metadata = match holds {
        Holds::Written => json!({ "finalizers": [WORKFLOW_HOLD] }),
        Holds::Earlier => json!({}),
    };
    let namespace = cluster.namespace();
    cluster.workflow_in(namespace, name, metadata).await
}

async fn pods(cluster: &Cluster, holds: Holds, workflows: &Workflows) -> Result<()> {
    let Workflows {
        live,
        finished,
        going,
        gone,
    } = workflows;
    let step = |name: &str| pod(name).of(live).annotation(NODE_ID, name);
    // A profile of the configuration file records the outcomes of these; they are deleted after they have ended.
    let recorded = |name: &str| {
        step(name).label("e2e", "recorded").annotation(
            "workflows.argoproj.io/pod-gc-strategy",
            "OnPodCompletion/0s",
        )
    };
    let mut all = vec![recorded("done"), recorded("unread"), step("killed")];
    all.push(pod("agent").of(live).label(COMPONENT, "agent"));
    all.push(pod("collector").of(live).label(COMPONENT, "artifact-gc"));
    all.push(pod("read").of(finished));
    all.extend(["going-0", "going-1"].map(|name| pod(name).of(going)));
    all.extend(["gone-0", "gone-1"].map(|name| pod(name).of(gone)));
    let all = all.into_iter().map(|pod| holds.on(pod, &[HOLD]));
    cluster.create_all(all).await?;
    let pending = step("pending").annotation("belayer.dev/recreate", "true");
    let pending = holds.on(pending, &[HOLD, RECREATION_HOLD]);
    cluster.create(&pending).await?;
    let running = json!({ "phase": "Running", "containerStatuses": [{
        "name": "main", "image": "registry.invalid/step:1", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "running": { "startedAt": jiff::Timestamp::now() } },
    }] });
    for name in STEPS.iter().chain(&["agent", "collector", "read"]) {
        write_status(cluster, name, running.clone()).await?;
    }
    Ok(())
}

/// PVCs with holds, as the earlier build added them to all; those to be deleted are used or not.
async fn pvcs(cluster: &Cluster) -> Result<()> {
    let both = json!({ "finalizers": [KUBERNETES_PVC_HOLD, PVC_HOLD] });
    for name in PVCS.iter().chain(&DELETED_PVCS) {
        cluster.create_pvc(name, both.clone()).await?;
    }
    cluster
        .bound(pod("user").pvc("used").pvc("used-deleted"))
        .await?;
    Ok(())
}

async fn everything_is_held(cluster: &Cluster) -> Result<()> {
    eventually("the earlier build has added all holds", SOON, async || {
        for workflow in cluster.workflows().list(&Default::default()).await? {
            ensure!(
                finalizers(&workflow).contains(&WORKFLOW_HOLD),
                "{:?}",
                workflow.metadata
            );
        }
        for pod in cluster.pods().list(&Default::default()).await? {
            let held = finalizers(&pod).contains(&HOLD);
            ensure!(
                held || pod.metadata.name.as_deref() == Some("user"),
                "{:?}",
                pod.metadata
            );
        }
        Ok(())
    })
    .await
}

/// The earlier build creates its own record, and stops before the pod is re-created.
async fn rejected(cluster: &Cluster) -> Result<()> {
    let web = pod(REJECTED).annotation("belayer.dev/recreate", "true");
    cluster.create(&web).await?;
    crate::scenarios::recreation::held(cluster, REJECTED).await?;
    write_status(cluster, REJECTED, rejection()).await?;
    in_phase(cluster, "Waiting").await?;
    Ok(())
}

/// Creates the record that it leaves. Only Belayer may create one.
async fn record(cluster: &Cluster) -> Result<()> {
    let uid = "6d2c86f1-5f0e-4a43-9d0b-0f0f6a3f9f11";
    let document = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
        "metadata": { "name": format!("{REJECTED}-{}", &uid[..8]) },
        "spec": {
            "podName": REJECTED,
            "firstUID": uid,
            "policy": {
                "maxRetries": 3, "backoffSeconds": 2, "wipe": "none", "wipeTimeoutSeconds": 120,
                "onWipeTimeout": "proceed", "avoidRejectedNode": false,
            },
            "pod": {
                "metadata": { "annotations": { "belayer.dev/recreate": "true" } },
                "spec": {
                    "schedulerName": NO_SCHEDULER, "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": "registry.invalid/step:1" }],
                },
            },
        },
    });
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
    let status = json!({ "status": {
        "phase": "Waiting", "attempts": 0, "podStarts": 1, "podRecreated": 0, "podDeletionTime": now,
        "rejectedUID": uid, "reason": "OutOfcpu", "observedGeneration": 1,
    } });
    let client = control_plane::client(cluster.backend().belayer_kubeconfig()).await?;
    let records = kube::Api::namespaced_with(client, cluster.namespace(), &record_kind());
    let record = serde_json::from_value(document)?;
    let created: kube::api::DynamicObject = records.create(&PostParams::default(), &record).await?;
    let name = created.metadata.name.context("a record without a name")?;
    records
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

fn record_kind() -> kube::api::ApiResource {
    let gvk = kube::core::GroupVersionKind::gvk("belayer.dev", "v1alpha1", "PodRecreation");
    kube::api::ApiResource::from_gvk_with_plural(&gvk, "podrecreations")
}

/// The backlog limit, as the earlier build leaves it when it stops at the limit.
async fn close_gate(cluster: &Cluster) -> Result<()> {
    let closed = json!({ "data": { "hold": "off", "backlog": "closed" } });
    kinds::gates(cluster.client(), "belayer-system")
        .patch(
            "belayer-gate",
            &PatchParams::default(),
            &Patch::Merge(&closed),
        )
        .await?;
    Ok(())
}

/// Changes while no Belayer runs.
async fn meanwhile(cluster: &Cluster) -> Result<()> {
    cluster.finish("done", "Succeeded").await?;
    cluster.finish("unread", "Succeeded").await?;
    cluster.finish("collector", "Succeeded").await?;
    for name in ["done", "killed", "agent", "pending", "read"] {
        cluster.delete(name).await?;
    }
    cluster.finish("killed", "Failed").await?;
    cluster.finish("read", "Succeeded").await?;
    let finished = json!({ "metadata": { "labels": {
        "workflows.argoproj.io/completed": "true", "workflows.argoproj.io/phase": "Succeeded",
    } } });
    cluster.merge_workflow("finished", finished).await?;
    cluster.consume("read").await?;
    cluster
        .delete_workflow("going", PropagationPolicy::Background)
        .await?;
    cluster.force_workflow_removal("gone").await?;
    for name in DELETED_PVCS {
        cluster.delete_pvc(name).await?;
        let belayers = json!({ "metadata": { "finalizers": [PVC_HOLD] } });
        // The cluster's own controller may have removed its finalizer meanwhile, while Belayer's is present.
        cluster.merge_pvc(name, belayers).await?;
    }
    Ok(())
}

/// The admission policy adds no hold to pods that Argo creates for itself.
pub(super) async fn agents_get_no_hold(cluster: &Cluster) -> Result<()> {
    let live = Workflow::of(&cluster.workflows().get("live").await?)?;
    eventually("an agent pod is created without a hold", SOON, async || {
        let name = format!("agent-{}", jiff::Timestamp::now().as_microsecond());
        let agent = pod(name).of(&live).label(COMPONENT, "agent");
        let created = cluster.create(&agent).await?;
        ensure!(
            !finalizers(&created).contains(&HOLD),
            "{:?}",
            created.metadata.finalizers
        );
        Ok(())
    })
    .await
}

/// Argo reads the remaining results, and everything is deleted: nothing may remain.
pub(super) async fn finish(cluster: &Cluster) -> Result<()> {
    for name in STEPS {
        if cluster.pods().get_opt(name).await?.is_some() {
            cluster.consume(name).await?;
        }
    }
    for name in ["live", "finished"] {
        cluster
            .delete_workflow(name, PropagationPolicy::Background)
            .await?;
    }
    cluster.remove("user").await?;
    cluster.delete_all().await?;
    let now = DeleteParams::default();
    cluster
        .pvcs()
        .delete_collection(&now, &Default::default())
        .await?;
    eventually("all of it is removed", SOON, async || {
        for kind in [cluster.pods(), cluster.workflows()] {
            let left = kind.list_metadata(&Default::default()).await?.items;
            ensure!(left.is_empty(), "{:?}", left[0].metadata);
        }
        for pvc in cluster.pvcs().list(&Default::default()).await? {
            // The embedded server has no controller for Kubernetes' own finalizer.
            ensure!(!finalizers(&pvc).contains(&PVC_HOLD), "{:?}", pvc.metadata);
        }
        for record in records(cluster).list(&Default::default()).await? {
            ensure!(
                record.metadata.finalizers.unwrap_or_default().is_empty(),
                "a record has a hold"
            );
        }
        Ok(())
    })
    .await
}
