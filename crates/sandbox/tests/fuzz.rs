//! The server never panics, and answers every request with a Status, an object or a plain page.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use belayer_sandbox::{FaultPlan, Gvr, Sandbox, WriteOptions};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const SMALL: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new","labels":{"a":"b"}},"data":{"k":"v"}}"#;
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","finalizers":["x.y/z"]},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
const CRD: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.x.dev"},"spec":{"group":"x.dev","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;

/// Valid requests: method, path with query, content type, body.
const CORPUS: &[(&str, &str, &str, &str)] = &[
    (
        "GET",
        "/api/v1/namespaces/default/configmaps?labelSelector=a%3Db&limit=2&resourceVersion=0",
        "",
        "",
    ),
    (
        "GET",
        "/api/v1/pods?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "",
        "",
    ),
    ("GET", "/api/v1/namespaces/default/configmaps/old", "", ""),
    (
        "GET",
        "/apis/x.dev/v1/namespaces/default/things?fieldSelector=metadata.name%3Da",
        "",
        "",
    ),
    ("GET", "/openapi/v3/api/v1", "", ""),
    ("GET", "/apis", "", ""),
    (
        "POST",
        "/api/v1/namespaces/default/configmaps?dryRun=All&fieldManager=x",
        "application/json",
        SMALL,
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods",
        "application/json",
        POD,
    ),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "application/json",
        CRD,
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/held/binding",
        "application/json",
        r#"{"target":{"kind":"Node","name":"n"}}"#,
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/held/eviction",
        "application/json",
        r#"{"deleteOptions":{"gracePeriodSeconds":0}}"#,
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "application/json",
        r#"{"spec":{"resourceAttributes":{"verb":"get"}}}"#,
    ),
    (
        "PUT",
        "/api/v1/namespaces/default/configmaps/old",
        "application/json",
        SMALL,
    ),
    (
        "PUT",
        "/api/v1/namespaces/default/pods/held/status",
        "application/json",
        POD,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/old",
        "application/merge-patch+json",
        r#"{"metadata":{"labels":{"a":null}},"data":{"x":"y"}}"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/configmaps/old",
        "application/json-patch+json",
        r#"[{"op":"test","path":"/metadata/name","value":"old"},{"op":"add","path":"/data/x","value":"1"},{"op":"move","from":"/data/x","path":"/data/z"}]"#,
    ),
    (
        "PATCH",
        "/api/v1/namespaces/default/pods/held",
        "application/strategic-merge-patch+json",
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x.y/z"]},"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","$patch":"delete"}]}}"#,
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default/pods/held",
        "application/json",
        r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Foreground"}"#,
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default/configmaps?labelSelector=a",
        "",
        "",
    ),
    ("DELETE", "/api/v1/namespaces/default", "", ""),
];

const ODD: &[&[u8]] = &[
    b"null",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b"-1",
    b"1e999",
    b"\xff\xfe",
    b"%",
    b"%00",
    b"/",
    b"//",
    b"..",
    b"?",
    b"&",
    b"=",
    b",",
    b"!",
    b"\\u0000",
    b"18446744073709551616",
    b"\"$patch\":\"replace\",",
    b"true",
];

/// One mutation of a text: bytes at a position are removed and others inserted.
type Edit = (Index, u8, Index);

fn edited(text: &str, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, cut, odd) in edits {
        let at = place.index(bytes.len() + 1);
        let end = (at + usize::from(*cut) % 4).min(bytes.len());
        bytes.splice(at..end, ODD[odd.index(ODD.len())].iter().copied());
    }
    bytes
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(any::<Edit>(), 0..4)
}

const HEADERS: &[(&str, &str)] = &[
    ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
    (
        "accept",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ),
    ("accept", "application/vnd.kubernetes.protobuf"),
    ("accept", "text/html;q=zero,*/*;q=0.1"),
    ("content-type", "application/apply-patch+yaml"),
    ("content-type", "application/json; charset=\"\u{e9}\""),
    ("content-length", "99999999999"),
    ("authorization", "Bearer user:"),
    ("user-agent", "/"),
    ("expect", "100-continue"),
    ("impersonate-user", "somebody"),
];

async fn prepared() -> Sandbox {
    let sandbox = Sandbox::builder().seed(1).build();
    let (actor, options) = ("fuzz".into(), WriteOptions::default());
    let map = json!({"metadata": {"name": "old", "labels": {"a": "b"}}, "data": {"k": "v"}});
    let mut pod: Value = serde_json::from_str(POD).unwrap();
    pod["metadata"]["name"] = json!("held");
    for (gvr, object) in [(Gvr::CONFIGMAPS, map), (Gvr::PODS, pod)] {
        let cluster = sandbox.cluster();
        cluster
            .create(&actor, &gvr, Some("default"), object, &options)
            .unwrap();
    }
    sandbox
}

