use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{Full, StreamBody};
use kube::Client;
use kube::client::Body;
use rstest::rstest;

use super::*;
use crate::object::{ObjectKey, Resource};

type Reply = http::Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

fn client<F>(answer: F) -> Client
where
    F: Fn(http::Request<Body>) -> Reply + Clone + Send + 'static,
{
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let reply = answer(request);
        async move { Ok::<_, Infallible>(reply) }
    });
    Client::new(service, "default")
}

fn reply(code: u16, body: &str) -> Reply {
    use http_body_util::BodyExt;
    let body = Full::new(Bytes::from(body.to_owned())).boxed();
    http::Response::builder().status(code).body(body).unwrap()
}

const MISSING_POD: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
    "message":"pods \"web-0\" not found","reason":"NotFound",
    "details":{"name":"web-0","kind":"pods"},"code":404}"#;
const MISSING_NAMESPACE: &str = r#"{"kind":"Status","reason":"NotFound","code":404,
    "details":{"name":"web-0","kind":"namespaces"}}"#;
const OTHER_GROUP: &str = r#"{"kind":"Status","reason":"NotFound","code":404,
    "details":{"name":"web-0","group":"example.org","kind":"pods"}}"#;
const NAMELESS: &str = r#"{"kind":"Status","reason":"NotFound","code":404,"details":{}}"#;

#[rstest]
#[case::the_object_itself(404, MISSING_POD, true, ErrorClass::NotFound)]
#[case::a_kind_that_is_not_served(404, "404 page not found\n", false, ErrorClass::NotServed)]
#[case::a_namespace_of_the_same_name(404, MISSING_NAMESPACE, false, ErrorClass::NotFound)]
#[case::the_same_plural_of_another_group(404, OTHER_GROUP, false, ErrorClass::NotFound)]
#[case::a_status_that_names_nothing(404, NAMELESS, false, ErrorClass::NotServed)]
#[case::a_status_under_another_code(503, MISSING_POD, false, ErrorClass::Unavailable)]
#[case::json_that_is_no_status(404, r#"{"kind":"Pod"}"#, false, ErrorClass::NotServed)]
#[tokio::test]
async fn a_404_is_evidence_only_if_it_names_the_object(
    #[case] code: u16,
    #[case] body: &'static str,
    #[case] evidence: bool,
    #[case] class: ErrorClass,
) {
    let pods = Resource::pods();
    let key = ObjectKey::new("shop", "web-0");
    let client = client(move |_| reply(code, body));
    let error = Request::get(pods.object_path(&key))
        .send(&client)
        .await
        .unwrap_err();
    assert_eq!(error.class(), class);
    let error = error.api().unwrap();
    assert_eq!(error.is_not_found_naming(&pods, &key), evidence);
    assert!(!error.is_not_found_naming(&pods, &ObjectKey::new("shop", "web-1")));
}

#[rstest]
#[case(400, ErrorClass::Invalid)]
#[case(401, ErrorClass::Unauthorized)]
#[case(403, ErrorClass::Forbidden)]
#[case(409, ErrorClass::Conflict)]
#[case(410, ErrorClass::Gone)]
#[case(422, ErrorClass::Invalid)]
#[case(429, ErrorClass::TooManyRequests)]
#[case(500, ErrorClass::Server)]
#[case(503, ErrorClass::Unavailable)]
#[case(504, ErrorClass::Timeout)]
#[case(302, ErrorClass::Other)]
fn a_code_has_its_class(#[case] code: u16, #[case] class: ErrorClass) {
    assert_eq!(
        ApiError::from_answer(code, None, b"{\"kind\": null}").class(),
        class
    );
}

#[tokio::test]
async fn retry_after_is_taken_from_the_header_before_the_status() {
    let status = r#"{"kind":"Status","details":{"retryAfterSeconds":7},"code":429}"#;
    let with_header = client(move |_| {
        let mut reply = reply(429, status);
        reply
            .headers_mut()
            .insert("retry-after", "3".parse().unwrap());
        reply
    });
    let error = Request::get("/x").send(&with_header).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    let without = client(move |_| reply(429, status));
    let error = Request::get("/x").send(&without).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn l3_no_server_and_no_proxy_stops_a_controller_for_a_day() {
    let day = r#"{"kind":"Status","details":{"retryAfterSeconds":86400},"code":429}"#;
    let in_header = client(move |_| {
        let mut reply = reply(503, "from a proxy");
        reply
            .headers_mut()
            .insert("retry-after", "86400".parse().unwrap());
        reply
    });
    for client in [in_header, client(move |_| reply(429, day))] {
        let error = Request::get("/x").send(&client).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    }
}

#[tokio::test]
async fn an_answer_above_the_limit_is_not_read() {
    let client = client(|_| reply(200, "0123456789"));
    let request = Request::get("/x");
    assert_eq!(
        request
            .clone()
            .body_limit(10)
            .send(&client)
            .await
            .unwrap()
            .body,
        "0123456789"
    );
    let error = request.body_limit(9).send(&client).await.unwrap_err();
    assert!(
        matches!(error, RequestError::TooLarge { limit: 9 }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_includes_the_body() {
    let client = client(|_| {
        use http_body_util::BodyExt;
        let start = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from("{")))]);
        let endless = start.chain(futures::stream::pending());
        http::Response::new(BodyExt::boxed(StreamBody::new(endless)))
    });
    let limit = Duration::from_secs(5);
    let error = Request::get("/x")
        .timeout(limit)
        .send(&client)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RequestError::Timeout(have) if have == limit),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_connection_is_no_answer() {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("refused"))
    });
    let error = Request::get("/x")
        .send(&Client::new(service, "default"))
        .await
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Connection);
    assert!(error.class().is_transient());
}

#[tokio::test]
async fn requests_carry_what_their_kind_says() {
    let client = client(|request| {
        let content_type = request.headers().get("content-type").cloned();
        let accept = request.headers()["accept"].to_str().unwrap().to_owned();
        let content_type = content_type.map(|v| v.to_str().unwrap().to_owned());
        reply(
            200,
            &format!(
                "{} {} {content_type:?} {accept}",
                request.method(),
                request.uri()
            ),
        )
    });
    let said = async |request: Request| {
        String::from_utf8(request.send(&client).await.unwrap().body.to_vec()).unwrap()
    };
    assert_eq!(
        said(Request::list("/api/v1/pods", 500, Some("a+/="))).await,
        "GET /api/v1/pods?limit=500&continue=a%2B%2F%3D None application/json"
    );
    assert_eq!(
        said(Request::patch("/p", PatchKind::Merge, "{}").accept(METADATA_ONLY)).await,
        format!("PATCH /p Some(\"application/merge-patch+json\") {METADATA_ONLY}")
    );
    assert_eq!(
        said(Request::delete("/p", "{}")).await,
        "DELETE /p Some(\"application/json\") application/json"
    );
}

#[rstest]
#[case("/api/v1/pods/a?b")]
#[case("/api/v1/pods/../secrets")]
#[case("/api/v1/pods/a b")]
#[case("/api/v1/pods/%2e")]
#[tokio::test]
async fn a_name_cannot_address_another_path(#[case] path: &'static str) {
    let client = client(|_| reply(200, ""));
    let error = Request::get(path).send(&client).await.unwrap_err();
    assert!(matches!(error, RequestError::Build(_)), "{error}");
}

#[test]
fn a_media_type_has_no_parameters() {
    assert_eq!(
        media_type("application/json; charset=utf-8"),
        "application/json"
    );
    assert_eq!(media_type(""), "");
}
