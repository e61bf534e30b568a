//! Finalizers, grace periods, propagation.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn without_finalizers_a_delete_is_final() {
    let api = Api::new();
    let made = api.make(CONFIGMAPS, configmap("a")).await;
    let (status, answer) = api.delete(&format!("{CONFIGMAPS}/a"), json!({})).await;
    assert_eq!((status, answer["status"].as_str()), (200, Some("Success")));
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    assert_eq!(answer["details"], details);
    assert_eq!(
        api.delete(&format!("{CONFIGMAPS}/a"), json!({})).await.0,
        404
    );
}

#[tokio::test]
async fn an_object_waits_for_its_last_finalizer() {
    let api = Api::new();
    api.make(CONFIGMAPS, held("a", &["x.y/z", "u.v/w"])).await;
    let path = format!("{CONFIGMAPS}/a");
    let (status, going) = api.delete(&path, json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = api.delete(&path, json!({})).await.1;
    assert_eq!(again, going, "a second delete changes nothing");
    let one_less = json!({"metadata": {"finalizers": ["u.v/w"]}});
    assert_eq!(api.merge(&path, one_less).await.0, 200);
    let (status, last) = api
        .merge(&path, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(status, 200);
    assert!(last["metadata"].get("finalizers").is_none());
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test]
async fn no_finalizer_is_added_to_a_terminating_object() {
    let api = Api::new();
    api.make(CONFIGMAPS, held("a", &["x.y/z"])).await;
    let path = format!("{CONFIGMAPS}/a");
    api.delete(&path, json!({})).await;
    let body = json!({"metadata": {"finalizers": ["x.y/z", "belayer.dev/late"]}});
    let (status, answer) = api.merge(&path, body).await;
    assert_eq!((status, reason(&answer)), (422, "Invalid"));
    assert_eq!(
        message(&answer),
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"belayer.dev/late\"}"
    );
}

#[rstest]
#[case::uid(json!({"uid": "x"}), "the UID in the precondition (x) does not match")]
#[case::version(json!({"resourceVersion": "1"}), "the ResourceVersion in the precondition (1) does not match")]
#[tokio::test]
async fn preconditions_are_checked_first(#[case] preconditions: Value, #[case] why: &str) {
    let api = Api::new();
    let made = api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let (status, answer) = api
        .delete(&path, json!({"preconditions": preconditions}))
        .await;
    assert_eq!((status, reason(&answer)), (409, "Conflict"));
    assert!(message(&answer).contains(why), "{answer}");
    let uid = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    assert_eq!(api.delete(&path, uid).await.0, 200);
}

#[rstest]
#[case::unscheduled(None, "", json!({}), true)]
#[case::ended(Some("n"), "Succeeded", json!({}), true)]
#[case::forced(Some("n"), "Running", json!({"gracePeriodSeconds": 0}), true)]
#[case::running(Some("n"), "Running", json!({}), false)]
#[tokio::test]
async fn only_a_pod_that_may_run_gets_its_grace_period(
    #[case] node: Option<&str>,
    #[case] phase: &str,
    #[case] options: Value,
    #[case] gone: bool,
) {
    let api = Api::new();
    api.make(PODS, pod("p", node, &[])).await;
    let path = format!("{PODS}/p");
    if !phase.is_empty() {
        api.merge(
            &format!("{path}/status"),
            json!({"status": {"phase": phase}}),
        )
        .await;
    }
    let (status, answer) = api.delete(&path, options).await;
    assert_eq!(status, 200);
    assert_eq!(answer["kind"], "Pod");
    assert_eq!(api.get(&path).await.0 == 404, gone);
    if !gone {
        assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(
            answer["metadata"]["deletionTimestamp"],
            "2026-01-01T00:00:30Z"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_only_shrinks() {
    let api = Api::new();
    api.make(PODS, pod("p", Some("n"), &[])).await;
    let path = format!("{PODS}/p");
    let grace = |n: i64| json!({"gracePeriodSeconds": n});
    api.delete(&path, grace(20)).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    let (_, longer) = api.delete(&path, grace(40)).await;
    assert_eq!(
        longer["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:20Z"
    );
    let (_, shorter) = api.delete(&path, grace(10)).await;
    assert_eq!(
        shorter["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:10Z"
    );
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 10);
    assert_eq!(api.delete(&path, grace(0)).await.0, 200);
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test]
async fn removing_the_last_finalizer_does_not_shorten_the_grace_period() {
    let api = Api::new();
    api.make(PODS, pod("p", Some("n"), &["belayer.dev/x"]))
        .await;
    let path = format!("{PODS}/p");
    api.delete(&path, json!({})).await;
    let (status, _) = api
        .merge(&path, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!((status, api.get(&path).await.0), (200, 200));
    api.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(api.get(&path).await.0, 404);
}

#[rstest]
#[case::foreground(json!({"propagationPolicy": "Foreground"}), 200, json!(["foregroundDeletion"]))]
#[case::orphan(json!({"propagationPolicy": "Orphan"}), 200, json!(["orphan"]))]
#[case::old_orphan(json!({"orphanDependents": true}), 200, json!(["orphan"]))]
#[tokio::test]
async fn a_propagation_policy_adds_a_finalizer(
    #[case] options: Value,
    #[case] code: u16,
    #[case] wanted: Value,
) {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let (status, answer) = api.delete(&format!("{CONFIGMAPS}/a"), options).await;
    assert_eq!((status, &answer["metadata"]["finalizers"]), (code, &wanted));
}

#[tokio::test]
async fn namespaces_are_removed_when_both_lists_of_finalizers_are_empty() {
    let api = Api::new();
    let (status, answer) = api.delete("/api/v1/namespaces/default", json!({})).await;
    assert_eq!((status, reason(&answer)), (403, "Forbidden"));
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "a"}}))
        .await;
    let (_, mut going) = api.delete("/api/v1/namespaces/a", json!({})).await;
    assert_eq!(going["spec"]["finalizers"], json!(["kubernetes"]));
    let (_, kept) = api
        .merge(
            "/api/v1/namespaces/a",
            json!({"spec": {"finalizers": null}}),
        )
        .await;
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    going["spec"] = json!({});
    assert_eq!(api.put("/api/v1/namespaces/a/finalize", going).await.0, 200);
    assert_eq!(api.get("/api/v1/namespaces/a").await.0, 404);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = Api::new();
    for (name, group) in [("a", "x"), ("b", "x"), ("c", "y")] {
        api.make(CONFIGMAPS, labelled(name, json!({"g": group})))
            .await;
    }
    let (status, answer) = api
        .delete(&format!("{CONFIGMAPS}?labelSelector=g%3Dx"), json!({}))
        .await;
    assert_eq!(
        (status, answer["kind"].as_str()),
        (200, Some("ConfigMapList"))
    );
    let left = api.get(CONFIGMAPS).await.1;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_forced_delete_sends_a_change_and_then_a_deletion() {
    let api = Api::new();
    api.make(PODS, pod("p", None, &[])).await;
    let from = api.sandbox.cluster().version();
    api.delete(&format!("{PODS}/p"), json!({})).await;
    let mut events = api
        .watch(&format!("{PODS}?watch=1&resourceVersion={from}"))
        .await;
    assert_eq!(events.take(2).await, ["MODIFIED p", "DELETED p"]);
}
