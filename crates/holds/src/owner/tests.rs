//! What a live read of an owner proves, by the answers of the server.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_core::informer::JsonDecoder;
use belayer_core::object::ResourceVersion;
use belayer_core::slim::DecodeContext;
use bytes::Bytes;
use http_body_util::Full;
use rstest::rstest;
use serde_json::{Value, json};
use tower::Service;

use super::*;

const ORDER: &str = "/apis/shop.dev/v1/namespaces/ci/orders/a";
const CLUSTER_ORDER: &str = "/apis/shop.dev/v1/orders/a";
const GROUP: &str = "/apis/shop.dev";
const V1: &str = "/apis/shop.dev/v1";
const V2: &str = "/apis/shop.dev/v2";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/orders.shop.dev";

/// A server with an answer for each path; every other path is not served. It records the paths that are requested.
#[derive(Clone, Default)]
struct Server {
    answers: HashMap<String, (u16, String)>,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn with(mut self, path: &str, (code, body): (u16, Value)) -> Self {
        self.answers
            .insert(path.to_owned(), (code, body.to_string()));
        self
    }

    fn reader(&self) -> OwnerReader {
        let client = client::in_process(self.clone(), "belayer/1.0");
        let executor = Executor::new(client, "belayer", Bounds::default(), Writes::Sent);
        let decoders = Decoders::new(JsonDecoder::new(DecodeContext::default()));
        OwnerReader::new(Arc::new(executor), decoders)
    }

    fn requested(&self) -> Vec<String> {
        std::mem::take(&mut self.requested.lock())
    }
}

impl<B> Service<http::Request<B>> for Server {
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path();
        self.requested.lock().push(path.to_owned());
        let not_served = (404, "404 page not found".to_owned());
        let (code, body) = self.answers.get(path).cloned().unwrap_or(not_served);
        let answer = http::Response::builder()
            .status(code)
            .header("content-type", "application/json");
        ready(Ok(answer.body(Full::new(Bytes::from(body))).unwrap()))
    }
}

fn object(uid: &str) -> (u16, Value) {
    (
        200,
        json!({ "metadata": { "name": "a", "uid": uid, "resourceVersion": "3" } }),
    )
}

fn error(code: u16, reason: &str, details: Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code,
        "details": details,
    });
    (code, status)
}

fn not_found(group: &str, kind: &str, name: &str) -> (u16, Value) {
    let details = json!({ "group": group, "kind": kind, "name": name });
    error(404, "NotFound", details)
}

fn no_crd() -> (u16, Value) {
    let group = "apiextensions.k8s.io";
    not_found(group, "customresourcedefinitions", "orders.shop.dev")
}

fn forbidden() -> (u16, Value) {
    error(403, "Forbidden", json!({}))
}

fn unavailable() -> (u16, Value) {
    error(503, "ServiceUnavailable", json!({}))
}

fn versions(versions: &[&str]) -> (u16, Value) {
    let versions = versions.iter().map(|version| json!({ "version": version }));
    (200, json!({ "versions": versions.collect::<Vec<_>>() }))
}

fn resources(resources: &[(&str, &str, bool)]) -> (u16, Value) {
    let resources = resources.iter().map(
        |(name, kind, namespaced)| json!({ "name": name, "kind": kind, "namespaced": namespaced }),
    );
    (200, json!({ "resources": resources.collect::<Vec<_>>() }))
}

fn orders() -> Resource {
    Resource::new("shop.dev", "v1", "Order", "orders")
}

fn query() -> OwnerQuery {
    OwnerQuery::at(orders(), ObjectKey::new("ci", "a"), Uid::new("u-1"))
}

/// A short text of an answer.
fn text(read: Result<OwnerState, ReadError>) -> String {
    match read {
        Ok(OwnerState::Present(meta)) => format!("present {}", meta.key),
        Ok(OwnerState::Gone(proof)) => format!("gone: {proof}"),
        Ok(OwnerState::Unknown(why)) => format!("unknown: {why}"),
        Err(_) => "again".to_owned(),
    }
}

const DELETED: &str = "gone: its CustomResourceDefinition was deleted, and all its objects with it";

#[rstest]
#[case::present(object("u-1"), "present a")]
#[case::another(object("u-2"), "gone: its name belongs to another object")]
#[case::unreadable((200, json!([])), "unknown: the answer cannot be decoded")]
#[case::not_found(
    not_found("shop.dev", "orders", "a"),
    "gone: the server answered NotFound"
)]
#[case::another_is_not_found(not_found("shop.dev", "orders", "b"), "unknown: ")]
#[case::forbidden(forbidden(), "unknown: ")]
#[case::unavailable(unavailable(), "again")]
#[tokio::test(start_paused = true)]
async fn an_answer_about_the_owner(#[case] answer: (u16, Value), #[case] expected: &str) {
    let server = Server::default().with(ORDER, answer);
    let read = text(server.reader().read(&query()).await);
    assert!(read.starts_with(expected), "{read}");
    assert_eq!(server.requested(), [ORDER]);
}

