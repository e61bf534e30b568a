use std::collections::BTreeSet;
use std::time::Duration;

use belayer_sandbox::simulated::{KubeletConfig, NodeSpec, SimulatedControllers, object};
use belayer_sandbox::{
    Actor, Clock, Cluster, Epoch, Gvr, ListOptions, Patch, Propagation, SharedRng, Subresource,
    WriteOptions,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    ARGO, Arrival, PodGc, Profile, Tally, USER, WORKFLOWS, Workload, WorkloadEvent, names,
};

struct Stage {
    cluster: Cluster,
    workload: Workload,
    tally: Tally,
    cancel: CancellationToken,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn bare_cluster() -> Cluster {
    let epoch = Epoch::Fixed("2026-01-01T00:00:00Z".parse().unwrap());
    Cluster::new(Clock::new(epoch), SharedRng::new(1), 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn small() -> Profile {
    Profile {
        workflows: 2,
        pods_per_workflow: 5,
        pods_per_second: 5.0,
        failure_ratio: 0.0,
        ..Profile::default()
    }
}

fn start(profile: Profile) -> Stage {
    let cluster = bare_cluster();
    let cancel = CancellationToken::new();
    let kubelet = KubeletConfig {
        nodes: NodeSpec::many(2),
        ..KubeletConfig::default()
    };
    let _running = SimulatedControllers::all()
        .kubelet(kubelet)
        .start(&cluster, &cancel);
    let workload = Workload::run(&cluster, profile, &cancel);
    Stage {
        cluster,
        workload,
        tally: Tally::default(),
        cancel,
    }
}

impl Stage {
    async fn pass(&mut self, time: Duration) -> Vec<WorkloadEvent> {
        tokio::time::sleep(time).await;
        let events = self.workload.drain_events();
        events.iter().for_each(|event| self.tally.add(event));
        events
    }

    fn pods(&self) -> Vec<std::sync::Arc<Value>> {
        self.cluster
            .list(&Gvr::PODS, Some("argo"), &ListOptions::default())
            .unwrap()
            .items
    }

    fn workflow(&self, name: &str) -> std::sync::Arc<Value> {
        self.cluster.get(&WORKFLOWS, Some("argo"), name).unwrap()
    }

    fn hold(&self, pod: &str, finalizers: Value) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.cluster
            .patch(
                &Actor::new("test"),
                &Gvr::PODS,
                Some("argo"),
                pod,
                patch,
                Subresource::None,
                &WriteOptions::default(),
            )
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn all_pods_run_and_all_results_are_consumed() {
    let mut stage = start(small());
    stage.pass(secs(60)).await;
    assert_eq!(stage.tally.workflows_created, 2);
    assert_eq!(stage.tally.pods_created, 10);
    assert_eq!(stage.tally.pods_ended, 10);
    assert_eq!(
        (stage.tally.results_taken, stage.tally.results_lost),
        (10, 0)
    );
    assert_eq!(stage.tally.workflows_finished, 2);
    // A result waits for its delay, which starts with the first of its batch.
    assert!(
        stage.tally.longest_wait <= secs(1),
        "{:?}",
        stage.tally.longest_wait
    );

    let workflow = stage.workflow("flow-0");
    assert_eq!(workflow["status"]["phase"], "Succeeded");
    assert_eq!(workflow["status"]["progress"], "5/5");
    assert_eq!(object::label(&workflow, names::COMPLETED), Some("true"));
    assert_eq!(object::label(&workflow, names::PHASE), Some("Succeeded"));
    for pod in stage.pods() {
        assert_eq!(object::label(&pod, names::COMPLETED), Some("true"));
        let owner = &pod["metadata"]["ownerReferences"][0];
        let workflow = stage.workflow(owner["name"].as_str().unwrap());
        assert_eq!(owner["uid"], workflow["metadata"]["uid"]);
        assert_eq!(owner["controller"], true);
        let id = object::annotation(&pod, names::NODE_ID).unwrap();
        assert_eq!(workflow["status"]["nodes"][id]["phase"], "Succeeded");
    }
    let actors = stage.cluster.recorder().actors();
    assert!(actors.contains(&Actor::new(USER)) && actors.contains(&Actor::new(ARGO)));
}

#[tokio::test(start_paused = true)]
async fn the_result_is_in_the_workflow_before_the_pod_is_labelled() {
    let mut stage = start(Profile {
        workflows: 1,
        pods_per_workflow: 1,
        ..small()
    });
    stage.pass(secs(60)).await;
    let writes: Vec<String> = stage
        .cluster
        .recorder()
        .writes_by(ARGO)
        .iter()
        .map(|w| w.summary())
        .collect();
    assert_eq!(
        writes,
        [
            "argo-standin create v1/pods argo/flow-0-main-0 applied",
            // The node is Pending, Running, Succeeded.
            "argo-standin patch argoproj.io/v1alpha1/workflows argo/flow-0 applied",
            "argo-standin patch argoproj.io/v1alpha1/workflows argo/flow-0 applied",
            "argo-standin patch argoproj.io/v1alpha1/workflows argo/flow-0 applied",
            "argo-standin patch v1/pods argo/flow-0-main-0 applied",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_are_created_at_the_configured_rate() {
    let mut stage = start(Profile {
        workflows: 2,
        pods_per_workflow: 50,
        pods_per_second: 10.0,
        ..Profile::default()
    });
    stage.pass(Duration::from_millis(4_900)).await;
    let created = stage.tally.pods_created;
    assert!((48..=52).contains(&created), "{created}");
}

#[tokio::test(start_paused = true)]
async fn in_turn_a_workflow_waits_for_the_one_before() {
    let mut stage = start(Profile {
        arrival: Arrival::InTurn,
        ..small()
    });
    stage.pass(Duration::from_millis(900)).await;
    assert_eq!(stage.tally.workflows_created, 1);
    stage.pass(Duration::from_millis(200)).await;
    assert_eq!(stage.tally.workflows_created, 2);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_pod_that_is_removed_too_early_is_lost() {
    // The controller looks after 30 seconds, when the pods run, and after 60, when they have ended.
    let mut stage = start(Profile {
        persist_delay: secs(30),
        life: secs(40)..=secs(40),
        ..small()
    });
    stage.pass(secs(45)).await;
    assert_eq!(stage.tally.pods_ended, 10);
    stage
        .workload
        .user()
        .delete_pod("argo", "flow-0-main-3", None)
        .unwrap();
    let events = stage.pass(secs(1)).await;
    let lost = WorkloadEvent::ResultLost {
        namespace: "argo".to_owned(),
        name: "flow-0-main-3".to_owned(),
    };
    assert!(events.contains(&lost), "{events:?}");
    stage.pass(secs(60)).await;
    let workflow = stage.workflow("flow-0");
    assert_eq!(workflow["status"]["nodes"]["flow-0-3"]["phase"], "Error");
    assert_eq!(
        workflow["status"]["nodes"]["flow-0-3"]["message"],
        "pod deleted"
    );
    assert_eq!(workflow["status"]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_deleted_pod_with_a_finalizer_is_consumed() {
    let mut stage = start(Profile {
        persist_delay: secs(30),
        ..small()
    });
    stage.pass(secs(20)).await;
    stage.hold("flow-0-main-3", json!(["x/y"]));
    stage
        .workload
        .user()
        .delete_pod("argo", "flow-0-main-3", None)
        .unwrap();
    stage.pass(secs(60)).await;
    assert_eq!(
        (stage.tally.results_taken, stage.tally.results_lost),
        (10, 0)
    );
    let pods = stage.pods();
    let held = pods
        .iter()
        .find(|pod| object::name(pod) == "flow-0-main-3")
        .unwrap();
    assert_eq!(object::label(held, names::COMPLETED), Some("true"));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_controller_consumes_nothing() {
    let mut stage = start(small());
    stage.pass(secs(2)).await;
    stage.workload.argo().stop();
    stage.pass(secs(1)).await;
    let before = stage.cluster.recorder().writes_by(ARGO).len();
    stage.pass(secs(600)).await;
    assert_eq!(stage.cluster.recorder().writes_by(ARGO).len(), before);
    let waiting = stage.tally.pods_ended - stage.tally.results_taken;
    assert!(waiting > 0);
    stage.workload.argo().start();
    stage.pass(secs(60)).await;
    assert_eq!(
        (stage.tally.results_taken, stage.tally.results_lost),
        (10, 0)
    );
    assert_eq!(stage.tally.workflows_finished, 2);
    assert!(stage.tally.longest_wait > secs(500));
}

#[tokio::test(start_paused = true)]
async fn pod_gc_deletes_without_labelling() {
    let mut stage = start(Profile {
        pod_gc: PodGc::OnPodCompletion,
        ..small()
    });
    stage.pass(secs(60)).await;
    assert_eq!(
        (stage.tally.results_taken, stage.tally.results_lost),
        (10, 0)
    );
    assert!(stage.pods().is_empty());
    let writes = stage.cluster.recorder().writes_by(ARGO);
    let labelled = writes
        .iter()
        .filter(|write| *write.resource.resource == *"pods" && write.verb.as_str() == "patch");
    assert_eq!(labelled.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_gc_can_wait_for_the_workflow() {
    let profile = Profile {
        pod_gc: PodGc::OnWorkflowCompletion,
        ..small()
    };
    let mut stage = start(Profile {
        pods_per_second: 1.0,
        workflows: 1,
        ..profile
    });
    stage.pass(secs(4)).await;
    assert!(!stage.pods().is_empty());
    stage.pass(secs(60)).await;
    assert!(stage.pods().is_empty());
    assert_eq!(
        (stage.tally.results_taken, stage.tally.results_lost),
        (5, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_workflow_deletes_its_pods() {
    let mut stage = start(small());
    stage.pass(secs(2)).await;
    stage
        .workload
        .user()
        .delete_workflow("argo", "flow-0", Propagation::Background)
        .unwrap();
    stage.pass(secs(60)).await;
    assert_eq!(stage.tally.workflows_gone, 1);
    let owners: BTreeSet<String> = stage
        .pods()
        .iter()
        .map(|pod| object::label(pod, names::WORKFLOW).unwrap().to_owned())
        .collect();
    assert_eq!(owners, BTreeSet::from(["flow-1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn failures_and_rejections_have_the_configured_ratio() {
    let mut stage = start(Profile {
        workflows: 1,
        pods_per_workflow: 200,
        pods_per_second: 100.0,
        failure_ratio: 0.2,
        rejection_ratio: 0.2,
        ..Profile::default()
    });
    stage.pass(secs(60)).await;
    let pods = stage.pods();
    let rejected = pods
        .iter()
        .filter(|pod| pod["status"]["reason"] == "OutOfcpu")
        .count();
    let failed = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Failed")
        .count();
    assert!((25..55).contains(&rejected), "{rejected}");
    assert!((50..95).contains(&failed), "{failed}");
    assert_eq!(stage.workflow("flow-0")["status"]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_writes() {
    let history = || async {
        let mut stage = start(Profile {
            failure_ratio: 0.3,
            ..small()
        });
        stage.pass(secs(60)).await;
        stage
            .cluster
            .recorder()
            .writes()
            .iter()
            .map(|w| w.summary())
            .collect::<Vec<_>>()
    };
    assert_eq!(history().await, history().await);
}

#[tokio::test(start_paused = true)]
async fn a_settled_workload_writes_nothing() {
    let mut stage = start(small());
    stage.pass(secs(60)).await;
    let before = stage.cluster.version();
    stage.pass(secs(3_600)).await;
    assert_eq!(stage.cluster.version(), before);
}
