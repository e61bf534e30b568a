//! Dry run, settled clusters, the backlog limit and the guard against mass release.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_pod_finalizer::profile::{Mode, Profile, Profiles, argo};
use belayer_sandbox::{Answer, Fault, Gvr, ListOptions, Match, Subresource, Verb, WatchEnd};
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};

use crate::world::{BELAYER, NAMESPACE, World, eventually, gates, let_pass, within};

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

/// The gate of the manifests, with these keys changed.
pub(super) fn with_gate(world: &World, keys: &Value) {
    world.create_namespace("belayer-system");
    let mut data = json!({ "hold": "on", "mode": "normal" });
    for (key, word) in keys.as_object().unwrap() {
        data[key] = word.clone();
    }
    let gate = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "belayer-gate" }, "data": data,
    });
    world.create(&gates(), Some("belayer-system"), gate);
}

/// The value of a key of the gate.
fn said(world: &World, key: &str) -> Option<String> {
    let own = Some("belayer-system");
    let gate = world.cluster().get(&gates(), own, "belayer-gate");
    gate.unwrap()["data"][key].as_str().map(str::to_owned)
}

fn closed(world: &World) -> bool {
    said(world, "closed.ci").is_some()
}

/// Held pods that ended and are being deleted, and whose result is not read.
fn backlog(world: &World, uid: &str, names: impl Iterator<Item = String>) {
    for name in names {
        world.held_pod(&name, "build", uid);
        world.end(&name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
    }
}

pub(super) fn threshold(backlog_threshold: usize) -> Settings {
    Settings {
        backlog_threshold,
        ..Settings::default()
    }
}

/// Another tenant's workflow with a pod that waits for a hold, as [`World::pod`] makes it.
fn of_another_tenant(world: &World, pod: &str) {
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "namespace": "other", "name": pod }, "spec": {},
    });
    let created = world.create(&WORKFLOWS, Some("other"), workflow);
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let mut object = crate::world::pod(pod, pod, uid);
    object["metadata"]["namespace"] = json!("other");
    world.create(&Gvr::PODS, Some("other"), object);
}

fn is_held_elsewhere(world: &World, pod: &str) -> bool {
    let found = world.cluster().get(&Gvr::PODS, Some("other"), pod);
    found.is_ok_and(|pod| {
        pod["metadata"]["finalizers"]
            .to_string()
            .contains("belayer")
    })
}

/// T4: only the namespace with the waiting deletions is closed, and no release is stopped.
#[tokio::test(start_paused = true)]
async fn t4_a_closed_namespace_stops_only_its_own_holds() {
    let world = World::new();
    world.create_namespace("other");
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    assert_eq!(said(&world, "closed.ci").as_deref(), Some("backlog"));
    assert_eq!(
        said(&world, "hold").as_deref(),
        Some("on"),
        "for all others"
    );
    world.pod("late", "build", &uid);
    of_another_tenant(&world, "theirs");
    eventually("another tenant's pod is held", || {
        is_held_elsewhere(&world, "theirs")
    })
    .await;
    let_pass(Duration::from_secs(60)).await;
    assert!(!world.is_held("late"), "its namespace is closed");
    eventually("it is reported", || {
        world.events("BacklogNamespaceClosed") == 1
    })
    .await;
    for n in 0..7 {
        world.consume(&format!("a-{n}"));
    }
    eventually("releases go on", || world.held_pods() == 6).await;
    let_pass(Duration::from_secs(5)).await;
    assert!(
        !world.is_held("late"),
        "half of the threshold is not below half"
    );
    world.consume("a-7");
    eventually("it opens and the pod is held", || world.is_held("late")).await;
    eventually("the policy's key is gone", || !closed(&world)).await;
}

/// The answer to the write that closes the gate is lost, and the backlog is over before the write is tried again.
#[tokio::test(start_paused = true)]
async fn t4_a_gate_that_was_closed_without_an_answer_opens_again() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    let_pass(Duration::from_secs(5)).await;
    let writes = Match::verb(Verb::Patch).resource("gates").client(BELAYER);
    let lost = Fault::on(writes).times(1).lose_answer();
    world.sandbox.faults().inject(lost);
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    eventually("the namespace is closed", || closed(&world)).await;
    for n in 0..12 {
        world.consume(&format!("a-{n}"));
    }
    eventually("all are released", || world.held_pods() == 0).await;
    within(Duration::from_secs(60), "the policy's key is gone", || {
        !closed(&world)
    })
    .await;
}

/// A5: ended pods that are not being deleted are no backlog, whatever their number.
#[tokio::test(start_paused = true)]
async fn a5_ended_pods_that_are_not_deleted_close_nothing() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    for n in 0..30 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
        world.end(&format!("a-{n}"));
    }
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    world.pod("late", "build", &uid);
    eventually("the pod is held", || world.is_held("late")).await;
    let_pass(Duration::from_secs(30)).await;
    assert!(!closed(&world));
    assert_eq!(said(&world, "hold").as_deref(), Some("on"));
}

