//! What keeps a PVC, and what releases it.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};
use belayer_pvc_protection::Mode;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Subresource, Verb};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{PVCS, SHOP, Shop, protected_by_kubernetes};
use crate::world::{BELAYER, eventually, let_pass, within};

const A_WHILE: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn a_pvc_in_use_is_kept_until_the_pod_is_deleted() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.pvc("data");
    shop.all_held(&["data"]).await;
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    let_pass(A_WHILE).await;
    assert!(shop.is_held("data"));
    shop.remove_pod("web");
    shop.gone("data").await;
    assert_eq!(shop.applied().len(), 2, "one hold, one release");
}

#[tokio::test(start_paused = true)]
async fn an_unused_pvc_is_released_at_once() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.pvc("data");
    shop.unbound_pod("pending", &["data"]);
    shop.pod("other", &["else"]);
    shop.all_held(&["data"]).await;
    shop.delete_pvc("data");
    shop.gone("data").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_all_its_pvcs_and_a_pvc_waits_for_all_its_pods() {
    let shop = Shop::new();
    let _belayer = shop.run();
    let pvcs = ["a", "b", "c"];
    pvcs.iter().for_each(|pvc| shop.pvc(pvc));
    shop.all_held(&pvcs).await;
    shop.pod("one", &pvcs);
    shop.pod("two", &["c"]);
    pvcs.iter().for_each(|pvc| shop.delete_pvc(pvc));
    let_pass(A_WHILE).await;
    assert!(pvcs.iter().all(|pvc| shop.is_held(pvc)));
    shop.remove_pod("one");
    shop.gone("a").await;
    shop.gone("b").await;
    let_pass(A_WHILE).await;
    assert!(shop.is_held("c"));
    shop.remove_pod("two");
    shop.gone("c").await;
}

#[tokio::test(start_paused = true)]
async fn the_phase_of_a_pod_does_not_release_a_pvc() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    for phase in ["Running", "Succeeded"] {
        let status = json!({ "status": { "phase": phase } });
        shop.world
            .patch_in(&Gvr::PODS, Some(SHOP), "web", status, Subresource::Status);
        let_pass(A_WHILE).await;
        assert!(shop.is_held("data"), "{phase}");
    }
    shop.remove_pod("web");
    shop.gone("data").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_its_grace_period_keeps_its_pvc() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    shop.delete_pod_gracefully("web");
    let_pass(A_WHILE).await;
    assert!(shop.is_held("data"));
    shop.remove_pod("web");
    shop.gone("data").await;
}

fn ephemeral() -> Value {
    json!([{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    } } } }])
}

fn owner(uid: &str) -> Value {
    json!({ "ownerReferences": [{
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true,
    }] })
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_pvc_is_kept_by_its_own_pod_until_shutdown() {
    let shop = Shop::new();
    let _belayer = shop.run();
    let uid = shop.create_pod_of("web", ephemeral(), json!("node-1"));
    shop.pvc_with("web-scratch", owner(&uid));
    shop.all_held(&["web-scratch"]).await;
    shop.delete_pvc("web-scratch");
    let_pass(A_WHILE).await;
    assert!(shop.is_held("web-scratch"));
    // Another finalizer keeps the pod itself: it is shut down and stays.
    let patch = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    shop.world
        .patch_in(&Gvr::PODS, Some(SHOP), "web", patch, Subresource::None);
    shop.delete_pod_gracefully("web");
    let_pass(A_WHILE).await;
    assert!(shop.is_held("web-scratch"), "in its grace");
    shop.remove_pod("web");
    shop.gone("web-scratch").await;
    let pod = shop.world.cluster().get(&Gvr::PODS, Some(SHOP), "web");
    assert!(pod.is_ok(), "the pod itself is there still");
}

#[tokio::test(start_paused = true)]
async fn a_pvc_with_the_name_of_an_ephemeral_pvc_is_not_in_use() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.create_pod_of("web", ephemeral(), json!("node-1"));
    shop.pvc_with("web-scratch", owner("an-earlier-pod-of-that-name"));
    shop.all_held(&["web-scratch"]).await;
    shop.delete_pvc("web-scratch");
    shop.gone("web-scratch").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_of_the_same_name_does_not_keep_the_old_pvc() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.pvc("old");
    shop.pvc("new");
    shop.all_held(&["old", "new"]).await;
    shop.pod("web", &["old"]);
    shop.delete_pvc("old");
    shop.delete_pvc("new");
    shop.pod("keeper", &["new"]);
    let_pass(Duration::from_secs(1)).await;
    assert!(shop.is_held("old"));
    // Neither the deletion nor the creation is watched: only a list shows another UID.
    shop.world.sandbox.faults().cut_off();
    shop.remove_pod("web");
    shop.pod("web", &["new"]);
    shop.remove_pod("keeper");
    let version = shop.world.cluster().version();
    shop.world.cluster().compact(version);
    let_pass(Duration::from_secs(1)).await;
    shop.world.sandbox.faults().restore();
    shop.gone("old").await;
    let_pass(A_WHILE).await;
    assert!(shop.is_held("new"));
    shop.remove_pod("web");
    shop.gone("new").await;
}

