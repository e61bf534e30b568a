//! The label `belayer.dev/ignore` of namespaces. Only a live read proves it: the cache may be behind.

use std::time::Duration;

use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_sandbox::{Answer, Fault, FaultHandle, Gvr, Match, Verb};
use serde_json::{Value, json};

use super::{Fate, RECORDS, YARD, Yard};
use crate::world::BELAYER;

fn ignore(yard: &Yard, value: Value) {
    let label = json!({ "metadata": { "labels": { "belayer.dev/ignore": value } } });
    let none = belayer_sandbox::Subresource::None;
    yard.world
        .patch_in(&Gvr::NAMESPACES, None, YARD, label, none);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_namespace_is_not_touched() {
    let yard = Yard::new();
    ignore(&yard, json!("true"));
    let belayer = yard.run();
    yard.pod("web");
    yard.pass(Duration::from_secs(30)).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.pass(Duration::from_secs(120)).await;
    assert_eq!(yard.applied(&Gvr::PODS) + yard.applied(&RECORDS), 0);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn holds_follow_the_label_of_the_namespace() {
    let yard = Yard::new();
    ignore(&yard, json!("true"));
    let belayer = yard.run();
    let name = "web";
    yard.pod(name);
    yard.wait_for(Duration::from_secs(5)).await;
    assert!(!yard.is_held(name));
    ignore(&yard, Value::Null);
    yard.wait("it is held", || yard.is_held(name)).await;
    ignore(&yard, json!("true"));
    yard.wait("it is released", || !yard.is_held(name)).await;
    belayer.stop().await;
}

/// The cache keeps showing the label, which a client has removed.
fn hide_removal(yard: &Yard) -> FaultHandle {
    let watches = Match::watches().resource("namespaces").client(BELAYER);
    let faults = yard.world.sandbox.faults();
    let late = faults.inject(Fault::on(watches).pause_watches());
    ignore(yard, Value::Null);
    late
}

/// Creates a pod, which is rejected and re-created.
async fn recreate(yard: &Yard, name: &str) {
    yard.pod(name);
    yard.until("it is re-created", || yard.phase() == "Recreated")
        .await;
}

/// Another leader has added the hold.
#[tokio::test(start_paused = true)]
async fn a_pod_stays_held_if_only_the_cache_shows_its_namespace_as_ignored() {
    let yard = Yard::new();
    ignore(&yard, json!("true"));
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(10)).await;
    let late = hide_removal(&yard);
    yard.pod_with(
        "web",
        json!({
            "annotations": { "belayer.dev/recreate": "true" },
            "finalizers": [POD_RECREATION_HOLD],
        }),
    );
    yard.wait_for(Duration::from_secs(120)).await;
    assert!(yard.is_held("web"));
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait_for(Duration::from_secs(120)).await;
    assert!(yard.is_held("web"));
    late.remove();
    yard.wait("it is recorded", || !yard.records().is_empty())
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_goes_on_if_only_the_cache_shows_its_namespace_as_ignored() {
    let yard = Yard::rejecting(1);
    let (belayer, name) = (yard.run(), "web");
    recreate(&yard, name).await;
    let faults = yard.world.sandbox.faults();
    let reads = Match::verb(Verb::Get)
        .resource("namespaces")
        .client(BELAYER);
    let down = faults.inject(Fault::on(reads).answer(Answer::internal_error()));
    ignore(&yard, json!("true"));
    yard.wait_for(Duration::from_secs(10)).await;
    let late = hide_removal(&yard);
    down.remove();
    yard.wait_for(Duration::from_secs(60)).await;
    assert!(yard.is_held(name));
    yard.report(name, Fate::Rejected("OutOfcpu"));
    yard.wait_for(Duration::from_secs(60)).await;
    assert_eq!((&*yard.phase(), yard.is_held(name)), ("Recreated", true));
    late.remove();
    yard.wait("it is re-created again", || yard.creates() == 2)
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_ends_if_its_namespace_is_ignored() {
    let yard = Yard::rejecting(1);
    let (belayer, name) = (yard.run(), "web");
    recreate(&yard, name).await;
    ignore(&yard, json!("true"));
    yard.wait("it is released", || !yard.is_held(name)).await;
    yard.report(name, Fate::Rejected("OutOfcpu"));
    yard.wait("its record ends", || yard.phase() == "Ended")
        .await;
    let message = &yard.record()["status"]["message"];
    let expected = "not re-created: its namespace has the label belayer.dev/ignore=true";
    assert_eq!(message, expected);
    belayer.stop().await;
}
