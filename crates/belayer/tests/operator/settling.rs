//! Everything that happened while Belayer was down, disconnected or killed is settled after its start, without any
//! new event; objects that are being deleted come first.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_pod_finalizer::outcome;
use belayer_pod_finalizer::profile::config::PodFinalizerConfig;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Outcome, Propagation, Verb, WatchEnd};
use belayer_workflow_finalizer::Settings as WorkflowSettings;
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{BELAYER, NAMESPACE, World, eventually, let_pass, pod, within};

#[rstest]
#[case::background(Propagation::Background)]
#[case::foreground(Propagation::Foreground)]
#[case::orphan(Propagation::Orphan)]
#[tokio::test(start_paused = true)]
async fn a_workflow_deleted_while_down(#[case] policy: Propagation) {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..20 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
    }
    world.delete_with(&WORKFLOWS, Some(NAMESPACE), "build", Some(policy));
    let_pass(Duration::from_secs(10)).await;
    assert_eq!(world.held_pods(), 20);
    let _belayer = world.run();
    eventually("no hold is left", || world.held_pods() == 0).await;
    let gone = || {
        world
            .cluster()
            .get(&WORKFLOWS, Some(NAMESPACE), "build")
            .is_err()
    };
    eventually("the workflow is gone", gone).await;
    let left = if policy == Propagation::Orphan { 20 } else { 0 };
    eventually("only orphans are left", || world.pods().len() == left).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_deleted_while_down() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..20 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
    }
    world.delete(&Gvr::NAMESPACES, None, NAMESPACE);
    let_pass(Duration::from_secs(10)).await;
    let _belayer = world.run();
    eventually("the namespace is gone", || {
        world
            .cluster()
            .get(&Gvr::NAMESPACES, None, NAMESPACE)
            .is_err()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_consumed_and_deleted_while_down() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..20 {
        let name = format!("a-{n}");
        world.held_pod(&name, "build", &uid);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
        world.consume(&name);
    }
    let _belayer = world.run();
    eventually("all are gone", || world.pods().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_objects_come_first() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..300 {
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    let doomed = world.workflow("doomed");
    for n in 0..30 {
        let name = format!("z-doomed-{n}");
        world.held_pod(&name, "doomed", &doomed);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
        world.consume(&name);
    }
    let _belayer = world.run();
    eventually("all is settled", || {
        world.pods().len() == 300 && world.held_pods() == 300
    })
    .await;
    let writes = world.pod_writes();
    let last_release = writes
        .iter()
        .rposition(|write| write.key.name.starts_with("z-doomed"))
        .unwrap();
    let holds_before = writes[..last_release]
        .iter()
        .filter(|write| write.key.name.starts_with("new"))
        .count();
    // Workers are concurrent: as many holds as there are workers may come earlier.
    assert!(
        holds_before <= 64,
        "{holds_before} holds were added before the last release"
    );
}

#[tokio::test(start_paused = true)]
async fn killed_in_the_middle_of_releasing() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..200 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
    }
    let slow = Fault::on(Match::verb(Verb::Patch).client(BELAYER)).delay(Duration::from_millis(50));
    let slow = world.sandbox.faults().inject(slow);
    let belayer = world.run();
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    eventually("some are released", || world.held_pods() < 150).await;
    belayer.crash();
    let_pass(Duration::from_secs(5)).await;
    let left = world.held_pods();
    assert!(left > 0, "the crash came too late to show anything");
    slow.remove();
    let _belayer = world.run();
    eventually("all are gone", || world.pods().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn disconnected_from_the_api_server() {
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    for n in 0..20 {
        world.pod(&format!("a-{n}"), "build", &uid);
    }
    eventually("all are held", || world.held_pods() == 20).await;
    world.sandbox.faults().cut_off();
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(300)).await;
    world.sandbox.faults().restore();
    within(Duration::from_secs(120), "all are gone", || {
        world.pods().is_empty()
    })
    .await;
}

/// Releases that failed many times are repeated soon after the server answers again: at the latest after half a minute.
#[tokio::test(start_paused = true)]
async fn releases_that_failed_for_minutes_follow_soon_after_the_outage() {
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    for n in 0..20 {
        world.pod(&format!("a-{n}"), "build", &uid);
    }
    eventually("all are held", || world.held_pods() == 20).await;
    let lost = Fault::on(Match::verb(Verb::Patch).client(BELAYER)).lose_request();
    let lost = world.sandbox.faults().inject(lost);
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(600)).await;
    assert_eq!(world.held_pods(), 20);
    lost.remove();
    within(Duration::from_secs(32), "all are gone", || {
        world.pods().is_empty()
    })
    .await;
}

/// A deletion waits for the record as it waits for the release: after ten minutes without live reads (seed 54,010,800).
#[tokio::test(start_paused = true)]
async fn a_record_is_not_delayed_much_longer_than_the_outage() {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, outcome::crd());
    let profile = json!({ "builtIn": "argo", "capture": true });
    let config: PodFinalizerConfig =
        serde_json::from_value(json!({ "profiles": [profile] })).unwrap();
    let settings = config.try_into().unwrap();
    let _belayer = world.run_with(settings, Writes::Sent);
    let pods: Vec<String> = (0..10).map(|n| format!("a-{n}")).collect();
    for name in &pods {
        world.pod(name, name, &world.workflow(name));
    }
    eventually("the holds", || pods.iter().all(|pod| world.is_held(pod))).await;
    let reads = Match::verb(Verb::Get).resource("pods").client(BELAYER);
    let unavailable = Fault::on(reads).answer(Answer::service_unavailable());
    let fault = world.sandbox.faults().inject(unavailable);
    for name in &pods {
        world.end(name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), name);
        world.consume(name);
    }
    let_pass(Duration::from_secs(600)).await;
    assert!(pods.iter().all(|pod| world.is_held(pod)));
    fault.remove();
    within(Duration::from_secs(40), "the releases", || {
        pods.iter().all(|pod| world.find(pod).is_none())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn eight_thousand_pods_behind_one_deleted_owner_cost_one_live_read() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..8000 {
        let name = format!("a-{n}");
        world.held_pod(&name, "build", &uid);
        world.end(&name);
    }
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(10)).await;
    let _belayer = world.run();
    eventually("all are gone", || world.pods().is_empty()).await;
    assert_eq!(world.requests(Verb::Get, "workflows.argoproj.io"), 1);
    assert_eq!(world.applied_pod_writes(), 8000, "one patch per release");
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_completes_work_in_flight() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..200 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
    }
    let slow =
        Fault::on(Match::verb(Verb::Patch).client(BELAYER)).delay(Duration::from_millis(100));
    world.sandbox.faults().inject(slow);
    let belayer = world.run();
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    eventually("some are released", || world.held_pods() < 150).await;
    let sent = world.requests(Verb::Patch, "pods");
    belayer.stop().await;
    let answered = world.pod_writes().len();
    assert_eq!(
        world.requests(Verb::Patch, "pods"),
        sent,
        "no new work was accepted"
    );
    assert_eq!(
        u64::try_from(answered).unwrap(),
        sent,
        "every request in flight was completed"
    );
    assert!(
        world
            .pod_writes()
            .iter()
            .all(|write| write.outcome == Outcome::Applied)
    );
}

