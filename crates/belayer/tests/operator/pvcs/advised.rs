//! The default of pvc-protection: it reports, and adds no finalizer (rule A18).

use std::time::Duration;

use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};
use belayer_pvc_protection::{Mode, Settings};
use serde_json::json;

use super::Shop;
use crate::world::{eventually, let_pass};

fn both() -> serde_json::Value {
    json!({ "finalizers": [KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD] })
}

#[tokio::test(start_paused = true)]
async fn a18_by_default_a_pvc_gets_no_finalizer_and_its_users_are_reported() {
    assert_eq!(Settings::default().mode, Mode::Advise);
    let shop = Shop::new();
    let belayer = shop.run_as(Mode::Advise);
    shop.pvc_with("data", json!({ "finalizers": [KUBERNETES_PVC_PROTECTION] }));
    shop.pod("web", &["data"]);
    let_pass(Duration::from_secs(60)).await;
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(shop.finalizers("data"), [KUBERNETES_PVC_PROTECTION]);
    assert_eq!(shop.world.events("DeletionWaits"), 1);
    let held_objects = belayer.protection.held_objects();
    assert_eq!(
        (held_objects.counts().held, held_objects.counts().waiting),
        (0, 1)
    );
    let view = &belayer.holds.holds()["pvc-protection"];
    assert_eq!(view["claims"][0]["pods"]["names"], json!(["web"]));
    assert!(view["finalizer"].is_null(), "{view}");
    shop.patch_pvc("data", json!({ "metadata": { "finalizers": null } }));
    shop.gone("data").await;
    eventually("it waits no longer", || {
        belayer.protection.held_objects().counts().waiting == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a18_a_hold_of_an_earlier_configuration_stays_while_it_is_the_only_protection() {
    let shop = Shop::new();
    shop.held_pvc("alone");
    shop.held_pvc("deleted");
    shop.pvc_with("both", both());
    shop.pod("web", &["alone", "deleted", "both"]);
    shop.delete_pvc("deleted");
    let _belayer = shop.run_as(Mode::Advise);
    let_pass(Duration::from_secs(60)).await;
    for pvc in ["alone", "deleted"] {
        assert_eq!(shop.finalizers(pvc), [PVC_PROTECTION_HOLD], "{pvc}");
    }
    assert_eq!(shop.world.events("FinalizerKept"), 1, "that of `alone`");
    assert_eq!(shop.world.events("DeletionWaits"), 1, "that of `deleted`");
    shop.remove_pod("web");
    shop.gone("deleted").await;
    shop.delete_pvc("alone");
    shop.gone("alone").await;
}
