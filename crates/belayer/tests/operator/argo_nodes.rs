//! Pods of Argo Workflows whose node is lost (A2). The kubelet of these tests reports nothing by itself.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_metrics::Exporter;
use belayer_sandbox::{Gvr, Subresource};
use serde_json::{Value, json};

use crate::argo::{A_WHILE, bound, delete, report, runs};
use crate::limits::observing;
use crate::world::{NAMESPACE, World, eventually, let_pass, within};

/// The reason by which pod garbage collection marks a pod whose node does not exist.
const BY_POD_GC: &str = "DeletionByPodGC";

pub(super) fn node(world: &World, ready: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    });
    world.create(&Gvr::NODES, None, node);
}

fn status(world: &World, pod: &str, status: Value) {
    let status = json!({ "status": status });
    world.patch_in(
        &Gvr::PODS,
        Some(NAMESPACE),
        pod,
        status,
        Subresource::Status,
    );
}

/// A controller of Kubernetes writes why it deletes a pod.
fn disrupted(world: &World, pod: &str, reason: &str) {
    let conditions = json!({ "conditions": [
        { "type": "DisruptionTarget", "status": "True", "reason": reason },
    ] });
    status(world, pod, conditions);
}

/// What pod garbage collection does with a pod that has not ended, and whose node does not exist.
fn collect(world: &World, pod: &str) {
    disrupted(world, pod, BY_POD_GC);
    status(world, pod, json!({ "phase": "Failed" }));
    delete_by_force(world, pod);
}

fn delete_by_force(world: &World, pod: &str) {
    world.delete(&Gvr::PODS, Some(NAMESPACE), pod);
}

/// A held pod that runs on the node `n1`.
async fn running(world: &World, pod: &str, uid: &str) {
    bound(world, pod, uid, r#"{"name":"a","container":{}}"#);
    eventually("it is held", || world.is_held(pod)).await;
    let containers = [("main", runs()), ("wait", runs())];
    report(world, pod, "Running", &containers);
}

/// Pod garbage collection has marked the pod; the taint is set later. Nodes are not watched.
#[tokio::test(start_paused = true)]
async fn a2_a_taint_set_after_the_first_look_is_found_within_six_seconds() {
    let world = World::new();
    let uid = world.workflow("build");
    node(&world, "Unknown");
    let _belayer = world.run();
    running(&world, "step", &uid).await;
    delete(&world, "step");
    disrupted(&world, "step", BY_POD_GC);
    let_pass(A_WHILE).await;
    assert!(world.is_held("step"));
    let taint = json!({ "spec": { "taints": [
        { "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" },
    ] } });
    world.patch_in(&Gvr::NODES, None, "n1", taint, Subresource::None);
    within(Duration::from_secs(6), "it is released", || {
        !world.is_held("step")
    })
    .await;
}

/// The pods share the answer about their node. It shows that the node was gone before the second one looked lost.
#[tokio::test(start_paused = true)]
async fn a2_a_node_that_came_back_is_read_again() {
    let world = World::new();
    let uid = world.workflow("build");
    let _belayer = world.run();
    for name in ["first", "second"] {
        running(&world, name, &uid).await;
        delete(&world, name);
    }
    delete_by_force(&world, "first");
    eventually("its node is gone", || !world.is_held("first")).await;
    node(&world, "True");
    delete_by_force(&world, "second");
    let_pass(A_WHILE).await;
    assert!(world.is_held("second"), "its node is back");
    world.delete(&Gvr::NODES, None, "n1");
    eventually("its node is gone again", || !world.is_held("second")).await;
}

/// Kubernetes evicts the pods of a node that does not report, and deletes them by force once the Node is gone.
#[tokio::test(start_paused = true)]
async fn a2_eviction_by_taint() {
    let world = World::new();
    let uid = world.workflow("build");
    node(&world, "Unknown");
    let _belayer = world.run();
    running(&world, "step", &uid).await;
    disrupted(&world, "step", "DeletionByTaintManager");
    delete(&world, "step");
    let_pass(A_WHILE).await;
    assert!(world.is_held("step"), "its kubelet may come back");
    world.delete(&Gvr::NODES, None, "n1");
    let_pass(A_WHILE).await;
    assert!(world.is_held("step"), "without Belayer it is there as well");
    collect(&world, "step");
    eventually("it is released", || !world.is_held("step")).await;
}

/// The kubelet had marked the pod Failed, and was switched off before its containers had ended. A pod that has failed
/// is deleted without a grace period, and pod garbage collection writes no condition on it.
#[tokio::test(start_paused = true)]
async fn a2_a_graceful_shutdown_that_was_cut_off() {
    let world = World::new();
    let uid = world.workflow("build");
    node(&world, "True");
    let _belayer = world.run();
    running(&world, "step", &uid).await;
    let failed = json!({
        "phase": "Failed", "reason": "Terminated",
        "message": "Pod was terminated in response to imminent node shutdown.",
    });
    status(&world, "step", failed);
    delete(&world, "step");
    let_pass(A_WHILE).await;
    assert!(world.is_held("step"), "its kubelet may report its end");
    world.delete(&Gvr::NODES, None, "n1");
    within(Duration::from_secs(6), "it is released", || {
        !world.is_held("step")
    })
    .await;
}

/// The provider of a virtual node reports a phase and no containers, and the node vanishes with its provider.
#[tokio::test(start_paused = true)]
async fn a2_a_virtual_node_that_vanished() {
    let world = World::new();
    let uid = world.workflow("build");
    node(&world, "True");
    let _belayer = world.run();
    for name in ["runs", "saved"] {
        bound(&world, name, &uid, r#"{"name":"a","container":{}}"#);
        eventually("it is held", || world.is_held(name)).await;
        let started = json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z" });
        status(&world, name, started);
    }
    status(&world, "saved", json!({ "phase": "Succeeded" }));
    world.delete(&Gvr::NODES, None, "n1");
    collect(&world, "runs");
    delete_by_force(&world, "saved");
    eventually("it is released", || !world.is_held("runs")).await;
    let_pass(A_WHILE).await;
    assert!(world.is_held("saved"), "it has a result");
}

#[tokio::test(start_paused = true)]
async fn a2_observing_counts_a_lost_node_as_no_loss() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let belayer = world.run_with(observing(), Writes::Sent);
    let uid = world.workflow("build");
    bound(&world, "lost", &uid, r#"{"name":"a","container":{}}"#);
    let_pass(Duration::from_secs(1)).await;
    let containers = [("main", runs()), ("wait", runs())];
    report(&world, "lost", "Running", &containers);
    collect(&world, "lost");
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(belayer.finalizer.observed_losses(), 0);
    let counted = exporter.render();
    let of_the_node = |line: &str| {
        let parts = ["belayer_unread_pods_total", "NodeLost", "observe"];
        parts.iter().all(|part| line.contains(part)) && line.ends_with(" 1")
    };
    assert!(counted.lines().any(of_the_node), "{counted}");
}