/// T4: the gate of the cluster closes by the sum of shares; closed namespaces, whether closed by the backlog or by
/// an admin, survive a restart and a drain.
#[tokio::test(start_paused = true)]
async fn t4_closed_namespaces_survive_a_restart_and_a_drain() {
    let world = World::new();
    world.create_namespace("other");
    with_gate(
        &world,
        &json!({ "closed.gone": "backlog", "closed.other": "maintenance" }),
    );
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    eventually("what has no backlog opens", || {
        said(&world, "closed.gone").is_none()
    })
    .await;
    for n in 0..6 {
        world.consume(&format!("a-{n}"));
    }
    eventually("6 are left", || world.held_pods() == 6).await;
    belayer.stop().await;
    let draining = json!({ "data": { "mode": "draining", "hold": "draining" } });
    let gate = |change: Value| {
        let own = Some("belayer-system");
        world.patch_in(&gates(), own, "belayer-gate", change, Subresource::None);
    };
    gate(draining);
    let belayer = world.run_with(threshold(10), Writes::Sent);
    world.pod("late", "build", &uid);
    let_pass(Duration::from_secs(30)).await;
    assert!(closed(&world), "a drain leaves it");
    gate(json!({ "data": { "mode": "normal", "hold": "on" } }));
    let_pass(Duration::from_secs(90)).await;
    assert!(closed(&world), "6 are not below half of 10");
    assert!(!world.is_held("late"));
    belayer.stop().await;
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    let_pass(Duration::from_secs(90)).await;
    assert!(
        closed(&world) && !world.is_held("late"),
        "a restart does not change it"
    );
    for n in 6..9 {
        world.consume(&format!("a-{n}"));
    }
    eventually("it opens", || !closed(&world) && world.is_held("late")).await;
    let admins = said(&world, "closed.other");
    assert_eq!(admins.as_deref(), Some("maintenance"), "an admin's stays");
}

/// The messages of the Events on the gate with this reason.
pub(super) fn reports(world: &World, reason: &str) -> Vec<String> {
    let events = world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let about = events.iter().filter(|event| event["reason"] == reason);
    about
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

/// T4: a new leader that finds the gate closed reports its own numbers: fewer pods than closed the gate.
#[tokio::test(start_paused = true)]
async fn t4_a_gate_that_is_closed_already_is_reported_with_true_numbers() {
    let world = World::new();
    with_gate(
        &world,
        &json!({ "closed.ci": "backlog", "backlog": "closed", "hold": "off" }),
    );
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..7).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("both are reported", || {
        !reports(&world, "BacklogGateClosed").is_empty()
            && !reports(&world, "BacklogNamespaceClosed").is_empty()
    })
    .await;
    let all = reports(&world, "BacklogGateClosed").remove(0);
    let one = reports(&world, "BacklogNamespaceClosed").remove(0);
    for says in [&all, &one] {
        let numbers = "above 10 held pods that are being deleted";
        assert!(
            says.contains(numbers) && says.contains("fewer than 5"),
            "{says}"
        );
    }
    assert!(all.contains("7 count now"), "{all}");
    assert!(one.contains("7 are there now"), "{one}");
    assert!(!one.contains("not affected"), "{one}");
}

/// T4: if another client overwrites the gate while a namespace is closed, the policy sees it open for a short
/// time only.
#[tokio::test(start_paused = true)]
async fn t4_a_removed_key_is_restored() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    let own = Some("belayer-system");
    let away = json!({ "data": { "closed.ci": null } });
    world.patch_in(&gates(), own, "belayer-gate", away, Subresource::None);
    crate::world::within(Duration::from_secs(90), "it is closed again", || {
        closed(&world)
    })
    .await;
}

/// A4: too many unselected pods do not keep pods with other evidence, and so the guard recovers.
#[tokio::test(start_paused = true)]
async fn a4_unselected_pods_with_evidence_are_released_and_the_guard_recovers() {
    let world = World::new();
    let (uid, gone) = (world.workflow("build"), world.workflow("gone"));
    for n in 0..10 {
        world.held_pod(&format!("taken-{n}"), "build", &uid);
        world.held_pod(&format!("orphan-{n}"), "gone", &gone);
        world.held_pod(&format!("wanted-{n}"), "build", &uid);
    }
    let strip = json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": null } } });
    for pod in world.pods() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        world.patch(&Gvr::PODS, name, strip.clone());
    }
    let belayer = world.run();
    let_pass(Duration::from_secs(30)).await;
    assert_eq!(world.held_pods(), 30, "30 of 30 are too many at once");
    eventually("it is kept count of", || {
        belayer.finalizer.held_objects().kept() == 30
    })
    .await;
    for n in 0..5 {
        world.consume(&format!("taken-{n}"));
    }
    eventually("what was taken is released", || world.held_pods() == 25).await;
    world.delete(&WORKFLOWS, Some(NAMESPACE), "gone");
    eventually("20 are few enough: all go", || world.held_pods() == 0).await;
}

