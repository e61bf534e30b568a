//! `/livez` and `/readyz` with stuck controllers and a stuck leader election.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use belayer_core::client;
use belayer_core::election::{self, Elector, Timing};
use belayer_core::informer::{Decoders, Informer, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_metrics::Exporter;
use http_body_util::{BodyExt as _, Full};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::*;
use belayer_controller::context::Seen;

use crate::health::Needed;
use crate::server::public_routes;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server that never responds.
fn silent() -> kube::Client {
    client::in_process(
        tower::service_fn(|_: http::Request<kube::client::Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(http::Response::new(Full::new(bytes::Bytes::new())))
        }),
        belayer_holds::names::USER_AGENT,
    )
}

fn elector() -> Elector {
    let settings = election::Settings {
        field_manager: belayer_holds::names::FIELD_MANAGER,
        lease: ObjectKey::new("ops", "belayer"),
        identity: "me".to_owned(),
        timing: Timing::default(),
    };
    Elector::new(silent(), settings).0
}

fn informer_of_pods() -> (Informer<Pod>, Seen) {
    informer_by(silent())
}

fn informer_by(client: kube::Client) -> (Informer<Pod>, Seen) {
    let pods = Resource::new("", "v1", "Pod", "pods");
    let decoders = Decoders::new(JsonDecoder::new(DecodeContext::default()));
    let (informer, store) = Informer::<Pod>::builder(client, pods, decoders).build();
    let seen = Seen::new("pods", &store);
    (informer, seen)
}

fn current(elector: Option<ElectorHealth>, vitals: Vitals) -> Arc<Current> {
    let current = Current::new(elector);
    current.set(OperatorParts {
        vitals: Arc::new(vitals),
        holds: Arc::new(|| Value::Null),
    });
    Arc::new(current)
}

