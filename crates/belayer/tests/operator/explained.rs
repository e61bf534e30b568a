//! What `explain` decides on live looks, for the rows that need more than the pod, its owner and
//! its namespace.

use belayer_controller::{Configured as _, Site};
use belayer_core::client;
use belayer_core::executor::Bounds;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::decision::Row;
use belayer_inspect::reader::Reader;
use belayer_pod_finalizer::outcome::crd;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::row;
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Gvr, Subresource};
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

async fn expect(world: &World, settings: &Settings, row: Row) {
    let reader = Reader::new(client::in_process(world.service()), Bounds::default());
    let site = Site {
        reader: &reader,
        namespace: "belayer-system",
        config: None,
        owners: &[],
    };
    let key = ObjectKey::new(NAMESPACE, "a");
    let explainers = settings.explainers(&site);
    let explained = (explainers[0].explain)(Resource::pods(), key, reader.clone())
        .await
        .unwrap();
    assert_eq!(explained.row.name, row.name, "{explained:?}");
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
async fn the_owners_own_status_is_asked_as_the_controller_asks_it() {
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
async fn the_record_of_the_outcome_is_looked_for() {
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
    // Argo reads pods alone.
    expect(&world, &capturing(), row::KEEP).await;

    let batch = json!({ "name": "batch", "selector": { "matchLabels": { "app": "batch" } },
        "capture": true });
    let theirs = json!({ "metadata": { "labels": { "app": "batch" }, "ownerReferences": null } });
    world.patch(&Gvr::PODS, "a", theirs);
    expect(&world, &settings(&batch), row::CAPTURED).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_does_not_stop_the_rows_below() {
    let world = World::new();
    ended_pod(&world);
    expect(&world, &capturing(), row::KEEP).await;
}
