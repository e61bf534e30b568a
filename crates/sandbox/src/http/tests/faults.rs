//! Faults as clients see them.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use rstest::rstest;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::{Answer, Fault, Match, Verb, WatchEnd};

fn label() -> serde_json::Value {
    json!({"metadata": {"labels": {"a": "b"}}})
}

#[rstest]
#[case(Answer::conflict(), 409, "Conflict")]
#[case(Answer::gone(), 410, "Expired")]
#[case(Answer::invalid("denied by policy"), 422, "Invalid")]
#[case(Answer::forbidden("denied by policy"), 403, "Forbidden")]
#[case(
    Answer::too_many_requests(Duration::from_secs(7)),
    429,
    "TooManyRequests"
)]
#[case(Answer::internal_error(), 500, "InternalError")]
#[case(Answer::service_unavailable(), 503, "ServiceUnavailable")]
#[case(Answer::timeout(), 504, "Timeout")]
#[tokio::test]
async fn an_answer_replaces_the_servers_as_often_as_configured(
    #[case] answer: Answer,
    #[case] code: u16,
    #[case] why: &str,
) {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let matching = Match::verb(Verb::Patch)
        .resource("configmaps")
        .client("tester");
    let fault = api
        .sandbox
        .faults()
        .inject(Fault::on(matching).times(2).answer(answer));
    let path = format!("{CONFIGMAPS}/a");
    for _ in 0..2 {
        let (status, body) = api.merge(&path, label()).await;
        assert_eq!((status, reason(&body)), (code, why));
    }
    assert_eq!(api.get(&path).await.1["metadata"].get("labels"), None);
    assert_eq!(api.merge(&path, label()).await.0, 200);
    assert_eq!(fault.hits(), 2);
    assert_eq!(
        api.sandbox
            .recorder()
            .requests("tester", Verb::Patch, "configmaps"),
        3
    );
}

#[tokio::test]
async fn retry_after_is_a_header_too() {
    let api = Api::new();
    let answer = Answer::too_many_requests(Duration::from_secs(7));
    api.sandbox
        .faults()
        .inject(Fault::on(Match::any()).answer(answer));
    let request = Request::builder()
        .uri(CONFIGMAPS)
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = api.service.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["retry-after"], "7");
}

#[rstest]
#[case(Fault::on(Match::any()).nth(2), [true, false, true, true])]
#[case(Fault::on(Match::any()).every(2), [false, true, false, true])]
#[case(Fault::on(Match::any()).after(2), [true, true, false, false])]
#[case(Fault::on(Match::any()).probability(0.0), [true, true, true, true])]
#[case(Fault::on(Match::any().client("other")), [true, true, true, true])]
#[case(Fault::on(Match::any().name("none")), [true, true, true, true])]
#[tokio::test]
async fn a_fault_chooses_among_the_requests(#[case] fault: Fault, #[case] wanted: [bool; 4]) {
    let api = Api::new();
    let fault = api
        .sandbox
        .faults()
        .inject(fault.answer(Answer::internal_error()));
    let mut passed = [false; 4];
    for pass in &mut passed {
        *pass = api.get(CONFIGMAPS).await.0 == 200;
    }
    assert_eq!(passed, wanted);
    fault.remove();
    assert_eq!(api.get(CONFIGMAPS).await.0, 200);
}

async fn breaks(api: &Api, method: &str, path: &str, body: &serde_json::Value) -> bool {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", MERGE);
    let request = request
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    api.service.clone().oneshot(request).await.is_err()
}

