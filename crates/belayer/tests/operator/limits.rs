//! Dry run, settled clusters, profiles that observe, and the guard against mass release.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_core::simulated::simulate;
use belayer_metrics::Exporter;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::profile::{Mode, Profile, Profiles, argo};
use belayer_pod_finalizer::status::{ANSWER_LIMIT, NODE_ID};
use belayer_sandbox::{Answer, Fault, Gvr, ListOptions, Match, Subresource, Verb, WatchEnd};
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use belayer_workload::WORKFLOWS;
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::argo::{bound, delete, report, runs};
use crate::argo_nodes::node;
use crate::gate::{is_held_elsewhere, of_another_tenant};
use crate::world::{BELAYER, NAMESPACE, World, eventually, let_pass, pod, within};

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

/// How many pods were lost and undecided that an observing profile selects, if a pod is deleted while the status of its
/// owner is `status`, and Belayer had read the owner before that.
async fn observed(
    world: &World,
    profile: &Value,
    owner: (&Gvr, &Value),
    status: Value,
) -> (u64, usize) {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let config = json!({ "profiles": [profile] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    let belayer = world.run_with(config.try_into().unwrap(), Writes::Sent);
    let (kind, owner) = owner;
    let created = world.create(kind, Some(NAMESPACE), owner.clone());
    let mut step = pod(
        "step",
        "build",
        created["metadata"]["uid"].as_str().unwrap(),
    );
    step["metadata"]["annotations"] = json!({ NODE_ID: "build-step" });
    for field in ["apiVersion", "kind"] {
        step["metadata"]["ownerReferences"][0][field] = owner[field].clone();
    }
    world.create(&Gvr::PODS, Some(NAMESPACE), step);
    let_pass(Duration::from_secs(5)).await;
    world.end("step");
    let_pass(Duration::from_secs(1)).await;
    let reads = world.requests(Verb::Get, &format!("{}.{}", kind.resource, kind.group));
    assert!(reads > 0, "it is read before it changes");
    world.patch(kind, "build", json!({ "status": status }));
    let_pass(Duration::from_secs(2)).await;
    world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
    assert!(world.find("step").is_none());
    let_pass(Duration::from_secs(5)).await;
    let text = exporter.render();
    let parts = ["belayer_unread_pods_total{", "Undecided", "observe"];
    let is_undecided = |line: &&str| parts.iter().all(|part| line.contains(part));
    let undecided = text.lines().filter(is_undecided);
    let undecided = undecided.filter(|line| line.ends_with(" 1")).count();
    (belayer.finalizer.observed_losses(), undecided)
}

/// Argo deletes a pod (podGC) without a label, once the status of its workflow has the result.
#[rstest]
#[case::its_node_is_fulfilled(json!({ "nodes": { "build-step": { "phase": "Succeeded" } } }), (0, 0))]
#[case::its_node_is_not_fulfilled(json!({ "nodes": { "build-step": { "phase": "Running" } } }), (1, 0))]
#[case::its_node_was_given_up(
    json!({ "nodes": { "build-step": {
        "phase": "Error", "message": "pod deleted", "finishedAt": "2100-01-01T00:00:00Z",
    } } }),
    (1, 0)
)]
#[case::its_node_cannot_be_read(json!({ "offloadNodeStatusVersion": "fnv:1" }), (0, 1))]
#[tokio::test(start_paused = true)]
async fn a19_observing_counts_no_pod_whose_result_was_read(
    #[case] status: Value,
    #[case] expected: (u64, usize),
) {
    let world = World::new();
    let profile = json!({ "builtIn": "argo", "mode": "observe" });
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": { "name": "build" }, "spec": {},
    });
    let observed = observed(&world, &profile, (&WORKFLOWS, &workflow), status).await;
    assert_eq!(observed, expected);
}