#[tokio::test(start_paused = true)]
async fn owners_are_matched_by_uid() {
    let world = World::new();
    let first = world.workflow("build");
    world.held_pod("old", "build", &first);
    world.delete_with(
        &WORKFLOWS,
        Some(NAMESPACE),
        "build",
        Some(Propagation::Orphan),
    );
    // The orphaned pod keeps its reference in this test, like a pod from a backup.
    eventually("the workflow is gone", || {
        world
            .cluster()
            .get(&WORKFLOWS, Some(NAMESPACE), "build")
            .is_err()
    })
    .await;
    let second = world.workflow("build");
    world.held_pod("stale", "build", &first);
    world.held_pod("new", "build", &second);
    let _belayer = world.run();
    eventually("the pod of the first is released", || {
        !world.is_held("stale")
    })
    .await;
    let_pass(Duration::from_secs(60)).await;
    assert!(world.is_held("new"), "the workflow of that name lives");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_served_releases_nothing_and_a_deleted_crd_does() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let crd = "workflows.argoproj.io";
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    world.patch_in(
        &Gvr::CUSTOMRESOURCEDEFINITIONS,
        None,
        crd,
        json!({ "spec": { "versions": [
            { "name": "v1alpha1", "served": false, "storage": false, "schema": schema },
            { "name": "v1", "served": true, "storage": true, "schema": schema },
        ] } }),
        belayer_sandbox::Subresource::None,
    );
    let _belayer = world.run();
    let_pass(Duration::from_secs(300)).await;
    assert!(
        world.is_held("a"),
        "a version that is not served is no evidence"
    );
    world.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd);
    within(
        Duration::from_secs(120),
        "released: the kind is gone",
        || !world.is_held("a"),
    )
    .await;
}

