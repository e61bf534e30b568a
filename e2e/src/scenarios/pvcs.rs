//! PVCs with Belayer's own finalizer; where kube-controller-manager runs, together with its own controller.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::control_plane::PvcController;
use crate::harness::{
    BelayerOptions, Cluster, KUBERNETES_PVC_HOLD, PVC_HOLD, SOON, Scenario, eventually, finalizers,
    pod,
};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, PvcController as InTree};
use crate::providers::{apply, manifest};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "pvc-in-use-is-kept",
            "a PVC is kept while a pod uses it, and is released with the pod",
            in_use,
        ),
        Scenario::shared(
            "pvc-unused-goes-at-once",
            "a PVC that no bound pod uses is released at once",
            unused,
        ),
        Scenario::shared(
            "pvc-many-claims-many-pods",
            "a pod keeps all its PVCs, and a PVC waits for all its pods",
            many,
        ),
        Scenario::shared(
            "pvc-ephemeral",
            "an ephemeral volume's PVC is kept by its own pod only",
            ephemeral,
        ),
        Scenario::shared(
            "pvc-pod-made-again",
            "a pod re-created under its name does not keep the PVCs of the old one",
            made_again,
        ),
        Scenario::shared(
            "pvc-pod-bound-just-before",
            "a pod bound just before the deletion always keeps the PVC",
            bound_just_before,
        ),
        Scenario::alone(
            "pvc-restart-while-waiting",
            "waiting PVCs and changes during downtime survive kill -9",
            restart,
        ),
        Scenario::alone(
            "pvc-says-who-keeps-it",
            "Event, /debug/holds and metrics name the pods that keep a PVC",
            says_who,
        ),
        Scenario::alone(
            "pvc-beside-in-tree-controller",
            "Belayer's and Kubernetes' finalizers are added and removed independently",
            beside,
        )
        .needs([InTree]),
        Scenario::alone(
            "pvc-policy-holds-at-creation",
            "the admission policy adds the hold to a PVC at creation",
            at_creation,
        )
        .needs([AdmissionPolicies]),
    ]
}

/// The configuration: pvc-protection only.
fn pvcs_only() -> BelayerOptions {
    BelayerOptions::holding_pvcs().argument("--controllers=pvc-protection")
}

async fn in_use(cluster: Cluster) -> Result<()> {
    cluster.held_pvc("data").await?;
    cluster.bound(pod("web").pvc("data")).await?;
    cluster.delete_pvc("data").await?;
    cluster.pvc_stays_held("data", PVC_HOLD).await?;
    cluster.remove("web").await?;
    cluster.pvc_is_removed("data").await
}

async fn unused(cluster: Cluster) -> Result<()> {
    cluster.held_pvc("data").await?;
    cluster.create(&pod("pending").pvc("data")).await?;
    cluster.bound(pod("other").pvc("else")).await?;
    cluster.delete_pvc("data").await?;
    cluster.pvc_is_removed("data").await
}

async fn many(cluster: Cluster) -> Result<()> {
    let names = ["a", "b", "c"];
    let mut one = pod("one");
    for name in names {
        cluster.held_pvc(name).await?;
        one = one.pvc(name);
    }
    cluster.bound(one).await?;
    cluster.bound(pod("two").pvc("c")).await?;
    for name in names {
        cluster.delete_pvc(name).await?;
    }
    for name in names {
        cluster.pvc_stays_held(name, PVC_HOLD).await?;
    }
    cluster.remove("one").await?;
    cluster.pvc_is_removed("a").await?;
    cluster.pvc_is_removed("b").await?;
    cluster.pvc_stays_held("c", PVC_HOLD).await?;
    cluster.remove("two").await?;
    cluster.pvc_is_removed("c").await
}

