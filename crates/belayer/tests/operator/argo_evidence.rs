//! What is evidence for pods of Argo Workflows, and what is not, when the API shows less than usual or is slow.

use std::time::Duration;

use belayer::operator::Memory;
use belayer_core::executor::Writes;
use belayer_core::simulated::simulate;
use belayer_metrics::Exporter;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::profile::{DeletedWhileRunning, Mode, Profile, Profiles, argo};
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Fault, Gvr, Match, Subresource, Verb};
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};

use crate::argo::{A_WHILE, bound, delete, exited, record, report, runs, waits};
use crate::argo_nodes::node;
use crate::gate::{reports, threshold, with_gate};
use crate::world::{BELAYER, NAMESPACE, World, eventually, let_pass, within};

/// A step that has ended, is being deleted and is held, with a node in its workflow's status.
fn ended(world: &World, name: &str, workflow: &str, uid: &str) {
    let mut pod = crate::world::pod(name, workflow, uid);
    pod["metadata"]["annotations"] = json!({ NODE_ID: format!("{workflow}-{name}") });
    pod["metadata"]["finalizers"] = json!([belayer_holds::names::POD_STATUS_HOLD]);
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    world.end(name);
    world.delete(&Gvr::PODS, Some(NAMESPACE), name);
}

fn offloaded() -> Value {
    json!({ "status": {
        "phase": "Running", "offloadNodeStatusVersion": "fnv:1784",
        "taskResultsCompletionStatus": { "build-by-label": true, "build-by-end": true },
    } })
}

fn completed() -> Value {
    json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } })
}

#[tokio::test(start_paused = true)]
async fn a9_of_an_offloaded_status_only_labels_are_evidence() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    for name in ["by-label", "by-end"] {
        ended(&world, name, "build", &uid);
    }
    world.patch(&WORKFLOWS, "build", offloaded());
    let archived = json!({ "metadata": { "labels": {
        "workflows.argoproj.io/workflow-archiving-status": "Archived",
    } } });
    world.patch(&WORKFLOWS, "build", archived);
    let_pass(A_WHILE).await;
    assert_eq!(
        world.held_pods(),
        2,
        "neither task results nor the archive are evidence"
    );
    let says = waits(&world, "by-end");
    assert!(says.contains("offloaded to a database"), "{says}");
    assert!(says.contains("belayer.dev/release"), "{says}");
    world.consume("by-label");
    eventually("by its label", || !world.is_held("by-label")).await;
    assert!(world.is_held("by-end"));
    world.patch(&WORKFLOWS, "build", completed());
    eventually("by the end of its workflow", || !world.is_held("by-end")).await;
}

/// A container that never started, as its kubelet reports it once it has ended the pod.
fn assumed() -> Value {
    json!({ "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown" } })
}

