//! Create, replace and patch.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_created_object_gets_its_system_fields_from_the_server() {
    let api = Api::new();
    let mut sent = configmap("a");
    sent["metadata"]["uid"] = json!("mine");
    sent["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    sent["metadata"]["finalizers"] = json!([]);
    let made = api.make(CONFIGMAPS, sent).await;
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_eq!(
        made["metadata"]["creationTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    assert!(made["metadata"].get("deletionTimestamp").is_none());
    assert!(made["metadata"].get("finalizers").is_none());
    assert_eq!(api.get(&format!("{CONFIGMAPS}/a")).await, (200, made));
}

#[rstest]
#[case::name(json!({"metadata": {"name": "A"}}), 422, "Invalid")]
#[case::no_name(json!({"metadata": {}}), 422, "Invalid")]
#[case::other_namespace(json!({"metadata": {"name": "a", "namespace": "x"}}), 400, "BadRequest")]
#[case::other_kind(json!({"kind": "Pod", "metadata": {"name": "a"}}), 400, "BadRequest")]
#[case::other_version(json!({"apiVersion": "v2", "metadata": {"name": "a"}}), 400, "BadRequest")]
#[case::version_set(json!({"metadata": {"name": "a", "resourceVersion": "3"}}), 500, "")]
#[case::label(json!({"metadata": {"name": "a", "labels": {"k": "a b"}}}), 422, "Invalid")]
#[case::label_type(json!({"metadata": {"name": "a", "labels": {"k": 1}}}), 400, "BadRequest")]
#[case::finalizer(json!({"metadata": {"name": "a", "finalizers": ["plain"]}}), 422, "Invalid")]
#[case::owner(json!({"metadata": {"name": "a", "ownerReferences": [{"name": "x"}]}}), 422, "Invalid")]
#[case::list(json!([]), 400, "BadRequest")]
#[tokio::test]
async fn a_bad_object_is_refused(#[case] body: Value, #[case] code: u16, #[case] why: &str) {
    let api = Api::new();
    let (status, answer) = api.post(CONFIGMAPS, body).await;
    assert_eq!((status, reason(&answer)), (code, why), "{answer}");
    assert_eq!(answer["kind"], "Status");
    assert_eq!(answer["code"], code);
}

#[tokio::test]
async fn a_name_is_used_once_and_generated_names_are_unique() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let (status, answer) = api.post(CONFIGMAPS, configmap("a")).await;
    assert_eq!((status, reason(&answer)), (409, "AlreadyExists"));
    assert_eq!(message(&answer), "configmaps \"a\" already exists");
    let generated = json!({"metadata": {"generateName": "gen-"}});
    let one = api.make(CONFIGMAPS, generated.clone()).await;
    let two = api.make(CONFIGMAPS, generated).await;
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert_eq!(
        one["metadata"]["name"].as_str().unwrap().len(),
        "gen-".len() + 5
    );
}

#[tokio::test]
async fn nothing_is_created_in_a_missing_or_terminating_namespace() {
    let api = Api::new();
    let (status, answer) = api
        .post("/api/v1/namespaces/none/configmaps", configmap("a"))
        .await;
    assert_eq!(
        (status, message(&answer)),
        (404, "namespaces \"none\" not found")
    );
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "going"}}))
        .await;
    let (status, going) = api.delete("/api/v1/namespaces/going", json!({})).await;
    assert_eq!(
        (status, &going["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    let (status, answer) = api
        .post("/api/v1/namespaces/going/configmaps", configmap("a"))
        .await;
    assert_eq!((status, reason(&answer)), (403, "Forbidden"));
    assert_eq!(
        answer["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
}

#[tokio::test]
async fn a_version_that_is_not_the_newest_is_a_conflict() {
    let api = Api::new();
    let old = api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    api.merge(&path, json!({"data": {"k": "w"}})).await;
    let stale = json!({"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}});
    let (status, answer) = api.merge(&path, stale).await;
    assert_eq!((status, reason(&answer)), (409, "Conflict"));
    assert_eq!(
        message(&answer),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let (status, _) = api.put(&path, old).await;
    assert_eq!(status, 409);
    let (status, _) = api.put(&path, configmap("a")).await;
    assert_eq!(status, 200, "a replace without version is unconditional");
}

#[tokio::test]
async fn the_version_is_checked_before_the_uid() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let (status, answer) = api.merge(&path, json!({"metadata": {"uid": "x"}})).await;
    assert_eq!((status, reason(&answer)), (422, "Invalid"));
    assert_eq!(
        message(&answer),
        "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable"
    );
    let both = json!({"metadata": {"uid": "x", "resourceVersion": "1"}});
    assert_eq!(api.merge(&path, both).await.0, 409);
    let mut whole = configmap("a");
    whole["metadata"]["uid"] = json!("x");
    let (status, answer) = api.put(&path, whole).await;
    assert_eq!((status, reason(&answer)), (409, "Conflict"));
    assert!(
        message(&answer).contains("Precondition failed: UID in precondition: x"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_write_without_a_change_sends_no_event() {
    let api = Api::new();
    let made = api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let before = api.sandbox.cluster().version();
    assert_eq!(
        api.merge(&path, json!({"data": {"k": "v"}})).await,
        (200, made.clone())
    );
    assert_eq!(api.put(&path, made.clone()).await, (200, made));
    assert_eq!(api.sandbox.cluster().version(), before);
    let outcomes: Vec<_> = api
        .sandbox
        .recorder()
        .writes()
        .iter()
        .map(|w| w.outcome)
        .collect();
    use crate::Outcome::{Applied, NoOp};
    assert_eq!(outcomes, [Applied, NoOp, NoOp]);
}

#[rstest]
#[case::test_fails(JSON_PATCH, json!([{"op": "test", "path": "/data/k", "value": "w"}]), 422)]
#[case::nothing_there(JSON_PATCH, json!([{"op": "remove", "path": "/data/none"}]), 422)]
#[case::no_list(JSON_PATCH, json!({"op": "remove"}), 400)]
#[case::unknown_op(JSON_PATCH, json!([{"op": "nonsense", "path": "/"}]), 422)]
#[case::no_object(MERGE, json!([]), 400)]
#[case::finalizers_text(MERGE, json!({"metadata": {"finalizers": "x"}}), 422)]
#[case::label_number(MERGE, json!({"metadata": {"labels": {"x": 5}}}), 422)]
#[case::renamed(MERGE, json!({"metadata": {"name": "b"}}), 400)]
#[case::deleted_by_hand(MERGE, json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}), 422)]
#[case::unknown_media("text/plain", json!({}), 415)]
#[case::directive(STRATEGIC, json!({"metadata": {"$patch": "nonsense"}}), 500)]
#[tokio::test]
async fn a_bad_patch_changes_nothing(#[case] media: &str, #[case] body: Value, #[case] code: u16) {
    let api = Api::new();
    let made = api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let (status, answer) = api.patch(&path, media, body).await;
    assert_eq!(status, code, "{answer}");
    assert_eq!(answer["kind"], "Status");
    assert_eq!(api.get(&path).await.1, made);
}

#[rstest]
#[case(MERGE, json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}))]
#[case(STRATEGIC, json!({"metadata": {"finalizers": ["d.e/f"]}}))]
#[case(JSON_PATCH, json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "d.e/f"}]))]
#[tokio::test]
async fn all_three_patches_can_add_a_finalizer(#[case] media: &str, #[case] body: Value) {
    let api = Api::new();
    api.make(CONFIGMAPS, held("a", &["a.b/c"])).await;
    let (status, answer) = api.patch(&format!("{CONFIGMAPS}/a"), media, body).await;
    assert_eq!(status, 200, "{answer}");
    let mut finalizers: Vec<&str> = answer["metadata"]["finalizers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    // A strategic merge puts the items of the patch first.
    finalizers.sort_unstable();
    assert_eq!(finalizers, ["a.b/c", "d.e/f"]);
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_stores_nothing() {
    let api = Api::new();
    let before = api.sandbox.cluster().version();
    let (status, made) = api
        .post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("a"))
        .await;
    assert_eq!(
        (status, made["metadata"]["name"].as_str()),
        (201, Some("a"))
    );
    let (status, _) = api
        .post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("A"))
        .await;
    assert_eq!(status, 422);
    let (status, _) = api
        .post(&format!("{CONFIGMAPS}?dryRun=Some"), configmap("a"))
        .await;
    assert_eq!(status, 422);
    assert_eq!(api.get(&format!("{CONFIGMAPS}/a")).await.0, 404);
    assert_eq!(api.sandbox.cluster().version(), before);
    api.make(CONFIGMAPS, configmap("b")).await;
    let path = format!("{CONFIGMAPS}/b");
    let patched = api
        .merge(&format!("{path}?dryRun=All"), json!({"data": {"k": "w"}}))
        .await;
    assert_eq!((patched.0, &patched.1["data"]["k"]), (200, &json!("w")));
    assert_eq!(api.delete(&path, json!({"dryRun": ["All"]})).await.0, 200);
    assert_eq!(api.get(&path).await.1["data"]["k"], "v");
    assert!(
        api.sandbox
            .recorder()
            .writes()
            .iter()
            .filter(|w| w.changed())
            .count()
            == 1
    );
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let api = Api::new();
    api.make(PODS, pod("p", Some("n"), &[])).await;
    let path = format!("{PODS}/p");
    let (_, plain) = api
        .merge(&path, json!({"status": {"phase": "Running"}}))
        .await;
    assert_eq!(plain["status"]["phase"], "Pending");
    let body = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "other"}});
    let (status, answer) = api.merge(&format!("{path}/status"), body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["status"]["phase"], "Running");
    assert_eq!(answer["spec"]["nodeName"], "n");
    assert_eq!(answer["metadata"]["generation"], 1);
    let version = answer["metadata"]["resourceVersion"].clone();
    let stale = json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Failed"}});
    assert_eq!(api.merge(&format!("{path}/status"), stale).await.0, 409);
    let current = json!({"metadata": {"resourceVersion": version}, "status": {"phase": "Failed"}});
    assert_eq!(api.merge(&format!("{path}/status"), current).await.0, 200);
}

#[rstest]
#[case::image(json!({"spec": {"containers": [{"name": "main", "image": "y"}]}}), 200)]
#[case::deadline(json!({"spec": {"activeDeadlineSeconds": 5}}), 200)]
#[case::node(json!({"spec": {"nodeName": "n"}}), 422)]
#[case::env(json!({"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}}), 422)]
#[tokio::test]
async fn only_a_few_fields_of_a_pods_spec_are_mutable(#[case] body: Value, #[case] code: u16) {
    let api = Api::new();
    api.make(PODS, pod("p", None, &[])).await;
    let (status, answer) = api.patch(&format!("{PODS}/p"), STRATEGIC, body).await;
    assert_eq!(status, code, "{answer}");
    let generation = if code == 200 { 2 } else { 1 };
    assert_eq!(
        api.get(&format!("{PODS}/p")).await.1["metadata"]["generation"],
        generation
    );
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let api = Api::new();
    api.make(PODS, pod("p", None, &[])).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let path = format!("{PODS}/p/binding");
    assert_eq!(api.post(&path, binding.clone()).await.0, 201);
    assert_eq!(
        api.get(&format!("{PODS}/p")).await.1["spec"]["nodeName"],
        "n"
    );
    assert_eq!(api.post(&path, binding).await.0, 409);
}

#[tokio::test]
async fn a_lease_is_created_by_a_replace_and_then_requires_its_version() {
    let api = Api::new();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(api.put(path, lease.clone()).await.0, 201);
    let (status, answer) = api.put(path, lease).await;
    assert_eq!((status, reason(&answer)), (422, "Invalid"), "{answer}");
}

#[tokio::test]
async fn unknown_paths_get_a_plain_page() {
    let api = Api::new();
    for path in ["/apis/no.dev/v1/x", "/nope"] {
        assert_eq!(
            api.get(path).await,
            (404, json!("404 page not found\n")),
            "{path}"
        );
    }
    for path in ["/api/v1/nopes", &format!("{PODS}/p/exec")] {
        let (status, answer) = api.get(path).await;
        assert_eq!((status, &answer["details"]), (404, &json!({})), "{path}");
    }
    let (status, answer) = api.get(&format!("{PODS}/p")).await;
    assert_eq!(status, 404);
    assert_eq!(answer["details"], json!({"name": "p", "kind": "pods"}));
    assert_eq!(api.put(CONFIGMAPS, json!({})).await.0, 405);
    let (status, _) = api.call("POST", CONFIGMAPS, "text/plain", "{}").await;
    assert_eq!(status, 415);
}
