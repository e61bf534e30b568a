//! Claims, by the table of pvc-protection.

use belayer_pvc_protection::row;

use super::*;

fn expected(row: Row, action: &'static str, next: &'static str) -> Expected {
    Expected::of("pvc-protection", row, action, next)
}

#[rstest]
#[case::row_02_to_be_held(expected(row::ADD_HOLD, "add-hold", "adds the hold at once"))]
#[case::row_03_in_use(expected(row::IN_USE, "keep", "when the last of these pods is gone").without("db-0"))]
#[case::row_04_not_in_use(expected(row::CONFIRM, "release", AT_ONCE).on("Unused"))]
#[case::row_05_as_it_should_be(expected(row::NOTHING, "keep", "nothing, until it is deleted"))]
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_pvc_protection(#[context] case: Context, #[case] expected: Expected) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let row = expected.row;
    let finalizers = match row {
        row::ADD_HOLD => json!([]),
        _ => json!(["belayer.dev/pvc-protection"]),
    };
    let claims = Gvr::new("", "v1", "persistentvolumeclaims");
    let claim = json!({
        "metadata": { "name": "data", "finalizers": finalizers },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    stage.create(&claims, "yard", claim);
    if row == row::IN_USE {
        stage.world.create(
            &Gvr::PODS,
            Some("yard"),
            json!({
                "metadata": { "name": "db-0" },
                "spec": {
                    "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                },
            }),
        );
    }
    if [row::IN_USE, row::CONFIRM].contains(&row) {
        stage.delete(&claims, Some("yard"), "data");
    }
    stage.explain(&["pvc/data", "-n", "yard"], &expected).await;
}

/// Row 1 is about a claim that is not there: there is nothing to explain.
#[tokio::test(flavor = "multi_thread")]
async fn row_01_a_claim_that_is_not_there_is_an_error() {
    let stage = Stage::new().await;
    let answer = stage
        .world
        .run(&["explain", "pvc/data", "-n", "yard"])
        .await;
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("yard/data"), "{}", answer.err);
}
