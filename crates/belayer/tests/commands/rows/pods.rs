//! Pods, by the table of pod-finalizer.

use belayer_pod_finalizer::row;

use std::time::Duration;

use belayer_sandbox::{Answer, Fault, Match, Verb};

use super::*;
use crate::world::{TOOL, group};

fn expected(row: &'static Rule, action: &'static str) -> Expected {
    let next = match action {
        "release" => AT_ONCE,
        "add-hold" => "adds the hold at once",
        "record" | "delete" => "executes this step at once",
        "keep" => "releases the pod once the missing evidence exists",
        _ => "nothing",
    };
    Expected::of("pod-finalizer", row, action, next)
}

fn releases(row: &'static Rule, evidence: &'static str) -> Expected {
    expected(row, "release").on(evidence)
}

fn keeps(row: &'static Rule, missing: &'static str) -> Expected {
    expected(row, "keep").without(missing)
}

fn ended() -> Option<Value> {
    Some(json!({
        "phase": "Succeeded",
        "containerStatuses": [{
            "name": "m", "image": "m", "imageID": "m", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 0, "reason": "Completed",
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z" } },
        }],
    }))
}

/// A pod as pod garbage collection leaves it if its node does not exist.
fn given_up() -> Value {
    let runs = |name| {
        json!({
            "name": name, "image": "m", "imageID": "m", "ready": true, "restartCount": 0, "started": true,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
        })
    };
    json!({
        "phase": "Failed",
        "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC" }],
        "containerStatuses": [runs("main"), runs("wait")],
    })
}

const CAPTURE: &str = "podFinalizer:\n  profiles:\n  - builtIn: argo\n    capture: true\n";
/// A profile whose consumer reads records.
const RECORDS: &str = "podFinalizer:
  profiles:
  - name: batch
    selector: {matchLabels: {app: batch}}
    capture: true
";
const CLEANUP: &str = "podFinalizer:\n  profiles:\n  - builtIn: argo\n    cleanup: argo\n";