/// An admin mistypes the plural of a kind, which is served.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_by_another_plural_releases_nothing() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let config: PodFinalizerConfig = serde_json::from_value(json!({ "profiles": [{
        "name": "mistyped",
        "selector": { "matchLabels": { "workflows.argoproj.io/workflow": "build" } },
        "owner": {
            "group": "argoproj.io", "version": "v1alpha1", "kind": "Workflow", "resource": "workflow",
        },
        "consumed": { "labels": { "workflows.argoproj.io/completed": "true" } },
    }] }))
    .unwrap();
    let _belayer = world.run_with(config.try_into().unwrap(), Writes::Sent);
    let_pass(Duration::from_secs(300)).await;
    assert!(world.is_held("a"), "the owner exists");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_existed_before_is_read_again_when_it_is_deleted() {
    let world = World::new();
    // The pod exists before the owners are listed, so the owner is read live, and exists.
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    let paused = Fault::on(Match::watches().resource("workflows")).pause_watches();
    let paused = world.sandbox.faults().inject(paused);
    let _belayer = world.run();
    eventually("the hold", || world.is_held("a")).await;
    paused.remove();
    let_pass(Duration::from_secs(20)).await;
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    within(Duration::from_secs(2), "the release", || {
        world.find("a").is_none()
    })
    .await;
}

/// A cluster-scoped kind whose objects own pods, and a profile that names it (T7).
fn cluster_scoped(world: &World) -> (Gvr, belayer_pod_finalizer::profile::config::Settings) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "batches.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": { "kind": "Batch", "plural": "batches", "singular": "batch" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
    let config: PodFinalizerConfig = serde_json::from_value(json!({ "profiles": [{
        "name": "batch",
        "selector": { "matchLabels": { "batch": "true" } },
        "owner": { "group": "example.com", "version": "v1", "kind": "Batch", "resource": "batches" },
        "consumedWhen": "has(owner.status.done) && owner.status.done == true",
    }] }))
    .unwrap();
    (
        Gvr::new("example.com", "v1", "batches"),
        config.try_into().unwrap(),
    )
}

/// Creates an owner of that kind and its pod, which has ended and is deleted once it is held.
async fn batch_with_deleted_pod(world: &World, batches: &Gvr, name: &str) {
    let batch = json!({
        "apiVersion": "example.com/v1", "kind": "Batch", "metadata": { "name": name },
    });
    let uid = world.create(batches, None, batch)["metadata"]["uid"].clone();
    let mut object = pod(name, name, uid.as_str().unwrap());
    object["metadata"]["labels"] = json!({ "batch": "true" });
    let owner = &mut object["metadata"]["ownerReferences"][0];
    owner["apiVersion"] = "example.com/v1".into();
    owner["kind"] = "Batch".into();
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    eventually("the hold", || world.is_held(name)).await;
    world.end(name);
    world.delete(&Gvr::PODS, Some(NAMESPACE), name);
    let_pass(Duration::from_secs(60)).await;
    assert!(world.is_held(name), "its result was not read");
}

