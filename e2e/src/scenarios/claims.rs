//! PVCs with Belayer's own finalizer; where kube-controller-manager runs, together with its own controller.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::control_plane::ClaimController;
use crate::harness::{
    BelayerOptions, CLAIM_HOLD, Cluster, KUBERNETES_CLAIM_HOLD, Scenario, eventually, finalizers,
    pod,
};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, ClaimController as InTree};
use crate::providers::{apply, manifest};

const SOON: Duration = Duration::from_secs(60);

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
        )
        .within(Duration::from_secs(180)),
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
        .needs([InTree])
        .within(Duration::from_secs(180)),
        Scenario::alone(
            "pvc-policy-holds-at-creation",
            "the admission policy adds the hold to a PVC at creation",
            at_creation,
        )
        .needs([AdmissionPolicies]),
    ]
}

/// The configuration: pvc-protection only.
fn claims_only() -> BelayerOptions {
    BelayerOptions::holding_claims().argument("--controllers=pvc-protection")
}

async fn in_use(cluster: Cluster) -> Result<()> {
    cluster.held_claim("data").await?;
    cluster.bound(pod("web").claim("data")).await?;
    cluster.delete_claim("data").await?;
    cluster.claim_stays_held("data", CLAIM_HOLD).await?;
    cluster.remove("web").await?;
    cluster.claim_is_gone("data").await
}

async fn unused(cluster: Cluster) -> Result<()> {
    cluster.held_claim("data").await?;
    cluster.create(&pod("pending").claim("data")).await?;
    cluster.bound(pod("other").claim("else")).await?;
    cluster.delete_claim("data").await?;
    cluster.claim_is_gone("data").await
}

async fn many(cluster: Cluster) -> Result<()> {
    let names = ["a", "b", "c"];
    let mut one = pod("one");
    for name in names {
        cluster.held_claim(name).await?;
        one = one.claim(name);
    }
    cluster.bound(one).await?;
    cluster.bound(pod("two").claim("c")).await?;
    for name in names {
        cluster.delete_claim(name).await?;
    }
    for name in names {
        cluster.claim_stays_held(name, CLAIM_HOLD).await?;
    }
    cluster.remove("one").await?;
    cluster.claim_is_gone("a").await?;
    cluster.claim_is_gone("b").await?;
    cluster.claim_stays_held("c", CLAIM_HOLD).await?;
    cluster.remove("two").await?;
    cluster.claim_is_gone("c").await
}

async fn ephemeral(cluster: Cluster) -> Result<()> {
    let made = cluster.bound(pod("web").ephemeral("scratch")).await?;
    let uid = made.metadata.uid.context("a pod without a uid")?;
    let owner = |uid: &str| {
        json!({ "ownerReferences": [{
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true,
        }] })
    };
    cluster.create_claim("web-scratch", owner(&uid)).await?;
    cluster.claim_is_held("web-scratch", CLAIM_HOLD).await?;
    cluster.delete_claim("web-scratch").await?;
    cluster.claim_stays_held("web-scratch", CLAIM_HOLD).await?;

    // An ephemeral volume of another pod's PVC, and one of none.
    cluster.bound(pod("db").ephemeral("scratch")).await?;
    cluster.create_claim("db-scratch", json!({})).await?;
    cluster.claim_is_held("db-scratch", CLAIM_HOLD).await?;
    cluster.delete_claim("db-scratch").await?;
    cluster.claim_is_gone("db-scratch").await?;

    cluster.remove("web").await?;
    cluster.claim_is_gone("web-scratch").await
}

async fn made_again(cluster: Cluster) -> Result<()> {
    cluster.held_claim("old").await?;
    cluster.held_claim("new").await?;
    cluster.bound(pod("web").claim("old")).await?;
    cluster.delete_claim("old").await?;
    cluster.claim_stays_held("old", CLAIM_HOLD).await?;
    cluster.remove("web").await?;
    cluster.bound(pod("web").claim("new")).await?;
    cluster.delete_claim("new").await?;
    cluster.claim_is_gone("old").await?;
    cluster.claim_stays_held("new", CLAIM_HOLD).await?;
    cluster.remove("web").await?;
    cluster.claim_is_gone("new").await
}

/// Whatever Belayer's cache contains then: the pod existed before the deletion.
async fn bound_just_before(cluster: Cluster) -> Result<()> {
    const ROUNDS: usize = 30;
    let node = cluster.some_node().await?;
    for round in 0..ROUNDS {
        cluster.held_claim(&format!("data-{round}")).await?;
    }
    for round in 0..ROUNDS {
        let claim = format!("data-{round}");
        let user = pod(format!("web-{round}")).claim(&claim).on_node(&node);
        cluster.create(&user).await?;
        cluster.delete_claim(&claim).await?;
    }
    cluster.claims_have_caught_up(CLAIM_HOLD).await?;
    let left = cluster.claims().list(&Default::default()).await?;
    let held = left
        .items
        .iter()
        .filter(|claim| finalizers(*claim).contains(&CLAIM_HOLD));
    let held = held.count();
    ensure!(
        held == ROUNDS,
        "{held} of {ROUNDS} PVCs still have the hold"
    );
    for round in 0..ROUNDS {
        cluster.remove(&format!("web-{round}")).await?;
    }
    eventually("all PVCs are removed", SOON, async || {
        let left = cluster
            .claims()
            .list(&Default::default())
            .await?
            .items
            .len();
        ensure!(left == 0, "{left} remain");
        Ok(())
    })
    .await
}