async fn ephemeral(cluster: Cluster) -> Result<()> {
    let made = cluster.bound(pod("web").ephemeral("scratch")).await?;
    let uid = made.metadata.uid.context("a pod without a uid")?;
    let owner = |uid: &str| {
        json!({ "ownerReferences": [{
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true,
        }] })
    };
    cluster.create_pvc("web-scratch", owner(&uid)).await?;
    cluster.pvc_is_held("web-scratch", PVC_HOLD).await?;
    cluster.delete_pvc("web-scratch").await?;
    cluster.pvc_stays_held("web-scratch", PVC_HOLD).await?;

    // An ephemeral volume of another pod's PVC, and one of none.
    cluster.bound(pod("db").ephemeral("scratch")).await?;
    cluster.create_pvc("db-scratch", json!({})).await?;
    cluster.pvc_is_held("db-scratch", PVC_HOLD).await?;
    cluster.delete_pvc("db-scratch").await?;
    cluster.pvc_is_removed("db-scratch").await?;

    cluster.remove("web").await?;
    cluster.pvc_is_removed("web-scratch").await
}

async fn made_again(cluster: Cluster) -> Result<()> {
    cluster.held_pvc("old").await?;
    cluster.held_pvc("new").await?;
    cluster.bound(pod("web").pvc("old")).await?;
    cluster.delete_pvc("old").await?;
    cluster.pvc_stays_held("old", PVC_HOLD).await?;
    cluster.remove("web").await?;
    cluster.bound(pod("web").pvc("new")).await?;
    cluster.delete_pvc("new").await?;
    cluster.pvc_is_removed("old").await?;
    cluster.pvc_stays_held("new", PVC_HOLD).await?;
    cluster.remove("web").await?;
    cluster.pvc_is_removed("new").await
}

/// Whatever Belayer's cache contains then: the pod existed before the deletion.
async fn bound_just_before(cluster: Cluster) -> Result<()> {
    const ROUNDS: usize = 30;
    let node = cluster.any_node().await?;
    for round in 0..ROUNDS {
        cluster.held_pvc(&format!("data-{round}")).await?;
    }
    for round in 0..ROUNDS {
        let pvc = format!("data-{round}");
        let user = pod(format!("web-{round}")).pvc(&pvc).on_node(&node);
        cluster.create(&user).await?;
        cluster.delete_pvc(&pvc).await?;
    }
    cluster.pvcs_have_caught_up(PVC_HOLD).await?;
    let left = cluster.pvcs().list(&Default::default()).await?;
    let held = left
        .items
        .iter()
        .filter(|pvc| finalizers(*pvc).contains(&PVC_HOLD));
    let held = held.count();
    ensure!(
        held == ROUNDS,
        "{held} of {ROUNDS} PVCs still have the hold"
    );
    for round in 0..ROUNDS {
        cluster.remove(&format!("web-{round}")).await?;
    }
    eventually("all PVCs are removed", SOON, async || {
        let left = cluster.pvcs().list(&Default::default()).await?.items.len();
        ensure!(left == 0, "{left} remain");
        Ok(())
    })
    .await
}

async fn restart(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    for name in ["used", "free", "bound-meanwhile"] {
        cluster.held_pvc(name).await?;
    }
    cluster.bound(pod("web").pvc("used")).await?;
    cluster.delete_pvc("used").await?;
    cluster.pvc_stays_held("used", PVC_HOLD).await?;
    belayer.kill().await?;

    cluster.delete_pvc("free").await?;
    cluster.bound(pod("late").pvc("bound-meanwhile")).await?;
    cluster.delete_pvc("bound-meanwhile").await?;

    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    cluster.pvc_is_removed("free").await?;
    cluster.pvc_stays_held("used", PVC_HOLD).await?;
    cluster.pvc_stays_held("bound-meanwhile", PVC_HOLD).await?;
    belayer.stop().await?;
    cluster.remove("web").await?;
    cluster.remove("late").await?;
    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    cluster.pvc_is_removed("used").await?;
    cluster.pvc_is_removed("bound-meanwhile").await?;
    belayer.stop().await
}