/// Status and body of the response.
async fn ask(current: &Arc<Current>, path: &str) -> (u16, String) {
    let (_, exporter) = Exporter::detached().unwrap();
    let routes = public_routes(Arc::<Current>::clone(current), Arc::new(exporter), None);
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let answer = routes.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn wedged(what: &str) -> (u16, String) {
    (500, format!("wedged: {what}\n"))
}

fn ok() -> (u16, String) {
    (200, "ok\n".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_stuck_elector_is_named() {
    let elector = elector();
    let current = current(Some(elector.health()), Vitals::default());
    assert_eq!(ask(&current, "/livez").await, ok());
    // Its task does not run: no round ends.
    tokio::time::sleep(seconds(76)).await;
    assert_eq!(ask(&current, "/livez").await, wedged("leader election"));
    assert_eq!(ask(&current, "/readyz").await, ok());
}

#[tokio::test(start_paused = true)]
async fn an_elector_without_a_responding_server_is_not_stuck() {
    let elector = elector();
    let current = current(Some(elector.health()), Vitals::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(elector.run(stop.clone()));
    for _ in 0..60 {
        tokio::time::sleep(seconds(60)).await;
        assert_eq!(ask(&current, "/livez").await, ok());
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stuck_worker_is_named_by_its_queue() {
    let (busy, idle) = (WorkQueue::new("pods"), WorkQueue::new("claims"));
    let mut vitals = Vitals::default();
    vitals.workers("pods", busy.clone()).are_ready();
    vitals.workers("claims", idle).are_ready();
    let current = current(None, vitals);
    busy.add(ObjectKey::new("shop", "web-0"), Priority::Normal);
    let work = busy.next().await.unwrap();
    tokio::time::sleep(seconds(599)).await;
    assert_eq!(ask(&current, "/livez").await, ok());
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(ask(&current, "/livez").await, wedged("a worker of pods"));
    assert_eq!(ask(&current, "/readyz").await, ok());
    drop(work);
    assert_eq!(ask(&current, "/livez").await, ok());
}

/// An informer must not end before its process: waiting for its store would never end.
#[tokio::test(start_paused = true)]
async fn a_stopped_informer_is_named() {
    let (informer, seen) = informer_of_pods();
    let mut vitals = Vitals::default();
    vitals.informer(seen, Needed::Yes);
    let current = current(None, vitals);
    let stop = CancellationToken::new();
    let running = tokio::spawn(informer.run(stop.clone()));
    tokio::time::sleep(seconds(3_600)).await;
    assert_eq!(ask(&current, "/livez").await, ok());
    let not_ready = (503, "not ready: informer pods\n".to_owned());
    assert_eq!(ask(&current, "/readyz").await, not_ready);
    stop.cancel();
    running.await.unwrap();
    assert_eq!(ask(&current, "/livez").await, wedged("informer pods"));
}

/// How a server without objects answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// Its watches last for a minute.
    Well,
    /// It answers each request with this status.
    Status(u16),
    /// It ends each watch with an error.
    WatchErrors(&'static str),
    /// It forgets the version of a list before the second page.
    ForgetsPages,
}

fn server(answers: &Arc<Mutex<Answers>>) -> kube::Client {
    let answers = Arc::clone(answers);
    client::in_process(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let now = *answers.lock().unwrap();
            let query = request.uri().query().unwrap_or_default().to_owned();
            async move { Ok::<_, Infallible>(answer(now, &query).await) }
        }),
        belayer_holds::names::USER_AGENT,
    )
}

async fn answer(now: Answers, query: &str) -> http::Response<Full<bytes::Bytes>> {
    let is_watch = query.contains("watch=true");
    let code = match now {
        Answers::Status(code) => code,
        // No streaming lists.
        _ if query.contains("sendInitialEvents") => 400,
        Answers::ForgetsPages if query.contains("continue") || is_watch => 410,
        _ => 200,
    };
    let body = match now {
        _ if code != 200 => String::new(),
        Answers::WatchErrors(error) if is_watch => {
            format!("{{\"type\":\"ERROR\",\"object\":{error}}}\n")
        }
        _ if is_watch => {
            tokio::time::sleep(seconds(60)).await;
            String::new()
        }
        Answers::ForgetsPages => {
            r#"{"metadata":{"resourceVersion":"6","continue":"more"},"items":[]}"#.to_owned()
        }
        _ => r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#.to_owned(),
    };
    http::Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap()
}

const ERROR: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}"#;

#[rstest::rstest]
#[case::l3_of_a_server_that_answers_500(Answers::Status(500), Needed::Yes)]
#[case::l3_of_a_server_that_is_overloaded(Answers::Status(429), Needed::Yes)]
#[case::l3_that_the_server_ends_with_an_error(Answers::WatchErrors(ERROR), Needed::Yes)]
#[case::l3_of_a_kind_that_may_not_be_installed(Answers::Status(403), Needed::No)]
#[case::l5_of_a_server_that_forgets_the_versions_of_lists(Answers::ForgetsPages, Needed::Yes)]
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_down_for_two_minutes_is_named(
    #[case] fault: Answers,
    #[case] needed: Needed,
) {
    let answers = Arc::new(Mutex::new(Answers::Well));
    let (informer, seen) = informer_by(server(&answers));
    let mut vitals = Vitals::default();
    vitals.informer(seen, needed);
    let current = current(None, vitals);
    let running = tokio::spawn(informer.run(CancellationToken::new()));
    tokio::time::sleep(seconds(3_600)).await;
    assert_eq!(ask(&current, "/readyz").await, ok());
    *answers.lock().unwrap() = fault;
    // It is noticed when the present watch ends.
    tokio::time::sleep(seconds(110)).await;
    assert_eq!(ask(&current, "/readyz").await, ok());
    tokio::time::sleep(seconds(180)).await;
    let down = "not ready: watch of pods, down for 2 minutes\n";
    for _ in 0..20 {
        tokio::time::sleep(seconds(33)).await;
        assert_eq!(ask(&current, "/readyz").await, (503, down.to_owned()));
        assert_eq!(
            ask(&current, "/livez").await,
            ok(),
            "a restart helps nothing"
        );
    }
    *answers.lock().unwrap() = Answers::Well;
    tokio::time::sleep(seconds(120)).await;
    assert_eq!(ask(&current, "/readyz").await, ok());
    running.abort();
}

#[rstest::rstest]
#[case::needed(Needed::Yes, (503, "not ready: informer pods\n".to_owned()))]
#[case::not_needed(Needed::No, ok())]
#[tokio::test(start_paused = true)]
async fn l3_a_kind_that_was_never_listed_is_not_down(
    #[case] needed: Needed,
    #[case] expected: (u16, String),
) {
    let (informer, seen) = informer_by(server(&Arc::new(Mutex::new(Answers::Status(403)))));
    let mut vitals = Vitals::default();
    vitals.informer(seen, needed);
    let current = current(None, vitals);
    let running = tokio::spawn(informer.run(CancellationToken::new()));
    tokio::time::sleep(seconds(3_600)).await;
    assert_eq!(ask(&current, "/readyz").await, expected);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn everything_stuck_is_named() {
    let elector = elector();
    let (informer, seen) = informer_of_pods();
    let mut vitals = Vitals::default();
    vitals.informer(seen, Needed::Yes);
    let queue = WorkQueue::new("pods");
    vitals.workers("pods", queue.clone()).are_ready();
    let current = current(Some(elector.health()), vitals);
    queue.add(ObjectKey::new("shop", "web-0"), Priority::Normal);
    let _work = queue.next().await.unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    informer.run(stop).await;
    tokio::time::sleep(seconds(601)).await;
    let (status, body) = ask(&current, "/livez").await;
    assert_eq!(status, 500);
    assert_eq!(
        body.lines().collect::<Vec<_>>(),
        [
            "wedged: a worker of pods",
            "wedged: informer pods",
            "wedged: leader election",
        ]
    );
}