async fn restart(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    for name in ["used", "free", "bound-meanwhile"] {
        cluster.held_claim(name).await?;
    }
    cluster.bound(pod("web").claim("used")).await?;
    cluster.delete_claim("used").await?;
    cluster.claim_stays_held("used", CLAIM_HOLD).await?;
    belayer.kill().await?;

    cluster.delete_claim("free").await?;
    cluster.bound(pod("late").claim("bound-meanwhile")).await?;
    cluster.delete_claim("bound-meanwhile").await?;

    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    cluster.claim_is_gone("free").await?;
    cluster.claim_stays_held("used", CLAIM_HOLD).await?;
    cluster
        .claim_stays_held("bound-meanwhile", CLAIM_HOLD)
        .await?;
    belayer.stop().await?;
    cluster.remove("web").await?;
    cluster.remove("late").await?;
    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    cluster.claim_is_gone("used").await?;
    cluster.claim_is_gone("bound-meanwhile").await?;
    belayer.stop().await
}

async fn says_who(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    cluster.held_claim("data").await?;
    for n in 0..7 {
        cluster.bound(pod(format!("web-{n}")).claim("data")).await?;
    }
    cluster.delete_claim("data").await?;
    let events = kinds::events(cluster.client(), cluster.namespace());
    eventually(
        "an Event reports the pods that keep the PVC",
        SOON,
        async || {
            let all = events.list(&Default::default()).await?.items;
            let told = all
                .iter()
                .find(|event| event.data["reason"] == "DeletionWaits");
            let told = told.context("no Event DeletionWaits")?;
            let message = told.data["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("used by the pods web-") && message.ends_with("and 2 more"),
                "its message is {message:?}"
            );
            Ok(())
        },
    )
    .await?;
    let holds = belayer.holds().await?;
    let told = &holds["pvc-protection"]["claims"][0];
    ensure!(
        told["name"] == "data" && told["pods"]["count"] == 7,
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
    cluster.claim_is_gone("data").await?;
    belayer.stop().await
}

async fn beside(cluster: Cluster) -> Result<()> {
    cluster.switch_claim_controller(ClaimController::On).await?;
    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    for name in ["both", "theirs-first", "ours-first"] {
        cluster.held_claim(name).await?;
        cluster.claim_is_held(name, KUBERNETES_CLAIM_HOLD).await?;
        cluster.bound(pod(name).claim(name)).await?;
    }
    cluster.delete_claim("both").await?;
    cluster.claim_stays_held("both", CLAIM_HOLD).await?;
    cluster.claim_is_held("both", KUBERNETES_CLAIM_HOLD).await?;
    cluster.remove("both").await?;
    cluster.claim_is_gone("both").await?;

    // Without Belayer, Kubernetes' finalizer is removed and Belayer's stays.
    belayer.kill().await?;
    cluster.delete_claim("theirs-first").await?;
    cluster.remove("theirs-first").await?;
    cluster
        .claim_is_not_held("theirs-first", KUBERNETES_CLAIM_HOLD)
        .await?;
    let left = cluster.claims().get("theirs-first").await?;
    ensure!(finalizers(&left) == [CLAIM_HOLD], "{:?}", finalizers(&left));
    let belayer = cluster.start_belayer_with(&claims_only()).await?;
    cluster.claim_is_gone("theirs-first").await?;

    // Without Kubernetes' controller, Belayer's finalizer is removed and Kubernetes' stays.
    cluster
        .switch_claim_controller(ClaimController::Off)
        .await?;
    cluster.delete_claim("ours-first").await?;
    cluster.remove("ours-first").await?;
    cluster.claim_is_not_held("ours-first", CLAIM_HOLD).await?;
    let left = cluster.claims().get("ours-first").await?;
    ensure!(
        finalizers(&left) == [KUBERNETES_CLAIM_HOLD],
        "{:?}",
        finalizers(&left)
    );
    cluster.switch_claim_controller(ClaimController::On).await?;
    cluster.claim_is_gone("ours-first").await?;
    belayer.stop().await
}

/// No Belayer runs, so the policy has added every hold.
async fn at_creation(cluster: Cluster) -> Result<()> {
    const POLICY: &str = "belayer-claim-hold";
    apply(cluster.client(), manifest("claim-hold-policy")?).await?;
    switch_holds_of_claims(&cluster, "on").await?;
    let shown = holds_at_creation(&cluster, true).await;
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let all: Api<DynamicObject> =
            Api::all_with(cluster.client().clone(), &ApiResource::from_gvk(&gvk));
        all.delete(POLICY, &DeleteParams::default()).await?;
    }
    switch_holds_of_claims(&cluster, "switched-off").await?;
    shown?;
    // Wait until the change is effective, so that later scenarios are not affected.
    holds_at_creation(&cluster, false).await
}

async fn switch_holds_of_claims(cluster: &Cluster, word: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "data": { "holdClaims": word } }));
    kinds::config_maps(cluster.client(), "belayer-system")
        .patch("belayer-gate", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn holds_at_creation(cluster: &Cluster, expected: bool) -> Result<()> {
    let what = if expected {
        "a new PVC is created with the hold"
    } else {
        "a new PVC is created without the hold"
    };
    eventually(what, SOON, async || {
        let name = format!("claim-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create_claim(&name, json!({})).await?;
        ensure!(
            finalizers(&created).contains(&CLAIM_HOLD) == expected,
            "{:?}",
            finalizers(&created)
        );
        Ok(())
    })
    .await
}
