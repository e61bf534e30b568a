//! Claims and attachments, and objects that etcd does not take.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn size(storage: &str) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": storage}}}})
}

async fn with_claim() -> Api {
    let api = Api::new();
    let mut claim = json!({"metadata": {"name": "c"}});
    claim["spec"] = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    });
    api.make(CLAIMS, claim).await;
    api
}

#[rstest]
#[case::more(size("2Gi"), 422)]
#[case::less(size("512Mi"), 422)]
#[case::the_same(size("1024Mi"), 200)]
#[case::class(json!({"spec": {"volumeAttributesClassName": "x"}}), 422)]
#[tokio::test]
async fn a_claim_without_a_volume_keeps_its_size(#[case] change: Value, #[case] code: u16) {
    let api = with_claim().await;
    let (status, answer) = api.merge(&format!("{CLAIMS}/c"), change).await;
    assert_eq!(status, code, "{answer}");
    if code == 422 {
        assert_eq!(answer["details"]["causes"][0]["field"], "spec");
    }
}

#[rstest]
#[case::more(size("3Gi"), "")]
#[case::back(size("1536Mi"), "")]
#[case::capacity(size("1Gi"), "spec.resources.requests.storage")]
#[case::less(size("1"), "spec.resources.requests.storage")]
#[case::limits(json!({"spec": {"resources": {"limits": {"storage": "9Gi"}}}}), "spec")]
#[case::class(json!({"spec": {"volumeAttributesClassName": "x"}}), "")]
#[tokio::test]
async fn a_bound_claim_only_grows(#[case] change: Value, #[case] field: &str) {
    let api = with_claim().await;
    let path = format!("{CLAIMS}/c");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(api.merge(&format!("{path}/status"), bound).await.0, 200);
    assert_eq!(api.merge(&path, size("2Gi")).await.0, 200);
    let (status, answer) = api.merge(&path, change).await;
    let expected = if field.is_empty() { 200 } else { 422 };
    assert_eq!(status, expected, "{answer}");
    let cause = answer["details"]["causes"][0]["field"].as_str();
    assert_eq!(cause.unwrap_or_default(), field);
}

#[tokio::test]
async fn a_deleted_attachment_is_returned() {
    let api = Api::new();
    let spec =
        json!({"attacher": "x.dev", "nodeName": "n", "source": {"persistentVolumeName": "v"}});
    let attachment = json!({"metadata": {"name": "a"}, "spec": spec});
    api.make(ATTACHMENTS, attachment).await;
    let (status, deleted) = api.delete(&format!("{ATTACHMENTS}/a"), json!({})).await;
    assert_eq!(
        (status, &deleted["kind"]),
        (200, &json!("VolumeAttachment"))
    );
}

#[tokio::test]
async fn an_object_above_the_limit_of_etcd_is_not_stored() {
    let api = Api::new();
    let text = "x".repeat(900_000);
    let mut large = pod("p", None, &[]);
    large["spec"]["containers"][0]["args"] = json!([text]);
    api.make(PODS, large).await;
    let more = json!({"status": {"message": text}});
    let before = api.sandbox.cluster().version();
    let (status, answer) = api.merge(&format!("{PODS}/p/status"), more).await;
    assert_eq!(
        (status, message(&answer)),
        (500, "etcdserver: request is too large")
    );
    let most = json!({"status": {"message": text.repeat(2)}});
    let (status, answer) = api.merge(&format!("{PODS}/p/status"), most).await;
    assert_eq!(status, 500);
    let why = message(&answer);
    assert!(
        why.contains("trying to send message larger than max"),
        "{why}"
    );
    assert_eq!(api.sandbox.cluster().version(), before);
}