#[rstest]
#[case::row_01_not_belayers(expected(row::NOT_OURS, "nothing"))]
#[case::row_02_requested_by_the_admin(releases(row::ADMIN_ASKED, "AdminAsked"))]
#[case::row_03_its_namespace_is_being_deleted(releases(
    row::NAMESPACE_TERMINATING,
    "NamespaceTerminating"
))]
#[case::row_04_not_selected_any_more(releases(row::UNSELECTED, "Unselected"))]
#[case::row_05_its_owner_is_gone(releases(row::OWNER_GONE, "OwnerGone"))]
#[case::row_06_its_owner_is_being_deleted(releases(row::OWNER_DELETING, "OwnerDeleting"))]
#[case::row_07_its_outcome_is_not_recorded(expected(row::CAPTURE, "record"))]
#[case::row_08_no_owner(releases(row::NO_OWNER, "NoOwner"))]
#[case::row_09_its_consumer_took_the_result(releases(row::CONSUMED, "Consumed"))]
#[case::row_10_its_node_is_fulfilled(releases(row::NODE_FULFILLED, "Consumed"))]
#[case::row_11_its_outcome_is_recorded(releases(row::CAPTURED, "Captured"))]
#[case::row_12_kept(keeps(row::KEEP, "its consumer has to read its result"))]
#[case::row_13_to_be_held(expected(row::ADD_HOLD, "add-hold"))]
#[case::row_14_too_late(expected(row::TOO_LATE, "nothing"))]
#[case::row_15_to_be_cleaned_up(expected(row::CLEANUP, "delete"))]
#[case::row_16_a3_an_agent_that_an_older_version_holds(releases(row::NEVER_HELD, "NeverHeld"))]
#[case::row_17_a6_deleted_before_it_started(releases(row::ENDED_BY_DELETION, "EndedByDeletion"))]
#[case::row_18_a2_its_node_is_lost(releases(row::NODE_LOST, "NodeLost"))]
#[case::row_19_a11_its_workflow_was_retried(releases(row::EARLIER_RUN, "EarlierRun"))]
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_pod_finalizer(#[context] case: Context, #[case] expected: Expected) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let row = expected.row;
    let place = if row == row::NAMESPACE_TERMINATING {
        "doomed"
    } else {
        "yard"
    };
    let uid = stage.workflow(place, json!({ "finalizers": ["example.com/keep"] }));
    let none = json!({});
    let mut arguments = vec!["pod/a".to_owned(), "-n".to_owned(), place.to_owned()];
    match row {
        row::NOT_OURS => drop(stage.pod("yard", none, None)),
        row::ADMIN_ASKED => {
            let asks = json!({ "annotations": { "belayer.dev/release": "true" } });
            stage.pod("yard", of(&uid, asks), None);
        }
        row::NAMESPACE_TERMINATING => {
            stage.pod("doomed", of(&uid, none), None);
            stage.delete(&Gvr::NAMESPACES, None, "doomed");
        }
        row::UNSELECTED => drop(stage.pod("yard", of(&uid, json!({ "labels": {} })), None)),
        row::OWNER_GONE => drop(stage.pod("yard", of("another", none), None)),
        row::OWNER_DELETING => {
            stage.pod("yard", of(&uid, none), None);
            // It has completed: only its finalizer keeps it.
            let done =
                json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
            stage.patch(&workflows(), "yard", "build", done, Subresource::None);
            stage.delete(&workflows(), Some("yard"), "build");
        }
        row::CAPTURE => {
            stage.pod("yard", of(&uid, none), ended());
            arguments.push(stage.config(CAPTURE));
        }
        row::NO_OWNER => {
            stage.pod("yard", of(&uid, json!({ "ownerReferences": [] })), None);
        }
        row::CONSUMED => {
            let taken = json!({ "labels": { WORKFLOW: "build", "workflows.argoproj.io/completed": "true" } });
            stage.pod("yard", of(&uid, taken), None);
        }
        row::NODE_FULFILLED => {
            let node = json!({ "annotations": { "workflows.argoproj.io/node-id": "build-1" } });
            stage.pod("yard", of(&uid, node), ended());
            let nodes = json!({ "status": { "nodes": { "build-1": { "phase": "Succeeded" } } } });
            stage.patch(&workflows(), "yard", "build", nodes, Subresource::None);
        }
        row::CAPTURED => {
            let batch = json!({ "labels": { "app": "batch" }, "ownerReferences": [] });
            let pod = stage.pod("yard", of(&uid, batch), ended());
            let outcome = json!({
                "apiVersion": "belayer.dev/v1alpha1", "kind": "PodOutcome",
                "metadata": { "name": format!("pod-{pod}") },
                "spec": { "podName": "a", "podUID": pod, "phase": "Succeeded", "complete": true,
                    "containers": [] },
            });
            let outcomes = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
            stage.create(&outcomes, "yard", outcome);
            arguments.push(stage.config(RECORDS));
        }
        row::KEEP => drop(stage.pod("yard", of(&uid, none), None)),
        row::ADD_HOLD => drop(stage.pod("yard", of(&uid, json!({ "finalizers": [] })), None)),
        row::TOO_LATE => {
            stage.pod(
                "yard",
                of(&uid, json!({ "finalizers": ["example.com/keep"] })),
                None,
            );
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::CLEANUP => {
            let due = json!({
                "finalizers": [],
                "labels": { WORKFLOW: "build", "workflows.argoproj.io/completed": "true" },
                "annotations": { "workflows.argoproj.io/pod-gc-strategy": "OnPodCompletion/0s" },
            });
            stage.pod("yard", of(&uid, due), ended());
            arguments.push(stage.config(CLEANUP));
        }
        row::NEVER_HELD => {
            let agent = json!({ "labels": { WORKFLOW: "build", "workflows.argoproj.io/component": "agent" } });
            stage.pod("yard", of(&uid, agent), None);
        }
        row::ENDED_BY_DELETION => {
            stage.pod("yard", of(&uid, none), None);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::NODE_LOST => {
            stage.pod("yard", of(&uid, none), Some(given_up()));
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::EARLIER_RUN => {
            let node = json!({ "annotations": { "workflows.argoproj.io/node-id": "build-1" } });
            stage.pod("yard", of(&uid, node), ended());
            let later = (jiff::Timestamp::now() + Duration::from_secs(120)).to_string();
            let retried = json!({ "status": {
                "phase": "Running", "startedAt": later, "nodes": {},
                "conditions": [{ "type": "Completed", "status": "False" }],
            } });
            stage.patch(&workflows(), "yard", "build", retried, Subresource::None);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row => panic!("{row}"),
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stage.explain(&arguments, &expected).await;
}

/// A16: Argo goes on running a deleted workflow that has another finalizer, so its pods are held.
#[tokio::test(flavor = "multi_thread")]
async fn a16_explain_names_the_finalizer_that_keeps_the_workflow() {
    let stage = Stage::new().await;
    let uid = stage.workflow(
        "yard",
        json!({ "finalizers": ["workflows.argoproj.io/artifact-gc"] }),
    );
    stage.pod("yard", of(&uid, json!({})), None);
    stage.delete(&workflows(), Some("yard"), "build");
    let expected = keeps(row::OWNER_DELETING, "workflows.argoproj.io/artifact-gc");
    stage.explain(&["pod/a", "-n", "yard"], &expected).await;
}

/// Twenty unselected objects are released at once; twenty-one may be a mistake.
#[rstest]
#[case::row_04_few(20, releases(row::UNSELECTED, "Unselected"))]
#[case::row_04_many(21, keeps(row::UNSELECTED, "mistyped selector"))]
#[tokio::test(flavor = "multi_thread")]
async fn many_unselected_pods_are_kept(
    #[context] case: Context,
    #[case] pods: usize,
    #[case] expected: Expected,
) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    for index in 0..pods {
        let held = json!({ "name": format!("p{index}"), "finalizers": ["belayer.dev/pod-status"] });
        stage.pod("yard", held, None);
    }
    stage.explain(&["pod/p0", "-n", "yard"], &expected).await;
}

/// Belayer runs with a configuration file: without it nothing shows whether a profile selects the pod.
#[rstest]
#[case::without_the_file(false, "unknown")]
#[case::with_the_file(true, "held-by-belayer")]
#[tokio::test(flavor = "multi_thread")]
async fn an_unselected_pod_is_unknown_without_the_file_that_belayer_runs_with(
    #[case] is_given: bool,
    #[case] verdict: &str,
) {
    let stage = Stage::new().await;
    let label = "app.kubernetes.io/name";
    let container =
        json!([{ "name": "b", "image": "belayer/belayer:0.1.0", "args": ["--config", "/b.yaml"] }]);
    let patch = json!({
        "metadata": { "labels": { label: "belayer" } },
        "spec": { "template": { "spec": { "containers": container } } },
    });
    stage.patch(
        &deployments(),
        "belayer-system",
        "belayer",
        patch,
        Subresource::None,
    );
    let ready = json!({ "readyReplicas": 1 });
    stage.status(&deployments(), "belayer-system", "belayer", ready);
    // Not bound to a node, so that it has no grace period.
    let pod = json!({
        "metadata": { "name": "a", "finalizers": ["belayer.dev/pod-status"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&Gvr::PODS, Some("yard"), "a");
    let config = stage.config("");
    for command in [
        &["stuck", "-ojson"][..],
        &["explain", "pod/a", "-n", "yard", "-ojson"],
    ] {
        let config = is_given.then_some(&*config);
        let arguments: Vec<&str> = command.iter().copied().chain(config).collect();
        let report = stage.world.run(&arguments).await.json();
        let group = &report["groups"][0];
        assert_eq!(group["verdict"], verdict, "{report:#}");
        let says = "the Deployment belayer-system/belayer runs with a configuration file: give it with --config";
        let missing = group["missing"].to_string();
        assert_eq!(missing.contains(says), !is_given, "{report:#}");
    }
}

/// The gate is read from Belayer's own namespace.
#[tokio::test(flavor = "multi_thread")]
async fn the_gate_is_read_from_belayers_namespace() {
    let stage = Stage::new().await;
    let uid = stage.workflow("yard", json!({ "finalizers": ["example.com/keep"] }));
    stage.pod("yard", of(&uid, json!({ "finalizers": [] })), None);
    stage.world.gate("ignored", &json!({ "backlog": "closed" }));
    let closed = "the backlog limit is reached";
    let command = ["explain", "pod/a", "-n", "yard", "-o", "json"];
    let answer = stage.world.run(&command).await;
    assert!(!answer.out.contains(closed), "{}", answer.out);
    let elsewhere = [&command[..], &["--own-namespace", "ignored"]].concat();
    let answer = stage.world.run(&elsewhere).await;
    assert!(answer.out.contains(closed), "{}", answer.out);
}

/// T4: a namespace that its backlog closed is reported; others are open.
#[rstest]
#[case::closed("closed.yard", "backlog", true)]
#[case::another("closed.garden", "backlog", false)]
#[case::by_an_admin_for_the_policy("closed.yard", "maintenance", false)]
#[tokio::test(flavor = "multi_thread")]
async fn t4_explain_reports_a_closed_namespace(
    #[case] key: &str,
    #[case] word: &str,
    #[case] told: bool,
) {
    let stage = Stage::new().await;
    let uid = stage.workflow("yard", json!({ "finalizers": ["example.com/keep"] }));
    stage.pod("yard", of(&uid, json!({ "finalizers": [] })), None);
    stage.world.gate("ignored", &json!({ key: word }));
    let command = [
        "explain",
        "pod/a",
        "-n",
        "yard",
        "-o",
        "json",
        "--own-namespace",
        "ignored",
    ];
    let answer = stage.world.run(&command).await;
    let closed = "the backlog limit of its namespace is reached";
    assert_eq!(answer.out.contains(closed), told, "{}", answer.out);
}

/// Only pods have a rule for the admin's annotation, so it is suggested for pods only.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_annotation_is_suggested_for_pods_only() {
    let stage = Stage::new().await;
    let ready = json!({ "readyReplicas": 1 });
    stage.status(&deployments(), "belayer-system", "belayer", ready);
    let held = json!({ "finalizers": ["belayer.dev/workflow-cleanup"] });
    let workflow = stage.workflow("yard", held);
    stage.pod("yard", of(&workflow, json!({})), None);
    stage.delete(&workflows(), Some("yard"), "build");
    let another = stage.workflow("doomed", json!({}));
    // Not bound to a node, it has no grace period.
    let pod = json!({
        "metadata": of(&another, json!({ "name": "a" })),
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
        "status": ended(),
    });
    stage.create(&Gvr::PODS, "doomed", pod);
    stage.delete(&Gvr::PODS, Some("doomed"), "a");
    let report = stage.world.run(&["stuck", "-ojson"]).await.json();
    let groups = report["groups"].as_array().unwrap();
    let next = |finalizer: &str| {
        let found = groups.iter().find(|group| group["finalizer"] == finalizer);
        let found = found.unwrap_or_else(|| panic!("{finalizer}: {groups:#?}"));
        assert_eq!(found["verdict"], "held-by-belayer", "{found:#}");
        found["next"].to_string()
    };
    let annotate = "belayer.dev/release=true";
    assert!(next("belayer.dev/pod-status").contains(annotate));
    assert!(!next("belayer.dev/workflow-cleanup").contains(annotate));
}

/// A component that cannot explain its hold has a rule for it all the same: of a pod that is not selected, it counts the
/// others that are not.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_cannot_be_explained_is_unknown() {
    let stage = Stage::new().await;
    let ready = json!({ "readyReplicas": 1 });
    stage.status(&deployments(), "belayer-system", "belayer", ready);
    // Not bound to a node, it has no grace period.
    let pod = json!({
        "metadata": { "name": "a", "finalizers": ["belayer.dev/pod-status"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&Gvr::PODS, Some("yard"), "a");
    let lists = Match::verb(Verb::List).resource("pods").client(TOOL);
    let no = Fault::on(lists).answer(Answer::forbidden("no"));
    let _no = stage.world.sandbox.faults().inject(no);
    let explain = ["explain", "pod/a", "-n", "yard", "-ojson"];
    let explained = stage.world.run(&explain).await.json();
    let group = group(&explained, "belayer.dev/pod-status");
    assert_eq!(group["verdict"], "unknown", "{group:#}");
    let text = group.to_string();
    for says in ["no rule", "--unselected"] {
        assert!(!text.contains(says), "{group:#}");
    }
}
