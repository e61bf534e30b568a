//! A mutating admission webhook undoes a release.

use std::time::Duration;

use belayer_core::logged::Log;
use belayer_sandbox::{Answer, Fault, Gvr};
use rstest::rstest;
use serde_json::{Value, json};

use super::{deleted_pod, patches};
use crate::world::{World, eventually, let_pass, within};

/// The server's answer to a patch that an admission webhook has undone: the object with its finalizers. Its version is
/// later if the webhook has changed something else.
fn undone(world: &World, pod: &str, later: u64) -> Answer {
    let mut pod = Value::clone(&world.find(pod).unwrap());
    let version = &mut pod["metadata"]["resourceVersion"];
    let now: u64 = version.as_str().unwrap().parse().unwrap();
    *version = json!((now + later).to_string());
    Answer::raw(200, "application/json", pod.to_string())
}

#[rstest]
#[case::nothing_else_is_changed(0)]
#[case::a_label_is_changed_too(1)]
#[tokio::test(start_paused = true)]
async fn a_release_that_a_webhook_undoes_is_reported_and_tried_again(#[case] later: u64) {
    let log = Log::kept_from(tracing::Level::INFO);
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    eventually("the hold", || world.is_held("a")).await;
    world.end("a");
    let_pass(Duration::from_secs(1)).await;
    world.consume("a");
    let undo = Fault::on(patches()).answer(undone(&world, "a", later));
    let webhook = world.sandbox.faults().inject(undo);
    eventually("the first try", || webhook.hits() > 0).await;
    let label = json!({ "metadata": { "labels": { "webhook": "was-here" } } });
    world.patch(&Gvr::PODS, "a", label);
    within(Duration::from_secs(300), "the Event", || {
        world.events("ReleaseDenied") > 0
    })
    .await;
    assert!(world.is_held("a"));
    assert!(log.lines("released").is_empty(), "{}", log.text());
    webhook.remove();
    within(Duration::from_secs(600), "the release", || {
        !world.is_held("a")
    })
    .await;
}

#[rstest]
#[case::nothing_else_is_changed(0)]
#[case::a_label_is_changed_too(1)]
#[tokio::test(start_paused = true)]
async fn the_removal_of_a_pod_that_a_webhook_undoes_is_tried_again(#[case] later: u64) {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    world.consume("a");
    let undo = Fault::on(patches()).answer(undone(&world, "a", later));
    let webhook = world.sandbox.faults().inject(undo);
    within(Duration::from_secs(300), "the Event", || {
        world.events("ReleaseDenied") > 0
    })
    .await;
    webhook.remove();
    // Any write to the kind: the watch names its version, also in a bookmark.
    world.create_namespace("other");
    within(Duration::from_secs(600), "the release", || {
        world.find("a").is_none()
    })
    .await;
}
