//! pod-recreation together with pod-finalizer: both hold the same pod, and neither waits for the other.

use std::time::Duration;

use belayer_holds::names::{POD_RECREATION_HOLD, POD_STATUS_HOLD};
use belayer_pod_recreation::Settings;
use belayer_pod_recreation::config::PodRecreationConfig;
use belayer_pod_recreation::eligible::OwnerKind;
use belayer_sandbox::{Actor, Gvr, Verb};
use belayer_workload::{WORKFLOWS, workflow_crd};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Components, Fate, Running, YARD, Yard, uid};
use crate::world::BELAYER;

/// Both components, for pods of a workflow whose kind is configured.
fn run(yard: &Yard) -> Running {
    let components = recreating_workflows().with(belayer_pod_finalizer::Settings::default());
    yard.run_components(BELAYER, components)
}

fn recreating_workflows() -> Components {
    let mut settings = Settings::default();
    settings.eligibility.owners = vec![OwnerKind {
        group: "argoproj.io".into(),
        kind: "Workflow".into(),
    }];
    Yard::components(settings)
}

fn workflow(yard: &Yard) -> Value {
    yard.world
        .create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "namespace": YARD, "name": "build" }, "spec": {},
    });
    let created = yard.world.create(&WORKFLOWS, Some(YARD), object);
    json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
        "uid": uid(&created), "controller": true,
    }])
}

fn step(yard: &Yard, owner: Value) -> String {
    let metadata = json!({
        "labels": { "workflows.argoproj.io/workflow": "build" },
        "annotations": { "belayer.dev/recreate": "true" },
        "ownerReferences": owner,
    });
    yard.pod_with("step", metadata)
}

/// Binds the pod to the node that rejects it. pod-finalizer by itself releases a pod that is deleted without a
/// node.
fn bind(yard: &Yard) {
    let scheduler = Actor::new("scheduler");
    let cluster = yard.world.cluster();
    cluster
        .bind(&scheduler, YARD, "step", "n1", &Default::default())
        .unwrap();
}

fn holds(yard: &Yard) -> Vec<String> {
    let pod = yard.find("step");
    let all = pod
        .as_ref()
        .and_then(|pod| pod["metadata"]["finalizers"].as_array());
    let all = all.into_iter().flatten().filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

fn has_both(yard: &Yard) -> bool {
    let holds = holds(yard);
    [POD_STATUS_HOLD, POD_RECREATION_HOLD]
        .iter()
        .all(|hold| holds.iter().any(|have| have == hold))
}

/// Successful patches of the pod with this UID.
fn patches(yard: &Yard, uid: &str) -> usize {
    yard.writes_of(&Gvr::PODS)
        .iter()
        .filter(|write| write.uid == uid && write.verb == Verb::Patch && write.changed())
        .count()
}

#[tokio::test(start_paused = true)]
async fn one_patch_adds_both_holds_and_one_removes_both() {
    let yard = Yard::new();
    let owner = workflow(&yard);
    let belayer = run(&yard);
    // Until its store has the workflow, pod-finalizer reads it live before it holds a pod of it.
    yard.wait_for(Duration::from_secs(5)).await;
    let first = step(&yard, owner);
    yard.wait("both hold it", || has_both(&yard)).await;
    assert_eq!(patches(&yard, &first), 1, "one patch adds both");
    bind(&yard);
    yard.report("step", Fate::Rejected("OutOfcpu"));
    yard.wait("it is re-created and held by both", || {
        has_both(&yard) && yard.find("step").is_some_and(|pod| uid(&pod) != first)
    })
    .await;
    assert_eq!(patches(&yard, &first), 2, "one patch removes both");
    yard.report("step", Fate::Runs);
    yard.wait("it has started, and only pod-finalizer holds it", || {
        holds(&yard) == [POD_STATUS_HOLD]
    })
    .await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    let status = belayer_sandbox::Subresource::Status;
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "step", ended, status);
    let consumed =
        json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
    let none = belayer_sandbox::Subresource::None;
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "step", consumed, none);
    yard.wait("no hold is left", || holds(&yard).is_empty())
        .await;
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_pod_is_still_held_for_its_consumer() {
    let yard = Yard::new();
    let owner = workflow(&yard);
    let belayer = run(&yard);
    let mut last = step(&yard, owner);
    for _ in 0..4 {
        yard.wait("both hold it", || has_both(&yard)).await;
        yard.report("step", Fate::Rejected("OutOfcpu"));
        let before = last.clone();
        yard.wait("the next pod exists, or the record is exhausted", || {
            yard.phase() == "Exhausted"
                || (has_both(&yard) && yard.find("step").is_some_and(|pod| uid(&pod) != before))
        })
        .await;
        last = uid(&yard.find("step").unwrap());
    }
    yard.wait("only pod-finalizer holds it", || {
        holds(&yard) == [POD_STATUS_HOLD]
    })
    .await;
    assert_eq!(yard.creates(), 3);
    yard.world.delete(&WORKFLOWS, Some(YARD), "build");
    yard.wait("it is deleted with its workflow", || {
        yard.find("step").is_none()
    })
    .await;
    belayer.stop().await;
}