/// Argo creates the next pod only when the failed one is gone (`failedPodRestart`), and shows that only in the status.
/// Until a minute has passed it may read why the node failed the pod.
#[rstest]
#[case::evicted_during_init("Evicted", &[("main", json!({ "waiting": {} })), ("wait", json!({ "waiting": {} }))], true, true)]
#[case::while_its_image_was_pulled("NodeShutdown", &[("main", assumed()), ("wait", exited(143))], true, true)]
#[case::rejected_before_it_was_seen("NodeAffinity", &[], true, true)]
#[case::its_status_can_be_read("Evicted", &[("main", json!({ "waiting": {} }))], false, false)]
#[case::it_had_run("Evicted", &[("main", exited(137)), ("wait", exited(143))], true, false)]
#[case::no_time_shows_that_it_had_not("Evicted", &[("main", json!({ "terminated": { "exitCode": 0 } }))], true, false)]
#[case::its_init_container_failed("", &[("main", json!({ "waiting": {} })), ("wait", json!({ "waiting": {} }))], true, false)]
#[tokio::test(start_paused = true)]
async fn a9_a_pod_that_its_node_failed_before_it_ran_does_not_wait_for_an_offloaded_status(
    #[case] reason: &str,
    #[case] containers: &[(&str, Value)],
    #[case] is_offloaded: bool,
    #[case] expected: bool,
) {
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    let uid = world.workflow("build");
    if is_offloaded {
        world.patch(&WORKFLOWS, "build", offloaded());
    }
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let annotations = json!({ NODE_ID: "build-a" });
    let mut pod = crate::world::pod("a", "build", &uid);
    pod["metadata"]["annotations"] = annotations;
    pod["metadata"]["finalizers"] = json!([belayer_holds::names::POD_STATUS_HOLD]);
    pod["spec"]["nodeName"] = "n1".into();
    pod["spec"]["initContainers"] = json!([{ "name": "init", "image": "argoexec",
        "env": [{ "name": "ARGO_TEMPLATE", "value": r#"{"name":"a","container":{}}"# }] }]);
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    let (init, message) = match containers {
        [] => (json!([]), "rejected"),
        _ => (
            json!([{ "name": "init", "state": exited(137) }]),
            "low on memory",
        ),
    };
    let status = json!({ "status": {
        "reason": reason, "message": message, "startTime": "2026-01-01T00:00:00Z",
        "initContainerStatuses": init,
    } });
    world.patch_in(
        &Gvr::PODS,
        Some(NAMESPACE),
        "a",
        status,
        Subresource::Status,
    );
    report(&world, "a", "Failed", containers);
    let _belayer = world.run();
    let_pass(Duration::from_secs(2)).await;
    world.delete(&Gvr::PODS, Some(NAMESPACE), "a");
    let_pass(A_WHILE).await;
    let says = waits(&world, "a");
    assert!(world.is_held("a"), "{says}");
    assert_eq!(
        says.contains("so that Argo can read that before"),
        expected,
        "{says}"
    );
    assert!(!expected || !says.contains("so it has a result"), "{says}");
    let_pass(Duration::from_secs(30)).await;
    assert_eq!(world.is_held("a"), !expected, "{says}");
    let text = exporter.render();
    let counted = |line: &str| {
        line.starts_with("belayer_unread_pods_total")
            && line.contains("EndedByDeletion")
            && line.ends_with(" 1")
    };
    assert_eq!(text.lines().any(counted), expected, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a5_pods_with_an_unreadable_status_count_and_are_named() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    world.patch(&WORKFLOWS, "build", offloaded());
    let _belayer = world.run_with(threshold(2), Writes::Sent);
    for name in ["p0", "p1", "p2"] {
        ended(&world, name, "build", &uid);
        let_pass(Duration::from_secs(2)).await;
    }
    let_pass(Duration::from_secs(5)).await;
    let said = reports(&world, "BacklogNamespaceClosed");
    assert_eq!(said.len(), 1, "{said:?}");
    let names = "the owner's status cannot be read for 3 of them, such as ci/p";
    assert!(said[0].contains(names), "{said:?}");
    assert!(said[0].contains("offloaded to a database"), "{said:?}");
}

/// EndedByDeletion is decided from the watched pod alone: reads of the status of other workflows do not delay it.
#[tokio::test(start_paused = true)]
async fn a6_a_pod_that_its_deletion_ended_is_released_within_200_ms() {
    const OTHERS: usize = 200;
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    for index in 0..20 {
        bound(&world, &format!("step-{index}"), &uid, "{}");
    }
    eventually("all are held", || world.held_pods() == 20).await;
    let reads = Match::verb(Verb::Get).resource("workflows.argoproj.io");
    let slow = Fault::on(reads).delay(Duration::from_secs(5));
    world.sandbox.faults().inject(slow);
    for index in 0..OTHERS {
        let name = format!("other-{index}");
        let uid = world.workflow(&name);
        ended(&world, &name, &name, &uid);
    }
    for index in 0..20 {
        let name = format!("step-{index}");
        report(
            &world,
            &name,
            "Running",
            &[("main", runs()), ("wait", runs())],
        );
        delete(&world, &name);
    }
    let_pass(Duration::from_secs(1)).await;
    assert_eq!(world.held_pods(), 20 + OTHERS);
    for index in 0..20 {
        let name = format!("step-{index}");
        let killed = [("main", exited(143)), ("wait", exited(0))];
        report(&world, &name, "Failed", &killed);
        let limit = Duration::from_millis(200);
        within(limit, "it is released", || !world.is_held(&name)).await;
    }
    assert_eq!(world.held_pods(), OTHERS);
}

/// Another client changes something that Belayer does not keep of the pod while its release is on its way. The pod is read live
/// then, and what its watched versions have proven still counts: no event comes later.
#[rstest]
#[case::the_watch_has_the_change(false)]
#[case::the_watch_is_late(true)]
#[tokio::test(start_paused = true)]
async fn a6_a_conflict_loses_nothing_that_was_watched(#[case] is_late: bool) {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    bound(&world, "step", &uid, "{}");
    eventually("it is held", || world.is_held("step")).await;
    let running = [("main", runs()), ("wait", runs())];
    report(&world, "step", "Running", &running);
    delete(&world, "step");
    let_pass(Duration::from_secs(1)).await;
    let patches = Match::verb(Verb::Patch).resource("pods").client(BELAYER);
    let slow = Fault::on(patches).times(1).delay(Duration::from_millis(50));
    world.sandbox.faults().inject(slow);
    let killed = [("main", exited(143)), ("wait", exited(0))];
    report(&world, "step", "Failed", &killed);
    let_pass(Duration::from_millis(10)).await;
    let watches = Match::watches().resource("pods").client(BELAYER);
    let paused = is_late.then(|| {
        world
            .sandbox
            .faults()
            .inject(Fault::on(watches).pause_watches())
    });
    let note = json!({ "metadata": { "annotations": { "example.com/note": "x" } } });
    world.patch(&Gvr::PODS, "step", note);
    within(Duration::from_millis(200), "the release", || {
        !world.is_held("step")
    })
    .await;
    drop(paused);
}

/// A consumer that reads records gets the record of a pod whose node is lost, although the pod never ended.
#[tokio::test(start_paused = true)]
async fn a12_the_outcome_on_a_lost_node_is_final() {
    let config = json!({ "profiles": [
        { "name": "batch", "selector": { "matchLabels": { "app": "batch" } }, "capture": true },
    ] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    let settings: Settings = config.try_into().unwrap();
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    node(&world, "True");
    let _belayer = world.run_with(settings, Writes::Sent);
    let mut pod = crate::world::pod("a", "none", "none");
    pod["metadata"]["labels"] = json!({ "app": "batch" });
    pod["metadata"]["ownerReferences"] = Value::Null;
    pod["spec"]["nodeName"] = "n1".into();
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    eventually("it is held", || world.is_held("a")).await;
    report(&world, "a", "Running", &[("main", runs())]);
    // By force.
    world.delete(&Gvr::PODS, Some(NAMESPACE), "a");
    let_pass(A_WHILE).await;
    assert!(world.is_held("a"), "its node is ready");
    assert!(record(&world, "a").is_none());
    let says = waits(&world, "a");
    assert!(
        says.contains("it has not ended, and its node exists"),
        "{says}"
    );
    let silent = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    world.patch_in(&Gvr::NODES, None, "n1", silent, Subresource::Status);
    eventually("it is released", || world.find("a").is_none()).await;
    let record = record(&world, "a").expect("its record");
    assert_eq!(record["spec"]["phase"], "Running");
    assert_eq!(record["spec"]["complete"], false);
}

/// A pod that was released is deleted much later: the status that released it is forgotten, and a standby never read it. Another,
/// which was not held, counts.
#[tokio::test(start_paused = true)]
async fn only_a_pod_that_was_not_held_counts_as_missed() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let missed = || {
        let text = exporter.render();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("belayer_missed_holds_total{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0.0)
            .to_string()
    };
    let belayer = world.run();
    let (_guard, standby) = world.standby();
    let uid = world.workflow("build");
    for name in ["a", "b"] {
        bound(&world, name, &uid, "{}");
        eventually("it is held", || world.is_held(name)).await;
        report(
            &world,
            name,
            "Succeeded",
            &[("main", exited(0)), ("wait", exited(0))],
        );
        let node = json!({ "metadata": { "annotations": { (NODE_ID): name } } });
        world.patch(&Gvr::PODS, name, node);
        let nodes = json!({ "status": { "nodes": { (name): { "phase": "Succeeded" } } } });
        world.patch(&WORKFLOWS, "build", nodes);
        within(Duration::from_secs(90), "its result is read", || {
            !world.is_held(name)
        })
        .await;
    }
    let_pass(Duration::from_mins(30)).await;
    delete(&world, "a");
    let_pass(Duration::from_secs(5)).await;
    assert_eq!(missed(), "0");
    belayer.stop().await;
    standby.stop().await;
    let _belayer = world.run();
    let_pass(Duration::from_secs(60)).await;
    delete(&world, "b");
    let_pass(Duration::from_secs(5)).await;
    assert_eq!(missed(), "0");
    world.sandbox.faults().inject(
        Fault::on(Match::verb(Verb::Patch).resource("pods").client(BELAYER))
            .delay(Duration::from_secs(60)),
    );
    bound(&world, "c", &uid, "{}");
    let ended = [("main", exited(0)), ("wait", exited(0))];
    report(&world, "c", "Succeeded", &ended);
    let_pass(Duration::from_secs(1)).await;
    delete(&world, "c");
    let_pass(Duration::from_secs(5)).await;
    assert_eq!(missed(), "1");
}

/// What observing counts of a pod that its deletion ended: with `release` it would have been released without a result,
/// with `hold` its end would have been saved.
#[rstest]
#[case::release(DeletedWhileRunning::Release, 0, 1)]
#[case::hold(DeletedWhileRunning::Hold, 1, 0)]
#[tokio::test(start_paused = true)]
async fn a6_observing_counts_pods_that_were_deleted_while_they_ran(
    #[case] deleted_while_running: DeletedWhileRunning,
    #[case] losses: u64,
    #[case] unread: usize,
) {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let profile = Profile {
        mode: Mode::Observe,
        deleted_while_running,
        ..argo::profile()
    };
    let settings = Settings {
        profiles: Profiles::new([profile]).unwrap(),
        ..Settings::default()
    };
    let belayer = world.run_with(settings, Writes::Sent);
    let uid = world.workflow("build");
    bound(&world, "step", &uid, "{}");
    let_pass(Duration::from_secs(1)).await;
    let running = [("main", runs()), ("wait", runs())];
    report(&world, "step", "Running", &running);
    delete(&world, "step");
    let_pass(Duration::from_secs(1)).await;
    let killed = [("main", exited(143)), ("wait", exited(0))];
    report(&world, "step", "Failed", &killed);
    let_pass(Duration::from_secs(1)).await;
    world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
    let_pass(Duration::from_secs(60)).await;
    assert!(world.find("step").is_none());
    assert_eq!(belayer.finalizer.observed_losses(), losses);
    let text = exporter.render();
    let counted = |line: &&str| {
        let parts = ["belayer_unread_pods_total{", "EndedByDeletion", "observe"];
        parts.iter().all(|part| line.contains(part)) && line.ends_with(" 1")
    };
    assert_eq!(text.lines().filter(counted).count(), unread, "{text}");
}

/// A reload replaces the controllers, and not what they have counted.
#[rstest]
#[case::enforce(Mode::Enforce)]
#[case::observe(Mode::Observe)]
#[tokio::test(start_paused = true)]
async fn a6_a_reload_counts_no_undecided_pod_again(#[case] mode: Mode) {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let uid = world.workflow("build");
    bound(&world, "step", &uid, r#"{"name":"a","container":{}}"#);
    let held = json!({ "metadata": { "finalizers": [belayer_holds::names::POD_STATUS_HOLD] } });
    world.patch(&Gvr::PODS, "step", held);
    delete(&world, "step");
    let killed = [("main", exited(143)), ("wait", exited(143))];
    report(&world, "step", "Failed", &killed);
    let memory = Memory::default();
    for mode in [mode, Mode::Enforce, Mode::Observe] {
        let profile = Profile {
            mode,
            ..argo::profile()
        };
        let settings = Settings {
            profiles: Profiles::new([profile]).unwrap(),
            ..Settings::default()
        };
        let belayer = world.run_remembering(settings, &memory);
        let_pass(A_WHILE).await;
        belayer.stop().await;
    }
    assert!(world.is_held("step"));
    let text = exporter.render();
    let counted = text
        .lines()
        .filter(|line| line.starts_with("belayer_unread_pods_total{") && !line.ends_with(" 0"));
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
    let by_mode = format!("mode=\"{mode}\"");
    assert!(counted[0].contains("Undecided"), "{counted:?}");
    assert!(counted[0].contains(&by_mode), "{counted:?}");
    assert!(counted[0].ends_with(" 1"), "{counted:?}");
}
