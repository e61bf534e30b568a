use std::time::Duration;

use serde_json::{Value, json};

use crate::address::Gvr;
use crate::simulated::kubelet::annotations::RUN_SECONDS;
use crate::simulated::testing::{World, pod, world};
use crate::simulated::{
    KubeletConfig, NodeSpec, SimulatedController, SimulatedControllers, object,
};

const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;

fn with_nodes(nodes: Vec<NodeSpec>) -> World {
    let kubelet = KubeletConfig {
        nodes,
        ..KubeletConfig::default()
    };
    world(
        SimulatedControllers::none()
            .with(SimulatedController::Scheduler)
            .kubelet(kubelet),
    )
}

fn node_of(world: &World, name: &str) -> Option<String> {
    object::text(&world.pod(name), "/spec/nodeName").map(str::to_owned)
}

fn scheduled(world: &World, name: &str) -> (String, String) {
    let pod = world.pod(name);
    let conditions = object::items(&pod, "/status/conditions");
    let condition = conditions
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn asks(name: &str, cpu: &str, seconds: &str) -> Value {
    let mut pod = pod(name, json!({RUN_SECONDS: seconds}));
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_and_run() {
    let world = with_nodes(NodeSpec::many(3));
    for i in 0..6 {
        world.create(&Gvr::PODS, asks(&format!("p{i}"), "1", "60"));
    }
    world.pass(Duration::from_secs(1)).await;
    let mut per_node = std::collections::BTreeMap::<String, usize>::new();
    for i in 0..6 {
        *per_node
            .entry(node_of(&world, &format!("p{i}")).unwrap())
            .or_default() += 1;
        assert_eq!(world.pod(&format!("p{i}"))["status"]["phase"], "Running");
    }
    assert_eq!(per_node.into_values().collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(scheduled(&world, "p0").0, "True");
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_is_bound_when_a_full_node_has_room_again() {
    let world = with_nodes(vec![NodeSpec::new("node-1").cpu("1")]);
    for i in 0..4 {
        world.create(&Gvr::PODS, asks(&format!("p{i}"), "600m", "10"));
    }
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(node_of(&world, "p1"), None);
    assert_eq!(
        scheduled(&world, "p1"),
        (
            "False".to_owned(),
            "0/1 nodes are available: 1 Insufficient cpu.".to_owned()
        )
    );
    world.pass(Duration::from_secs(60)).await;
    for i in 0..4 {
        assert_eq!(
            world.pod(&format!("p{i}"))["status"]["phase"],
            "Succeeded",
            "p{i}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_its_pvc_is_usable() {
    let world = with_nodes(NodeSpec::many(1));
    let pvc = json!({
        "metadata": {"name": "data", "finalizers": ["x/y"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    world.create(&PVCS, pvc.clone());
    world.delete(&PVCS, "data");
    let mut pod = pod("p", json!({}));
    pod["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.create(&Gvr::PODS, pod);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(
        scheduled(&world, "p").1,
        "0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted."
    );
    world.patch(&PVCS, "data", json!({"metadata": {"finalizers": null}}));
    world.settle().await;
    assert!(scheduled(&world, "p").1.contains("not found"));
    world.create(&PVCS, pvc);
    world.settle().await;
    assert_eq!(node_of(&world, "p").as_deref(), Some("node-1"));
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_bound_to_a_deleted_node() {
    let world = with_nodes(NodeSpec::many(2));
    world.settle().await;
    world.controllers.kubelets().vanish("node-1");
    world.pass(Duration::from_secs(60)).await;
    for i in 0..4 {
        world.create(&Gvr::PODS, pod(&format!("p{i}"), json!({})));
    }
    world.settle().await;
    for i in 0..4 {
        assert_eq!(node_of(&world, &format!("p{i}")).as_deref(), Some("node-2"));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_with_gates_or_another_scheduler_are_ignored() {
    let world = with_nodes(NodeSpec::many(1));
    let mut gated = pod("gated", json!({}));
    gated["spec"]["schedulingGates"] = json!([{"name": "x/y"}]);
    let mut others = pod("foreign", json!({}));
    others["spec"]["schedulerName"] = json!("other");
    world.create(&Gvr::PODS, gated);
    world.create(&Gvr::PODS, others);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(
        (node_of(&world, "gated"), node_of(&world, "foreign")),
        (None, None)
    );
    assert!(world.written_by(super::ACTOR).is_empty());
}

#[tokio::test(start_paused = true)]
async fn thousands_of_waiting_pods_cost_one_check_each_time() {
    let world = with_nodes(vec![NodeSpec::new("node-1").pods(10)]);
    for i in 0..2_000 {
        world.create(&Gvr::PODS, pod(&format!("p{i}"), json!({RUN_SECONDS: "1"})));
    }
    world.pass(Duration::from_secs(1_000)).await;
    let page = world
        .cluster
        .list(&Gvr::PODS, None, &Default::default())
        .unwrap();
    assert!(
        page.items
            .iter()
            .all(|pod| pod["status"]["phase"] == "Succeeded")
    );
    // Each pod gets the condition once, unless it found room at once, and is bound once.
    let writes = world.written_by(super::ACTOR);
    let bound = writes
        .iter()
        .filter(|w| w.starts_with("create pods/binding"));
    assert_eq!(bound.count(), 2_000);
    assert!(writes.len() <= 2 * 2_000, "{} writes", writes.len());
}
