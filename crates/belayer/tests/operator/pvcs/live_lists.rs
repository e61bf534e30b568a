//! The cost of live lists, and which PVCs share one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use belayer_sandbox::{Answer, Fault, Match, Verb};
use serde_json::json;

use super::{PVC_PROTECTION_HOLD, SHOP, Shop};
use crate::world::{BELAYER, eventually, let_pass, within};

fn lists() -> Match {
    Match::verb(Verb::List).resource("pods").client(BELAYER)
}

#[tokio::test(start_paused = true)]
async fn waiting_pvcs_share_one_list() {
    let shop = Shop::new();
    for n in 0..500 {
        shop.held_pvc(&format!("data-{n}"));
        shop.delete_pvc(&format!("data-{n}"));
    }
    let _belayer = shop.run();
    eventually("all are gone", || shop.applied().len() == 500).await;
    // The informer's own first list, and one live list.
    assert!(shop.lists_of_pods() <= 2, "{}", shop.lists_of_pods());
}

#[tokio::test(start_paused = true)]
async fn a_list_begun_before_a_deletion_was_read_does_not_count() {
    let shop = Shop::new();
    shop.held_pvc("first");
    shop.held_pvc("second");
    shop.pod("other", &[]);
    let _belayer = shop.run();
    let_pass(Duration::from_secs(1)).await;
    let faults = shop.world.sandbox.faults();
    // The list for the first PVC shows the cluster as it is now, and takes a while.
    let now = shop.world.cluster().version();
    let slow = faults.inject(
        Fault::on(lists())
            .stale(now)
            .delay(Duration::from_secs(3))
            .times(1),
    );
    let still =
        faults.inject(Fault::on(Match::watches().resource("pods").client(BELAYER)).pause_watches());
    shop.delete_pvc("first");
    let_pass(Duration::from_secs(1)).await;
    assert_eq!(slow.hits(), 1, "the look has begun");
    shop.pod("web", &["second"]);
    shop.delete_pvc("second");
    shop.gone("first").await;
    let_pass(Duration::from_secs(20)).await;
    assert!(
        shop.is_held("second"),
        "released on a list that began too early"
    );
    still.remove();
    shop.remove_pod("web");
    shop.gone("second").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_repeated_and_reported() {
    let shop = Shop::new();
    shop.held_pvc("data");
    shop.pod("other", &[]);
    let _belayer = shop.run();
    let_pass(Duration::from_secs(1)).await;
    let faults = shop.world.sandbox.faults();
    let broken = faults.inject(Fault::on(lists()).answer(Answer::internal_error()));
    shop.delete_pvc("data");
    let_pass(Duration::from_secs(60)).await;
    assert!(shop.is_held("data"));
    assert!(broken.hits() > 3);
    assert_eq!(shop.world.events("DeletionWaits"), 1);
    broken.remove();
    shop.gone("data").await;
}

/// Bytes and lists for `pvcs` PVCs that are deleted one after the other, in a namespace of `pods` pods that
/// change all the time.
async fn cost(pods: usize, pvcs: usize) -> (u64, u64) {
    let shop = Shop::new();
    for n in 0..pvcs {
        shop.pvc_with(
            &format!("data-{n}"),
            json!({ "finalizers": [PVC_PROTECTION_HOLD] }),
        );
    }
    for n in 0..pods {
        shop.pod(&format!("web-{n}"), &[]);
    }
    let _belayer = shop.run();
    within(Duration::from_secs(600), "it works", || {
        shop.world.requests(Verb::Watch, "pods") > 0
            && shop.world.requests(Verb::Watch, "persistentvolumeclaims") > 0
    })
    .await;
    let_pass(Duration::from_secs(1)).await;
    let (bytes, lists) = (shop.bytes.load(Ordering::Relaxed), shop.lists_of_pods());
    for n in 0..pvcs {
        let pvc = format!("data-{n}");
        shop.delete_pvc(&pvc);
        let mut beats = 0;
        while shop.exists(&pvc) {
            beats += 1;
            assert!(beats < 1_000, "{pvc} is not released");
            let beat = json!({ "metadata": { "labels": { "beat": format!("{n}-{beats}") } } });
            shop.world.patch_in(
                &belayer_sandbox::Gvr::PODS,
                Some(SHOP),
                "web-0",
                beat,
                belayer_sandbox::Subresource::None,
            );
            let_pass(Duration::from_millis(10)).await;
        }
    }
    (
        shop.bytes.load(Ordering::Relaxed) - bytes,
        shop.lists_of_pods() - lists,
    )
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_a_pvc_does_not_grow_with_the_number_of_pods() {
    let (few_bytes, few_lists) = cost(500, 100).await;
    let (many_bytes, many_lists) = cost(5_000, 100).await;
    assert!(few_lists <= 101, "{few_lists}");
    assert!(many_lists <= 101, "{many_lists}");
    assert!(
        many_bytes < few_bytes * 5 / 4,
        "{few_bytes} bytes with 500 pods, {many_bytes} with 5000"
    );
}

/// The same with full numbers: minutes in a debug build.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; run it by name with --ignored"]
async fn fifty_thousand_pods_and_a_thousand_claims() {
    let (few_bytes, few_lists) = cost(500, 1_000).await;
    let (many_bytes, many_lists) = cost(50_000, 1_000).await;
    println!("500 pods: {few_bytes} bytes, {few_lists} lists; 50000: {many_bytes}, {many_lists}");
    assert!(many_lists <= 1_001, "{many_lists}");
    assert!(
        many_bytes < few_bytes * 5 / 4,
        "{few_bytes} bytes with 500 pods, {many_bytes} with 50000"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_pod_changes_is_listed_after_a_short_time() {
    let shop = Shop::new();
    shop.held_pvc("data");
    for n in 0..700 {
        shop.pod(&format!("web-{n}"), &[]);
    }
    let _belayer = shop.run();
    let_pass(Duration::from_secs(2)).await;
    let before = shop.lists_of_pods();
    // Another object raises the resourceVersion, so that the store cannot prove that it is up to date.
    shop.delete_pvc("data");
    within(Duration::from_secs(2), "it is gone", || {
        !shop.exists("data")
    })
    .await;
    let lists = shop.lists_of_pods() - before;
    assert_eq!(lists, 3, "one pod, and two pages");
}

#[tokio::test(start_paused = true)]
async fn a_busy_namespace_does_not_delay_another() {
    let shop = Shop::new();
    shop.world.create_namespace("quiet");
    for n in 0..2_000 {
        shop.held_pvc(&format!("data-{n}"));
        shop.delete_pvc(&format!("data-{n}"));
    }
    shop.pvc_in(
        "quiet",
        "data",
        json!({ "finalizers": [PVC_PROTECTION_HOLD] }),
    );
    let slow = Fault::on(Match::verb(Verb::Patch).client(BELAYER)).delay(Duration::from_millis(10));
    shop.world.sandbox.faults().inject(slow);
    let _belayer = shop.run();
    eventually("the hot namespace is worked on", || {
        shop.applied().len() > 100
    })
    .await;
    shop.world.delete(&super::PVCS, Some("quiet"), "data");
    let hot = shop.applied().len();
    eventually("the quiet one's claim is gone", || {
        shop.finalizers_in("quiet", "data").is_empty()
    })
    .await;
    let between = shop.applied().len() - hot;
    // Twelve rounds of 64 releases.
    assert!(between < 800, "{between} of the hot namespace went first");
}
