//! Bodies in protobuf, as typed Go clients send them.

use serde_json::json;

use super::{Api, CONFIGMAPS, PODS};

const MEDIA: &str = "application/vnd.kubernetes.protobuf";

fn part(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let length = u8::try_from(bytes.as_ref().len()).unwrap();
    assert!(length < 128, "a length of one byte");
    [&[(number << 3) | 2, length][..], bytes.as_ref()].concat()
}

fn body(version: &str, kind: &str, raw: impl AsRef<[u8]>) -> Vec<u8> {
    let type_meta = part(1, [part(1, version), part(2, kind)].concat());
    [b"k8s\0", &type_meta[..], &part(2, raw)[..]].concat()
}

fn map(value: &str) -> Vec<u8> {
    let data = part(2, [part(1, "k"), part(2, value)].concat());
    let metadata = part(1, [part(1, "m"), part(2, ""), part(8, "")].concat());
    body("v1", "ConfigMap", [metadata, data].concat())
}

#[tokio::test]
async fn an_object_is_created_and_replaced() {
    let api = Api::new();
    let (status, made) = api.call("POST", CONFIGMAPS, MEDIA, map("v")).await;
    assert_eq!((status, &made["data"]), (201, &json!({"k": "v"})), "{made}");
    let path = format!("{CONFIGMAPS}/m");
    let (status, changed) = api.call("PUT", &path, MEDIA, map("w")).await;
    assert_eq!((status, &changed["data"]["k"]), (200, &json!("w")));
    // The same content in JSON changes nothing.
    let same = json!({"metadata": {"name": "m"}, "data": {"k": "w"}});
    let (_, again) = api.put(&path, same).await;
    let version = |of: &serde_json::Value| of["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&again), version(&changed));
}

#[tokio::test]
async fn options_of_a_delete_are_read() {
    let api = Api::new();
    api.call("POST", CONFIGMAPS, MEDIA, map("v")).await;
    let path = format!("{CONFIGMAPS}/m");
    let options = body("v1", "DeleteOptions", part(2, part(1, "another")));
    assert_eq!(api.call("DELETE", &path, MEDIA, options).await.0, 409);
    let options = body("v1", "DeleteOptions", part(4, "Background"));
    assert_eq!(api.call("DELETE", &path, MEDIA, options).await.0, 200);
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test]
async fn a_pod_is_created_bound_and_evicted() {
    let api = Api::new();
    let container = part(2, [part(1, "c"), part(2, "i")].concat());
    let pod = [part(1, part(1, "p")), part(2, container)].concat();
    let (status, made) = api.call("POST", PODS, MEDIA, body("v1", "Pod", pod)).await;
    assert_eq!(status, 201, "{made}");
    let target = part(2, [part(1, "Node"), part(3, "n")].concat());
    let binding = body("v1", "Binding", [part(1, part(1, "p")), target].concat());
    let path = format!("{PODS}/p");
    let (bind, evict) = (format!("{path}/binding"), format!("{path}/eviction"));
    assert_eq!(api.call("POST", &bind, MEDIA, binding).await.0, 201);
    assert_eq!(api.get(&path).await.1["spec"]["nodeName"], "n");
    // A grace period of zero.
    let options = part(2, [8, 0]);
    let eviction = body(
        "policy/v1",
        "Eviction",
        [part(1, part(1, "p")), options].concat(),
    );
    assert_eq!(api.call("POST", &evict, MEDIA, eviction).await.0, 201);
    assert_eq!(api.get(&path).await.0, 404);
}

/// Row "the rest of the list": kubectl asks for a token so.
#[tokio::test]
async fn crates_a_token_is_asked_for() {
    let api = Api::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.make(accounts, json!({"metadata": {"name": "bot"}}))
        .await;
    let seconds = [[4 << 3].as_slice(), &[0xa0, 0x38]].concat();
    let request = body("authentication.k8s.io/v1", "TokenRequest", part(2, seconds));
    let path = format!("{accounts}/bot/token");
    let (status, answer) = api.call("POST", &path, MEDIA, request).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["spec"]["expirationSeconds"], 7200);
    let token = "user:system:serviceaccount:default:bot";
    assert_eq!(answer["status"]["token"], token);
}

#[tokio::test]
async fn an_invalid_body_is_a_bad_request() {
    let api = Api::new();
    let other = body("v1", "Secret", part(1, part(1, "m")));
    for bad in [b"k8s".to_vec(), b"k8s\0\x12\x7f".to_vec(), other] {
        let (status, answer) = api.call("POST", CONFIGMAPS, MEDIA, bad).await;
        assert_eq!((status, &answer["reason"]), (400, &json!("BadRequest")));
    }
}

#[tokio::test]
async fn custom_kinds_have_no_protobuf() {
    let api = Api::new();
    let names =
        json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let spec = json!({"group": "x.dev", "scope": "Cluster", "names": names, "versions": [version]});
    let crd = json!({"metadata": {"name": "things.x.dev"}, "spec": spec});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(api.post(path, crd).await.0, 201);
    let thing = body("x.dev/v1", "Thing", part(1, part(1, "t")));
    let (status, answer) = api
        .call("POST", "/apis/x.dev/v1/things", MEDIA, thing)
        .await;
    assert_eq!(status, 415, "{answer}");
}
