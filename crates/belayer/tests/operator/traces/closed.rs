//! Runs a scripted workflow on the embedded API server, with the controller of Argo Workflows as its model describes
//! it: what Belayer does changes what Argo does next, and so how the workflow ends.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::simulated;
use belayer_sandbox::simulated::{KubeletConfig, NodeSpec, SimulatedControllers, object};
use belayer_sandbox::{
    Actor, Cluster, DeleteOptions, Gvr, ListOptions, Patch, Sandbox, Subresource, WriteOptions,
};
use belayer_workload::model::{Rules, WorkflowResult};
use belayer_workload::{Argo, WORKFLOWS, names, namespace, workflow_crd};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::replay::belayer;
use super::scripts::{Action, Script};

/// Who holds the pods of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    None,
    /// As 9e06281 did: every pod, from its creation until its workflow has read its result, or is deleted.
    Old,
    /// The Belayer under test.
    Belayer,
}

/// How long a run is observed. Every recorded workflow had ended by then, or changed no more.
const OBSERVED: Duration = Duration::from_secs(150);

const NAMESPACE: &str = "argo";
const MACHINE: &str = "node-0";
const OLD_HOLD: &str = "belayer.dev/old-hold";

/// Runs a workflow; returns how it ended.
pub(super) fn run(script: &Script, holder: Holder, rules: Rules) -> WorkflowResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let last = runtime.block_on(last_version(script, holder, rules));
    WorkflowResult::of(&last)
}

/// The last version of the workflow.
async fn last_version(script: &Script, holder: Holder, rules: Rules) -> Arc<Value> {
    let kubelet = KubeletConfig {
        nodes: vec![NodeSpec::new(MACHINE)],
        ..KubeletConfig::default()
    };
    let controllers = SimulatedControllers::all().kubelet(kubelet);
    let sandbox = Sandbox::builder().seed(17).controllers(controllers).build();
    let clock = sandbox.cluster().clock().clone();
    let _simulated = simulated::simulate(17, move || clock.now());
    let cluster = sandbox.cluster();
    create(
        cluster,
        &Gvr::CUSTOMRESOURCEDEFINITIONS,
        None,
        workflow_crd(),
    );
    create(cluster, &Gvr::NAMESPACES, None, namespace(NAMESPACE));
    let stop = CancellationToken::new();
    let belayer = (holder == Holder::Belayer)
        .then(|| tokio::spawn(belayer(&sandbox, Arc::new(())).run(stop.clone())));
    // The node registers, and Belayer starts. Times of the status are whole seconds: the workflow starts between two.
    tokio::time::sleep(Duration::from_millis(1_137)).await;
    let mut events = cluster.subscribe(None, cluster.version());
    let argo = Argo::spawn(cluster, rules, &stop);
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "namespace": NAMESPACE, "name": script.trace }, "spec": script.spec,
    });
    create(cluster, &WORKFLOWS, Some(NAMESPACE), object);

    let start = Instant::now();
    let mut actions = script.actions();
    let mut next = actions.next();
    let mut last = None;
    loop {
        let until = next.map_or(OBSERVED, |(at, _)| at);
        tokio::select! {
            biased;
            event = events.next() => {
                let event = event.unwrap();
                if event.object["kind"] == "Workflow" {
                    last = Some(Arc::clone(&event.object));
                }
                if holder == Holder::Old {
                    hold_as_before(cluster);
                }
            }
            () = tokio::time::sleep_until(start + until) => {
                let Some((_, action)) = next else {
                    break;
                };
                act(action, script, &sandbox, &argo);
                next = actions.next();
            }
        }
    }
    stop.cancel();
    if let Some(belayer) = belayer {
        belayer.await.unwrap();
        let mut pods = pods(cluster).into_iter();
        let stuck = pods.find(|pod| object::is_deleting(pod));
        assert_eq!(stuck, None, "{}: stuck in Terminating", script.trace);
    }
    last.unwrap()
}

fn user() -> Actor {
    Actor::new("user")
}

fn create(cluster: &Cluster, gvr: &Gvr, namespace: Option<&str>, object: Value) {
    let options = WriteOptions::default();
    cluster
        .create(&user(), gvr, namespace, object, &options)
        .unwrap();
}

fn pods(cluster: &Cluster) -> Vec<Arc<Value>> {
    cluster
        .list(&Gvr::PODS, Some(NAMESPACE), &ListOptions::default())
        .unwrap()
        .items
}