#[tokio::test(start_paused = true)]
async fn a_missed_pod_deletion_releases_its_pvc() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(1)).await;
    shop.world.sandbox.faults().cut_off();
    shop.remove_pod("web");
    let version = shop.world.cluster().version();
    shop.world.cluster().compact(version);
    let_pass(Duration::from_secs(1)).await;
    shop.world.sandbox.faults().restore();
    shop.gone("data").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_bound_meanwhile_keeps_the_pvc() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    shop.pod("other", &[]);
    shop.pod("another", &[]);
    let_pass(Duration::from_secs(1)).await;
    // The pod watch is paused: the index does not change.
    let faults = shop.world.sandbox.faults();
    let still =
        faults.inject(Fault::on(Match::watches().resource("pods").client(BELAYER)).pause_watches());
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(20)).await;
    assert!(shop.is_held("data"), "a list found the user");
    still.remove();
    let_pass(A_WHILE).await;
    assert!(shop.is_held("data"));
    shop.remove_pod("web");
    shop.gone("data").await;
}

/// A list that contains the user before the store does must not outlive the user.
#[tokio::test(start_paused = true)]
async fn a_user_from_a_live_list_releases_the_pvc_when_it_is_deleted() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    shop.pod("other", &[]);
    let_pass(Duration::from_secs(1)).await;
    let late = Fault::on(Match::watches().resource("pods").client(BELAYER)).pause_watches();
    let late = shop.world.sandbox.faults().inject(late);
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    let_pass(Duration::from_millis(500)).await;
    late.remove();
    let_pass(Duration::from_secs(1)).await;
    assert!(shop.is_held("data"));
    shop.remove_pod("web");
    within(Duration::from_secs(1), "at once", || !shop.exists("data")).await;
}

/// The pod `web` uses the PVC `data`.
async fn use_by_a_pod_that_the_store_never_gets(shop: &Shop) {
    shop.held_pvc("data");
    shop.pod("other", &[]);
    let_pass(Duration::from_secs(1)).await;
    let hidden = Fault::on(Match::watches().resource("pods").client(BELAYER))
        .hide(Match::default().namespace(SHOP).name("web"));
    shop.world.sandbox.faults().inject(hidden);
    shop.pod("web", &["data"]);
}

#[tokio::test(start_paused = true)]
async fn a_user_that_the_store_never_gets_is_listed_again() {
    let shop = Shop::new();
    let _belayer = shop.run();
    use_by_a_pod_that_the_store_never_gets(&shop).await;
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(20)).await;
    assert!(shop.is_held("data"));
    shop.remove_pod("web");
    shop.gone("data").await;
}

