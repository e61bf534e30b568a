//! What a tenant writes into its own pods.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::Components;
use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_holds::names::{POD_RECREATION_HOLD, POD_STATUS_HOLD, WORKFLOW_HOLD};
use belayer_pod_finalizer::profile::config::Settings;
use belayer_sandbox::{Gvr, ListOptions, Verb};
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{NAMESPACE, World, eventually, has_hold, let_pass, pod, within};

/// A store keeps only a few finalizers of such a pod; the patch must name all of them, in their order.
#[tokio::test(start_paused = true)]
async fn t3_thousands_of_finalizers_of_others_stay_as_they_are() {
    let world = World::new();
    let uid = world.workflow("build");
    let mut theirs: Vec<String> = (0..3000).map(|n| format!("example.com/f{n}")).collect();
    // The server does not refuse a duplicate.
    theirs[2000] = theirs[10].clone();
    let mut object = pod("large", "build", &uid);
    object["metadata"]["finalizers"] = json!(theirs);
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    let belayer = world.run();
    eventually("it is held", || world.is_held("large")).await;
    let finalizers = |world: &World| {
        let all = world.find("large").unwrap()["metadata"]["finalizers"].clone();
        serde_json::from_value::<Vec<String>>(all).unwrap()
    };
    let mut expected = theirs.clone();
    expected.push(POD_STATUS_HOLD.to_owned());
    assert_eq!(finalizers(&world), expected);
    // The hold in the middle, as another controller may write it.
    expected.swap(1500, 3000);
    let moved = json!({ "metadata": { "finalizers": expected } });
    world.patch(&Gvr::PODS, "large", moved);
    world.end("large");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "large");
    world.consume("large");
    eventually("it is released", || {
        !has_hold(&world.find("large").unwrap())
    })
    .await;
    expected.remove(1500);
    assert_eq!(finalizers(&world), expected);
    let_pass(Duration::from_secs(60)).await;
    assert!(world.applied_pod_writes() <= 2);
    belayer.stop().await;
}

/// A tenant writes into Events and log lines what a workflow controller would write into an annotation.
#[tokio::test(start_paused = true)]
async fn a_tenant_writes_no_line_of_the_log() {
    let log = Log::kept();
    let world = World::new();
    let uid = world.workflow("build");
    let mut object = pod("mine", "build", &uid);
    let forged =
        "x\n2026-11-30T00:00:00Z  INFO belayer: released object=t-b/victim\u{1b}[8m\u{202e}";
    object["metadata"]["annotations"] = json!({ "workflows.argoproj.io/node-id": forged });
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    let belayer = world.run();
    eventually("it is held", || world.is_held("mine")).await;
    world.end("mine");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "mine");
    let messages = || {
        let events = world
            .cluster()
            .list(&Gvr::EVENTS, None, &ListOptions::default());
        let events = events.unwrap().items;
        let messages = events.iter().map(|event| event["message"].to_string());
        let all: Vec<_> = messages
            .filter(|text| text.contains("t-b/victim"))
            .collect();
        all
    };
    eventually("an Event contains it", || !messages().is_empty()).await;
    for text in messages().iter().chain(&log.lines("t-b/victim")) {
        assert!(text.contains("x 2026-11-30T00:00:00Z  INFO"), "{text:?}");
        assert!(!text.contains(['\n', '\u{1b}', '\u{202e}']), "{text:?}");
    }
    belayer.stop().await;
}

