use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::{Gvr, Sandbox, WriteOptions};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn create(sandbox: &Sandbox, gvr: &Gvr, name: &str) {
    let object =
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let options = WriteOptions::default();
    let made = sandbox
        .cluster()
        .create(&"user".into(), gvr, Some("default"), object, &options);
    made.unwrap();
}

/// The status of a GET, or 0 if the connection broke.
async fn get(sandbox: &Sandbox, client: &str, path: &str) -> u16 {
    let request = Request::get(path).body(Full::<bytes::Bytes>::default());
    let answer = sandbox.service(client).oneshot(request.unwrap()).await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

/// What a watch shows within a time, as `TYPE name`, each with the second of its arrival; and whether it broke.
async fn watch(sandbox: &Sandbox, client: &str, path: &str, time: Duration) -> (Vec<String>, bool) {
    let request = Request::get(path).body(Full::<bytes::Bytes>::default());
    let answer = sandbox.service(client).oneshot(request.unwrap()).await;
    let mut body = answer.unwrap().into_body();
    let (mut seen, start) = (Vec::new(), tokio::time::Instant::now());
    loop {
        let frame = match tokio::time::timeout_at(start + time, body.frame()).await {
            Err(_) | Ok(None) => return (seen, false),
            Ok(Some(Err(_))) => return (seen, true),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap(),
        };
        let at = start.elapsed().as_secs();
        for line in String::from_utf8(frame.to_vec()).unwrap().lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
            seen.push(format!("{at} {} {name}", event["type"].as_str().unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_can_name_a_kind() {
    let sandbox = Sandbox::builder().seed(1).build();
    let fault = Fault::on(Match::any().kind("ConfigMap")).answer(Answer::timeout());
    sandbox.faults().inject(fault);
    assert_eq!(get(&sandbox, "a", MAPS).await, 504);
    assert_eq!(get(&sandbox, "a", "/api/v1/pods").await, 200);
}

#[tokio::test]
async fn a_fault_of_a_program_concerns_all_its_instances() {
    let sandbox = Sandbox::builder().build();
    for client in ["belayer", "kubelet/a"] {
        let fault = Fault::on(Match::any().client(client)).answer(Answer::timeout());
        sandbox.faults().inject(fault);
    }
    for (client, expected) in [
        ("belayer", 504),
        ("belayer/1", 504),
        ("belayer-election/1", 200),
        ("kubelet/a", 504),
        ("kubelet/b", 200),
    ] {
        assert_eq!(get(&sandbox, client, MAPS).await, expected, "{client}");
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_reorders_events_of_two_kinds_but_not_of_one() {
    let mut crossed = 0;
    for seed in 0..20 {
        let sandbox = Sandbox::builder().seed(seed).build();
        let jitter = Fault::on(Match::watches()).jitter_events(secs(60));
        sandbox.faults().inject(jitter);
        let from = sandbox.cluster().version();
        let path = |kind: &str| format!("/api/v1/{kind}?watch=1&resourceVersion={from}");
        let (maps, pods) = (path("configmaps"), path("pods"));
        let both = async {
            tokio::join!(
                watch(&sandbox, "a", &maps, secs(200)),
                watch(&sandbox, "a", &pods, secs(200)),
            )
        };
        let writes = async {
            tokio::task::yield_now().await;
            create(&sandbox, &Gvr::CONFIGMAPS, "1");
            create(&sandbox, &Gvr::PODS, "2");
            create(&sandbox, &Gvr::CONFIGMAPS, "3");
        };
        let (((maps, _), (pods, _)), ()) = tokio::join!(both, writes);
        let names: Vec<&str> = maps
            .iter()
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert_eq!(names, ["1", "3"]);
        let second = |line: &String| line.split(' ').next().unwrap().parse::<u64>().unwrap();
        crossed += u32::from(second(&pods[0]) < second(&maps[0]));
    }
    assert!((1..20).contains(&crossed), "{crossed} of 20");
}

#[tokio::test(start_paused = true)]
async fn events_between_two_versions_can_be_hidden() {
    let sandbox = Sandbox::builder().seed(1).build();
    let from = sandbox.cluster().version();
    // a at from+1, b at from+2, c at from+3.
    let hide = Fault::on(Match::watches()).hide_versions(Match::any(), from + 1..from + 3);
    let hide = sandbox.faults().inject(hide);
    for name in ["a", "b", "c"] {
        create(&sandbox, &Gvr::CONFIGMAPS, name);
    }
    let path = format!("{MAPS}?watch=1&resourceVersion={from}");
    let (seen, _) = watch(&sandbox, "a", &path, secs(5)).await;
    assert_eq!(seen, ["0 ADDED c"]);
    assert_eq!(hide.hits(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_paused_until_a_version() {
    let sandbox = Sandbox::builder().seed(1).build();
    let from = sandbox.cluster().version();
    let pause = Fault::on(Match::watches()).pause_watches_until(from + 2);
    sandbox.faults().inject(pause);
    let path = format!("{MAPS}?watch=1&resourceVersion={from}");
    let writes = async {
        create(&sandbox, &Gvr::CONFIGMAPS, "a");
        tokio::time::sleep(secs(7)).await;
        create(&sandbox, &Gvr::CONFIGMAPS, "b");
    };
    let ((seen, _), ()) = tokio::join!(watch(&sandbox, "a", &path, secs(20)), writes);
    assert_eq!(seen, ["7 ADDED a", "7 ADDED b"]);
}

/// Time travel: a client whose watch breaks reconnects to a server that lags behind.
#[tokio::test(start_paused = true)]
async fn a_client_can_reconnect_to_a_server_with_an_older_state() {
    let sandbox = Sandbox::builder().seed(1).build();
    create(&sandbox, &Gvr::CONFIGMAPS, "old");
    let then = sandbox.cluster().version();
    create(&sandbox, &Gvr::CONFIGMAPS, "new");
    let path = format!("{MAPS}?watch=1");
    let travel = async {
        tokio::time::sleep(secs(3)).await;
        sandbox
            .faults()
            .time_travel(Match::any().client("traveller"), then)
    };
    let ((seen, broke), travel) =
        tokio::join!(watch(&sandbox, "traveller", &path, secs(60)), travel);
    assert_eq!((seen.len(), broke), (2, true));
    assert_eq!(
        get(&sandbox, "traveller", &format!("{MAPS}/new")).await,
        404
    );
    assert_eq!(get(&sandbox, "other", &format!("{MAPS}/new")).await, 200);
    // It resumes from a version that the second server has not reached: no event until that server catches up.
    let newest = sandbox.cluster().version();
    let resumed = format!("{MAPS}?watch=1&resourceVersion={newest}");
    create(&sandbox, &Gvr::CONFIGMAPS, "later");
    let (seen, _) = watch(&sandbox, "traveller", &resumed, secs(30)).await;
    assert!(seen.is_empty(), "{seen:?}");
    travel.remove();
    let (seen, _) = watch(&sandbox, "traveller", &resumed, secs(30)).await;
    assert_eq!(seen, ["0 ADDED later"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_makes_old_watches_expire() {
    let sandbox = Sandbox::builder().seed(1).build();
    let from = sandbox.cluster().version();
    create(&sandbox, &Gvr::CONFIGMAPS, "a");
    sandbox.cluster().compact(sandbox.cluster().version());
    let path = format!("{MAPS}?watch=1&resourceVersion={from}");
    let (seen, _) = watch(&sandbox, "a", &path, secs(5)).await;
    assert_eq!(seen, ["0 ERROR -"]);
}

#[test]
fn the_example_equals_the_documentation_and_parses() {
    let example = include_str!("../../faults.example.yaml");
    let plan: FaultPlan = example.parse().unwrap();
    assert_eq!((plan.faults(), plan.steps()), (8, 5));
    let shown = include_str!("plan.rs")
        .lines()
        .skip_while(|line| *line != "//! ```yaml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//!").trim_start_matches(' '));
    let example: Vec<&str> = example.lines().map(str::trim_start).collect();
    for line in shown {
        assert!(example.contains(&line), "{line}");
    }
}

#[rstest]
#[case::an_unknown_word(
    "faults: [{on: {}, than: hang}]",
    "faults[0].than: unknown field `than`"
)]
#[case::an_unknown_verb(
    "faults: [{on: {verbs: [fetch]}, then: hang}]",
    "faults[0].on.verbs[0]: unknown variant `fetch`"
)]
#[case::an_unknown_code(
    "faults: [{then: {answer: {code: 418}}}]",
    "faults[0].then.answer.code: unsupported code 418"
)]
#[case::no_duration(
    "timeline: [{at: soon, do: compact}]",
    "timeline[0].at: invalid duration \"soon\""
)]
#[case::time_runs_forwards(
    "timeline: [{at: -1s, do: compact}]",
    "timeline[0].at: the duration must not be negative"
)]
#[case::more_than_certain(
    "faults: [{probability: 2, then: hang}]",
    "faults[0].probability: invalid probability 2"
)]
#[case::nothing_happens("faults: [{on: {verbs: [get]}}]", "faults[0]: set `then` or `delay`")]
#[case::nth_and_times(
    "faults: [{nth: 1, times: 2, then: hang}]",
    "faults[0]: `nth` cannot be combined"
)]
#[case::not_yaml("faults: [", "invalid YAML: ")]
fn an_invalid_plan_is_refused(#[case] text: &str, #[case] expected: &str) {
    let said = text.parse::<FaultPlan>().unwrap_err().to_string();
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_plan_of_comments_is_empty() {
    let plan: FaultPlan = "# nothing yet\n".parse().unwrap();
    assert_eq!((plan.faults(), plan.steps()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_carried_out() {
    let sandbox = Sandbox::builder().seed(1).build();
    let plan: FaultPlan = "
faults:
- on: {resource: configmaps}
  nth: 2
  then: {answer: {code: 429, retryAfter: 3s}}
- on: {path: /version}
  then: loseRequest
timeline:
- {at: 20s, do: {cutOff: 5s}}
- {at: 10s, do: {clockSkew: -10m}}
- {at: 30s, do: compact}
- {at: 40s, do: {timeTravel: {versionsBack: 1, lasting: 5s}}}
- {at: 50s, do: {endWatches: {how: close}}}
"
    .parse()
    .unwrap();
    let faults = sandbox.follow(&plan);
    assert_eq!(get(&sandbox, "a", MAPS).await, 200);
    assert_eq!(get(&sandbox, "a", MAPS).await, 429);
    assert_eq!(get(&sandbox, "a", "/version").await, 0);
    assert_eq!((faults[0].hits(), faults[1].hits()), (1, 1));
    let start = sandbox.cluster().clock().now();
    tokio::time::sleep(secs(11)).await;
    let skew = sandbox.cluster().clock().now().duration_since(start);
    assert_eq!(skew, SignedDuration::from_secs(11 - 600));
    tokio::time::sleep(secs(10)).await;
    assert_eq!(get(&sandbox, "a", MAPS).await, 0);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(get(&sandbox, "a", MAPS).await, 200);
    tokio::time::sleep(secs(5)).await;
    create(&sandbox, &Gvr::CONFIGMAPS, "new");
    assert_eq!(get(&sandbox, "a", &format!("{MAPS}/new")).await, 200);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(get(&sandbox, "a", &format!("{MAPS}/new")).await, 404);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(get(&sandbox, "a", &format!("{MAPS}/new")).await, 200);
    let newest = sandbox.cluster().version();
    let path = format!("{MAPS}?watch=1&resourceVersion={newest}");
    let (_, broke) = watch(&sandbox, "a", &path, secs(60)).await;
    assert!(!broke);
}

#[rstest]
#[case::without_a_group("leases", 503)]
#[case::with_its_group("leases.coordination.k8s.io", 503)]
#[case::with_another_group("leases.example.com", 404)]
#[tokio::test]
async fn a_resource_is_named_with_or_without_its_group(#[case] named: &str, #[case] code: u16) {
    let sandbox = Sandbox::builder().build();
    let faults = sandbox.faults();
    let on: Match = serde_json::from_value(json!({ "resource": named })).unwrap();
    assert_eq!(on, Match::any().resource(named));
    faults.inject(Fault::on(on).answer(Answer::service_unavailable()));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/none";
    assert_eq!(get(&sandbox, "one", lease).await, code);
}
