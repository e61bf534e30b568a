//! `/livez` and `/readyz` with stuck controllers and a stuck leader election.

use std::convert::Infallible;
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
    client::in_process(tower::service_fn(
        |_: http::Request<kube::client::Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(http::Response::new(Full::new(bytes::Bytes::new())))
        },
    ))
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
    let pods = Resource::new("", "v1", "Pod", "pods");
    let decoders = Decoders::new(JsonDecoder::new(DecodeContext::default()));
    let (informer, store) = Informer::<Pod>::builder(silent(), pods, decoders).build();
    let seen = Seen::new("pods", &store);
    (informer, seen)
}

fn current(elector: Option<ElectorHealth>, vitals: Vitals) -> Arc<Current> {
    let current = Current::new(elector);
    current.set(Parts {
        vitals: Arc::new(vitals),
        holds: Arc::new(|| Value::Null),
    });
    Arc::new(current)
}

/// Status and body of the response.
async fn ask(current: &Arc<Current>, path: &str) -> (u16, String) {
    let (_, exporter) = Exporter::detached().unwrap();
    let routes = public_routes(Arc::<Current>::clone(current), Arc::new(exporter));
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
