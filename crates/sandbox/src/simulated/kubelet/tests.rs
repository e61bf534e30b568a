use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::annotations::{
    EXIT_CODE, REJECT_REASON, RUN_SECONDS, START_DELAY, STOP_EXIT_CODE, STOP_SECONDS,
};
use super::{KubeletConfig, NodeSpec, PodPlan, Rejection, RejectionChance, actor_of};
use crate::address::Gvr;
use crate::cluster::DeleteOptions;
use crate::simulated::testing::{World, bound, world};
use crate::simulated::{SimulatedControllers, object};

fn nodes(nodes: Vec<NodeSpec>) -> SimulatedControllers {
    SimulatedControllers::none().kubelet(KubeletConfig {
        nodes,
        ..KubeletConfig::default()
    })
}

fn one_node() -> World {
    world(nodes(NodeSpec::many(1)))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn phase(pod: &Value) -> &str {
    object::text(pod, "/status/phase").unwrap()
}

fn ready(node: &Value) -> &str {
    object::text(node, "/status/conditions/0/status").unwrap()
}

fn force() -> DeleteOptions {
    DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_register_with_their_capacity() {
    let spec = NodeSpec::new("big")
        .cpu("96")
        .memory("1Ti")
        .pods(250)
        .label("zone", "b");
    let world = world(nodes(vec![NodeSpec::new("small").cpu("2"), spec]));
    world.settle().await;
    assert_eq!(world.names(&Gvr::NODES), ["big", "small"]);
    let node = world.get(&Gvr::NODES, "big").unwrap();
    assert_eq!(ready(&node), "True");
    assert_eq!(
        node["status"]["allocatable"],
        json!({"cpu": "96", "memory": "1Ti", "pods": "250"})
    );
    assert_eq!(object::label(&node, "zone"), Some("b"));
    assert_eq!(world.written_by(&actor_of("big")), ["create nodes big"]);
}

#[rstest]
#[case::well("0", "Succeeded")]
#[case::badly("3", "Failed")]
#[tokio::test(start_paused = true)]
async fn a_pod_starts_runs_and_ends(#[case] exit_code: &str, #[case] end: &str) {
    let world = one_node();
    let script = json!({START_DELAY: "2", RUN_SECONDS: "10", EXIT_CODE: exit_code});
    world.create(&Gvr::PODS, bound("p", "node-1", script));
    world.settle().await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Pending");
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating");

    world.pass(secs(2)).await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Running");
    assert_eq!(pod["status"]["startTime"], "2026-01-01T00:00:00Z");
    assert!(object::text(&pod, "/status/podIP").is_some());
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["name"], "main");
    assert_eq!(container["ready"], true);
    assert_eq!(
        container["state"]["running"]["startedAt"],
        "2026-01-01T00:00:02Z"
    );

    world.pass(secs(10)).await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), end);
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["exitCode"].to_string(), exit_code);
    assert_eq!(terminated["startedAt"], "2026-01-01T00:00:02Z");
    assert_eq!(terminated["finishedAt"], "2026-01-01T00:00:12Z");
    assert_eq!(
        world.written_by(&actor_of("node-1")),
        [
            "create nodes node-1",
            "patch pods/status p",
            "patch pods/status p",
            "patch pods/status p"
        ]
    );
}