/// Sends a request, checks the response, and that the server still lists its objects.
fn check(request: Request<Full<Bytes>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let sandbox = prepared().await;
        let shown = format!("{request:?}");
        let answer = sandbox.service("fuzz").oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let media = answer.headers().get("content-type").cloned();
        let media = media.map_or_else(String::new, |m| m.to_str().unwrap().to_owned());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!((200..600).contains(&code), "{shown}: {code}");
        if media == "application/json" {
            // A watch has a line for each event, any other response is one document.
            let whole = serde_json::from_slice::<Value>(&body);
            let lines = || {
                body.split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
            };
            let events = || lines().all(|line| serde_json::from_slice::<Value>(line).is_ok());
            assert!(whole.is_ok() || events(), "{shown}: {code} {body:?}");
            if code >= 400 {
                let status = whole.unwrap();
                assert_eq!(status["kind"], "Status", "{shown}");
                assert_eq!(status["status"], "Failure", "{shown}");
                assert_eq!(status["code"], code, "{shown}");
            }
        } else {
            assert!(std::str::from_utf8(&body).is_ok(), "{shown}: {media}");
        }
        for path in ["/api/v1/pods", "/api/v1/configmaps", "/readyz"] {
            let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
            let answer = sandbox.service("fuzz").oneshot(request).await.unwrap();
            assert_eq!(answer.status(), 200, "{shown}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 768, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_requests_never_break_the_server(
        entry in select(CORPUS),
        method in prop::option::weighted(0.2, select(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"][..])),
        path_edits in edits(),
        body_edits in edits(),
        headers in prop::collection::vec(select(HEADERS), 0..3),
    ) {
        let (usual, path, media, body) = entry;
        let path = String::from_utf8_lossy(&edited(path, &path_edits)).into_owned();
        let request = Request::builder().method(method.unwrap_or(usual)).uri(&path);
        // An invalid URI or header never reaches a server.
        let Ok(mut request) = request.body(Full::new(Bytes::from(edited(body, &body_edits)))) else {
            return Ok(());
        };
        if !media.is_empty() {
            request.headers_mut().insert("content-type", HeaderValue::from_static(media));
        }
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        check(request);
    }

    #[test]
    fn random_bytes_in_every_place_never_break_the_server(
        method in "[A-Z]{1,8}",
        path in "(/[ -~]{0,12}){1,6}",
        query in "[!-~]{0,40}",
        header in prop::collection::vec(any::<u8>(), 0..40),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let uri = format!("{path}?{query}");
        let Ok(mut request) = Request::builder().method(method.as_str()).uri(&uri).body(Full::new(Bytes::from(body))) else {
            return Ok(());
        };
        for name in ["accept", "content-type", "authorization", "user-agent"] {
            if let Ok(value) = HeaderValue::from_bytes(&header) {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        check(request);
    }

    #[test]
    fn random_bytes_as_protobuf_never_break_the_server(
        path in select(&[
            ("POST", "/api/v1/namespaces/default/pods"),
            ("PUT", "/api/v1/namespaces/default/configmaps/old"),
            ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
            ("POST", "/api/v1/namespaces/default/pods/held/eviction"),
            ("POST", "/api/v1/namespaces/default/pods/held/binding"),
            ("DELETE", "/api/v1/namespaces/default/pods/held"),
        ][..]),
        enveloped in any::<bool>(),
        // Small numbers are keys and lengths of existing fields.
        random in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..48], 0..200),
    ) {
        let mut body = b"k8s\0".to_vec();
        if enveloped {
            body.extend([0x12, u8::try_from(random.len() % 128).unwrap()]);
        }
        body.extend(random);
        let (method, path) = path;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/vnd.kubernetes.protobuf");
        check(request.body(Full::new(Bytes::from(body))).unwrap());
    }

    #[test]
    fn random_files_are_refused_without_a_panic(text in "([ -~\n]|---\n|faults:|timeline:|kind: |- ){0,60}") {
        let sandbox = Sandbox::builder().seed(1).build();
        drop(sandbox.load_yaml(&text));
        drop(text.parse::<FaultPlan>());
    }
}

/// Found by the test above: the patch library's rollback of a failed `move` panicked.
#[tokio::test]
async fn a_move_that_fails_halfway_is_refused_and_changes_nothing() {
    let sandbox = prepared().await;
    let path = "/api/v1/namespaces/default/configmaps/old";
    let patch = r#"[{"op":"add","path":"/data/x","value":"1"},{"op":"move","from":"/data/x","path":"/none/z"}]"#;
    let request = Request::patch(path)
        .header("content-type", "application/json-patch+json")
        .body(Full::new(Bytes::from_static(patch.as_bytes())));
    let before = sandbox.cluster().version();
    let answer = sandbox.service("fuzz").oneshot(request.unwrap()).await;
    assert_eq!(answer.unwrap().status(), 422);
    assert_eq!(sandbox.cluster().version(), before);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_deep_nesting_too() {
    let sandbox = prepared().await;
    let send = async |body: Vec<u8>| {
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)));
        let answer = sandbox
            .service("fuzz")
            .oneshot(request.unwrap())
            .await
            .unwrap();
        answer.status().as_u16()
    };
    assert_eq!(send(vec![b' '; 3 * 1024 * 1024 + 1]).await, 413);
    assert_eq!(send("[".repeat(100_000).into_bytes()).await, 400);
    let deep = format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    assert_eq!(send(deep.into_bytes()).await, 400);
}