/// Reading such a status takes long: a tenant that deletes its pods must not repeat it.
#[tokio::test(start_paused = true)]
async fn a19_a_status_that_is_too_large_is_not_read_for_each_deleted_pod() {
    const PODS: usize = 5;
    let world = World::new();
    let uid = world.workflow("build");
    let reads = Match::verb(Verb::Get).resource("workflows").client(BELAYER);
    let large = Answer::raw(200, "application/json", " ".repeat(ANSWER_LIMIT + 1));
    world
        .sandbox
        .faults()
        .inject(Fault::on(reads).answer(large));
    let config = json!({ "profiles": [{ "builtIn": "argo", "mode": "observe" }] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    let _belayer = world.run_with(config.try_into().unwrap(), Writes::Sent);
    let names: Vec<String> = (0..PODS).map(|index| format!("step-{index}")).collect();
    for name in &names {
        let mut step = pod(name, "build", &uid);
        step["metadata"]["annotations"] = json!({ NODE_ID: name });
        world.create(&Gvr::PODS, Some(NAMESPACE), step);
        world.end(name);
    }
    let_pass(Duration::from_secs(5)).await;
    let requests = || world.requests(Verb::Get, "workflows.argoproj.io");
    let before = requests();
    assert!(before > 0);
    for name in &names {
        world.delete(&Gvr::PODS, Some(NAMESPACE), name);
        let_pass(Duration::from_secs(5)).await;
    }
    assert_eq!(requests(), before);
}

#[rstest]
#[case::its_owner_is_done(true, (0, 0))]
#[case::its_owner_is_not_done(false, (1, 0))]
#[tokio::test(start_paused = true)]
async fn a15_observing_counts_no_pod_whose_owner_was_done(
    #[case] done: bool,
    #[case] expected: (u64, usize),
) {
    let world = World::new();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "batches.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Batch", "plural": "batches", "singular": "batch" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
    let profile = json!({
        "name": "batch", "mode": "observe",
        "selector": { "matchLabels": { "workflows.argoproj.io/workflow": "build" } },
        "owner": { "group": "example.com", "version": "v1", "kind": "Batch", "resource": "batches" },
        "consumedWhen": "has(owner.status.done) && owner.status.done == true",
    });
    let batch = json!({
        "apiVersion": "example.com/v1", "kind": "Batch", "metadata": { "name": "build" },
    });
    let batches = Gvr::new("example.com", "v1", "batches");
    let status = json!({ "done": done });
    let observed = observed(&world, &profile, (&batches, &batch), status).await;
    assert_eq!(observed, expected);
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

/// `releaseAfter` begins at the end of the grace period, which another request may shorten.
#[rstest]
#[case::the_whole_grace_period(None, 30 + 20, 0)]
#[case::shortened(Some(10), 10 + 20, 0)]
#[case::l9_belayers_clock_is_ahead(None, 30 + 20, 90)]
#[case::l9_it_is_behind(None, 30 + 20, -90)]
#[tokio::test(start_paused = true)]
async fn release_after_begins_at_the_end_of_the_grace_period(
    #[case] shortened: Option<u64>,
    #[case] seconds: u64,
    #[case] ahead: i64,
) {
    let world = World::new();
    let clock = world.cluster().clock().clone();
    let ahead = SignedDuration::from_secs(ahead);
    let _time = simulate(7, move || clock.now() + ahead);
    node(&world, "True");
    let uid = world.workflow("build");
    let profile = Profile {
        release_after: Some(Duration::from_secs(20)),
        ..argo::profile()
    };
    let settings = Settings {
        profiles: Profiles::new([profile]).unwrap(),
        ..Settings::default()
    };
    let _belayer = world.run_with(settings, Writes::Sent);
    bound(&world, "step", &uid, r#"{"name":"a","container":{}}"#);
    eventually("it is held", || world.is_held("step")).await;
    report(&world, "step", "Running", &[("main", runs())]);
    let_pass(Duration::from_secs(5)).await;
    let begun = Instant::now();
    delete(&world, "step");
    if let Some(seconds) = shortened {
        let_pass(Duration::from_secs(seconds)).await;
        world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
    }
    within(Duration::from_secs(90), "released", || {
        !world.is_held("step")
    })
    .await;
    let waited = begun.elapsed();
    // A deletion timestamp has whole seconds.
    let least = Duration::from_secs(seconds - 1);
    let range = least..least + Duration::from_secs(3);
    assert!(range.contains(&waited), "{waited:?}");
}