/// The kind of the owner is not served in its version. `group` and `v2` are what discovery says.
#[rstest]
#[case::crd_deleted(no_crd(), None, None, DELETED)]
#[case::crd_there(
    object("crd"),
    None,
    None,
    "unknown: orders.shop.dev exists but is not served at v1"
)]
#[case::crd_unreadable(forbidden(), None, None, "unknown: ")]
#[case::crd_later(unavailable(), None, None, "again")]
#[case::another_crd(not_found("", "x", "y"), None, None, "unknown: ")]
#[case::group_unreadable(no_crd(), Some(forbidden()), None, "unknown: ")]
#[case::group_later(no_crd(), Some(unavailable()), None, "again")]
#[case::group_unusable(no_crd(), Some((200, json!([]))), None, "again")]
#[case::no_versions(no_crd(), Some(versions(&[])), None, DELETED)]
#[case::version_unreadable(no_crd(), Some(versions(&["v2"])), Some(forbidden()), "unknown: ")]
#[case::version_later(no_crd(), Some(versions(&["v2"])), Some(unavailable()), "again")]
#[case::other_kinds(
    no_crd(),
    Some(versions(&["v2"])),
    Some(resources(&[("bills", "Bill", true), ("bills/order", "Order", true)])),
    DELETED
)]
#[case::other_version(
    no_crd(),
    Some(versions(&["v2"])),
    Some(resources(&[("bills", "Bill", true), ("orders", "Order", true)])),
    "unknown: orders.shop.dev is served at v2 but not at v1"
)]
#[case::other_plural(
    no_crd(),
    Some(versions(&["v2"])),
    Some(resources(&[("bills", "Bill", true), ("purchases", "Order", true)])),
    "unknown: Order of shop.dev is served as purchases, not as orders"
)]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served(
    #[case] crd: (u16, Value),
    #[case] group: Option<(u16, Value)>,
    #[case] v2: Option<(u16, Value)>,
    #[case] expected: &str,
) {
    let mut server = Server::default().with(CRD, crd);
    for (path, answer) in [(GROUP, group), (V2, v2)] {
        if let Some(answer) = answer {
            server = server.with(path, answer);
        }
    }
    let read = text(server.reader().read(&query()).await);
    assert!(read.starts_with(expected), "{read}");
}

/// The absence of one of Kubernetes' own kinds never proves that it was deleted.
#[rstest]
#[case::core("")]
#[case::old("batch")]
#[case::new("scheduling.k8s.io")]
#[tokio::test(start_paused = true)]
async fn a_kind_of_kubernetes_is_never_gone(#[case] group: &'static str) {
    let crd = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobs.{group}");
    let gone = not_found(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &format!("jobs.{group}"),
    );
    let server = Server::default().with(&crd, gone);
    let jobs = Resource::new(group, "v1", "Job", "jobs");
    let query = OwnerQuery::at(jobs, ObjectKey::cluster("a"), Uid::new("u-1"));
    let read = text(server.reader().read(&query).await);
    assert!(
        read.starts_with("unknown: jobs") && read.ends_with("is not served at v1"),
        "{read}"
    );
    assert_eq!(server.requested().len(), 1);
}

#[rstest]
#[case::it_is_read("orders", false, object("u-1"), "present a", &[ORDER, V1, CLUSTER_ORDER])]
#[case::another_has_the_name("orders", false, object("u-2"), "gone: its name belongs", &[ORDER, V1, CLUSTER_ORDER])]
#[case::it_is_not_served("orders", false, (404, json!("no")), DELETED, &[ORDER, V1, CLUSTER_ORDER, CRD, GROUP])]
#[case::it_is_namespaced("orders", true, object("u-1"), DELETED, &[ORDER, V1, CRD, GROUP])]
#[case::it_has_another_plural("purchases", false, object("u-1"), DELETED, &[ORDER, V1, CRD, GROUP])]
#[tokio::test(start_paused = true)]
async fn an_owner_without_a_namespace(
    #[case] plural: &str,
    #[case] namespaced: bool,
    #[case] answer: (u16, Value),
    #[case] expected: &str,
    #[case] requested: &[&str],
) {
    let served = [
        ("orders/status", "Order", false),
        (plural, "Order", namespaced),
    ];
    let server = Server::default()
        .with(V1, resources(&served))
        .with(CLUSTER_ORDER, answer)
        .with(CRD, no_crd());
    let read = text(server.reader().read(&query()).await);
    assert!(read.starts_with(expected), "{read}");
    assert_eq!(server.requested(), requested);
}

#[tokio::test(start_paused = true)]
async fn no_other_scope_is_tried_for_a_key_without_a_namespace() {
    let server = Server::default().with(CRD, no_crd());
    let query = OwnerQuery::at(orders(), ObjectKey::cluster("a"), Uid::new("u-1"));
    assert_eq!(text(server.reader().read(&query).await), DELETED);
    assert_eq!(server.requested(), [CLUSTER_ORDER, CRD, GROUP]);
}

