//! Evictions, and the bodies of evictions and bindings.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn eviction(name: &str, options: Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options})
}

fn condition(pod: &Value) -> &Value {
    &pod["status"]["conditions"][0]["reason"]
}

#[rstest]
#[case::without_a_node(None, json!({}))]
#[case::at_once(Some("n"), json!({"gracePeriodSeconds": 0}))]
#[tokio::test]
async fn the_last_state_of_an_evicted_pod_says_so(
    #[case] node: Option<&str>,
    #[case] options: Value,
) {
    let api = Api::new();
    let made = api.make(PODS, pod("p", node, &[])).await;
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = api
        .watch(&format!("{PODS}?watch=1&resourceVersion={from}"))
        .await;
    let (status, answer) = api
        .post(&format!("{PODS}/p/eviction"), eviction("p", options))
        .await;
    assert_eq!(status, 201, "{answer}");
    for expected in ["MODIFIED", "MODIFIED", "DELETED"] {
        let (kind, object) = events.next().await.unwrap().unwrap();
        assert_eq!(kind, expected);
        assert_eq!(condition(&object), "EvictionByEvictionAPI", "{expected}");
    }
}

#[tokio::test]
async fn a_repeated_eviction_writes_nothing() {
    let api = Api::new();
    api.make(PODS, pod("p", Some("n"), &[])).await;
    let path = format!("{PODS}/p/eviction");
    assert_eq!(api.post(&path, eviction("p", json!({}))).await.0, 201);
    let (_, first) = api.get(&format!("{PODS}/p")).await;
    let version = api.sandbox.cluster().version();
    assert_eq!(api.post(&path, eviction("p", json!({}))).await.0, 201);
    assert_eq!(api.sandbox.cluster().version(), version);
    let shorter = eviction("p", json!({"gracePeriodSeconds": 5}));
    assert_eq!(api.post(&path, shorter).await.0, 201);
    let (_, second) = api.get(&format!("{PODS}/p")).await;
    assert_eq!(second["metadata"]["deletionGracePeriodSeconds"], 5);
    assert_eq!(
        second["status"]["conditions"],
        first["status"]["conditions"]
    );
}

#[rstest]
#[case::uid("uid")]
#[case::version("resourceVersion")]
#[tokio::test]
async fn a_precondition_that_fails_leaves_the_pod_unmarked(#[case] field: &str) {
    let api = Api::new();
    let made = api.make(PODS, pod("p", Some("n"), &[])).await;
    let path = format!("{PODS}/p/eviction");
    let wrong = json!({"preconditions": {(field): "1"}});
    assert_eq!(api.post(&path, eviction("p", wrong)).await.0, 409);
    assert_eq!(api.get(&format!("{PODS}/p")).await.1, made);
    let right = json!({"preconditions": {(field): made["metadata"][field]}});
    assert_eq!(api.post(&path, eviction("p", right)).await.0, 201);
    let (_, evicted) = api.get(&format!("{PODS}/p")).await;
    assert_eq!(condition(&evicted), "EvictionByEvictionAPI");
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[rstest]
#[case::empty("eviction", json!({}), "name in URL does not match name in Eviction object")]
#[case::no_name("binding", json!({"target": {"kind": "Node", "name": "n"}}), "name in URL does not match name in Binding object")]
#[case::other_kind("eviction", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
    "Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown conversion")]
#[case::no_such_kind("eviction", json!({"apiVersion": "policy/v2", "kind": "Eviction", "metadata": {"name": "p"}}),
    "Eviction in version \"v2\" cannot be handled as a Eviction: no kind \"Eviction\" is registered for version \"policy/v2\" in scheme \"pkg/runtime/scheme.go:111\"")]
#[case::no_binding("binding", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}}),
    "ConfigMap in version \"v1\" cannot be handled as a Binding: converting (v1.ConfigMap) to (core.Binding): unknown conversion")]
#[case::namespace("eviction", json!({"metadata": {"name": "p", "namespace": "other"}}),
    "the namespace of the provided object does not match the namespace sent on the request")]
#[tokio::test]
async fn a_body_for_something_else_is_refused(
    #[case] subresource: &str,
    #[case] body: Value,
    #[case] why: &str,
) {
    let api = Api::new();
    let made = api.make(PODS, pod("p", None, &[])).await;
    let (status, answer) = api.post(&format!("{PODS}/p/{subresource}"), body).await;
    assert_eq!((status, message(&answer)), (400, why));
    assert_eq!(api.get(&format!("{PODS}/p")).await.1, made);
}

#[tokio::test]
async fn an_eviction_of_the_old_group_version_is_accepted() {
    let api = Api::new();
    api.make(PODS, pod("p", None, &[])).await;
    let mut old = eviction("p", json!({}));
    old["apiVersion"] = json!("policy/v1beta1");
    assert_eq!(api.post(&format!("{PODS}/p/eviction"), old).await.0, 201);
}