#[rstest]
#[case::it_is_asked_to_stop(json!({STOP_SECONDS: "5"}), None, 5, "Failed", 143)]
#[case::and_may_end_well(json!({STOP_SECONDS: "5", STOP_EXIT_CODE: "0"}), None, 5, "Succeeded", 0)]
#[case::or_is_killed(json!({STOP_SECONDS: "60"}), Some(7), 7, "Failed", 137)]
#[tokio::test(start_paused = true)]
async fn a_deleted_pod_reports_its_end_before_it_is_removed(
    #[case] script: Value,
    #[case] grace: Option<i64>,
    #[case] after: u64,
    #[case] end: &str,
    #[case] exit_code: i32,
) {
    let world = one_node();
    world.create(&Gvr::PODS, bound("p", "node-1", script));
    world.patch(
        &Gvr::PODS,
        "p",
        json!({"metadata": {"finalizers": ["x/y"]}}),
    );
    world.pass(secs(1)).await;
    let options = DeleteOptions {
        grace_period_seconds: grace,
        ..DeleteOptions::default()
    };
    world.delete_with(&Gvr::PODS, "p", options);
    world.pass(secs(after - 1)).await;
    assert_eq!(phase(&world.pod("p")), "Running");
    world.pass(secs(1)).await;
    world.settle().await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), end);
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["exitCode"], exit_code);
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 0);

    let before = world.written_by(&actor_of("node-1"));
    assert_eq!(before.last().map(String::as_str), Some("delete pods p"));
    world.pass(secs(3_600)).await;
    assert_eq!(
        world.written_by(&actor_of("node-1")),
        before,
        "a terminating pod with a finalizer causes no further writes"
    );
    world.patch(&Gvr::PODS, "p", json!({"metadata": {"finalizers": null}}));
    assert!(world.get(&Gvr::PODS, "p").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_ended_pod_that_is_deleted_is_removed_at_once() {
    let world = one_node();
    world.create(&Gvr::PODS, bound("p", "node-1", json!({RUN_SECONDS: "1"})));
    world.pass(secs(5)).await;
    assert_eq!(phase(&world.pod("p")), "Succeeded");
    world.delete(&Gvr::PODS, "p");
    world.settle().await;
    assert!(world.get(&Gvr::PODS, "p").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_starting_never_runs() {
    let world = one_node();
    world.create(&Gvr::PODS, bound("p", "node-1", json!({START_DELAY: "60"})));
    world.patch(
        &Gvr::PODS,
        "p",
        json!({"metadata": {"finalizers": ["x/y"]}}),
    );
    world.settle().await;
    world.delete(&Gvr::PODS, "p");
    world.settle().await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Failed");
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["reason"], "ContainerStatusUnknown");
    assert!(object::text(&pod, "/status/podIP").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_has_failed_without_any_container() {
    let world = one_node();
    world.create(
        &Gvr::PODS,
        bound("p", "node-1", json!({REJECT_REASON: "OutOfcpu"})),
    );
    world.settle().await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Failed");
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    let message = object::text(&pod, "/status/message").unwrap();
    assert!(message.starts_with("Pod was rejected: Node didn't have enough resource: cpu"));
    assert!(pod["status"].get("containerStatuses").is_none());
    world.delete(&Gvr::PODS, "p");
    world.settle().await;
    assert!(world.get(&Gvr::PODS, "p").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_rejects_pods_that_do_not_fit_until_it_has_room_again() {
    let world = world(nodes(vec![NodeSpec::new("node-1").cpu("1")]));
    let asks = |name: &str, seconds: &str| {
        let mut pod = bound(name, "node-1", json!({RUN_SECONDS: seconds}));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "600m"}});
        pod
    };
    world.create(&Gvr::PODS, asks("first", "5"));
    world.create(&Gvr::PODS, asks("second", "5"));
    world.pass(secs(10)).await;
    world.create(&Gvr::PODS, asks("third", "5"));
    world.pass(secs(10)).await;
    assert_eq!(phase(&world.pod("first")), "Succeeded");
    let second = world.pod("second");
    assert_eq!(second["status"]["reason"], "OutOfcpu");
    assert_eq!(
        second["status"]["message"],
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 600, \
         capacity: 1000"
    );
    assert_eq!(phase(&world.pod("third")), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn random_rejections_and_a_script_apply_too() {
    let config = KubeletConfig {
        rejections: Some(RejectionChance {
            probability: 1.0,
            reasons: vec!["NodeAffinity".to_owned()],
        }),
        script: Some(std::sync::Arc::new(
            |_: &str, pod: &Value, plan: PodPlan| match object::name(pod) {
                "chosen" => PodPlan::Reject(Rejection::new("Chosen")),
                _ => plan,
            },
        )),
        ..KubeletConfig::default()
    };
    let world = world(SimulatedControllers::none().kubelet(config));
    world.create(&Gvr::PODS, bound("chosen", "node-1", json!({})));
    world.create(&Gvr::PODS, bound("unlucky", "node-2", json!({})));
    world.settle().await;
    assert_eq!(world.pod("chosen")["status"]["reason"], "Chosen");
    assert_eq!(world.pod("unlucky")["status"]["reason"], "NodeAffinity");
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_restarts_according_to_the_restart_policy() {
    let world = one_node();
    let mut pod = bound("p", "node-1", json!({RUN_SECONDS: "1", EXIT_CODE: "1"}));
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    world.create(&Gvr::PODS, pod);
    world.pass(secs(5)).await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Running");
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    world.pass(secs(20)).await;
    assert_eq!(
        world.pod("p")["status"]["containerStatuses"][0]["restartCount"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_node_reports_everything_when_it_reconnects() {
    let world = one_node();
    world.create(
        &Gvr::PODS,
        bound("ends", "node-1", json!({RUN_SECONDS: "5"})),
    );
    world.create(&Gvr::PODS, bound("deleted", "node-1", json!({})));
    world.create(&Gvr::PODS, bound("forced", "node-1", json!({})));
    world.pass(secs(1)).await;
    world.controllers.kubelets().vanish("node-1");
    world.settle().await;
    let before = world.written_by(&actor_of("node-1"));
    world.delete(&Gvr::PODS, "deleted");
    world.delete_with(&Gvr::PODS, "forced", force());
    world.create(&Gvr::PODS, bound("late", "node-1", json!({})));
    world.pass(secs(30)).await;
    assert_eq!(ready(&world.get(&Gvr::NODES, "node-1").unwrap()), "True");
    world.pass(secs(30)).await;
    assert_eq!(ready(&world.get(&Gvr::NODES, "node-1").unwrap()), "Unknown");
    assert_eq!(world.written_by(&actor_of("node-1")), before);
    assert_eq!(world.names(&Gvr::PODS), ["deleted", "ends", "late"]);

    world.controllers.kubelets().come_back("node-1");
    world.pass(secs(5)).await;
    assert_eq!(ready(&world.get(&Gvr::NODES, "node-1").unwrap()), "True");
    assert_eq!(world.names(&Gvr::PODS), ["ends", "late"]);
    let pod = world.pod("ends");
    assert_eq!(phase(&pod), "Succeeded");
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["finishedAt"], "2026-01-01T00:00:05Z");
    assert_eq!(phase(&world.pod("late")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_node_is_gone_until_it_is_added_again() {
    let world = one_node();
    world.create(&Gvr::PODS, bound("p", "node-1", json!({})));
    world.pass(secs(1)).await;
    world.controllers.kubelets().destroy("node-1");
    world.pass(secs(100)).await;
    assert!(world.names(&Gvr::NODES).is_empty());
    assert_eq!(phase(&world.pod("p")), "Running");
    world.controllers.kubelets().add(NodeSpec::new("node-2"));
    world.controllers.kubelets().come_back("node-1");
    world.settle().await;
    assert_eq!(world.names(&Gvr::NODES), ["node-1", "node-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_final_phase_is_never_changed_back() {
    let world = one_node();
    world.create(
        &Gvr::PODS,
        bound("p", "node-1", json!({STOP_EXIT_CODE: "0"})),
    );
    world.pass(secs(1)).await;
    let patch = crate::cluster::Patch::Merge(json!({"status": {"phase": "Failed"}}));
    world
        .cluster
        .patch(
            &"somebody".into(),
            &Gvr::PODS,
            Some("default"),
            "p",
            patch,
            crate::address::Subresource::Status,
            &Default::default(),
        )
        .unwrap();
    world.pass(secs(5)).await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Failed");
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["exitCode"], 0);
}

fn pvc(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": ["x/y"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn with_pvc(name: &str, pvc: &str) -> Value {
    let mut pod = bound(name, "node-1", json!({}));
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": pvc}}]);
    pod
}

fn events(world: &World, reason: &str) -> Vec<String> {
    let page = world
        .cluster
        .list(&Gvr::EVENTS, None, &Default::default())
        .unwrap();
    let of = |event: &&std::sync::Arc<Value>| event["reason"] == reason;
    let message = |event: &std::sync::Arc<Value>| event["message"].as_str().unwrap().to_owned();
    page.items.iter().filter(of).map(message).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_missing_or_terminating_pvc_does_not_start() {
    const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;
    let world = one_node();
    world.create(&PVCS, pvc("going"));
    world.delete(&PVCS, "going");
    world.create(&Gvr::PODS, with_pvc("p", "going"));
    world.pass(secs(600)).await;
    let pod = world.pod("p");
    assert_eq!(phase(&pod), "Pending", "the pod waits and is not rejected");
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating");
    assert_eq!(
        events(&world, "FailedMount"),
        [
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], \
          failed to process volumes=[data]: PVC is being deleted"
        ]
    );
    world.patch(&PVCS, "going", json!({"metadata": {"finalizers": null}}));
    world.pass(secs(600)).await;
    assert_eq!(phase(&world.pod("p")), "Pending", "the PVC is missing now");
    world.create(&PVCS, pvc("going"));
    world.pass(secs(1)).await;
    assert_eq!(phase(&world.pod("p")), "Running");
    // A PVC that is deleted under a running pod stops nothing.
    world.delete(&PVCS, "going");
    world.pass(secs(60)).await;
    assert_eq!(phase(&world.pod("p")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_pvc_can_be_deleted() {
    let world = one_node();
    world.create(&Gvr::PODS, with_pvc("p", "none"));
    world.pass(secs(10)).await;
    world.delete(&Gvr::PODS, "p");
    world.settle().await;
    assert!(world.get(&Gvr::PODS, "p").is_none());
}

#[rstest]
#[case::race(
    "OutOfmemory",
    "Node didn't have enough resource: memory, requested: 1000, used: 3500, capacity: 4000"
)]
#[case::affinity(
    "NodeAffinity",
    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
)]
#[case::ports(
    "NodePorts",
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
)]
#[case::shutdown("NodeShutdown", "Pod was rejected as the node is shutting down.")]
#[case::no_node("InvalidNodeInfo", "Kubelet cannot get node info.")]
#[tokio::test(start_paused = true)]
async fn a_rejection_writes_the_status_of_a_real_kubelet(
    #[case] reason: &str,
    #[case] detail: &str,
) {
    let world = one_node();
    world.create(
        &Gvr::PODS,
        bound("p", "node-1", json!({REJECT_REASON: reason})),
    );
    world.settle().await;
    let pod = world.pod("p");
    let status = pod["status"].as_object().unwrap();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["reason"], reason);
    assert_eq!(status["message"], format!("Pod was rejected: {detail}"));
    assert_eq!(status["startTime"], "2026-01-01T00:00:00Z");
    for absent in ["containerStatuses", "podIP", "hostIP"] {
        assert!(!status.contains_key(absent), "{absent}");
    }
    assert_eq!(events(&world, reason), [detail]);
}

#[test]
fn every_known_reason_has_its_own_message() {
    for reason in Rejection::REASONS {
        let rejection = Rejection::new(reason);
        assert_eq!(rejection.reason, reason);
        assert!(
            !rejection.detail.ends_with(" failed"),
            "{reason}: {}",
            rejection.detail
        );
    }
}

/// After a kubelet's restart, a rejected pod that ran looks like one that never ran.
#[tokio::test(start_paused = true)]
async fn a_restarted_kubelet_rejects_running_pods_that_no_longer_fit() {
    let world = world(nodes(vec![NodeSpec::new("node-1").label("zone", "a")]));
    let mut picky = bound("picky", "node-1", json!({}));
    picky["spec"]["nodeSelector"] = json!({"zone": "a"});
    world.create(&Gvr::PODS, picky);
    world.create(&Gvr::PODS, bound("easy", "node-1", json!({})));
    world.pass(secs(10)).await;
    let before = world.pod("easy");
    assert_eq!(phase(&world.pod("picky")), "Running");
    world.patch(
        &Gvr::NODES,
        "node-1",
        json!({"metadata": {"labels": {"zone": "b"}}}),
    );
    world.pass(secs(60)).await;
    assert_eq!(
        phase(&world.pod("picky")),
        "Running",
        "a changed label alone ends no pod"
    );
    world.controllers.kubelets().restart("node-1");
    world.settle().await;
    let pod = world.pod("picky");
    let status = pod["status"].as_object().unwrap();
    assert_eq!(
        (phase(&pod), &status["reason"]),
        ("Failed", &json!("NodeAffinity"))
    );
    assert_eq!(
        status["startTime"], "2026-01-01T00:00:00Z",
        "the first start time is kept"
    );
    for gone in ["containerStatuses", "podIP", "podIPs", "hostIP"] {
        assert!(!status.contains_key(gone), "{gone}");
    }
    assert_eq!(
        world.pod("easy"),
        before,
        "the other pod keeps running without a write"
    );
    world.delete(&Gvr::PODS, "picky");
    world.settle().await;
    assert!(world.get(&Gvr::PODS, "picky").is_none());
}
