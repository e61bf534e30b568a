//! Pods of Argo Workflows with an unusual end or profile.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_metrics::Exporter;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Actor, DeleteOptions, Gvr, ListOptions, Subresource};
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, eventually, let_pass};

/// Longer than a release takes, and than the delay of an Event about a waiting deletion.
pub(super) const A_WHILE: Duration = Duration::from_secs(50);

pub(super) fn runs() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

pub(super) fn exited(code: i32) -> Value {
    let at = "2026-01-01T00:00:05Z";
    json!({ "terminated": { "exitCode": code, "startedAt": at, "finishedAt": at } })
}

/// The kubelet's report of a pod.
pub(super) fn report(world: &World, pod: &str, phase: &str, containers: &[(&str, Value)]) {
    let statuses = containers
        .iter()
        .map(|(name, state)| json!({ "name": name, "state": state, "restartCount": 0 }));
    let statuses: Vec<_> = statuses.collect();
    let status = json!({ "status": { "phase": phase, "containerStatuses": statuses } });
    world.patch_in(
        &Gvr::PODS,
        Some(NAMESPACE),
        pod,
        status,
        Subresource::Status,
    );
}

/// Deletes a pod that runs on a node, so that the kubelet reports its end.
pub(super) fn delete(world: &World, pod: &str) {
    let options = DeleteOptions {
        grace_period_seconds: Some(30),
        ..DeleteOptions::default()
    };
    let deleted = world.cluster().delete(
        &Actor::new("user"),
        &Gvr::PODS,
        Some(NAMESPACE),
        pod,
        &options,
    );
    deleted.unwrap();
}

/// A pod on a node, with the template that Argo writes into it.
pub(super) fn bound(world: &World, name: &str, uid: &str, template: &str) {
    let mut pod = crate::world::pod(name, "build", uid);
    pod["spec"]["nodeName"] = "n1".into();
    let env = json!([{ "name": "ARGO_TEMPLATE", "value": template }]);
    pod["spec"]["initContainers"] = json!([{ "name": "init", "image": "argoexec", "env": env }]);
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
}

