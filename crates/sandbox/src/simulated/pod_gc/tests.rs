use std::time::Duration;

use serde_json::json;

use super::{ACTOR, PodGcConfig};
use crate::address::Gvr;
use crate::simulated::kubelet::annotations::RUN_SECONDS;
use crate::simulated::testing::{bound, pod, world};
use crate::simulated::{KubeletConfig, NodeSpec, SimulatedControllers, object};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn controllers(pod_gc: PodGcConfig) -> SimulatedControllers {
    let nodes = NodeSpec::many(2);
    SimulatedControllers::none()
        .pod_gc(pod_gc)
        .kubelet(KubeletConfig {
            nodes,
            ..KubeletConfig::default()
        })
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_after_its_node_is_gone_for_the_quarantine() {
    let world = world(controllers(PodGcConfig::default()));
    world.create(&Gvr::PODS, bound("lost", "node-1", json!({})));
    world.create(&Gvr::PODS, bound("other", "node-2", json!({})));
    world.patch(
        &Gvr::PODS,
        "lost",
        json!({"metadata": {"finalizers": ["x/y"]}}),
    );
    world.pass(secs(1)).await;
    world.controllers.kubelets().destroy("node-1");
    world.pass(secs(39)).await;
    assert_eq!(world.pod("lost")["status"]["phase"], "Running");
    world.pass(secs(2)).await;
    let lost = world.pod("lost");
    assert_eq!(lost["status"]["phase"], "Failed");
    let state = &lost["status"]["containerStatuses"][0]["state"];
    assert!(
        state.get("running").is_some(),
        "container statuses stay as the node last wrote them"
    );
    let conditions = object::items(&lost, "/status/conditions");
    let condition = conditions
        .iter()
        .find(|c| c["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(condition["reason"], "DeletionByPodGC");
    assert!(object::is_deleting(&lost));
    assert_eq!(lost["metadata"]["deletionGracePeriodSeconds"], 0);

    world.pass(secs(3_600)).await;
    assert_eq!(
        world.written_by(ACTOR),
        ["patch pods/status lost", "delete pods lost"]
    );
    world.patch(
        &Gvr::PODS,
        "lost",
        json!({"metadata": {"finalizers": null}}),
    );
    assert_eq!(world.names(&Gvr::PODS), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let world = world(controllers(PodGcConfig::default()));
    world.create(&Gvr::PODS, bound("p", "node-1", json!({})));
    world.pass(secs(1)).await;
    world.delete(&Gvr::NODES, "node-1");
    world.pass(secs(30)).await;
    world.controllers.kubelets().come_back("node-1");
    world.pass(secs(100)).await;
    assert_eq!(world.pod("p")["status"]["phase"], "Running");
    assert!(world.written_by(ACTOR).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_bound_to_a_node_that_never_existed_is_collected() {
    let world = world(controllers(PodGcConfig::default()));
    world.create(&Gvr::PODS, bound("p", "nowhere", json!({})));
    world.pass(secs(41)).await;
    assert!(world.names(&Gvr::PODS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unbound_terminating_pod_with_a_finalizer_gets_phase_failed() {
    let world = world(controllers(PodGcConfig::default()));
    world.create(&Gvr::PODS, pod("p", json!({})));
    world.patch(
        &Gvr::PODS,
        "p",
        json!({"metadata": {"finalizers": ["x/y"]}}),
    );
    world.delete(&Gvr::PODS, "p");
    world.settle().await;
    assert_eq!(world.pod("p")["status"]["phase"], "Failed");
    assert_eq!(world.written_by(ACTOR), ["patch pods/status p"]);
}

#[tokio::test(start_paused = true)]
async fn above_the_threshold_the_oldest_ended_pods_are_deleted() {
    let config = PodGcConfig {
        terminated_threshold: Some(2),
        ..PodGcConfig::default()
    };
    let world = world(controllers(config));
    for name in ["e", "d", "c", "b", "a"] {
        world.create(&Gvr::PODS, bound(name, "node-1", json!({RUN_SECONDS: "0"})));
        world.pass(secs(2)).await;
    }
    world.pass(secs(60)).await;
    assert_eq!(world.names(&Gvr::PODS), ["a", "b"]);
}
