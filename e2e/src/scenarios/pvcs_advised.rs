//! pvc-protection with its defaults: it reports which pods a PVC waits for and adds no finalizer. Finalizers
//! of an earlier configuration are removed where another finalizer protects the PVC. And where PVCs have the
//! hold, the PVC of a finished workflow is released although its completed pods remain (row A18).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::control_plane::PvcController;
use crate::harness::{
    Belayer, BelayerOptions, Cluster, KUBERNETES_PVC_HOLD, PVC_HOLD, SOON, Scenario, eventually,
    finalizers, pod, throughout,
};
use crate::kinds;
use crate::providers::Capability::UnprotectedPvcs;

const WINDOW: Duration = Duration::from_secs(2);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "a18-advise-is-the-default",
            "by default a PVC gets no finalizer of Belayer's; Event, /debug/holds and metrics report what it waits for",
            by_default,
        )
        .needs([UnprotectedPvcs]),
        Scenario::alone(
            "a18-upgrade-with-live-holds",
            "holds of an earlier configuration are removed, except from PVCs in use that nothing else protects",
            upgrade,
        )
        .needs([UnprotectedPvcs]),
        Scenario::alone(
            "a18-disk-of-a-finished-workflow",
            "with holds on PVCs, that of a finished workflow is released once its pods have ended, though they remain",
            finished_workflow,
        ),
    ]
}

fn advising() -> BelayerOptions {
    BelayerOptions::default().argument("--controllers=pvc-protection")
}

fn holding() -> BelayerOptions {
    BelayerOptions::holding_pvcs().argument("--controllers=pvc-protection")
}

async fn event(cluster: &Cluster, reason: &str, pvc: &str) -> Result<String> {
    let events = kinds::events(cluster.client(), cluster.namespace());
    let all = events.list(&Default::default()).await?.items;
    let about = |event: &&kube::api::DynamicObject| {
        let regarding = ["regarding", "involvedObject"];
        event.data["reason"] == reason
            && regarding
                .iter()
                .any(|field| event.data[field]["name"] == pvc)
    };
    let found = all.iter().find(about);
    let found = found.with_context(|| format!("no Event {reason} on {pvc}"))?;
    let text = ["message", "note"].map(|field| found.data[field].as_str().unwrap_or_default());
    Ok(text.concat())
}

async fn metric(belayer: &Belayer, name: &str) -> Result<f64> {
    let labels = [("controller", "pvc-protection")];
    belayer.metric(name, &labels).await
}

async fn set_finalizers(cluster: &Cluster, pvc: &str, names: &[&str]) -> Result<()> {
    let patch = json!({ "metadata": { "finalizers": names } });
    cluster.merge_pvc(pvc, patch).await
}

async fn finalizers_of(cluster: &Cluster, pvc: &str) -> Result<Vec<String>> {
    let seen = cluster.pvcs().get(pvc).await?;
    Ok(finalizers(&seen).into_iter().map(str::to_owned).collect())
}

/// A PVC as the API server's admission plugin creates it.
async fn protected_pvc(cluster: &Cluster, name: &str) -> Result<()> {
    let theirs = json!({ "finalizers": [KUBERNETES_PVC_HOLD] });
    cluster.create_pvc(name, theirs).await.map(drop)
}

async fn by_default(cluster: Cluster) -> Result<()> {
    // This scenario itself removes Kubernetes' finalizer.
    cluster.switch_pvc_controller(PvcController::Off).await?;
    let belayer = cluster.start_belayer_with(&advising()).await?;
    protected_pvc(&cluster, "data").await?;
    cluster.bound(pod("web").pvc("data")).await?;
    cluster.gate_shows("holdClaims", "switched-off").await?;
    throughout("the PVC gets no finalizer", WINDOW, async || {
        let all = finalizers_of(&cluster, "data").await?;
        ensure!(all == [KUBERNETES_PVC_HOLD], "{all:?}");
        Ok(())
    })
    .await?;
    cluster.delete_pvc("data").await?;
    eventually(
        "an Event reports what the PVC waits for",
        SOON,
        async || {
            let printed = event(&cluster, "DeletionWaits", "data").await?;
            ensure!(printed.ends_with("used by the pod web"), "{printed}");
            Ok(())
        },
    )
    .await?;
    let holds = belayer.holds().await?;
    let reported = &holds["pvc-protection"];
    ensure!(
        reported["finalizer"].is_null() && reported["claims"][0]["name"] == "data",
        "/debug/holds returned {reported}"
    );
    let [held, waiting] = ["belayer_holds", "belayer_waiting"];
    let counts = [
        metric(&belayer, held).await?,
        metric(&belayer, waiting).await?,
    ];
    ensure!(counts == [0.0, 1.0], "held and waiting: {counts:?}");
    cluster.remove("web").await?;
    set_finalizers(&cluster, "data", &[]).await?;
    cluster.pvc_is_removed("data").await?;
    belayer.stop().await?;
    cluster.switch_pvc_controller(PvcController::On).await
}

