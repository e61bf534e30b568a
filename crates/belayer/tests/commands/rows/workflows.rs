//! Workflows, by the table of workflow-finalizer.

use belayer_workflow_finalizer::row;

use super::*;

fn expected(row: Row, action: &'static str, next: &'static str) -> Expected {
    Expected::of("workflow-finalizer", row, action, next)
}

fn releases(row: Row, evidence: &'static str) -> Expected {
    expected(row, "release", AT_ONCE).on(evidence)
}

#[rstest]
#[case::row_01_not_selected_any_more(releases(row::UNSELECTED, "Unselected"))]
#[case::row_02_to_be_held(expected(row::ADD_HOLD, "add-hold", "adds the hold at once"))]
#[case::row_03_deleted_without_a_hold(expected(row::NOT_HELD, "nothing", "nothing"))]
#[case::row_04_pods_are_still_held(expected(row::PODS_HELD, "keep", "releases its pods first").without("pods"))]
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
