//! PVCs, by the table of pvc-protection.

use belayer_pvc_protection::row;

use super::*;

fn expected(row: &'static Rule, action: &'static str, next: &'static str) -> Expected {
    Expected::of("pvc-protection", row, action, next)
}

#[rstest]
#[case::row_02_to_be_held(expected(row::ADD_HOLD, "add-hold", "adds the hold at once"))]
#[case::row_03_in_use(expected(row::IN_USE, "keep", "the last of these pods is deleted").without("db-0"))]
#[case::row_04_not_in_use(expected(row::CONFIRM, "release", AT_ONCE).on("Unused"))]
#[case::row_05_as_it_should_be(expected(row::NOTHING, "keep", "nothing, until it is deleted"))]
#[case::row_06_a18_its_workflow_has_finished(expected(row::OWNER_FINISHED, "release", AT_ONCE).on("OwnerFinished"))]
#[case::row_07_a18_only_advising(expected(row::ADVISE, "nothing", "Belayer only reports").without("db-0"))]
#[case::row_08_a18_left_of_before(expected(row::LEFT_OVER, "keep", "once no pod uses it").without("db-0"))]
#[tokio::test(flavor = "multi_thread")]
async fn pvcs_of_pvc_protection(#[context] case: Context, #[case] expected: Expected) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let row = expected.row;
    let finalizers = match row {
        row::ADD_HOLD => json!([]),
        row::ADVISE => json!(["kubernetes.io/pvc-protection"]),
        _ => json!(["belayer.dev/pvc-protection"]),
    };
    let mut owners = json!([]);
    if row == row::OWNER_FINISHED {
        let metadata =
            json!({ "name": "build", "labels": { "workflows.argoproj.io/completed": "true" } });
        let uid = stage.create(
            &workflows(),
            "yard",
            json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": {},
            }),
        );
        owners = json!([{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build", "uid": uid, "controller": true,
        }]);
    }
    let pvcs = Gvr::new("", "v1", "persistentvolumeclaims");
    let pvc = json!({
        "metadata": { "name": "data", "finalizers": finalizers, "ownerReferences": owners },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    stage.create(&pvcs, "yard", pvc);
    if ![row::ADD_HOLD, row::CONFIRM, row::NOTHING].contains(&row) {
        let phase = match row {
            row::OWNER_FINISHED => "Succeeded",
            _ => "Running",
        };
        stage.create(
            &Gvr::PODS,
            "yard",
            json!({
                "metadata": { "name": "db-0" },
                "status": { "phase": phase },
                "spec": {
                    "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                },
            }),
        );
    }
    if [row::IN_USE, row::CONFIRM, row::OWNER_FINISHED, row::ADVISE].contains(&row) {
        stage.delete(&pvcs, Some("yard"), "data");
    }
    let holding = "pvcProtection:\n  finalizer: belayer.dev/pvc-protection\n";
    let keys = match row {
        row::ADVISE | row::LEFT_OVER => "",
        _ => holding,
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("belayer.yaml");
    std::fs::write(
        &path,
        format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}"),
    )
    .unwrap();
    let config = format!("--config={}", path.display());
    stage
        .explain(&["pvc/data", "-n", "yard", &config], &expected)
        .await;
}

/// Rule 6 releases it once its pods have ended, before they are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_pvc_of_a_workflow_waits_for_the_end_of_its_pods() {
    let stage = Stage::new().await;
    let uid = stage.create(
        &workflows(),
        "yard",
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": { "name": "build" }, "spec": {},
        }),
    );
    let pvcs = Gvr::new("", "v1", "persistentvolumeclaims");
    let pvc = json!({
        "metadata": { "name": "data", "finalizers": ["belayer.dev/pvc-protection"], "ownerReferences": [{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build", "uid": uid, "controller": true,
        }] },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    stage.create(&pvcs, "yard", pvc);
    let pod = json!({
        "metadata": { "name": "db-0" },
        "status": { "phase": "Running" },
        "spec": {
            "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&pvcs, Some("yard"), "data");
    let config = stage.config("pvcProtection:\n  finalizer: belayer.dev/pvc-protection\n");
    let next = "once the workflow has finished and the last of these pods has ended";
    let waits = expected(row::IN_USE, "keep", next).without("db-0");
    let arguments = ["pvc/data", "-n", "yard", &config];
    stage.explain(&arguments, &waits).await;
}

/// Row 1 is about a PVC that does not exist: there is nothing to explain.
#[tokio::test(flavor = "multi_thread")]
async fn row_01_a_missing_pvc_is_an_error() {
    let stage = Stage::new().await;
    let answer = stage
        .world
        .run(&["explain", "pvc/data", "-n", "yard"])
        .await;
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("yard/data"), "{}", answer.err);
}
