//! `PodOutcome` records of pods without an owner, which are deleted when their time to live is over.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_core::simulated::simulate;
use belayer_pod_finalizer::outcome;
use belayer_pod_finalizer::profile::config::PodFinalizerConfig;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use serde_json::json;

use crate::argo::record;
use crate::world::{NAMESPACE, Running, World, eventually, let_pass};

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
