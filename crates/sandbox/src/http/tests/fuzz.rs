//! The server answers every request with a Status and keeps running.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/.A-Z\u{e9}$-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![
            "(metadata|name|uid|labels|annotations|finalizers|ownerReferences|resourceVersion|spec|status|containers|\\$patch|kind|apiVersion|conditions|type|deletionTimestamp|versions|names)",
            "[a-z$/]{1,8}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

const PATHS: &[&str] = &[
    CONFIGMAPS,
    "/api/v1/namespaces/default/configmaps/a",
    PODS,
    "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/finalize",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.x.dev",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
];
const METHODS: &[&str] = &["POST", "PUT", "PATCH", "DELETE"];
const MEDIA: &[&str] = &["application/json", MERGE, JSON_PATCH, STRATEGIC];

fn run(method: &str, path: &str, media: &str, body: Vec<u8>) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let api = Api::new();
        api.make(CONFIGMAPS, held("a", &["x.y/z"])).await;
        api.make(PODS, pod("p", Some("n"), &["x.y/z"])).await;
        let answer = api.call(method, path, media, body).await;
        // The server still works and lists its objects.
        for path in ["/api/v1/pods", "/api/v1/configmaps", "/api/v1/namespaces"] {
            assert_eq!(api.get(path).await.0, 200);
        }
        answer
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_break_the_server(
        body in prop::collection::vec(any::<u8>(), 0..200),
        path in prop::sample::select(PATHS),
        method in prop::sample::select(METHODS),
        media in prop::sample::select(MEDIA),
    ) {
        let (status, answer) = run(method, path, media, body);
        prop_assert!(answer.is_object() || status == 404, "{status} {answer}");
    }

    #[test]
    fn random_json_never_breaks_the_server(
        body in any_json(),
        path in prop::sample::select(PATHS),
        method in prop::sample::select(METHODS),
        media in prop::sample::select(MEDIA),
    ) {
        let (status, answer) = run(method, path, media, body.to_string().into_bytes());
        prop_assert!(answer.is_object() || status == 404, "{status} {answer}");
        if status >= 400 && status != 404 {
            prop_assert_eq!(&answer["kind"], "Status");
            prop_assert_eq!(&answer["code"], &json!(status));
        }
    }

    #[test]
    fn random_queries_never_break_the_server(
        query in "(labelSelector|fieldSelector|continue|limit|resourceVersion|resourceVersionMatch|gracePeriodSeconds)=[ -~\u{e9}]{0,20}",
        path in prop::sample::select(PATHS),
    ) {
        let encoded: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let encoded = encoded.replacen("%3D", "=", 1);
        let (status, answer) = run("GET", &format!("{path}?{encoded}"), "", Vec::new());
        prop_assert!(answer.is_object() || status == 404, "{status} {answer}");
    }
}