/// The messages of a pod's Events about a waiting deletion.
pub(super) fn waits(world: &World, pod: &str) -> String {
    let events = world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let about = |event: &&std::sync::Arc<Value>| {
        event["reason"] == "DeletionWaits" && event["involvedObject"]["name"] == pod
    };
    let notes = events
        .iter()
        .filter(about)
        .map(|event| event["message"].to_string());
    notes.collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn a6_a_sidecar_that_failed_before_the_deletion_is_no_result() {
    const SET: &str = r#"{"containerSet":{"containers":[{"name":"side"},{"name":"main"}]}}"#;
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    let pods = [
        ("one", 1, r#"{"name":"a","container":{}}"#),
        ("killed", 143, r#"{"name":"a","container":{}}"#),
        ("member", 1, SET),
        ("offloaded", 1, "offloaded"),
    ];
    for (name, code, template) in pods {
        bound(&world, name, &uid, template);
        eventually("it is held", || world.is_held(name)).await;
        let before = [("main", runs()), ("wait", runs()), ("side", exited(code))];
        report(&world, name, "Running", &before);
        delete(&world, name);
        let_pass(Duration::from_secs(1)).await;
        let after = [
            ("main", exited(143)),
            ("wait", exited(143)),
            ("side", exited(code)),
        ];
        report(&world, name, "Failed", &after);
    }
    let_pass(A_WHILE).await;
    assert!(!world.is_held("one"), "{}", waits(&world, "one"));
    assert!(!world.is_held("killed"), "{}", waits(&world, "killed"));
    for name in ["member", "offloaded"] {
        assert!(world.is_held(name), "{name}");
        let says = waits(&world, name);
        assert!(says.contains("had failed before"), "{says}");
    }
}

#[tokio::test(start_paused = true)]
async fn a6_an_unwatched_deletion_is_undecided() {
    let world = World::new();
    let uid = world.workflow("build");
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let belayer = world.run();
    let template = r#"{"name":"a","container":{}}"#;
    for name in ["killed", "side", "before"] {
        bound(&world, name, &uid, template);
        eventually("it is held", || world.is_held(name)).await;
        let running = [("main", runs()), ("wait", runs()), ("side", runs())];
        report(&world, name, "Running", &running);
    }
    // It fails, and is deleted after that.
    report(
        &world,
        "before",
        "Failed",
        &[("main", exited(1)), ("wait", exited(0))],
    );
    let_pass(Duration::from_secs(1)).await;
    delete(&world, "before");
    let_pass(A_WHILE).await;
    let says = waits(&world, "before");
    assert!(says.contains("had failed before"), "{says}");

    belayer.crash();
    delete(&world, "killed");
    delete(&world, "side");
    let ended = [("main", exited(143)), ("wait", exited(143))];
    report(&world, "killed", "Failed", &ended);
    let late = [
        ("main", exited(0)),
        ("wait", exited(0)),
        ("side", exited(137)),
    ];
    report(&world, "side", "Failed", &late);
    let _belayer = world.run();
    // A standby counts nothing.
    let (_guard, _standby) = world.standby();
    let_pass(A_WHILE).await;
    let says = waits(&world, "killed");
    assert!(says.contains("undecided"), "{says}");
    assert!(!says.contains("had failed before"), "{says}");
    let says = waits(&world, "side");
    assert!(says.contains("may have succeeded"), "{says}");
    assert!(!says.contains("had failed before"), "{says}");
    let text = exporter.render();
    let counted = text
        .lines()
        .filter(|line| line.starts_with("belayer_unread_pods_total") && line.contains("Undecided"));
    let counted: Vec<_> = counted.collect();
    // `killed` and, after the restart, `before`.
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(counted[0].ends_with(" 2"), "{counted:?}");
}

/// Pod garbage collection marks a pod Failed that is being deleted on a node that is out of service, adds no
/// condition, and deletes it by force. No kubelet ever wrote a status of this pod.
#[tokio::test(start_paused = true)]
async fn a6_a_pod_without_any_kubelet_status_is_released() {
    let world = World::new();
    let uid = world.workflow("build");
    let belayer = world.run();
    let template = r#"{"name":"a","container":{}}"#;
    for name in ["never", "rejected"] {
        bound(&world, name, &uid, template);
        eventually("it is held", || world.is_held(name)).await;
    }
    belayer.crash();
    let rejected = json!({ "status": {
        "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected",
        "startTime": "2026-01-01T00:00:00Z",
    } });
    for (name, status) in [
        ("never", json!({ "status": { "phase": "Failed" } })),
        ("rejected", rejected),
    ] {
        delete(&world, name);
        let face = Subresource::Status;
        world.patch_in(&Gvr::PODS, Some(NAMESPACE), name, status, face);
        world.delete(&Gvr::PODS, Some(NAMESPACE), name);
    }
    let _belayer = world.run();
    let_pass(A_WHILE).await;
    assert!(!world.is_held("never"), "{}", waits(&world, "never"));
    let says = waits(&world, "rejected");
    assert!(
        world.is_held("rejected") && says.contains("undecided"),
        "{says}"
    );
}

/// For a pod that may have succeeded, the exit codes in its status are reported.
#[tokio::test(start_paused = true)]
async fn a6_a_possible_success_is_reported_with_its_exit_codes() {
    let world = World::new();
    let uid = world.workflow("build");
    let belayer = world.run();
    bound(&world, "step", &uid, r#"{"name":"a","container":{}}"#);
    eventually("it is held", || world.is_held("step")).await;
    belayer.crash();
    delete(&world, "step");
    let ended = [("main", exited(0)), ("side", exited(143))];
    report(&world, "step", "Failed", &ended);
    let _belayer = world.run();
    let_pass(A_WHILE).await;
    let says = waits(&world, "step");
    assert!(
        says.contains("may have succeeded: container main exited with 0"),
        "{says}"
    );
    assert!(!says.contains("Argo's own"), "it has none: {says}");
}

/// No consumer of Argo's pods reads records, so a profile that waits for a record cannot release them.
#[rstest]
#[case::configured(true)]
#[case::built_in_only(false)]
#[tokio::test(start_paused = true)]
async fn a1_argo_releases_a_pod_that_another_profile_captures(#[case] configured: bool) {
    let batch = json!({ "name": "batch", "selector": { "matchLabels": { "app": "batch" } }, "capture": true });
    let mut profiles = vec![batch];
    if configured {
        profiles.push(json!({ "builtIn": "argo" }));
    }
    let config = json!({ "profiles": profiles });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    let settings: Settings = config.try_into().unwrap();
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    let uid = world.workflow("build");
    let _belayer = world.run_with(settings, Writes::Sent);
    let names = ["by-status", "by-label", "by-end", "theirs"];
    for name in names {
        let mut pod = crate::world::pod(name, "build", &uid);
        pod["metadata"]["labels"]["app"] = "batch".into();
        pod["metadata"]["annotations"] = json!({ NODE_ID: format!("build-{name}") });
        if name == "theirs" {
            pod["metadata"]["ownerReferences"] = Value::Null;
        }
        world.create(&Gvr::PODS, Some(NAMESPACE), pod);
        eventually("it is held", || world.is_held(name)).await;
        world.end(name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), name);
    }
    let_pass(A_WHILE).await;
    assert!(!world.is_held("theirs"), "its record is written");
    assert_eq!(
        world.held_pods(),
        3,
        "Argo has not read the result of any pod"
    );
    if configured {
        let says = waits(&world, "by-status");
        assert!(says.contains("(profile argo)"), "{says}");
    }

    let fulfilled =
        json!({ "status": { "nodes": { "build-by-status": { "phase": "Succeeded" } } } });
    let workflow = |patch| {
        world.patch_in(
            &WORKFLOWS,
            Some(NAMESPACE),
            "build",
            patch,
            Subresource::None,
        );
    };
    workflow(fulfilled);
    eventually("by status", || !world.is_held("by-status")).await;
    world.consume("by-label");
    eventually("by label", || !world.is_held("by-label")).await;
    assert!(world.is_held("by-end"));
    workflow(json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } }));
    eventually("by the workflow's end", || !world.is_held("by-end")).await;
}