/// T4: unselected pods of one namespace, whatever their number, do not keep those of others.
#[tokio::test(start_paused = true)]
async fn t4_unselected_pods_of_one_namespace_do_not_keep_others() {
    let world = World::new();
    world.create_namespace("other");
    let uid = world.workflow("build");
    of_another_tenant(&world, "theirs");
    let belayer = world.run();
    eventually("another tenant's pod is held", || {
        is_held_elsewhere(&world, "theirs")
    })
    .await;
    let bare = |n: usize| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("hostile-{n}"), "finalizers": ["belayer.dev/pod-status"] },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        })
    };
    let burst: Vec<usize> = (0..200).collect();
    for n in burst {
        world.create(&Gvr::PODS, Some(NAMESPACE), bare(n));
    }
    let strip = json!({ "metadata": { "labels": { "workflows.argoproj.io/workflow": null } } });
    world.patch_in(
        &Gvr::PODS,
        Some("other"),
        "theirs",
        strip.clone(),
        Subresource::None,
    );
    eventually("the other tenant's pod is released", || {
        !is_held_elsewhere(&world, "theirs")
    })
    .await;
    assert!(world.held_pods() > 100, "those of the burst are kept");
    // The same if everything exists from the start.
    belayer.stop().await;
    of_another_tenant(&world, "later");
    let held = json!({ "metadata": { "finalizers": ["belayer.dev/pod-status"] } });
    world.patch_in(&Gvr::PODS, Some("other"), "later", held, Subresource::None);
    world.patch_in(&Gvr::PODS, Some("other"), "later", strip, Subresource::None);
    let _belayer = world.run();
    eventually("after a restart as well", || {
        !is_held_elsewhere(&world, "later")
    })
    .await;
    world.pod("new", "build", &uid);
    eventually("and holds are added", || world.is_held("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_selector_releases_nothing() {
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
    eventually("20 are released", || world.held_pods() == 80).await;
}

/// Ten in each of three namespaces: few enough for labels that changed, too many for a configuration that did.
#[tokio::test(start_paused = true)]
async fn workflows_unselected_while_their_kind_was_not_served_count_as_by_the_configuration() {
    let world = World::new();
    let namespaces = ["a", "b", "c"];
    for namespace in namespaces {
        world.create_namespace(namespace);
        for n in 0..10 {
            let workflow = json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
                "metadata": { "name": format!("w-{n}"), "labels": { "hold": "yes" } },
            });
            world.create(&WORKFLOWS, Some(namespace), workflow);
        }
    }
    let held = || {
        let all = world
            .cluster()
            .list(&WORKFLOWS, None, &ListOptions::default());
        let all = all.unwrap().items;
        let held = all
            .iter()
            .filter(|it| it["metadata"]["finalizers"].is_array());
        held.count()
    };
    let owners = json!({ "owners": [{ "selector": { "matchLabels": { "hold": "yes" } } }] });
    let owners: WorkflowFinalizerConfig = serde_json::from_value(owners).unwrap();
    let _belayer = world.run_with_owners(owners.try_into().unwrap());
    eventually("all are held", || held() == 30).await;

    let kind = || Match::any().resource("workflows");
    let faults = world.sandbox.faults();
    let unserved = faults.inject(Fault::on(kind()).answer(Answer::page_not_found()));
    faults.end_watches(&kind(), WatchEnd::Close);
    eventually("it is noticed", || unserved.hits() > 2).await;
    let strip = json!({ "metadata": { "labels": { "hold": null } } });
    for namespace in namespaces {
        for n in 0..10 {
            let name = format!("w-{n}");
            world.patch_in(
                &WORKFLOWS,
                Some(namespace),
                &name,
                strip.clone(),
                Subresource::None,
            );
        }
    }
    unserved.remove();
    let served = || world.requests(Verb::Watch, "workflows.argoproj.io");
    let before = served();
    within(Duration::from_secs(600), "it is served again", || {
        served() > before
    })
    .await;
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(held(), 30);
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
    eventually("released", || !world.is_held("a")).await;
    world.pod("b", "build", &uid);
    let_pass(Duration::from_secs(60)).await;
    assert!(!world.is_held("b"));
}

pub(super) fn observing() -> Settings {
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
async fn observing_writes_nothing_and_counts_losses() {
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
async fn a_profile_switched_to_observe_leaves_no_hold() {
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
