//! What many pods of one workflow cost: a restart beside their records, and changes of their workflow. What is reported if
//! their consumer is silent.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_metrics::Exporter;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_sandbox::{Gvr, ListOptions, Verb};
use belayer_workload::WORKFLOWS;
use serde_json::json;

use crate::world::{NAMESPACE, World, eventually, let_pass};

const RECORDS: &str = "podoutcomes.belayer.dev";

fn capturing() -> Settings {
    let config = json!({ "profiles": [{ "builtIn": "argo", "capture": true }] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    config.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a13_a_restart_asks_for_no_record_that_exists() {
    const PODS: usize = 30;
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    let uid = world.workflow("build");
    for index in 0..PODS {
        let name = format!("p{index}");
        world.held_pod(&name, "build", &uid);
        world.end(&name);
    }
    let belayer = world.run_with(capturing(), Writes::Sent);
    eventually("all are recorded", || {
        world.requests(Verb::Create, RECORDS) == PODS as u64
    })
    .await;
    belayer.crash();
    let of = |verb, kind: &str| world.requests(verb, kind);
    let before = (of(Verb::Get, RECORDS), of(Verb::Get, "pods"));
    let _belayer = world.run_with(capturing(), Writes::Sent);
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(world.held_pods(), PODS, "Argo has not read them");
    assert_eq!(of(Verb::Create, RECORDS), PODS as u64, "created again");
    assert_eq!((of(Verb::Get, RECORDS), of(Verb::Get, "pods")), before);
    // The records in the cache are those of the pods: a pod without one is recorded.
    world.held_pod("late", "build", &uid);
    world.end("late");
    eventually("the late one is recorded", || {
        of(Verb::Create, RECORDS) == PODS as u64 + 1
    })
    .await;
}

/// How many keys were added to the queue of pods.
fn added(exporter: &Exporter) -> u64 {
    let text = exporter.render();
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("workqueue_adds_total{") && line.contains("name=\"pods\""));
    let line = lines.next().expect("no adds are counted");
    assert_eq!(lines.next(), None);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a17_a_change_of_a_workflow_enqueues_only_the_pods_that_wait_for_it() {
    const RUNNING: u64 = 100;
    const CHANGES: u64 = 20;
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let uid = world.workflow("build");
    for index in 0..RUNNING {
        world.held_pod(&format!("p{index}"), "build", &uid);
    }
    world.held_pod("ended", "build", &uid);
    world.end("ended");
    let _belayer = world.run();
    let_pass(Duration::from_secs(30)).await;
    let before = added(&exporter);
    for change in 0..CHANGES {
        let nodes =
            json!({ "status": { "nodes": { "a": { "phase": "Running", "try": change } } } });
        world.patch(&WORKFLOWS, "build", nodes);
        let label = json!({ "metadata": { "labels": { "workflows.argoproj.io/phase": "Running",
            "workflows.argoproj.io/workflow-archiving-status": change.to_string() } } });
        world.patch(&WORKFLOWS, "build", label);
        let_pass(Duration::from_millis(100)).await;
    }
    let for_changes = added(&exporter) - before;
    assert!(for_changes <= 3 * CHANGES, "{for_changes} keys were added");
    // Its end concerns all.
    let done = json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
    world.patch(&WORKFLOWS, "build", done);
    eventually("all are released", || world.held_pods() == 0).await;
    assert!(
        world
            .find("p0")
            .is_some_and(|pod| pod["metadata"]["namespace"] == NAMESPACE)
    );
}

fn silent(exporter: &Exporter) -> f64 {
    let text = exporter.render();
    let mut lines = text.lines().filter(|line| {
        line.starts_with("belayer_consumer_silent_seconds{")
            && line.contains("workflows.argoproj.io")
    });
    let line = lines.next().expect("the gauge is published");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a21_a_silent_consumer_and_the_nodes_that_wait_are_reported() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let uid = world.workflow("build");
    for name in ["waits", "ended", "runs"] {
        let mut pod = crate::world::pod(name, "build", &uid);
        pod["spec"]["nodeName"] = "n1".into();
        world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    }
    let _belayer = world.run();
    eventually("all are held", || world.held_pods() == 3).await;
    world.end("ended");
    world.end("waits");
    let_pass(Duration::from_secs(400)).await;
    assert_eq!(world.events("HeldPodsWait"), 0, "no pod is being deleted");
    assert!(silent(&exporter) < 1.0, "{}", silent(&exporter));

    world.delete(&Gvr::PODS, Some(NAMESPACE), "waits");
    let_pass(Duration::from_secs(400)).await;
    let events = world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let mut about = events
        .iter()
        .filter(|event| event["reason"] == "HeldPodsWait");
    let event = about.next().expect("an Event");
    assert_eq!(event["involvedObject"]["kind"], "Node");
    assert_eq!(event["involvedObject"]["name"], "n1");
    let message = event["message"].as_str().unwrap();
    assert!(
        message.contains("ci/waits") && !message.contains("more"),
        "{message}"
    );
    assert!(silent(&exporter) > 300.0, "{}", silent(&exporter));
    // The workflow controller is back: a change of the status alone counts.
    let nodes = json!({ "status": { "nodes": { "x": { "phase": "Running" } } } });
    world.patch(&WORKFLOWS, "build", nodes);
    let_pass(Duration::from_secs(30)).await;
    assert!(silent(&exporter) < 31.0, "{}", silent(&exporter));
    world.consume("waits");
    let_pass(Duration::from_secs(30)).await;
    assert!(silent(&exporter) < 1.0, "{}", silent(&exporter));
}