/// Captures every pod of Argo.
fn capturing(world: &World) -> Settings {
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    let config = json!({ "profiles": [{ "builtIn": "argo", "capture": true }] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    config.try_into().unwrap()
}

/// The record of a pod.
pub(super) fn record(world: &World, pod: &str) -> Option<std::sync::Arc<Value>> {
    let records = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
    let list = world
        .cluster()
        .list(&records, None, &ListOptions::default());
    let mut records = list.unwrap().items.into_iter();
    records.find(|record| record["spec"]["podName"] == pod)
}

#[tokio::test(start_paused = true)]
async fn a12_what_is_known_is_recorded_before_a_pod_is_released_that_runs() {
    let world = World::new();
    let settings = capturing(&world);
    let uid = world.workflow("build");
    let _belayer = world.run_with(settings, Writes::Sent);
    let template = r#"{"name":"a","container":{}}"#;
    for name in ["label", "status", "lost", "goes-on"] {
        bound(&world, name, &uid, template);
        let node = json!({ "metadata": { "annotations": { NODE_ID: format!("build-{name}") } } });
        world.patch(&Gvr::PODS, name, node);
        eventually("it is held", || world.is_held(name)).await;
        let running = [("main", runs()), ("wait", runs())];
        report(&world, name, "Running", &running);
        if name != "goes-on" {
            delete(&world, name);
        }
    }
    world.consume("label");
    let nodes = json!({ "status": { "nodes": { "build-status": { "phase": "Succeeded" } } } });
    world.patch(&WORKFLOWS, "build", nodes);
    // The node n1 does not exist.
    world.delete(&Gvr::PODS, Some(NAMESPACE), "lost");
    world.consume("goes-on");
    for name in ["label", "status", "lost", "goes-on"] {
        eventually(name, || !world.is_held(name)).await;
        let record = record(&world, name).unwrap_or_else(|| panic!("no record of {name}"));
        assert_eq!(record["spec"]["phase"], "Running", "{name}");
        assert_eq!(record["spec"]["complete"], false, "{name}");
    }
    // It is recorded again when it has ended.
    let ended = [("main", exited(0)), ("wait", exited(0))];
    report(&world, "goes-on", "Succeeded", &ended);
    let complete = || record(&world, "goes-on").is_some_and(|it| it["spec"]["complete"] == true);
    eventually("its end is recorded", complete).await;
}

const DELAY: Duration = Duration::from_secs(60);

fn argo_with(key: &str, value: &str) -> Settings {
    let config = json!({ "profiles": [{ "builtIn": "argo", key: value }] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    config.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_a_retry_of_the_workflow_the_delay_of_the_cleanup_begins_anew() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run_with(argo_with("cleanup", "argo"), Writes::Sent);
    let mut pod = crate::world::pod("step", "build", &uid);
    let strategy = "workflows.argoproj.io/pod-gc-strategy";
    pod["metadata"]["annotations"] = json!({ strategy: "OnWorkflowCompletion/1m0s" });
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    eventually("it is held", || world.is_held("step")).await;
    world.end("step");
    world.consume("step");
    let completed = |value: Value| {
        let label =
            json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": value } } });
        world.patch(&WORKFLOWS, "build", label);
    };
    completed("true".into());
    let_pass(DELAY / 2).await;
    completed(Value::Null);
    let_pass(DELAY * 2).await;
    assert!(world.find("step").is_some(), "its workflow runs");
    completed("true".into());
    let_pass(DELAY - Duration::from_secs(5)).await;
    assert!(world.find("step").is_some(), "the delay is not over");
    let_pass(Duration::from_secs(10)).await;
    assert!(world.find("step").is_none(), "the delay is over");
}

#[tokio::test(start_paused = true)]
async fn a2_after_the_node_came_back_its_loss_delays_the_release_anew() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run_with(argo_with("nodeLostDelay", "1m"), Writes::Sent);
    bound(&world, "step", &uid, r#"{"name":"a","container":{}}"#);
    eventually("it is held", || world.is_held("step")).await;
    report(
        &world,
        "step",
        "Running",
        &[("main", runs()), ("wait", runs())],
    );
    // The node n1 does not exist.
    world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
    let_pass(DELAY / 4).await;
    crate::argo_nodes::node(&world, "True");
    let_pass(DELAY * 2).await;
    assert!(world.is_held("step"), "its node is back");
    world.delete(&Gvr::NODES, None, "n1");
    let_pass(DELAY - Duration::from_secs(5)).await;
    assert!(world.is_held("step"), "the delay is not over");
    let_pass(Duration::from_secs(15)).await;
    assert!(!world.is_held("step"), "the delay is over");
}