/// The server's data went back (a restored etcd), and the pod store has not followed yet: it has no such pod.
#[tokio::test(start_paused = true)]
async fn a_store_from_before_the_data_went_back_proves_nothing() {
    let shop = Shop::new();
    let _belayer = shop.run();
    use_by_a_pod_that_the_store_never_gets(&shop).await;
    let earlier = json!({
        "apiVersion": "v1", "kind": "PodList", "items": [],
        "metadata": { "resourceVersion": "2", "continue": "more", "remainingItemCount": 150 },
    });
    let earlier = Answer::raw(200, "application/json", earlier.to_string());
    let list = Match::verb(Verb::List).resource("pods").client(BELAYER);
    let list = Fault::on(list).answer(earlier).times(1);
    let first_page = shop.world.sandbox.faults().inject(list);
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(20)).await;
    assert!(first_page.hits() > 0);
    assert!(shop.is_held("data"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_pvcs_wait_loses_nothing() {
    let shop = Shop::new();
    let belayer = shop.run();
    shop.pvc("used");
    shop.pvc("free");
    shop.all_held(&["used", "free"]).await;
    shop.pod("web", &["used"]);
    shop.delete_pvc("used");
    let_pass(Duration::from_secs(5)).await;
    belayer.crash();
    shop.delete_pvc("free");
    let_pass(Duration::from_secs(5)).await;
    let belayer = shop.run();
    shop.gone("free").await;
    let_pass(A_WHILE).await;
    assert!(shop.is_held("used"));
    belayer.stop().await;
    shop.remove_pod("web");
    let _belayer = shop.run();
    shop.gone("used").await;
}

#[tokio::test(start_paused = true)]
async fn beside_the_in_tree_controller_its_finalizer_is_never_touched() {
    let shop = Shop::new();
    let _belayer = shop.run_as(Mode::Own);
    shop.pvc_with("data", protected_by_kubernetes());
    shop.all_held(&["data"]).await;
    assert_eq!(
        shop.finalizers("data"),
        [KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD]
    );
    shop.delete_pvc("data");
    eventually("Belayer's hold is removed", || !shop.is_held("data")).await;
    let_pass(A_WHILE).await;
    assert_eq!(shop.finalizers("data"), [KUBERNETES_PVC_PROTECTION]);
}

#[tokio::test(start_paused = true)]
async fn in_place_its_finalizer_is_added_and_removed() {
    let shop = Shop::new();
    let _belayer = shop.run_as(Mode::InPlace);
    shop.pvc("data");
    let held = || shop.finalizers("data") == [KUBERNETES_PVC_PROTECTION];
    eventually("it is held by Kubernetes' name", held).await;
    shop.pod("web", &["data"]);
    shop.delete_pvc("data");
    let_pass(A_WHILE).await;
    assert!(held());
    shop.remove_pod("web");
    shop.gone("data").await;
}

#[tokio::test(start_paused = true)]
async fn handing_over_leaves_no_hold_of_the_earlier_name() {
    let shop = Shop::new();
    let belayer = shop.run_as(Mode::Own);
    shop.pvc("data");
    shop.pvc("late");
    shop.all_held(&["data", "late"]).await;
    belayer.stop().await;
    shop.delete_pvc("late");
    let log = Log::kept_from(tracing::Level::INFO);
    let belayer = shop.run_as(Mode::InPlace);
    shop.gone("late").await;
    assert_eq!(log.lines("released").len(), 1, "{}", log.text());
    eventually("both names are on it", || {
        shop.finalizers("data").len() == 2
    })
    .await;
    shop.delete_pvc("data");
    shop.gone("data").await;
    assert_eq!(log.lines("released").len(), 2, "{}", log.text());
    let_pass(A_WHILE).await;
    assert_eq!(belayer.protection.signs(Timestamp::now()).by_others, 0);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_stay_where_they_are() {
    let shop = Shop::new();
    let _belayer = shop.run();
    let others = ["z.example.com/one", "a.example.com/two"];
    shop.pvc_with("data", json!({ "finalizers": others }));
    shop.all_held(&["data"]).await;
    shop.delete_pvc("data");
    eventually("Belayer's hold is removed", || !shop.is_held("data")).await;
    assert_eq!(shop.finalizers("data"), others);
    let before = shop.applied().len();
    let_pass(A_WHILE).await;
    assert_eq!(shop.applied().len(), before, "no hold is added late");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let shop = Shop::new();
    let _belayer = shop.run_with(Mode::Own, Writes::DryRun);
    shop.pvc("new");
    shop.held_pvc("held");
    shop.delete_pvc("held");
    let_pass(A_WHILE).await;
    let writes = shop.world.sandbox.recorder().writes_by(BELAYER);
    assert!(writes.is_empty(), "{}", writes[0].summary());
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_sees_no_write() {
    let shop = Shop::new();
    let _belayer = shop.run();
    for n in 0..20 {
        shop.pvc(&format!("data-{n}"));
        shop.pod(&format!("web-{n}"), &[&format!("data-{n}")]);
    }
    shop.delete_pvc("data-0");
    let_pass(A_WHILE).await;
    let before = shop.world.sandbox.recorder().writes_by(BELAYER).len();
    let_pass(Duration::from_secs(1_200)).await;
    let after = shop.world.sandbox.recorder().writes_by(BELAYER);
    assert_eq!(after.len(), before, "{}", after.last().unwrap().summary());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_again() {
    let shop = Shop::new();
    let _belayer = shop.run();
    shop.held_pvc("data");
    let_pass(Duration::from_secs(1)).await;
    // The PVC watch is paused after the deletion: every patch meets a newer version.
    let slow = Fault::on(Match::verb(Verb::Patch).client(BELAYER))
        .delay(Duration::from_millis(100))
        .times(1);
    shop.world.sandbox.faults().inject(slow);
    shop.delete_pvc("data");
    let_pass(Duration::from_millis(60)).await;
    shop.patch_pvc("data", json!({ "metadata": { "labels": { "a": "b" } } }));
    shop.gone("data").await;
    assert!(
        shop.world
            .cluster()
            .list(&PVCS, Some(SHOP), &Default::default())
            .unwrap()
            .items
            .is_empty()
    );
}