#[tokio::test(start_paused = true)]
async fn t7_an_impossible_name_is_never_requested() {
    let server = Server::default();
    let reader = server.reader();
    let query = OwnerQuery::at(orders(), ObjectKey::new("ci", ".."), Uid::new("u-1"));
    let expected = "gone: no object can have its name, so it never existed";
    assert_eq!(text(reader.read(&query).await), expected);
    for version in ["..", "a/..", "../v1", "/a/b"] {
        assert!(
            reader.served(version, "Order").await.unwrap().is_none(),
            "{version}"
        );
    }
    assert!(server.requested().is_empty());
}

#[tokio::test(start_paused = true)]
async fn discovery_is_cached_until_the_plural_changes() {
    let server = Server::default()
        .with(V1, resources(&[("orders", "Order", true)]))
        .with("/api/v1", resources(&[("pods", "Pod", true)]));
    let reader = server.reader();
    for _ in 0..2 {
        let served = reader
            .served("shop.dev/v1", "Order")
            .await
            .unwrap()
            .unwrap();
        assert!(served.namespaced && served.resource == orders());
    }
    let pods = reader.served("v1", "Pod").await.unwrap().unwrap();
    assert_eq!(pods.resource, Resource::pods());
    assert!(reader.served("v1", "Order").await.unwrap().is_none());
    assert_eq!(server.requested(), [V1, "/api/v1", "/api/v1"]);

    let server = server
        .with(CRD, no_crd())
        .with(GROUP, versions(&["v2"]))
        .with(V2, resources(&[("purchases", "Order", true)]));
    let reader = reader.with(&server.reader().executor);
    let read = text(reader.read(&query()).await);
    assert!(
        read.ends_with("is served as purchases, not as orders"),
        "{read}"
    );
    reader.served("shop.dev/v1", "Order").await.unwrap();
    assert_eq!(server.requested(), [ORDER, CRD, GROUP, V2, V1]);
}

#[rstest]
#[case::not_served((404, json!("no")), Some(()))]
#[case::not_found(not_found("shop.dev", "orders", "a"), Some(()))]
#[case::forbidden(forbidden(), Some(()))]
#[case::unavailable(unavailable(), None)]
#[tokio::test(start_paused = true)]
async fn discovery_that_fails(#[case] answer: (u16, Value), #[case] not_served: Option<()>) {
    let server = Server::default().with(V1, answer);
    let served = server.reader().served("shop.dev/v1", "Order").await;
    assert_eq!(served.ok().map(|kind| assert!(kind.is_none())), not_served);
}

#[tokio::test(start_paused = true)]
async fn another_executor_reads_with_the_same_cache() {
    let server = Server::default().with(V1, resources(&[("orders", "Order", true)]));
    let other = Server::default();
    let reader = server.reader();
    reader.served("shop.dev/v1", "Order").await.unwrap();
    let reader = reader.with(&other.reader().executor);
    assert!(
        reader
            .served("shop.dev/v1", "Order")
            .await
            .unwrap()
            .is_some()
    );
    let read = text(reader.read(&query()).await);
    assert!(read.starts_with("unknown: "), "{read}");
    assert_eq!(
        (server.requested().len(), other.requested()[0].as_str()),
        (1, ORDER)
    );
}

#[test]
fn answers_have_an_outcome_and_a_weight() {
    let mut meta = ObjectMeta::new(
        ObjectKey::new("ci", "a"),
        Uid::new("u-1"),
        ResourceVersion::new(1),
    );
    meta.finalizers = ["example.com/a"].into_iter().map(Into::into).collect();
    let weight = meta.weight();
    assert!(weight > 1);
    let answers = [
        (OwnerState::Present(meta), "present", weight),
        (OwnerState::Gone(GoneProof::scripted()), "gone", 0),
        (OwnerState::Unknown("why".to_owned()), "unknown", 3),
    ];
    for (answer, outcome, weight) in answers {
        assert_eq!(OwnerQuery::outcome(&answer), outcome);
        assert_eq!(OwnerQuery::weight(&answer), weight);
    }
}

#[test]
fn a_query_names_its_owner() {
    let meta = ObjectMeta::new(
        ObjectKey::new("ci", "a"),
        Uid::new("u-1"),
        ResourceVersion::new(1),
    );
    let query = OwnerQuery::about(orders(), &meta);
    assert_eq!(query, self::query());
    let expected = "whether orders.shop.dev ci/a (uid u-1) still exists";
    assert_eq!(query.to_string(), expected);
    assert_eq!((query.key(), query.resource()), (&meta.key, &orders()));
    assert!(!query.is_about_a_workflow());
    let of_argo = OwnerQuery::about(argo::workflow(), &meta);
    assert!(of_argo.is_about_a_workflow());
}

#[test]
fn only_the_deletion_of_the_same_object_is_proof() {
    let uid = Uid::new("u-1");
    let mut meta = ObjectMeta::new(
        ObjectKey::new("ci", "a"),
        uid.clone(),
        ResourceVersion::new(1),
    );
    assert_eq!(OwnerDeletion::prove(&meta, &uid), None);
    meta.deletion_timestamp = Some("2026-11-21T12:00:00Z".parse().unwrap());
    assert!(OwnerDeletion::prove(&meta, &uid).is_some());
    assert_eq!(OwnerDeletion::prove(&meta, &Uid::new("u-2")), None);
}
