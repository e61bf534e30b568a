//! What many pods of one workflow cost: a restart beside their records, and changes of their workflow. What is reported if
//! their consumer is silent.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_holds::names::POD_STATUS_HOLD;
use belayer_metrics::Exporter;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Fault, Gvr, ListOptions, Match, Subresource, Verb};
use belayer_workload::WORKFLOWS;
use serde_json::json;

use crate::world::{NAMESPACE, World, eventually, let_pass, within};

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
    // The watch that fills the cache is the list.
    let lists = || of(Verb::List, RECORDS) + of(Verb::Watch, RECORDS);
    let lists_before = lists();
    let _belayer = world.run_with(capturing(), Writes::Sent);
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(world.held_pods(), PODS, "Argo has not read them");
    assert_eq!(of(Verb::Create, RECORDS), PODS as u64, "created again");
    assert_eq!((of(Verb::Get, RECORDS), of(Verb::Get, "pods")), before);
    assert_eq!(lists(), lists_before + 1);
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

/// Pods that are being deleted wait for their nodes, which the workflow fulfils one after the other.
#[tokio::test(start_paused = true)]
async fn a17_after_the_live_read_only_the_pods_whose_node_changed_are_enqueued() {
    const PODS: u64 = 100;
    const FULFILLED: u64 = 20;
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let uid = world.workflow("build");
    for index in 0..PODS {
        let name = format!("p{index}");
        let mut pod = crate::world::pod(&name, "build", &uid);
        pod["metadata"]["annotations"] = json!({ NODE_ID: name });
        pod["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
        world.create(&Gvr::PODS, Some(NAMESPACE), pod);
        world.end(&name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
    }
    let _belayer = world.run();
    let_pass(Duration::from_secs(15)).await;
    let reads = || world.requests(Verb::Get, "workflows.argoproj.io");
    let (before, read_before) = (added(&exporter), reads());
    for done in 0..FULFILLED {
        let nodes =
            json!({ "status": { "nodes": { (format!("p{done}")): { "phase": "Succeeded" } } } });
        world.patch(&WORKFLOWS, "build", nodes);
        let_pass(Duration::from_millis(1_000)).await;
        assert_eq!(world.held_pods() as u64, PODS - done - 1);
    }
    // Every pod is decided once more every 30 s, so at most once in these 20 s; two events of its own and the answer
    // concern a pod whose node changed.
    let for_changes = added(&exporter) - before;
    assert!(
        for_changes <= PODS + 4 * FULFILLED,
        "{for_changes} keys were added"
    );
    let read = reads() - read_before;
    assert!(read <= FULFILLED + 2, "{read} live reads");
}

fn silent(exporter: &Exporter) -> f64 {
    let text = exporter.render();
    let series = "belayer_consumer_silent_seconds{kind=\"Workflow\"} ";
    let mut lines = text.lines().filter(|line| line.starts_with(series));
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

/// A held pod of the workflow `build` that has ended and is deleted, before its node is fulfilled.
async fn deleted_step(world: &World, uid: &str) {
    let mut pod = crate::world::pod("step", "build", uid);
    pod["metadata"]["annotations"] = json!({ NODE_ID: "build-step" });
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    eventually("it is held", || world.is_held("step")).await;
    world.end("step");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
}

/// Argo writes the status right after Belayer has read it.
#[tokio::test(start_paused = true)]
async fn a19_a_pod_is_released_within_a_second_after_its_status() {
    for later in [50, 300, 900, 2_500, 40_000] {
        let world = World::new();
        let uid = world.workflow("build");
        let _belayer = world.run();
        deleted_step(&world, &uid).await;
        let_pass(Duration::from_millis(later)).await;
        assert!(world.is_held("step"));
        let nodes = json!({ "status": { "nodes": { "build-step": { "phase": "Succeeded" } } } });
        world.patch(&WORKFLOWS, "build", nodes);
        within(Duration::from_secs(1), "it is released", || {
            !world.is_held("step")
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a19_a_status_that_could_be_read_again_releases_within_a_second() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    deleted_step(&world, &uid).await;
    let unreadable = json!({ "status": { "compressedNodes": "!!" } });
    world.patch(&WORKFLOWS, "build", unreadable);
    let_pass(Duration::from_secs(10)).await;
    assert!(world.is_held("step"));
    let nodes = json!({ "build-step": { "phase": "Succeeded" } });
    let readable = json!({ "status": { "compressedNodes": null, "nodes": nodes } });
    world.patch(&WORKFLOWS, "build", readable);
    within(Duration::from_secs(1), "it is released", || {
        !world.is_held("step")
    })
    .await;
}

/// What the histogram of releases has counted: how many, and their seconds.
fn releases(exporter: &Exporter) -> (f64, f64) {
    let text = exporter.render();
    let value = |name: &str| {
        let of_pods =
            |line: &&str| line.starts_with(name) && line.contains("controller=\"pod-finalizer\"");
        let line = text.lines().find(of_pods).expect("it is published");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (
        value("belayer_release_duration_seconds_count"),
        value("belayer_release_duration_seconds_sum"),
    )
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_release_begins_with_its_evidence() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let uid = world.workflow("build");
    let _belayer = world.run();
    for (name, deleted) in [("deleted", true), ("ended", false)] {
        let mut pod = crate::world::pod(name, "build", &uid);
        pod["metadata"]["annotations"] = json!({ NODE_ID: format!("build-{name}") });
        world.create(&Gvr::PODS, Some(NAMESPACE), pod);
        eventually("it is held", || world.is_held(name)).await;
        world.end(name);
        if deleted {
            world.delete(&Gvr::PODS, Some(NAMESPACE), name);
        }
    }
    // Argo is slow: the pods' ends are no evidence, and neither is a status that is read again and again.
    let unreadable = json!({ "status": { "compressedNodes": "!!" } });
    world.patch(&WORKFLOWS, "build", unreadable);
    let_pass(Duration::from_secs(100)).await;
    world.consume("deleted");
    world.consume("ended");
    eventually("both are released", || world.held_pods() == 0).await;
    let_pass(Duration::from_secs(1)).await;
    let (count, seconds) = releases(&exporter);
    assert_eq!(count, 2.0);
    assert!(seconds < 2.0, "{seconds} s");
}

/// The server answers the patch that removes the last finalizer of a deleted pod with the version before, so the
/// version does not show that the cache is stale.
#[tokio::test(start_paused = true)]
async fn a17_each_pod_is_released_by_one_patch_however_often_its_workflow_changes() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    deleted_step(&world, &uid).await;
    let_pass(Duration::from_secs(2)).await;
    let before = world.requests(Verb::Patch, "pods");
    let late = Fault::on(Match::watches().resource("pods")).pause_watches();
    let late = world.sandbox.faults().inject(late);
    let nodes = json!({ "status": { "nodes": { "build-step": { "phase": "Succeeded" } } } });
    world.patch(&WORKFLOWS, "build", nodes);
    eventually("it is gone", || world.find("step").is_none()).await;
    for round in 0..10 {
        world.patch(
            &WORKFLOWS,
            "build",
            json!({ "status": { "progress": round } }),
        );
        let_pass(Duration::from_secs(1)).await;
    }
    assert_eq!(world.requests(Verb::Patch, "pods") - before, 1);
    late.remove();
    // A later pod of the same name is another one.
    let mut pod = crate::world::pod("step", "build", &uid);
    pod["metadata"]["annotations"] = json!({ NODE_ID: "build-other" });
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    eventually("its successor is held", || world.is_held("step")).await;
}

/// A namespace whose consumer works.
const SERVED: &str = "served";

/// Creates the workflow `works` in [`SERVED`]; returns its UID.
fn served(world: &World) -> String {
    world.create_namespace(SERVED);
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "namespace": SERVED, "name": "works" }, "spec": {},
    });
    let works = world.create(&WORKFLOWS, Some(SERVED), workflow);
    works["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn held_pod(world: &World, (namespace, name): (&str, &str), workflow: &str, uid: &str) {
    let mut pod = crate::world::pod(name, workflow, uid);
    pod["metadata"]["namespace"] = namespace.into();
    pod["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
    world.create(&Gvr::PODS, Some(namespace), pod);
}

/// The pod ends, and its deletion waits for its consumer.
fn ends_and_waits(world: &World, (namespace, name): (&str, &str)) {
    let (ended, status) = (
        json!({ "status": { "phase": "Succeeded" } }),
        Subresource::Status,
    );
    world.patch_in(&Gvr::PODS, Some(namespace), name, ended, status);
    world.delete(&Gvr::PODS, Some(namespace), name);
}

/// For 400 s the consumer writes the status of `works` every ten seconds.
async fn works_on(world: &World) {
    for round in 0..40 {
        let nodes =
            json!({ "status": { "nodes": { "x": { "phase": "Running", "round": round } } } });
        world.patch_in(&WORKFLOWS, Some(SERVED), "works", nodes, Subresource::None);
        let_pass(Duration::from_secs(10)).await;
    }
}

/// The consumer of one namespace is down, that of another one works.
#[tokio::test(start_paused = true)]
async fn a21_a_consumer_of_another_namespace_hides_no_silence() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let of_works = served(&world);
    let uid = world.workflow("build");
    world.held_pod("waits", "build", &uid);
    held_pod(&world, (SERVED, "other"), "works", &of_works);
    let _belayer = world.run();
    for pod in [(NAMESPACE, "waits"), (SERVED, "other")] {
        ends_and_waits(&world, pod);
    }
    works_on(&world).await;
    assert!(silent(&exporter) > 300.0, "{}", silent(&exporter));
}

/// The live reads of pods for deleted workflows, by whether the store or a list of all pods answered.
fn reads_of_pods(exporter: &Exporter) -> (u64, u64) {
    let text = exporter.render();
    let reads = text.lines().filter(|line| {
        line.starts_with("belayer_facts_total{") && line.contains("question=\"pods\"")
    });
    let (mut by_store, mut by_list) = (0, 0);
    for line in reads {
        let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        if line.contains("answer=\"store\"") {
            by_store += count;
        } else {
            by_list += count;
        }
    }
    (by_store, by_list)
}

/// Pods of other workflows change, as they do in a cluster that runs some.
async fn let_pods_change(world: &World, time: Duration) {
    const EVERY: Duration = Duration::from_millis(100);
    for change in 0..time.as_millis() / EVERY.as_millis() {
        let label = json!({ "metadata": { "labels": { "change": change.to_string() } } });
        world.patch(&Gvr::PODS, "beside", label);
        let_pass(EVERY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a8_workflows_deleted_one_by_one_need_no_list_with_a_selector() {
    const DELETED: usize = 5;
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let _belayer = world.run_with_workflows();
    let of_another = world.workflow("another");
    world.pod("beside", "another", &of_another);
    // More than the first page of a list, which would answer alone.
    for index in 0..120 {
        world.pod(&format!("beside-{index}"), "another", &of_another);
    }
    for index in 0..DELETED {
        world.workflow(&format!("w{index}"));
    }
    for name in ["x", "y"] {
        world.workflow(name);
    }
    let_pass(Duration::from_secs(5)).await;
    let is_gone = |name: &str| {
        let found = world.cluster().get(&WORKFLOWS, Some(NAMESPACE), name);
        found.is_err()
    };
    for index in 0..DELETED {
        let name = format!("w{index}");
        world.delete(&WORKFLOWS, Some(NAMESPACE), &name);
        assert!(!is_gone(&name), "it is not held");
        let_pods_change(&world, Duration::from_millis(1_500)).await;
        assert!(is_gone(&name), "it is still held");
    }
    assert_eq!(reads_of_pods(&exporter), (DELETED as u64, 0));
    // One read for two that are deleted at the same time.
    for name in ["x", "y"] {
        world.delete(&WORKFLOWS, Some(NAMESPACE), name);
    }
    let_pods_change(&world, Duration::from_millis(2_500)).await;
    assert!(is_gone("x") && is_gone("y"), "they are still held");
    assert_eq!(reads_of_pods(&exporter), (DELETED as u64 + 1, 0));
}

/// A drain goes from pod to pod while the consumer is down.
#[tokio::test(start_paused = true)]
async fn a21_pods_that_begin_or_end_to_wait_hide_no_silence() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let _belayer = world.run_with_workflows();
    let names = ["first", "second", "third"];
    for name in names {
        let uid = world.workflow(name);
        world.pod(&format!("of-{name}"), name, &uid);
    }
    eventually("all are held", || world.held_pods() == 3).await;
    for name in names {
        let name = format!("of-{name}");
        world.end(&name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
        let_pass(Duration::from_secs(150)).await;
        // A user creates and deletes workflows: their consumer changes none.
        world.workflow(&format!("new-{name}"));
        world.delete(&WORKFLOWS, Some(NAMESPACE), &format!("new-{name}"));
    }
    assert!(silent(&exporter) > 430.0, "{}", silent(&exporter));
    // The result of one was given up by hand.
    let release = json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    world.patch(&Gvr::PODS, "of-first", release);
    let_pass(Duration::from_secs(30)).await;
    assert_eq!(world.held_pods(), 2);
    assert!(silent(&exporter) > 460.0, "{}", silent(&exporter));
    // The consumer changes a workflow whose pods do not wait.
    world.workflow("another");
    let_pass(Duration::from_secs(20)).await;
    let nodes = json!({ "status": { "nodes": { "x": { "phase": "Running" } } } });
    world.patch(&WORKFLOWS, "another", nodes);
    let_pass(Duration::from_secs(20)).await;
    assert!(silent(&exporter) < 31.0, "{}", silent(&exporter));
}

/// Pods of one namespace that have waited longer hide none of another.
#[tokio::test(start_paused = true)]
async fn a21_many_waiting_pods_of_a_namespace_hide_no_silence_of_another() {
    const MANY: usize = 1_001;
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let of_works = served(&world);
    let uid = world.workflow("build");
    for index in 0..MANY {
        let pod = (SERVED, &*format!("p{index}"));
        held_pod(&world, pod, "works", &of_works);
        ends_and_waits(&world, pod);
    }
    let_pass(Duration::from_secs(5)).await;
    world.held_pod("later", "build", &uid);
    ends_and_waits(&world, (NAMESPACE, "later"));
    let _belayer = world.run();
    works_on(&world).await;
    assert!(silent(&exporter) > 300.0, "{}", silent(&exporter));
}
