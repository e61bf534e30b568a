//! Watches.

use std::time::Duration;

use serde_json::json;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_sends_the_initial_state_and_then_changes() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let mut events = api
        .watch(&format!("{CONFIGMAPS}?watch=true&timeoutSeconds=5"))
        .await;
    assert_eq!(events.take(1).await, ["ADDED a"]);
    api.make(CONFIGMAPS, configmap("b")).await;
    api.merge(&format!("{CONFIGMAPS}/a"), json!({"data": {"x": "y"}}))
        .await;
    api.delete(&format!("{CONFIGMAPS}/b"), json!({})).await;
    assert_eq!(events.rest().await, ["ADDED b", "MODIFIED a", "DELETED b"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_is_complete_and_limited_to_its_namespace() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    api.make(CONFIGMAPS, configmap("a")).await;
    api.make(
        "/api/v1/namespaces/kube-system/configmaps",
        configmap("other"),
    )
    .await;
    api.make(PODS, pod("p", None, &[])).await;
    api.make(CONFIGMAPS, configmap("b")).await;
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={from}");
    let mut here = api.watch(&format!("{CONFIGMAPS}?{query}")).await;
    assert_eq!(here.rest().await, ["ADDED a", "ADDED b"]);
    let mut all = api.watch(&format!("/api/v1/configmaps?{query}")).await;
    assert_eq!(all.rest().await, ["ADDED a", "ADDED other", "ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_longer_matches_the_selector_is_deleted_for_the_watch() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    api.make(CONFIGMAPS, labelled("a", json!({"x": "1"}))).await;
    let path = format!("{CONFIGMAPS}/a");
    let label = |v: &str| json!({"metadata": {"labels": {"x": v}}});
    api.merge(&path, label("2")).await;
    api.merge(&path, label("1")).await;
    api.merge(&path, json!({"data": {"k": "v"}})).await;
    api.delete(&path, json!({})).await;
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={from}&labelSelector=x%3D1");
    let mut events = api.watch(&format!("{CONFIGMAPS}?{query}")).await;
    assert_eq!(
        events.rest().await,
        ["ADDED a", "DELETED a", "ADDED a", "MODIFIED a", "DELETED a"]
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_once_a_minute_and_at_the_end() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    let query =
        format!("watch=1&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion={from}");
    let mut events = api.watch(&format!("{CONFIGMAPS}?{query}")).await;
    api.make(PODS, pod("p", None, &[])).await;
    let (kind, bookmark) = events.next().await.unwrap().unwrap();
    assert_eq!(kind, "BOOKMARK");
    let version = api.sandbox.cluster().version().to_string();
    assert_eq!(
        bookmark["metadata"]["resourceVersion"], version,
        "changes of other kinds advance it too"
    );
    assert_eq!(events.rest().await, ["BOOKMARK -"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_an_annotated_bookmark() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut events = api.watch(&format!("{CONFIGMAPS}?{query}")).await;
    assert_eq!(events.take(1).await, ["ADDED a"]);
    let (kind, end) = events.next().await.unwrap().unwrap();
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(
        end["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    let (status, answer) = api
        .get(&format!("{CONFIGMAPS}?watch=1&sendInitialEvents=true"))
        .await;
    assert_eq!((status, reason(&answer)), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_compacted_ends_the_watch_with_410() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    api.make(CONFIGMAPS, configmap("a")).await;
    api.make(CONFIGMAPS, configmap("b")).await;
    api.sandbox.cluster().compact(from + 1);
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={from}");
    let mut events = api.watch(&path).await;
    let (kind, status) = events.next().await.unwrap().unwrap();
    assert_eq!(
        (kind.as_str(), &status["code"], reason(&status)),
        ("ERROR", &json!(410), "Expired")
    );
    assert!(message(&status).starts_with("too old resource version"));
    assert_eq!(events.next().await, Ok(None));
}

#[tokio::test]
async fn the_log_keeps_as_many_changes_as_configured() {
    let sandbox = crate::Sandbox::builder().seed(1).log_limit(3).build();
    let api = Api {
        service: sandbox.service("tester"),
        sandbox,
    };
    let from = api.sandbox.cluster().version();
    for name in ["a", "b", "c", "d"] {
        api.make(CONFIGMAPS, configmap(name)).await;
    }
    let mut events = api
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={from}"))
        .await;
    assert_eq!(events.take(1).await, ["ERROR -"]);
    let later = from + 1;
    let mut events = api
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={later}"))
        .await;
    assert_eq!(events.take(3).await, ["ADDED b", "ADDED c", "ADDED d"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_half_an_hour_to_an_hour() {
    let api = Api::new();
    let start = tokio::time::Instant::now();
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    assert_eq!(events.next().await, Ok(None));
    let life = start.elapsed();
    assert!(
        life >= Duration::from_secs(1800) && life <= Duration::from_secs(3600),
        "{life:?}"
    );
}