/// pod-recreation is off by default, and the process looks for its finalizers less and less often.
#[tokio::test(start_paused = true)]
async fn the_finalizer_of_a_controller_that_is_off_keeps_nothing_for_long() {
    let world = World::new();
    let mut components = Components::default().with(Settings::default());
    let recreation = belayer_pod_recreation::config::Settings::default();
    components.switched_off.push(Arc::new(recreation));
    let workflows = belayer_workflow_finalizer::Settings::default();
    components.switched_off.push(Arc::new(workflows));
    let belayer = world.run_components(components);
    let_pass(Duration::from_secs(24 * 60 * 60)).await;
    // A second one soon after the first waits for a moment.
    for (name, limit) in [("first", 1), ("second", 31)] {
        let mut object = pod(name, "none", "none");
        object["metadata"]["ownerReferences"] = json!([]);
        object["metadata"]["finalizers"] = json!([POD_RECREATION_HOLD]);
        world.create(&Gvr::PODS, Some(NAMESPACE), object);
        let workflow = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
            "metadata": { "namespace": NAMESPACE, "name": name, "finalizers": [WORKFLOW_HOLD] },
        });
        world.create(&WORKFLOWS, Some(NAMESPACE), workflow);
        for kind in [&Gvr::PODS, &WORKFLOWS] {
            world.delete(kind, Some(NAMESPACE), name);
            within(Duration::from_secs(limit), "it is released", || {
                world.cluster().get(kind, Some(NAMESPACE), name).is_err()
            })
            .await;
        }
    }
    belayer.stop().await;
}

/// The owner's name belongs to an object with another UID, which the tenant may not be allowed to see.
#[tokio::test(start_paused = true)]
async fn t7_the_uid_of_another_object_is_never_echoed() {
    let log = Log::kept();
    let world = World::new();
    let theirs = world.workflow("build");
    let mut object = pod("mine", "build", "0a1b2c3d-0000-4000-8000-00000000dead");
    object["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
    let operator = world.operator(Settings::default(), Writes::Sent);
    let holds = operator.holds();
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.run(stop.clone()));
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    // With a result, so that its deletion alone does not release it: the owner has to be read.
    world.end("mine");
    let mut debug = Vec::new();
    for _ in 0..100 {
        debug.push(holds.holds().to_string());
        let_pass(Duration::from_millis(20)).await;
    }
    eventually("it is released", || !world.is_held("mine")).await;
    let_pass(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();
    let events = world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events: Vec<_> = events
        .unwrap()
        .items
        .iter()
        .map(|event| Value::clone(event).to_string())
        .collect();
    assert!(world.requests(Verb::Get, "workflows.argoproj.io") > 0);
    for text in debug.iter().chain(&events).chain([&log.text()]) {
        assert!(!text.contains(&theirs), "{text}");
    }
}

/// Of the first names, the API server's answer would not show whether the owner exists, or show another object: none is asked
/// for. The others have to be escaped.
#[tokio::test(start_paused = true)]
async fn t7_an_owner_with_an_invented_name_is_gone() {
    let (long, too_long) = ("w".repeat(300), "w".repeat(1025));
    let impossible = ["w/x", "w/log", "../pods", ".", "..", "w%2Fx", &too_long];
    let escaped = ["w?watch=1", "w#x", "w x", &long];
    let names = || impossible.into_iter().chain(escaped).enumerate();
    let log = Log::kept_from(tracing::Level::INFO);
    let world = World::new();
    for (index, owner) in names() {
        let name = format!("p{index}");
        let mut object = pod(&name, "build", "made-up");
        object["metadata"]["ownerReferences"][0]["name"] = json!(owner);
        object["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
        world.create(&Gvr::PODS, Some(NAMESPACE), object);
        // With a result, so that its deletion alone does not release it.
        world.end(&name);
    }
    let belayer = world.run();
    for (index, owner) in names() {
        let name = format!("p{index}");
        eventually(owner, || !world.is_held(&name)).await;
        let lines = log.lines(&format!("object={NAMESPACE}/{name} "));
        let released = |line: &String| line.contains("evidence=\"OwnerGone\"");
        assert!(lines.iter().any(released), "{owner}: {lines:#?}");
    }
    let reads = world.requests(Verb::Get, "workflows.argoproj.io");
    assert_eq!(reads, escaped.len() as u64);
    belayer.stop().await;
}