/// The workflow is deleted during the pause: no pod is created.
#[tokio::test(start_paused = true)]
async fn the_owner_is_deleted_during_the_pause() {
    let yard = Yard::new();
    let owner = workflow(&yard);
    let belayer = run(&yard);
    step(&yard, owner);
    yard.wait("both hold it", || has_both(&yard)).await;
    yard.report("step", Fate::Rejected("OutOfcpu"));
    yard.wait("the pause runs", || yard.phase() == "Waiting")
        .await;
    yard.world.delete(&WORKFLOWS, Some(YARD), "build");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(yard.creates(), 0);
    assert!(yard.find("step").is_none());
    belayer.stop().await;
}

/// A7: a pod without a node is held until it starts, and its workflow is deleted: neither waits for the other,
/// with or without other controllers.
#[rstest]
#[case::alone("pod-recreation")]
#[case::with_its_results_held("pod-finalizer as well")]
#[tokio::test(start_paused = true)]
async fn a7_a_deleted_workflow_does_not_wait_for_a_pod_without_a_node(#[case] others: &str) {
    let yard = Yard::new();
    let owner = workflow(&yard);
    let mut components =
        recreating_workflows().with(belayer_workflow_finalizer::Settings::default());
    if others != "pod-recreation" {
        components = components.with(belayer_pod_finalizer::Settings::default());
    }
    let belayer = yard.run_components(BELAYER, components);
    step(&yard, owner);
    yard.wait("the pod is held", || {
        holds(&yard).iter().any(|hold| hold == POD_RECREATION_HOLD)
    })
    .await;
    let is_there = || {
        yard.world
            .cluster()
            .get(&WORKFLOWS, Some(YARD), "build")
            .is_ok()
    };
    yard.wait("the workflow is held", || {
        let workflow = yard.world.cluster().get(&WORKFLOWS, Some(YARD), "build");
        workflow.is_ok_and(|workflow| !workflow["metadata"]["finalizers"].is_null())
    })
    .await;
    yard.world.delete(&WORKFLOWS, Some(YARD), "build");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!is_there(), "the workflow waits for its pod");
    assert!(yard.find("step").is_none(), "the pod waits");
    belayer.stop().await;
}

/// A7: an owner that stays for a while because of another finalizer: a pod that never started is released at once,
/// and not held again.
#[tokio::test(start_paused = true)]
async fn a7_a_pod_is_released_once_its_owner_is_being_deleted() {
    let yard = Yard::new();
    let owner = workflow(&yard);
    let others = json!({ "metadata": { "finalizers": ["example.com/slow"] } });
    let none = belayer_sandbox::Subresource::None;
    yard.world
        .patch_in(&WORKFLOWS, Some(YARD), "build", others, none);
    let components = recreating_workflows().with(belayer_workflow_finalizer::Settings::default());
    let belayer = yard.run_components(BELAYER, components);
    let uid = step(&yard, owner);
    yard.wait("the pod is held", || yard.is_held("step")).await;
    yard.world.delete(&WORKFLOWS, Some(YARD), "build");
    yard.wait("it is released", || !yard.is_held("step")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(patches(&yard, &uid), 2, "held, and released");
    belayer.stop().await;
}

/// R11: pods of workflows are held, and after an upgrade or a reload the configuration does not allow that. That is a
/// warning: the holds are released, and a rejected pod is left to Argo.
#[tokio::test(start_paused = true)]
async fn r11_workflows_that_are_not_allowed_are_ignored_and_their_pods_released() {
    let settings = |allow_argo: bool| -> Settings {
        let yaml = format!("owners: [Workflow.argoproj.io]\nallowArgo: {allow_argo}");
        let config: PodRecreationConfig = serde_saphyr::from_str(&yaml).unwrap();
        config.try_into().unwrap()
    };
    let (allowed, ignored) = (settings(true), settings(false));
    assert!(allowed.advice().is_empty(), "{:?}", allowed.advice());
    let advice = ignored.advice().join("\n");
    assert!(
        advice.contains("Workflow.argoproj.io, which is ignored"),
        "{advice}"
    );

    let yard = Yard::new();
    let first = step(&yard, workflow(&yard));
    let belayer = yard.run_as(BELAYER, allowed);
    yard.wait("it is held", || yard.is_held("step")).await;
    belayer.stop().await;
    let belayer = yard.run_as(BELAYER, ignored);
    yard.wait("it is released", || !yard.is_held("step")).await;
    bind(&yard);
    yard.report("step", Fate::Rejected("OutOfcpu"));
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(uid(&yard.find("step").unwrap()), first);
    assert!(!yard.is_held("step"));
    assert_eq!((yard.records().len(), yard.creates()), (0, 0));
    belayer.stop().await;
}
