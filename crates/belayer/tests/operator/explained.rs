//! Decisions of `explain` on live reads, for the rows that need more than the pod, its owner and its
//! namespace.

use belayer_controller::{Configured, Site};
use belayer_core::client;
use belayer_core::executor::Bounds;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::decision::Rule;
use belayer_inspect::explain::{Action, ExplainError, Explained};
use belayer_inspect::reader::Reader;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::row;
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Subresource, Verb};
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

/// The name under which the reads are recorded.
const TOOL: &str = "viewer";

async fn expect(world: &World, settings: &Settings, row: &'static Rule) {
    let explained = explained(world, settings, pod()).await.unwrap();
    assert_eq!(explained.row.name, row.name, "{explained:?}");
}

fn pod() -> ObjectKey {
    ObjectKey::new(NAMESPACE, "a")
}

/// What a controller reports about a pod.
pub(crate) async fn explained(
    world: &World,
    controller: &impl Configured,
    pod: ObjectKey,
) -> Result<Explained, ExplainError> {
    let client = client::in_process(
        world.sandbox.service(TOOL),
        belayer_holds::names::USER_AGENT,
    );
    let reader = Reader::new(client, Bounds::default());
    let site = Site {
        reader: &reader,
        namespace: "belayer-system",
        config: None,
        owners: &[],
    };
    let explainers = controller.explainers(&site);
    (explainers[0].explain)(Resource::pods(), pod, reader).await
}

fn settings(profile: &Value) -> Settings {
    let config = json!({ "profiles": [profile] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    config.try_into().unwrap()
}

fn capturing() -> Settings {
    settings(&json!({ "builtIn": "argo", "capture": true }))
}

/// A held pod that has ended, of a workflow that has not.
fn ended_pod(world: &World) {
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    world.end("a");
}

#[tokio::test(start_paused = true)]
async fn explain_reads_the_workflow_status_like_the_controller() {
    let world = World::new();
    ended_pod(&world);
    let node = json!({ "metadata": { "annotations": { NODE_ID: "build-1" } } });
    world.patch(&Gvr::PODS, "a", node);
    let settings = Settings::default();
    expect(&world, &settings, row::KEEP).await;

    let fulfilled = json!({ "status": { "nodes": { "build-1": { "phase": "Succeeded" } } } });
    world.patch_in(
        &WORKFLOWS,
        Some(NAMESPACE),
        "build",
        fulfilled,
        Subresource::None,
    );
    expect(&world, &settings, row::NODE_FULFILLED).await;
}

#[tokio::test(start_paused = true)]
async fn explain_reads_the_outcome_record() {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    ended_pod(&world);
    expect(&world, &capturing(), row::CAPTURE).await;

    let pod = world.find("a").unwrap()["metadata"]["uid"].clone();
    let outcome = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodOutcome",
        "metadata": { "name": format!("pod-{}", pod.as_str().unwrap()) },
        "spec": { "podName": "a", "podUID": pod, "phase": "Succeeded", "complete": true, "containers": [] },
    });
    let outcomes = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
    world.create(&outcomes, Some(NAMESPACE), outcome);
    // Argo reads pods only.
    expect(&world, &capturing(), row::KEEP).await;

    let batch = json!({ "name": "batch", "selector": { "matchLabels": { "app": "batch" } },
        "capture": true });
    let theirs = json!({ "metadata": { "labels": { "app": "batch" }, "ownerReferences": null } });
    world.patch(&Gvr::PODS, "a", theirs);
    expect(&world, &settings(&batch), row::CAPTURED).await;
}

/// Belayer deletes such a pod, and adds no finalizer.
#[tokio::test(start_paused = true)]
async fn a_cleanup_that_waits_is_announced_as_one() {
    let world = World::new();
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    world.end("a");
    let asks = |strategy: &str| {
        json!({ "metadata": {
            "labels": { "workflows.argoproj.io/completed": "true" },
            "annotations": { "workflows.argoproj.io/pod-gc-strategy": strategy },
        } })
    };
    let settings = settings(&json!({ "builtIn": "argo", "cleanup": "argo" }));
    world.patch(&Gvr::PODS, "a", asks("OnPodCompletion/30s"));
    let later = explained(&world, &settings, pod()).await.unwrap();
    assert_eq!(later.row.name, row::CLEANUP.name, "{later:?}");
    assert_eq!(later.action, Action::Delete, "{later:?}");
    assert!(later.missing[0].contains("(30s)"), "{later:?}");
    assert!(later.next.contains("deletes the pod"), "{later:?}");
    assert!(!later.next.contains("finalizer"), "{later:?}");

    world.patch(&Gvr::PODS, "a", asks("OnWorkflowSuccess/30s"));
    let later = explained(&world, &settings, pod()).await.unwrap();
    assert_eq!(later.row.name, row::ADD_HOLD.name, "{later:?}");
    let notes = later.notes.join("; ");
    assert!(notes.contains("once its workflow has ended"), "{notes}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_does_not_stop_the_rows_below() {
    let world = World::new();
    ended_pod(&world);
    expect(&world, &capturing(), row::KEEP).await;
}

/// As often as a decision is tried, nothing is read twice but what is both an object in the controller's caches
/// and a query: the workflow, whose status is read as well, and the namespace. The notes about the consumer read the
/// workflow once more.
#[tokio::test(start_paused = true)]
async fn each_is_read_once() {
    let world = World::new();
    ended_pod(&world);
    let node = json!({ "metadata": { "annotations": { NODE_ID: "build-1" } } });
    world.patch(&Gvr::PODS, "a", node);
    expect(&world, &Settings::default(), row::KEEP).await;
    let requests = world.sandbox.recorder().requests_by(TOOL);
    let of = |kind: &str| requests.get(&(Verb::Get, kind.to_owned())).copied();
    assert_eq!(of("pods"), Some(1), "{requests:?}");
    assert_eq!(of("namespaces"), Some(2), "{requests:?}");
    assert_eq!(of("workflows.argoproj.io"), Some(4), "{requests:?}");
}

/// A controller would wait and read again; a person waits for no retry.
#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_reported_at_once() {
    let world = World::new();
    ended_pod(&world);
    let no = Match::verb(Verb::Get).resource("namespaces").client(TOOL);
    let no = Fault::on(no).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let begun = tokio::time::Instant::now();
    let error = explained(&world, &Settings::default(), pod())
        .await
        .unwrap_err();
    assert!(error.to_string().ends_with("ci: not allowed"), "{error}");
    assert!(begun.elapsed().as_secs() < 1);
}

/// Nothing is known of owners that may not be read, as in a controller whose informer may not list them.
#[tokio::test(start_paused = true)]
async fn owners_that_may_not_be_read_are_unknown() {
    let world = World::new();
    ended_pod(&world);
    let no = Match::verb(Verb::Get).resource("workflows").client(TOOL);
    let no = Fault::on(no).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let explained = explained(&world, &Settings::default(), pod())
        .await
        .unwrap();
    let missing = explained.missing.join("; ");
    assert!(
        missing.contains("could not check whether the owner is gone"),
        "{missing}"
    );
}