async fn upgrade(cluster: Cluster) -> Result<()> {
    cluster.switch_pvc_controller(PvcController::Off).await?;
    let belayer = cluster.start_belayer_with(&holding()).await?;
    let both = [KUBERNETES_PVC_HOLD, PVC_HOLD];
    let used = ["both", "both-deleted", "alone", "alone-deleted"];
    let mut user = pod("web");
    for name in used.into_iter().chain(["both-free", "alone-free"]) {
        cluster.create_pvc(name, json!({})).await?;
        cluster.pvc_is_held(name, PVC_HOLD).await?;
        let left = match name.starts_with("both") {
            true => &both[..],
            false => &both[1..],
        };
        set_finalizers(&cluster, name, left).await?;
        if used.contains(&name) {
            user = user.pvc(name);
        }
    }
    cluster.bound(user).await?;
    for name in used.into_iter().filter(|name| name.ends_with("-deleted")) {
        cluster.delete_pvc(name).await?;
        stays_held(&cluster, name).await?;
    }
    belayer.stop().await?;

    // The same without the key: the new default on an old installation.
    let belayer = cluster.start_belayer_with(&advising()).await?;
    for name in ["both", "both-deleted", "both-free", "alone-free"] {
        cluster.pvc_is_not_held(name, PVC_HOLD).await?;
    }
    cluster.gate_shows("holdClaims", "switched-off").await?;
    let theirs = finalizers_of(&cluster, "both-deleted").await?;
    ensure!(theirs == [KUBERNETES_PVC_HOLD], "{theirs:?}");
    throughout(
        "PVCs that only Belayer protects keep the hold",
        WINDOW,
        async || {
            for name in ["alone", "alone-deleted"] {
                let all = finalizers_of(&cluster, name).await?;
                ensure!(all == [PVC_HOLD], "{name}: {all:?}");
            }
            Ok(())
        },
    )
    .await?;
    eventually(
        "Events report the remaining holds, and why",
        SOON,
        async || {
            let printed = event(&cluster, "FinalizerKept", "alone").await?;
            ensure!(printed.contains("used by the pod web"), "{printed}");
            event(&cluster, "DeletionWaits", "alone-deleted").await?;
            Ok(())
        },
    )
    .await?;
    let checked = check(&cluster).await?;
    ensure!(
        checked.contains("PVCs still have belayer.dev/pvc-protection"),
        "check printed {checked}"
    );

    cluster.remove("web").await?;
    cluster.pvc_is_removed("alone-deleted").await?;
    cluster.delete_pvc("alone").await?;
    cluster.pvc_is_removed("alone").await?;
    for name in ["both", "both-deleted", "both-free"] {
        set_finalizers(&cluster, name, &[]).await?;
    }
    belayer.stop().await?;
    cluster.switch_pvc_controller(PvcController::On).await
}

/// Kubernetes' own controller is off.
async fn stays_held(cluster: &Cluster, pvc: &str) -> Result<()> {
    throughout(&format!("{pvc} has the hold"), WINDOW / 2, async || {
        let all = finalizers_of(cluster, pvc).await?;
        ensure!(all.iter().any(|name| name == PVC_HOLD), "{all:?}");
        Ok(())
    })
    .await
}

/// What `check` reports about PVCs.
async fn check(cluster: &Cluster) -> Result<String> {
    let kubeconfig = cluster.backend().belayer_kubeconfig();
    let arguments = ["check", "-o", "json", "--controllers=pvc-protection"];
    Ok(cluster.belayer(kubeconfig, &arguments).await?.out)
}

/// Argo deletes the PVCs of a workflow after it has finished, and removes Kubernetes' finalizer.
async fn finished_workflow(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&holding()).await?;
    cluster.workflow("build").await?;
    let workflow = cluster.workflows().get("build").await?;
    let owner: Value = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
        "uid": workflow.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    for (pvc, owners) in [("disk", owner), ("other", json!([]))] {
        let metadata = json!({ "ownerReferences": owners });
        cluster.create_pvc(pvc, metadata).await?;
        cluster.pvc_is_held(pvc, PVC_HOLD).await?;
    }
    for step in ["step-1", "step-2"] {
        let user = pod(step).pvc("disk").pvc("other");
        cluster.bound(user).await?;
    }
    cluster.finish("step-1", "Succeeded").await?;
    for pvc in ["disk", "other"] {
        cluster.delete_pvc(pvc).await?;
        set_finalizers(&cluster, pvc, &[PVC_HOLD]).await?;
    }
    let completed =
        json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
    cluster.merge_workflow("build", completed).await?;
    // One of its pods is still running, whatever the workflow's status says.
    cluster.pvc_stays_held("disk", PVC_HOLD).await?;
    cluster.finish("step-2", "Succeeded").await?;
    cluster.pvc_is_removed("disk").await?;
    ensure!(
        cluster.pods().get("step-1").await.is_ok(),
        "the pods must remain"
    );
    let all = finalizers_of(&cluster, "other").await?;
    ensure!(
        all == [PVC_HOLD],
        "a PVC without an owner must wait for its pods: {all:?}"
    );
    for step in ["step-1", "step-2"] {
        cluster.remove(step).await?;
    }
    cluster.pvc_is_removed("other").await?;
    belayer.stop().await
}