fn act(action: Action, script: &Script, sandbox: &Sandbox, argo: &Argo) {
    let cluster = sandbox.cluster();
    match action {
        Action::DeletePod(step) => delete_pod(cluster, script, step, None),
        Action::ForceDeletePod(step) => delete_pod(cluster, script, step, Some(0)),
        Action::EvictPod(step) => {
            let pod = pod_of(cluster, script, step);
            let options = DeleteOptions::default();
            cluster
                .evict(&user(), NAMESPACE, object::name(&pod), &options)
                .unwrap();
        }
        Action::DeleteWorkflow(propagation) => {
            let options = DeleteOptions {
                propagation_policy: Some(propagation),
                ..DeleteOptions::default()
            };
            cluster
                .delete(&user(), &WORKFLOWS, Some(NAMESPACE), script.trace, &options)
                .unwrap();
        }
        Action::Shutdown(strategy) => {
            patch(
                cluster,
                &WORKFLOWS,
                script.trace,
                json!({ "spec": { "shutdown": strategy } }),
            );
        }
        Action::LoseMachine => sandbox.controllers().kubelets().destroy(MACHINE),
        Action::KillArgo => argo.stop(),
        Action::StartArgo => argo.start(),
    }
}

fn delete_pod(cluster: &Cluster, script: &Script, step: &str, grace: Option<i64>) {
    let pod = pod_of(cluster, script, step);
    let options = DeleteOptions {
        grace_period_seconds: grace,
        ..DeleteOptions::default()
    };
    cluster
        .delete(
            &user(),
            &Gvr::PODS,
            Some(NAMESPACE),
            object::name(&pod),
            &options,
        )
        .unwrap();
}

/// The pod of a step, by the end of its node's name; that of no node is the agent.
fn pod_of(cluster: &Cluster, script: &Script, step: &str) -> Arc<Value> {
    let is_of_step = |pod: &Arc<Value>| match object::annotation(pod, names::NODE_NAME) {
        Some(name) => name == step || name.ends_with(&format!(".{step}")),
        None => step == "agent",
    };
    let found = pods(cluster).into_iter().find(is_of_step);
    found.unwrap_or_else(|| panic!("{}: {step} has no pod", script.trace))
}

fn patch(cluster: &Cluster, gvr: &Gvr, name: &str, patch: Value) {
    let options = WriteOptions::default();
    let patch = Patch::Merge(patch);
    cluster
        .patch(
            &user(),
            gvr,
            Some(NAMESPACE),
            name,
            patch,
            Subresource::None,
            &options,
        )
        .unwrap();
}

/// Holds and releases pods as 9e06281 did.
fn hold_as_before(cluster: &Cluster) {
    for pod in pods(cluster) {
        let is_held = object::finalizers(&pod).any(|own| own == OLD_HOLD);
        let is_read = is_read(cluster, &pod);
        let others = object::finalizers(&pod).filter(|own| *own != OLD_HOLD);
        let mut finalizers: Vec<&str> = others.collect();
        if is_held && is_read {
            patch(
                cluster,
                &Gvr::PODS,
                object::name(&pod),
                json!({ "metadata": { "finalizers": finalizers } }),
            );
        } else if !is_held && !is_read && !object::is_deleting(&pod) {
            finalizers.push(OLD_HOLD);
            patch(
                cluster,
                &Gvr::PODS,
                object::name(&pod),
                json!({ "metadata": { "finalizers": finalizers } }),
            );
        }
    }
}

/// Whether a pod's workflow has read its result, or is deleted.
fn is_read(cluster: &Cluster, pod: &Value) -> bool {
    let is_completed = |object: &Value| object::label(object, names::COMPLETED) == Some("true");
    let owner = object::label(pod, names::WORKFLOW).unwrap();
    let Ok(workflow) = cluster.get(&WORKFLOWS, Some(NAMESPACE), owner) else {
        return true;
    };
    let id = object::annotation(pod, names::NODE_ID).unwrap_or_default();
    let node = &workflow["status"]["nodes"][id];
    let is_final = ["Succeeded", "Failed", "Error"]
        .iter()
        .any(|phase| node["phase"] == *phase);
    let has_result = is_final && node["taskResultSynced"] != false;
    is_completed(pod) || is_completed(&workflow) || has_result || object::is_deleting(&workflow)
}