async fn says_who(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    cluster.held_pvc("data").await?;
    for n in 0..7 {
        cluster.bound(pod(format!("web-{n}")).pvc("data")).await?;
    }
    cluster.delete_pvc("data").await?;
    let events = kinds::events(cluster.client(), cluster.namespace());
    eventually(
        "an Event reports the pods that keep the PVC",
        SOON,
        async || {
            let all = events.list(&Default::default()).await?.items;
            let reported = all
                .iter()
                .find(|event| event.data["reason"] == "DeletionWaits");
            let reported = reported.context("no Event DeletionWaits")?;
            let message = reported.data["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("used by the pods web-") && message.ends_with("and 2 more"),
                "its message is {message:?}"
            );
            Ok(())
        },
    )
    .await?;
    let holds = belayer.holds().await?;
    let reported = &holds["pvc-protection"]["claims"][0];
    ensure!(
        reported["name"] == "data" && reported["pods"]["count"] == 7,
        "/debug/holds returned {holds}"
    );
    let labels = [("controller", "pvc-protection")];
    eventually("the metrics report it", SOON, async || {
        let waiting = belayer.metric("belayer_waiting", &labels).await?;
        let oldest = belayer
            .metric("belayer_oldest_waiting_seconds", &labels)
            .await?;
        ensure!(
            waiting > 0.0 && oldest > 0.0,
            "{waiting} wait, the oldest {oldest} s"
        );
        Ok(())
    })
    .await?;
    for n in 0..7 {
        cluster.remove(&format!("web-{n}")).await?;
    }
    cluster.pvc_is_removed("data").await?;
    belayer.stop().await
}

async fn beside(cluster: Cluster) -> Result<()> {
    cluster.switch_pvc_controller(PvcController::On).await?;
    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    for name in ["both", "theirs-first", "ours-first"] {
        cluster.held_pvc(name).await?;
        cluster.pvc_is_held(name, KUBERNETES_PVC_HOLD).await?;
        cluster.bound(pod(name).pvc(name)).await?;
    }
    cluster.delete_pvc("both").await?;
    cluster.pvc_stays_held("both", PVC_HOLD).await?;
    cluster.pvc_is_held("both", KUBERNETES_PVC_HOLD).await?;
    cluster.remove("both").await?;
    cluster.pvc_is_removed("both").await?;

    // Without Belayer, Kubernetes' finalizer is removed and Belayer's stays.
    belayer.kill().await?;
    cluster.delete_pvc("theirs-first").await?;
    cluster.remove("theirs-first").await?;
    cluster
        .pvc_is_not_held("theirs-first", KUBERNETES_PVC_HOLD)
        .await?;
    let left = cluster.pvcs().get("theirs-first").await?;
    ensure!(finalizers(&left) == [PVC_HOLD], "{:?}", finalizers(&left));
    let belayer = cluster.start_belayer_with(&pvcs_only()).await?;
    cluster.pvc_is_removed("theirs-first").await?;

    // Without Kubernetes' controller, Belayer's finalizer is removed and Kubernetes' stays.
    cluster.switch_pvc_controller(PvcController::Off).await?;
    cluster.delete_pvc("ours-first").await?;
    cluster.remove("ours-first").await?;
    cluster.pvc_is_not_held("ours-first", PVC_HOLD).await?;
    let left = cluster.pvcs().get("ours-first").await?;
    ensure!(
        finalizers(&left) == [KUBERNETES_PVC_HOLD],
        "{:?}",
        finalizers(&left)
    );
    cluster.switch_pvc_controller(PvcController::On).await?;
    cluster.pvc_is_removed("ours-first").await?;
    belayer.stop().await
}

/// No Belayer runs, so the policy has added every hold.
async fn at_creation(cluster: Cluster) -> Result<()> {
    const POLICY: &str = "belayer-claim-hold";
    apply(cluster.client(), &manifest("claim-hold-policy")?).await?;
    switch_holds_of_pvcs(&cluster, "on").await?;
    let shown = policy_adds(&cluster, true).await;
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let all: Api<DynamicObject> =
            Api::all_with(cluster.client().clone(), &ApiResource::from_gvk(&gvk));
        all.delete(POLICY, &DeleteParams::default()).await?;
    }
    switch_holds_of_pvcs(&cluster, "switched-off").await?;
    shown?;
    // Wait until the change is effective, so that later scenarios are not affected.
    policy_adds(&cluster, false).await
}

async fn switch_holds_of_pvcs(cluster: &Cluster, word: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "data": { "holdClaims": word } }));
    kinds::gates(cluster.client(), "belayer-system")
        .patch("belayer-gate", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn policy_adds(cluster: &Cluster, expected: bool) -> Result<()> {
    super::admission::policy_adds(PVC_HOLD, expected, |name| async move {
        cluster.create_pvc(&name, json!({})).await
    })
    .await
}
