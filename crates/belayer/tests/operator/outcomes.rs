//! `PodOutcome` records: what they contain, and when those without an owner are deleted.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_core::simulated::simulate;
use belayer_pod_finalizer::outcome;
use belayer_pod_finalizer::profile::config::PodFinalizerConfig;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Propagation, Subresource, Verb};
use belayer_workload::WORKFLOWS;
use serde_json::json;

use crate::argo::{record, report};
use crate::world::{NAMESPACE, Running, World, eventually, let_pass, pod, within};

/// Belayer, which keeps records for an hour.
fn run(world: &World) -> Running {
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, outcome::crd());
    let config = json!({
        "outcomeTtl": "1h",
        "profiles": [{ "name": "jobs", "selector": { "matchLabels": { "keep": "result" } }, "capture": true }],
    });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    world.run_with(config.try_into().unwrap(), Writes::Sent)
}

/// A pod of this name has ended, its record is written, and the pod is deleted.
async fn recorded_and_deleted(world: &World, name: &str) {
    let pod = json!({
        "metadata": { "name": name, "labels": { "keep": "result" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
    eventually("it is held", || world.is_held(name)).await;
    world.end(name);
    eventually("its record is written", || record(world, name).is_some()).await;
    world.delete(&Gvr::PODS, Some(NAMESPACE), name);
    eventually("the pod is gone", || world.find(name).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_owner_is_deleted_after_its_time_to_live() {
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    let _belayer = run(&world);
    recorded_and_deleted(&world, "job").await;
    let_pass(Duration::from_mins(58)).await;
    assert!(record(&world, "job").is_some(), "two minutes are left");
    let_pass(Duration::from_mins(4)).await;
    assert!(record(&world, "job").is_none(), "its time is over");
}

/// A webhook or policy of one namespace refuses the deletion of some.
#[tokio::test(start_paused = true)]
async fn a_record_that_may_not_be_deleted_keeps_no_other() {
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    let _belayer = run(&world);
    for name in ["denied-a", "job", "denied-z"] {
        recorded_and_deleted(&world, name).await;
    }
    for name in ["denied-a", "denied-z"] {
        let record = record(&world, name).unwrap();
        let record = record["metadata"]["name"].as_str().unwrap();
        let deletes = Match::verb(Verb::Delete)
            .resource("podoutcomes")
            .name(record);
        let denied = Fault::on(deletes).answer(Answer::forbidden("a webhook"));
        world.sandbox.faults().inject(denied);
    }
    let_pass(Duration::from_mins(62)).await;
    assert!(record(&world, "job").is_none(), "its time is over");
}

/// A webhook for records that never answers: each request ends by its own deadline.
#[tokio::test(start_paused = true)]
async fn a12_a_record_whose_write_times_out_does_not_stop_the_rules_below_for_ever() {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, outcome::crd());
    let config = json!({ "profiles": [{ "builtIn": "argo", "capture": true }] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    let records = Match::verb(Verb::Create).resource("podoutcomes");
    let webhook = Fault::on(records).delay(Duration::from_secs(31));
    let webhook = world.sandbox.faults().inject(webhook);
    let _belayer = world.run_with(config.try_into().unwrap(), Writes::Sent);
    let uid = world.workflow("build");
    world.pod("step", "build", &uid);
    eventually("it is held", || world.is_held("step")).await;
    world.end("step");
    world.consume("step");
    let_pass(Duration::from_secs(45)).await;
    assert!(world.is_held("step"), "the write is tried again first");
    within(Duration::from_secs(90), "the release", || {
        !world.is_held("step")
    })
    .await;
    assert!(webhook.hits() > 1);
    assert!(world.events("OutcomeNotRecorded") > 0);
}

const RECORDS: &str = "podoutcomes.belayer.dev";

/// `kubectl delete --cascade=orphan`: Kubernetes removes the owner reference of the record.
async fn orphan(world: &World, workflow: &str) {
    let policy = Some(Propagation::Orphan);
    world.delete_with(&WORKFLOWS, Some(NAMESPACE), workflow, policy);
    let_pass(Duration::from_mins(2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_record_is_deleted_after_its_time_to_live() {
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    let _belayer = run(&world);
    for (workflow, name) in [("old", "step-a"), ("young", "step-b")] {
        let mut object = pod(name, workflow, &world.workflow(workflow));
        object["metadata"]["labels"]["keep"] = "result".into();
        world.create(&Gvr::PODS, Some(NAMESPACE), object);
        eventually("it is held", || world.is_held(name)).await;
        world.end(name);
        eventually("its record is written", || record(&world, name).is_some()).await;
        world.consume(name);
        eventually("it is released", || !world.is_held(name)).await;
    }
    orphan(&world, "young").await;
    assert!(record(&world, "step-b").is_some(), "58 minutes are left");
    let_pass(Duration::from_mins(62)).await;
    assert!(record(&world, "step-b").is_none(), "its time is over");
    assert!(record(&world, "step-a").is_some(), "its owner exists");
    orphan(&world, "old").await;
    assert!(record(&world, "step-a").is_none(), "its time is over");
}

/// It has an owner reference without a controller.
#[tokio::test(start_paused = true)]
async fn a_record_of_an_earlier_version_is_kept_while_its_owner_exists() {
    let world = World::new();
    let cluster = world.cluster().clone();
    let _time = simulate(7, move || cluster.clock().now());
    let _belayer = run(&world);
    let uid = world.workflow("build");
    let earlier = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodOutcome",
        "metadata": {
            "name": "pod-u-1",
            "ownerReferences": [{
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build", "uid": uid,
                "controller": false, "blockOwnerDeletion": false,
            }],
        },
        "spec": { "podName": "step", "podUID": "u-1", "phase": "Succeeded", "complete": true },
    });
    let records = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
    world.create(&records, Some(NAMESPACE), earlier);
    let_pass(Duration::from_hours(3)).await;
    assert!(record(&world, "step").is_some(), "its owner exists");
    assert_eq!(world.requests(Verb::Get, RECORDS), 1);
    orphan(&world, "build").await;
    assert!(record(&world, "step").is_none(), "its time is over");
}

/// Pod garbage collection marks a pod whose node is gone. Its kubelet may have started the container after its last report.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_lost_node_does_not_call_a_container_ended_that_was_waiting() {
    let world = World::new();
    let _belayer = run(&world);
    let object = json!({
        "metadata": { "name": "job", "labels": { "keep": "result" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "main", "image": "busybox" }] },
    });
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    eventually("it is held", || world.is_held("job")).await;
    let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
    report(&world, "job", "Pending", &[("main", waiting)]);
    let marked = json!({ "status": {
        "phase": "Failed",
        "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC" }],
    } });
    let face = Subresource::Status;
    world.patch_in(&Gvr::PODS, Some(NAMESPACE), "job", marked, face);
    world.delete(&Gvr::PODS, Some(NAMESPACE), "job");
    eventually("it is gone", || world.find("job").is_none()).await;
    let record = record(&world, "job").unwrap();
    assert_eq!(record["spec"]["complete"], false);
    assert_eq!(record["spec"]["unknownContainers"], json!(["main"]));
}