#[tokio::test]
async fn a_connection_can_be_lost_before_or_after_the_write() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let faults = api.sandbox.faults();
    faults.inject(Fault::on(Match::writes()).times(1).lose_request());
    assert!(breaks(&api, "PATCH", &path, &label()).await);
    assert!(api.get(&path).await.1["metadata"].get("labels").is_none());
    faults.inject(Fault::on(Match::writes()).times(1).lose_answer());
    assert!(breaks(&api, "PATCH", &path, &label()).await);
    assert_eq!(api.get(&path).await.1["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_handled_long_after_its_client_has_given_it_up() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let late = Fault::on(Match::writes()).handle_late(Duration::from_secs(30));
    let late = api.sandbox.faults().inject(late.times(1));
    assert!(breaks(&api, "PATCH", &path, &label()).await);
    late.remove();
    for (waits, expected) in [(29, None), (2, Some("b"))] {
        tokio::time::sleep(Duration::from_secs(waits)).await;
        let labels = &api.get(&path).await.1["metadata"]["labels"];
        assert_eq!(labels["a"].as_str(), expected);
    }
    let writes = api.sandbox.recorder().writes();
    let is_late = writes.iter().map(|write| write.actor.is_late());
    assert_eq!(is_late.rev().take(2).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn requests_can_be_delayed_and_can_hang() {
    let api = Api::new();
    let start = tokio::time::Instant::now();
    let slow = Fault::on(Match::any())
        .times(1)
        .delay(Duration::from_secs(3));
    api.sandbox.faults().inject(slow);
    assert_eq!(api.get(CONFIGMAPS).await.0, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    let hang = api.sandbox.faults().inject(Fault::on(Match::any()).hang());
    let waited = tokio::time::timeout(Duration::from_secs(60), api.get(CONFIGMAPS)).await;
    assert!(waited.is_err());
    hang.remove();
    assert_eq!(api.get(CONFIGMAPS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_cut_off_refuses_connections_and_breaks_watches() {
    let api = Api::new();
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    api.sandbox.faults().cut_off();
    assert!(events.next().await.is_err());
    assert!(breaks(&api, "GET", CONFIGMAPS, &json!({})).await);
    api.sandbox.faults().restore();
    assert_eq!(api.get(CONFIGMAPS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn running_watches_can_be_ended_in_every_way() {
    let api = Api::new();
    let all = Match::watches().resource("configmaps");
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    assert_eq!(api.sandbox.faults().end_watches(&all, WatchEnd::Close), 1);
    assert_eq!(events.next().await, Ok(None));
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    api.sandbox.faults().end_watches(&all, WatchEnd::Break);
    assert!(events.next().await.is_err());
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    api.sandbox.faults().end_watches(&all, WatchEnd::Expired);
    assert_eq!(events.rest().await, ["ERROR -"]);
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    api.sandbox.faults().end_watches(&all, WatchEnd::Garbage);
    assert!(events.next().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_planned_to_break_after_some_events() {
    let api = Api::new();
    let plan = Fault::on(Match::watches())
        .times(1)
        .end_watch_after(2, WatchEnd::Break);
    api.sandbox.faults().inject(plan);
    for name in ["a", "b", "c"] {
        api.make(CONFIGMAPS, configmap(name)).await;
    }
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    assert_eq!(events.take(2).await, ["ADDED a", "ADDED b"]);
    assert!(events.next().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn each_event_is_delayed_from_its_own_time() {
    let api = Api::new();
    let slow = Fault::on(Match::watches()).delay_events(Duration::from_secs(10));
    api.sandbox.faults().inject(slow);
    let from = api.sandbox.cluster().version();
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=30&resourceVersion={from}");
    let mut events = api.watch(&path).await;
    api.make(CONFIGMAPS, configmap("a")).await;
    api.make(CONFIGMAPS, configmap("b")).await;
    let start = tokio::time::Instant::now();
    assert_eq!(events.take(2).await, ["ADDED a", "ADDED b"]);
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn hidden_events_are_never_seen_and_later_ones_are() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    let hidden = Fault::on(Match::watches()).hide(Match::any().name("a"));
    let hidden = api.sandbox.faults().inject(hidden);
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=5&resourceVersion={from}");
    let mut events = api.watch(&path).await;
    api.make(CONFIGMAPS, configmap("a")).await;
    api.delete(&format!("{CONFIGMAPS}/a"), json!({})).await;
    api.make(CONFIGMAPS, configmap("a")).await;
    api.make(CONFIGMAPS, configmap("b")).await;
    assert_eq!(events.take(1).await, ["ADDED b"]);
    assert_eq!(hidden.hits(), 3);
    hidden.remove();
    api.merge(&format!("{CONFIGMAPS}/a"), label()).await;
    assert_eq!(events.rest().await, ["MODIFIED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_watch_catches_up() {
    let api = Api::new();
    let from = api.sandbox.cluster().version();
    let pause = api
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches()).pause_watches());
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=50&resourceVersion={from}");
    let mut events = api.watch(&path).await;
    api.make(CONFIGMAPS, configmap("a")).await;
    let nothing = tokio::time::timeout(Duration::from_secs(9), events.next()).await;
    assert!(nothing.is_err());
    pause.remove();
    assert_eq!(events.rest().await, ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_server_shows_an_older_state() {
    let api = Api::new();
    api.make(CONFIGMAPS, configmap("old")).await;
    let then = api.sandbox.cluster().version();
    api.delete(&format!("{CONFIGMAPS}/old"), json!({})).await;
    api.make(CONFIGMAPS, configmap("new")).await;
    let stale = api
        .sandbox
        .faults()
        .inject(Fault::on(Match::any()).stale(then));
    assert_eq!(api.get(&format!("{CONFIGMAPS}/old")).await.0, 200);
    let (_, list) = api.get(CONFIGMAPS).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "old");
    assert_eq!(list["metadata"]["resourceVersion"], then.to_string());
    let mut events = api
        .watch(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=60"))
        .await;
    assert_eq!(events.take(1).await, ["ADDED old"]);
    let nothing = tokio::time::timeout(Duration::from_secs(9), events.next()).await;
    assert!(nothing.is_err());
    stale.remove();
    assert_eq!(events.take(2).await, ["DELETED old", "ADDED new"]);
}