#[rstest]
#[case::its_status_shows_that_the_results_were_read(json!({ "status": { "done": true } }))]
#[case::it_is_being_deleted(json!(null))]
#[tokio::test(start_paused = true)]
async fn t7_a_cluster_scoped_owner_releases_its_pods(#[case] change: Value) {
    let world = World::new();
    let (batches, settings) = cluster_scoped(&world);
    let _belayer = world.run_with(settings, Writes::Sent);
    batch_with_deleted_pod(&world, &batches, "nightly").await;
    match change {
        Value::Null => world.delete(&batches, None, "nightly"),
        change => world.patch_in(
            &batches,
            None,
            "nightly",
            change,
            belayer_sandbox::Subresource::None,
        ),
    }
    within(Duration::from_secs(60), "the release", || {
        world.find("nightly").is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t7_a_cluster_scoped_owner_that_went_while_belayer_was_down_releases_its_pods() {
    let world = World::new();
    let (batches, settings) = cluster_scoped(&world);
    let belayer = world.run_with(settings.clone(), Writes::Sent);
    batch_with_deleted_pod(&world, &batches, "nightly").await;
    belayer.stop().await;
    world.delete(&batches, None, "nightly");
    let _belayer = world.run_with(settings, Writes::Sent);
    within(Duration::from_secs(60), "the release", || {
        world.find("nightly").is_none()
    })
    .await;
}

fn has_finalizers(object: &Value) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    all.is_some_and(|all| !all.is_empty())
}

/// A cluster-scoped owner that is held itself: its pods may be in any namespace.
#[tokio::test(start_paused = true)]
async fn t7_a_held_cluster_scoped_owner_is_released_after_its_pods() {
    let world = World::new();
    let (batches, settings) = cluster_scoped(&world);
    let owners: WorkflowFinalizerConfig = serde_json::from_value(json!({ "owners": [{
        "owner": { "group": "example.com", "version": "v1", "kind": "Batch", "resource": "batches" },
    }] }))
    .unwrap();
    let _belayer = world.run_with_both(settings, owners.try_into().unwrap());
    batch_with_deleted_pod(&world, &batches, "nightly").await;
    let batch = || world.cluster().get(&batches, None, "nightly").ok();
    assert!(has_finalizers(&batch().unwrap()), "it is not held");
    world.delete(&batches, None, "nightly");
    within(Duration::from_secs(60), "the release of both", || {
        world.find("nightly").is_none() && batch().is_none()
    })
    .await;
}

/// The namespace was labelled while Belayer was down, and its list arrives later than that of the workflows.
#[tokio::test(start_paused = true)]
async fn a_workflow_of_a_namespace_that_became_ignored_meanwhile_is_released() {
    let world = World::new();
    let belayer = world.run_with_workflows();
    world.workflow("build");
    let workflow = || {
        world
            .cluster()
            .get(&WORKFLOWS, Some(NAMESPACE), "build")
            .unwrap()
    };
    eventually("it is held", || has_finalizers(&workflow())).await;
    belayer.stop().await;
    let label = json!({ "metadata": { "labels": { "belayer.dev/ignore": "true" } } });
    world.patch_in(
        &Gvr::NAMESPACES,
        None,
        NAMESPACE,
        label,
        belayer_sandbox::Subresource::None,
    );
    let lists = Match::any().resource("namespaces").client(BELAYER);
    let slow = Fault::on(lists).times(1).delay(Duration::from_secs(5));
    let slow = world.sandbox.faults().inject(slow);
    let _belayer = world.run_with_workflows();
    within(Duration::from_secs(60), "the release", || {
        !has_finalizers(&workflow())
    })
    .await;
    assert_eq!(slow.hits(), 1);
}

/// A page of metadata is larger than Belayer reads: it reads smaller ones.
#[tokio::test(start_paused = true)]
async fn t3_pods_with_much_metadata_delay_no_release_of_a_workflow() {
    let world = World::new();
    let _belayer = world.run_with_workflows();
    let text = "x".repeat(250_000);
    for index in 0..150 {
        let annotated = json!({
            "metadata": {
                "name": format!("large-{index}"),
                "labels": { "workflows.argoproj.io/workflow": "other" },
                "annotations": { "example.com/text": text },
            },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        });
        world.create(&Gvr::PODS, Some(NAMESPACE), annotated);
    }
    world.workflow("build");
    let workflow = || {
        world
            .cluster()
            .get(&WORKFLOWS, Some(NAMESPACE), "build")
            .ok()
    };
    eventually("it is held", || {
        workflow().is_some_and(|it| has_finalizers(&it))
    })
    .await;
    // The cache of pods does not reach the version of the list.
    let watches = Match::watches().resource("pods").client(BELAYER);
    world
        .sandbox
        .faults()
        .inject(Fault::on(watches).pause_watches());
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    within(Duration::from_secs(30), "the release", || {
        workflow().is_none()
    })
    .await;
}

/// The events of their pods find no workflow then, and the workflows do not change.
#[tokio::test(start_paused = true)]
async fn workflows_whose_pods_are_released_while_the_kind_is_not_served_do_not_wait_longer() {
    let world = World::new();
    let faults = world.sandbox.faults();
    let patches = Match::verb(Verb::Patch).resource("pods").client(BELAYER);
    faults.inject(Fault::on(patches).answer(Answer::internal_error()));
    let _belayer = world.run_with_workflows();
    let names: Vec<String> = (0..10).map(|n| format!("w-{n}")).collect();
    for name in &names {
        let uid = world.workflow(name);
        world.held_pod(name, name, &uid);
    }
    let workflows = || {
        let found = |name: &String| world.cluster().get(&WORKFLOWS, Some(NAMESPACE), name).ok();
        names.iter().filter_map(found).collect::<Vec<_>>()
    };
    eventually("they are held", || {
        workflows().iter().all(|it| has_finalizers(it))
    })
    .await;
    for name in &names {
        world.delete(&WORKFLOWS, Some(NAMESPACE), name);
    }
    let_pass(Duration::from_secs(10)).await;
    let kind = || Match::any().resource("workflows").client(BELAYER);
    let unserved = faults.inject(Fault::on(kind()).answer(Answer::page_not_found()));
    faults.end_watches(&kind(), WatchEnd::Close);
    eventually("it is noticed", || unserved.hits() > 2).await;
    for name in &names {
        world.patch(
            &Gvr::PODS,
            name,
            json!({ "metadata": { "finalizers": null } }),
        );
    }
    let_pass(Duration::from_secs(240)).await;
    assert_eq!(workflows().len(), 10);
    unserved.remove();
    let served = || world.requests(Verb::Watch, "workflows.argoproj.io");
    let before = served();
    eventually("it is served again", || served() > before).await;
    let_pass(Duration::from_secs(10)).await;
    assert!(workflows().is_empty(), "{} wait", workflows().len());
}

/// Its profile names no owner.
fn team() -> belayer_pod_finalizer::profile::config::Settings {
    let config: PodFinalizerConfig = serde_json::from_value(json!({ "profiles": [
        {
            "name": "team",
            "selector": { "matchLabels": { "team": "x" } },
            "consumed": { "labels": { "team/read": "true" } },
        },
        { "builtIn": "argo" },
    ] }))
    .unwrap();
    config.try_into().unwrap()
}

/// A user removes the finalizer of an owner, and deletes it.
fn remove_by_hand(world: &World, kind: &Gvr, namespace: Option<&str>, name: &str) {
    let none = json!({ "metadata": { "finalizers": null } });
    world.patch_in(
        kind,
        namespace,
        name,
        none,
        belayer_sandbox::Subresource::None,
    );
    world.delete(kind, namespace, name);
}

#[rstest]
#[case::while_belayer_runs(true)]
#[case::while_belayer_is_down(false)]
#[tokio::test(start_paused = true)]
async fn a_pod_whose_profile_names_no_owner_is_released_when_its_owner_is_gone(
    #[case] running: bool,
) {
    let world = World::new();
    let belayer = world.run_with_both(team(), WorkflowSettings::default());
    let uid = world.workflow("build");
    let mut object = pod("a", "build", &uid);
    object["metadata"]["labels"]["team"] = "x".into();
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    let workflow = || world.cluster().get(&WORKFLOWS, Some(NAMESPACE), "build");
    eventually("both are held", || {
        world.is_held("a") && has_finalizers(&workflow().unwrap())
    })
    .await;
    world.end("a");
    let remove = || remove_by_hand(&world, &WORKFLOWS, Some(NAMESPACE), "build");
    let _belayer = if running {
        remove();
        belayer
    } else {
        belayer.stop().await;
        remove();
        let_pass(Duration::from_secs(10)).await;
        world.run_with_both(team(), WorkflowSettings::default())
    };
    within(Duration::from_secs(60), "the release", || {
        world.find("a").is_none()
    })
    .await;
}

/// No profile of pod-finalizer names the kind, and the deletion of the owner changes nothing of the pod.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_owner_of_a_kind_of_workflow_finalizer_alone_releases_its_pods() {
    let world = World::new();
    let (batches, _) = cluster_scoped(&world);
    let owners: WorkflowFinalizerConfig = serde_json::from_value(json!({ "owners": [{
        "owner": { "group": "example.com", "version": "v1", "kind": "Batch", "resource": "batches" },
    }] }))
    .unwrap();
    let profile = json!({
        "name": "batch",
        "selector": { "matchLabels": { "batch": "true" } },
        "consumed": { "labels": { "batch/read": "true" } },
    });
    let config: PodFinalizerConfig =
        serde_json::from_value(json!({ "profiles": [profile] })).unwrap();
    let _belayer = world.run_with_both(config.try_into().unwrap(), owners.try_into().unwrap());
    batch_with_deleted_pod(&world, &batches, "nightly").await;
    remove_by_hand(&world, &batches, None, "nightly");
    within(Duration::from_secs(2), "the release", || {
        world.find("nightly").is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn both_controllers_read_a_deleted_owner_once() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..20 {
        let name = format!("a-{n}");
        world.held_pod(&name, "build", &uid);
        world.end(&name);
    }
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(10)).await;
    let _belayer = world.run_with_workflows();
    eventually("all are gone", || world.pods().is_empty()).await;
    assert_eq!(world.requests(Verb::Get, "workflows.argoproj.io"), 1);
    assert_eq!(world.applied_pod_writes(), 20, "one patch per release");
}
