//! Reports: Events, `/debug/holds`, metrics, advice.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::Components;
use belayer_core::election::Leadership;
use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;
use belayer_pvc_protection::advice::Advice;
use belayer_pvc_protection::{Mode, Settings};
use belayer_sandbox::Gvr;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{Shop, protected_by_kubernetes};
use crate::world::{eventually, let_pass};

#[tokio::test(start_paused = true)]
async fn a_waiting_pvc_names_its_pods() {
    let shop = Shop::new();
    let belayer = shop.run();
    shop.held_pvc("data");
    for n in 0..7 {
        shop.pod(&format!("web-{n}"), &["data"]);
    }
    let_pass(Duration::from_secs(1)).await;
    shop.delete_pvc("data");
    eventually("it is reported", || shop.world.events("DeletionWaits") == 1).await;
    let events = shop
        .world
        .cluster()
        .list(&Gvr::EVENTS, None, &Default::default())
        .unwrap();
    let event = &events.items[0];
    assert_eq!(event["involvedObject"]["kind"], "PersistentVolumeClaim");
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("used by the pods web-"), "{message}");
    assert!(message.ends_with("and 2 more"), "{message}");

    let waiting = belayer.protection.waiting();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].users.as_ref().unwrap().total(), 7);
    assert_eq!(belayer.protection.held_objects().counts().held, 1);
    let view = &belayer.holds.holds()["pvc-protection"];
    assert_eq!(view["waiting"], 1);
    assert_eq!(view["claims"][0]["pods"]["count"], 7);
    let_pass(Duration::from_secs(600)).await;
    assert_eq!(shop.world.events("DeletionWaits"), 1, "not again and again");
}

fn advice(belayer: &super::Running) -> Vec<&'static str> {
    // By the sandbox's clock, deletions are long ago.
    let signs = belayer.protection.signs(Timestamp::now());
    let all = Advice::on(belayer.protection.mode(), signs);
    all.into_iter().map(Advice::name).collect()
}

#[tokio::test(start_paused = true)]
async fn unsafe_configurations_are_detected() {
    let shop = Shop::new();
    let belayer = shop.run_as(Mode::Own);
    shop.pvc_with("good", protected_by_kubernetes());
    shop.all_held(&["good"]).await;
    let_pass(Duration::from_secs(60)).await;
    assert!(advice(&belayer).is_empty());
    shop.pvc("bare");
    shop.all_held(&["bare"]).await;
    assert_eq!(advice(&belayer), ["Unmountable"]);
    shop.delete_pvc("bare");
    shop.gone("bare").await;
    shop.delete_pvc("good");
    eventually("Belayer's hold is removed", || !shop.is_held("good")).await;
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(advice(&belayer), ["LeftBehind"]);
}

/// A standby sees that finalizers of PVCs disappear, and not that the leader removes them.
#[tokio::test(start_paused = true)]
async fn releases_of_the_leader_before_are_not_those_of_another_controller() {
    let shop = Shop::new();
    let leader = shop.run_as(Mode::InPlace);
    let (guard, leadership) = Leadership::elected();
    let standby = shop.run_as_one_of_many(Mode::InPlace, Writes::Sent, leadership);
    for n in 0..5 {
        let pvc = format!("mine-{n}");
        shop.pvc_with(&pvc, protected_by_kubernetes());
        shop.delete_pvc(&pvc);
        shop.gone(&pvc).await;
    }
    leader.stop().await;
    guard.extend(Instant::now() + Duration::from_secs(600));
    let_pass(Duration::from_secs(60)).await;
    assert!(advice(&standby).is_empty(), "{:?}", advice(&standby));
    standby.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_active_controller_is_detected() {
    let shop = Shop::new();
    let belayer = shop.run_as(Mode::InPlace);
    for n in 0..5 {
        let pvc = format!("ours-{n}");
        shop.pvc_with(&pvc, protected_by_kubernetes());
        shop.delete_pvc(&pvc);
        shop.gone(&pvc).await;
    }
    let_pass(Duration::from_secs(60)).await;
    assert!(advice(&belayer).is_empty(), "all writes were Belayer's");
    for n in 0..5 {
        let pvc = format!("theirs-{n}");
        shop.pvc_with(&pvc, protected_by_kubernetes());
        taken_from_use(&shop, n, &pvc).await;
    }
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(advice(&belayer), ["TwoAtWork"]);
    let_pass(Duration::from_secs(3600)).await;
    assert!(advice(&belayer).is_empty(), "it was long ago");
}

/// Argo deletes the PVCs of a finished workflow and removes that finalizer, whether or not its completed pods still exist.
#[tokio::test(start_paused = true)]
async fn argos_removals_are_no_second_controller() {
    let shop = Shop::new();
    let belayer = shop.run_as(Mode::InPlace);
    for n in 0..5 {
        let pvc = format!("scratch-{n}");
        let owner = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build", "uid": "u",
            "controller": true, "blockOwnerDeletion": true,
        });
        let mut metadata = protected_by_kubernetes();
        metadata["ownerReferences"] = json!([owner]);
        shop.pvc_with(&pvc, metadata);
        taken_from_use(&shop, n, &pvc).await;
    }
    let_pass(Duration::from_secs(60)).await;
    assert!(advice(&belayer).is_empty(), "{:?}", advice(&belayer));
}

/// Another client removes the finalizer of a PVC in use.
async fn taken_from_use(shop: &Shop, n: usize, pvc: &str) {
    shop.pod(&format!("web-{n}"), &[pvc]);
    let_pass(Duration::from_secs(1)).await;
    shop.delete_pvc(pvc);
    let_pass(Duration::from_secs(1)).await;
    assert_eq!(shop.finalizers(pvc), [KUBERNETES_PVC_PROTECTION]);
    shop.patch_pvc(pvc, json!({ "metadata": { "finalizers": null } }));
}

/// What Belayer managed in place of Kubernetes' controller, only that controller removes then.
#[tokio::test(start_paused = true)]
async fn in_place_and_switched_off_the_controller_of_kubernetes_is_named() {
    let log = Log::kept();
    let shop = Shop::new();
    shop.pvc_with("data", protected_by_kubernetes());
    shop.delete_pvc("data");
    let mut components = Components::default().with(belayer_pod_finalizer::Settings::default());
    components.switched_off.push(Arc::new(Settings {
        mode: Mode::InPlace,
        ..Settings::default()
    }));
    let _belayer = shop.world.run_components(components);
    let_pass(Duration::from_secs(300)).await;
    assert_eq!(shop.finalizers("data"), [KUBERNETES_PVC_PROTECTION]);
    let warned = log.lines("WARN");
    let says = "controller is switched off, and 1 PVC keeps kubernetes.io/pvc-protection, which Belayer managed in \
                place of Kubernetes' own controller: without persistentvolumeclaim-protection-controller of \
                kube-controller-manager, every deleted PVC stays in Terminating";
    let those: Vec<_> = warned.iter().filter(|line| line.contains(says)).collect();
    assert_eq!(those.len(), 1, "{warned:?}");
    assert!(log.lines("no finalizer of it is left").is_empty());
}
