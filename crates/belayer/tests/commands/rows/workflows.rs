//! Workflows, by the table of workflow-finalizer.

use belayer_workflow_finalizer::row;

use super::*;

fn expected(row: &'static Rule, action: &'static str, next: &'static str) -> Expected {
    Expected::of("workflow-finalizer", row, action, next)
}

fn releases(row: &'static Rule, evidence: &'static str) -> Expected {
    expected(row, "release", AT_ONCE).on(evidence)
}

#[rstest]
#[case::row_01_not_selected_any_more(releases(row::UNSELECTED, "Unselected"))]
#[case::row_02_to_be_held(expected(row::ADD_HOLD, "add-hold", "adds the hold at once"))]
#[case::row_03_deleted_without_a_hold(expected(row::NOT_HELD, "nothing", "nothing"))]
#[case::row_04_pods_are_still_held(expected(row::PODS_HELD, "keep", "releases the workflow's pods").without("pods"))]
#[case::row_05_no_pod_is_held(releases(row::CONFIRM, "NoPodHeld"))]
#[case::row_06_with_its_namespace(releases(row::NAMESPACE_TERMINATING, "NoPodHeld"))]
#[case::row_08_a16_argo_goes_on_running_it(releases(row::KEPT_RUNNING, "KeptRunning"))]
#[case::row_09_a20_not_archived_yet(expected(row::ARCHIVING, "keep", "once the workflow controller has archived it").without("archived"))]
#[case::row_07_as_it_should_be(expected(row::NOTHING, "keep", "nothing, until it is deleted"))]
#[tokio::test(flavor = "multi_thread")]
async fn workflows_of_workflow_finalizer(#[context] case: Context, #[case] expected: Expected) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let row = expected.row;
    let place = match row {
        row::UNSELECTED => "ignored",
        row::NAMESPACE_TERMINATING => "doomed",
        _ => "yard",
    };
    let finalizers = match row {
        row::ADD_HOLD => json!([]),
        row::NOT_HELD => json!(["example.com/keep"]),
        row::KEPT_RUNNING => json!([
            "belayer.dev/workflow-cleanup",
            "workflows.argoproj.io/artifact-gc"
        ]),
        _ => json!(["belayer.dev/workflow-cleanup"]),
    };
    let uid = stage.workflow(place, json!({ "finalizers": finalizers }));
    if row == row::PODS_HELD {
        stage.pod(place, of(&uid, json!({})), None);
    }
    let mut arguments = vec![
        "workflow/build".to_owned(),
        "-n".to_owned(),
        place.to_owned(),
    ];
    if row == row::ARCHIVING {
        let labels = json!({ "metadata": { "labels": {
            "workflows.argoproj.io/completed": "true",
            "workflows.argoproj.io/workflow-archiving-status": "Pending",
        } } });
        stage.patch(&workflows(), place, "build", labels, Subresource::None);
        arguments.push(stage.config("workflowFinalizer: {owners: [{until: archived}]}\n"));
    }
    let deleted = [
        row::NOT_HELD,
        row::PODS_HELD,
        row::CONFIRM,
        row::NAMESPACE_TERMINATING,
        row::KEPT_RUNNING,
        row::ARCHIVING,
    ];
    if deleted.contains(&row) {
        stage.delete(&workflows(), Some(place), "build");
    }
    if row == row::NAMESPACE_TERMINATING {
        stage.delete(&Gvr::NAMESPACES, None, "doomed");
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stage.explain(&arguments, &expected).await;
}

/// What each held pod of a workflow waits for, and why its consumer may not come (A21, A22). Whether Belayer holds the
/// workflow itself does not matter.
#[rstest]
#[case::held("")]
#[case::not_held(
    "workflowFinalizer: {owners: [{owner: {group: example.com, version: v1, kind: Run, resource: runs}}]}\n"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a21_a22_each_pod_of_a_workflow_is_explained(#[case] config: &str) {
    let stage = Stage::new().await;
    let uid = stage.workflow("yard", json!({}));
    let status = json!({ "status": { "nodes": { "build-1": { "phase": "Running" } } } });
    stage.patch(&workflows(), "yard", "build", status, Subresource::None);
    let exited = |code| {
        let at = "2026-01-01T00:01:00Z";
        json!({ "terminated": { "exitCode": code, "startedAt": at, "finishedAt": at } })
    };
    let report = |phase: &str, state: Value| {
        let of = |name| json!({ "name": name, "image": "m", "imageID": "m", "ready": false, "restartCount": 0, "state": state });
        Some(json!({ "phase": phase, "containerStatuses": [of("main"), of("wait")] }))
    };
    let runs = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let node = json!({ "workflows.argoproj.io/node-id": "build-1" });
    for (name, status) in [
        ("runs", report("Running", runs.clone())),
        ("ended", report("Succeeded", exited(0))),
        ("lost", report("Failed", runs)),
        ("killed", report("Failed", exited(143))),
    ] {
        let metadata = json!({ "name": name, "annotations": node });
        stage.pod("yard", of(&uid, metadata), status);
    }
    for name in ["ended", "lost", "killed"] {
        stage.delete(&Gvr::PODS, Some("yard"), name);
    }
    stage.create(
        &deployments(),
        "belayer-system",
        json!({
            "metadata": { "name": "workflow-controller" },
            "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "c" } },
                "template": { "metadata": { "labels": { "a": "c" } },
                    "spec": { "containers": [{ "name": "c", "image": "argoproj/workflow-controller:v4.1.0" }] } } },
        }),
    );
    let config = stage.config(config);
    let arguments = ["explain", "workflow/build", "-n", "yard", &config];
    let text = stage.world.run(&arguments).await.out;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "Its 4 pods are held:",
        "- runs (pod-finalizer, rule 12): the pod has to end, and its consumer has to read its result",
        "- ended (pod-finalizer, rule 12): the consumer has to read the result (profile argo): its workflow's status does \
         not show its node build-1 as fulfilled",
        "- lost (pod-finalizer, rule 18): a running Belayer releases it",
        "- killed (pod-finalizer, rule 12): the consumer has to read the result",
        "the workflow controller for workflows without an instance ID in namespace yard has no ready pod: deployment \
         belayer-system/workflow-controller",
    ] {
        assert!(words.contains(says), "{says}\n{text}");
    }
}
