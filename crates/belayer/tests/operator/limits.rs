//! Dry run, quiet, the backlog gate and the guard against mass release.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_pod_finalizer::profile::{Mode, Profile, Profiles, argo};
use belayer_sandbox::workload::WORKFLOWS;
use belayer_sandbox::{Gvr, Subresource};
use serde_json::json;

use crate::world::{BELAYER, NAMESPACE, World, eventually, let_pass};

#[tokio::test(start_paused = true)]
async fn a_dry_run_sends_no_mutating_request_at_all() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..10 {
        world.held_pod(&format!("held-{n}"), "build", &uid);
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    world.consume("held-0");
    world.end("held-1");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "held-1");
    let belayer = world.run_with(Settings::default(), Writes::DryRun);
    let_pass(Duration::from_secs(30)).await;
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(300)).await;
    belayer.stop().await;
    let writes = world.sandbox.recorder().writes_by(BELAYER);
    assert!(writes.is_empty(), "{}", writes[0].summary());
    assert!(world.held_pods() >= 10);
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_sees_no_write() {
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    for n in 0..50 {
        world.pod(&format!("a-{n}"), "build", &uid);
    }
    eventually("all are held", || world.held_pods() == 50).await;
    world.end("a-1");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "a-1");
    let_pass(Duration::from_secs(30)).await;
    let before = world.sandbox.recorder().writes_by(BELAYER).len();
    let_pass(Duration::from_secs(1200)).await;
    let after = world.sandbox.recorder().writes_by(BELAYER);
    assert_eq!(after.len(), before, "{}", after.last().unwrap().summary());
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_stops_holds_and_never_a_release() {
    let world = World::new();
    world.create_namespace("belayer-system");
    let gate = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "belayer-gate" }, "data": { "hold": "on" },
    });
    world.create(&Gvr::CONFIGMAPS, Some("belayer-system"), gate);
    let shown = || {
        let gate = world
            .cluster()
            .get(&Gvr::CONFIGMAPS, Some("belayer-system"), "belayer-gate")
            .unwrap();
        gate["data"]["hold"].as_str().unwrap().to_owned()
    };
    let uid = world.workflow("build");
    for n in 0..12 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
        world.end(&format!("a-{n}"));
    }
    let _belayer = world.run_with(
        Settings {
            backlog_threshold: 10,
            ..Settings::default()
        },
        Writes::Sent,
    );
    eventually("the policy is switched off", || shown() == "off").await;
    world.pod("late", "build", &uid);
    let_pass(Duration::from_secs(60)).await;
    assert!(!world.is_held("late"), "the gate is closed");
    for n in 0..7 {
        world.consume(&format!("a-{n}"));
    }
    eventually("releases go on", || world.held_pods() == 5).await;
    let_pass(Duration::from_secs(5)).await;
    assert!(
        !world.is_held("late"),
        "half of the threshold is not below half"
    );
    world.consume("a-7");
    eventually("the gate opens and the pod is held", || {
        world.is_held("late")
    })
    .await;
    eventually("the policy is on again", || shown() == "on").await;
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_selector_drops_no_rope() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..100 {
        world.held_pod(&format!("a-{n:02}"), "build", &uid);
    }
    let strip = json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": null } } });
    for n in 0..21 {
        world.patch(&Gvr::PODS, &format!("a-{n:02}"), strip.clone());
    }
    let belayer = world.run();
    let_pass(Duration::from_secs(120)).await;
    assert_eq!(world.held_pods(), 100, "21 of 100 are too many at once");
    belayer.stop().await;
    // One fewer is within the limit.
    world.patch(
        &Gvr::PODS,
        "a-20",
        json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": "build" } } }),
    );
    let _belayer = world.run();
    eventually("20 are let go", || world.held_pods() == 80).await;
}

#[tokio::test(start_paused = true)]
async fn an_ignored_namespace_is_left_alone() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let _belayer = world.run();
    let_pass(Duration::from_secs(10)).await;
    assert!(world.is_held("a"));
    let label = json!({ "metadata": { "labels": { "belayer.dev/ignore": "true" } } });
    world.patch_in(&Gvr::NAMESPACES, None, NAMESPACE, label, Subresource::None);
    eventually("let go", || !world.is_held("a")).await;
    world.pod("b", "build", &uid);
    let_pass(Duration::from_secs(60)).await;
    assert!(!world.is_held("b"));
}

fn observing() -> Settings {
    let profile = Profile {
        mode: Mode::Observe,
        ..argo::profile()
    };
    Settings {
        profiles: Profiles::new([profile]).unwrap(),
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn observing_writes_nothing_and_counts_what_is_lost() {
    let world = World::new();
    let belayer = world.run_with(observing(), Writes::Sent);
    let uid = world.workflow("build");
    for name in ["lost", "taken", "of-finished", "a6-without-an-end"] {
        world.pod(name, "build", &uid);
    }
    let_pass(Duration::from_secs(5)).await;
    world.consume("taken");
    world.end("lost");
    for name in ["taken", "lost", "a6-without-an-end"] {
        world.delete(&Gvr::PODS, Some(NAMESPACE), name);
    }
    let_pass(Duration::from_secs(60)).await;
    let done = json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
    world.patch(&WORKFLOWS, "build", done);
    let_pass(Duration::from_secs(1)).await;
    world.delete(&Gvr::PODS, Some(NAMESPACE), "of-finished");
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(belayer.finalizer.observed_losses(), 1);
    let writes = world.sandbox.recorder().writes_by(BELAYER);
    assert!(writes.is_empty(), "{}", writes[0].summary());
}

#[tokio::test(start_paused = true)]
async fn a_profile_switched_to_observe_leaves_no_rope_behind() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    world.pod("b", "build", &uid);
    let _belayer = world.run_with(observing(), Writes::Sent);
    let_pass(Duration::from_secs(30)).await;
    assert!(world.is_held("a") && !world.is_held("b"));
    world.consume("a");
    eventually("the release", || !world.is_held("a")).await;
}
