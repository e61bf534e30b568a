//! The effect of each response of the API server, by an injected fault.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_holds::names::POD_STATUS_HOLD;
use belayer_pod_finalizer::outcome;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_sandbox::{Answer, Fault, Gvr, Match, Outcome, Verb};
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{BELAYER, NAMESPACE, World, eventually, let_pass, pod, within};

mod refused;
mod undecodable;
mod undone;

fn patches() -> Match {
    Match::verb(Verb::Patch).resource("pods").client(BELAYER)
}

/// A held pod that the user has deleted, with Belayer running and settled.
async fn deleted_pod(world: &World) {
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    eventually("the hold", || world.is_held("a")).await;
    world.end("a");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "a");
    let_pass(Duration::from_secs(1)).await;
    assert!(world.is_held("a"), "its result was not read");
}

#[tokio::test(start_paused = true)]
async fn answer_200_releases_with_exactly_one_write() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let before = world.pod_writes().len();
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(world.pod_writes().len(), before + 1);
}

/// The log lines of a hold and its release: the rule by name, times with a unit, and no `Debug` output.
#[tokio::test(start_paused = true)]
async fn log_lines_of_holds_and_releases_are_plain_text() {
    let log = Log::kept_from(tracing::Level::INFO);
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    let lines = log.lines("released");
    assert_eq!(lines.len(), 1, "{}", log.text());
    for says in ["rule=\"consumed\"", "evidence=\"Consumed\"", "took=\"0s\""] {
        assert!(lines[0].contains(says), "{says}: {}", lines[0]);
    }
    assert_eq!(log.lines("hold added").len(), 1);
    for debug in ["Some(", "row=", "0ns"] {
        assert!(log.lines(debug).is_empty(), "{:#?}", log.lines(debug));
    }
}

/// A standby sees the end of the pod long before the evidence exists, and that long before it leads.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_release_does_not_count_that_of_a_standby() {
    let log = Log::kept_from(tracing::Level::INFO);
    let world = World::new();
    let leader = world.run();
    deleted_pod(&world).await;
    let (guard, _standby) = world.standby();
    leader.crash();
    let_pass(Duration::from_secs(3_600)).await;
    world.consume("a");
    let_pass(Duration::from_secs(3_600)).await;
    assert!(world.is_held("a"));
    guard.extend(Instant::now() + Duration::from_secs(600));
    eventually("the release", || world.find("a").is_none()).await;
    let lines = log.lines(" released ");
    assert_eq!(lines.len(), 1, "{}", log.text());
    assert!(lines[0].contains("took=\"0s\""), "{}", lines[0]);
}

#[tokio::test(start_paused = true)]
async fn answer_200_lost_costs_no_second_write() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let fault = world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).times(1).lose_answer());
    let before = world.pod_writes().len();
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    let_pass(Duration::from_secs(400)).await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(world.pod_writes().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn answer_200_lost_on_a_hold_adds_it_once() {
    let world = World::new();
    let _belayer = world.run();
    world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).times(1).lose_answer());
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    eventually("the hold", || world.is_held("a")).await;
    let_pass(Duration::from_secs(400)).await;
    let pod = world.find("a").unwrap();
    assert_eq!(pod["metadata"]["finalizers"], json!([POD_STATUS_HOLD]));
    assert_eq!(world.applied_pod_writes(), 1);
}

/// Temporary errors: the release happens later.
#[rstest]
#[case::answer_409(Fault::on(patches()).times(3).answer(Answer::conflict()))]
#[case::answer_429_without_retry_after(Fault::on(patches()).times(3).answer(Answer::too_many_requests_now()))]
#[case::answer_500(Fault::on(patches()).times(3).answer(Answer::internal_error()))]
#[case::answer_503(Fault::on(patches()).times(3).answer(Answer::service_unavailable()))]
#[case::answer_504(Fault::on(patches()).times(3).answer(Answer::timeout()))]
#[case::connection_lost_before(Fault::on(patches()).times(3).lose_request())]
#[case::hung_connection(Fault::on(patches()).times(1).hang())]
#[tokio::test(start_paused = true)]
async fn passing_errors_are_retried(#[case] fault: Fault) {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let fault = world.sandbox.faults().inject(fault);
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    assert!(fault.hits() > 0, "the fault was never met");
}

/// Others change the pod all the time: no denial, and no long delay.
#[tokio::test(start_paused = true)]
async fn answer_409_storm() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    // During the delay the pod changes.
    let storm = Fault::on(patches()).times(40);
    let storm = storm
        .delay(Duration::from_millis(10))
        .answer(Answer::conflict());
    let storm = world.sandbox.faults().inject(storm);
    let begun = Instant::now();
    world.consume("a");
    for edit in 0.. {
        let_pass(Duration::from_millis(5)).await;
        if world.find("a").is_none() {
            break;
        }
        let hits = storm.hits();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{hits} conflicts"
        );
        let labels = json!({ "metadata": { "labels": { "edit": edit.to_string() } } });
        world.patch(&Gvr::PODS, "a", labels);
    }
    assert_eq!(storm.hits(), 40);
    assert_eq!(world.events("ReleaseDenied"), 0);
}

#[tokio::test(start_paused = true)]
async fn answer_409_is_retried_in_place_five_times() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).times(5).answer(Answer::conflict()));
    let begun = Instant::now();
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    // 2 + 4 + 8 + 16 + 32 ms of jitter at most; a retry by the queue would be counted.
    assert!(
        begun.elapsed() < Duration::from_millis(200),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn answer_429_waits_at_least_retry_after() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let busy = Answer::too_many_requests(Duration::from_secs(7));
    world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).times(1).answer(busy));
    let begun = Instant::now();
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
    assert!(
        begun.elapsed() >= Duration::from_secs(7),
        "{:?}",
        begun.elapsed()
    );
}

fn settings(profile: &Value) -> Settings {
    let config: PodFinalizerConfig =
        serde_json::from_value(json!({ "profiles": [profile] })).unwrap();
    config.try_into().unwrap()
}

/// A pod that is to be deleted once its result was read.
fn create_for_cleanup(world: &World, strategy: &str) {
    let uid = world.workflow("build");
    let mut object = pod("a", "build", &uid);
    object["metadata"]["annotations"] =
        json!({ "workflows.argoproj.io/pod-gc-strategy": strategy });
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
}

/// Every request respects Retry-After.
#[rstest]
#[case::the_read_after_a_conflict(Verb::Get, "pods")]
#[case::the_record_of_an_outcome(Verb::Create, "podoutcomes")]
#[case::the_deletion_of_a_released_pod(Verb::Delete, "pods")]
#[tokio::test(start_paused = true)]
async fn answer_429_is_waited_out_by_every_request(
    #[case] verb: Verb,
    #[case] resource: &'static str,
) {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, outcome::crd());
    // Recording an outcome needs live reads of its own.
    let capture = verb == Verb::Create;
    let profile = json!({ "builtIn": "argo", "capture": capture, "cleanup": "argo" });
    let _belayer = world.run_with(settings(&profile), Writes::Sent);
    create_for_cleanup(&world, "OnPodCompletion/0s");
    eventually("the hold", || world.is_held("a")).await;
    let faults = world.sandbox.faults();
    faults.inject(Fault::on(patches()).times(1).answer(Answer::conflict()));
    let busy = Answer::too_many_requests(Duration::from_secs(7));
    let asked = Match::verb(verb).resource(resource).client(BELAYER);
    let fault = faults.inject(Fault::on(asked).times(1).answer(busy));
    let begun = Instant::now();
    world.end("a");
    world.consume("a");
    eventually("the end", || world.find("a").is_none()).await;
    assert_eq!(fault.hits(), 1);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(7), "{took:?}");
}

#[rstest]
#[case::answer_403(Answer::forbidden("a policy says no"))]
#[case::answer_422(Answer::invalid("a webhook says no"))]
#[tokio::test(start_paused = true)]
async fn denied_releases_are_reported_and_do_not_delay_others(#[case] answer: Answer) {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let uid = world.workflow("other");
    world.pod("b", "other", &uid);
    eventually("the neighbour's hold", || world.is_held("b")).await;
    let fault = world
        .sandbox
        .faults()
        .inject(Fault::on(patches().name("a")).answer(answer));
    let begun = Instant::now();
    world.consume("a");
    world.consume("b");
    eventually("the neighbour's release", || !world.is_held("b")).await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "another pod waited"
    );
    eventually("an Event", || world.events("ReleaseDenied") == 1).await;
    let_pass(Duration::from_secs(120)).await;
    assert!(
        (2..=5).contains(&fault.hits()),
        "slow: every 30 s or less often, was {}",
        fault.hits()
    );
    assert!(world.is_held("a"));
    fault.remove();
    within(
        Duration::from_secs(700),
        "the release once it is allowed",
        || world.find("a").is_none(),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn answer_404_is_done() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    // The watch is paused, so that Belayer decides on a deleted pod.
    let paused = world
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches().resource("pods")).pause_watches());
    world.consume("a");
    world.patch(
        &Gvr::PODS,
        "a",
        json!({ "metadata": { "finalizers": null } }),
    );
    paused.remove();
    eventually("the end", || world.find("a").is_none()).await;
    let_pass(Duration::from_secs(60)).await;
    let refused = |write: &&belayer_sandbox::Write| matches!(write.outcome, Outcome::Refused(_));
    assert!(
        world.pod_writes().iter().filter(refused).count() <= 1,
        "no second try"
    );
}

#[tokio::test(start_paused = true)]
async fn a_decision_about_a_pod_never_affects_a_new_pod_of_its_name() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let first = world.find("a").unwrap()["metadata"]["uid"].clone();
    let paused = world
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches().resource("pods")).pause_watches());
    // While the watch is paused, the pod is deleted, and another one of its name is created with the hold.
    world.patch(
        &Gvr::PODS,
        "a",
        json!({ "metadata": { "finalizers": null } }),
    );
    let uid = world.workflow("second");
    world.held_pod("a", "second", &uid);
    // Belayer's cache has the first pod: its workflow is deleted.
    world.delete(&WORKFLOWS, Some(NAMESPACE), "build");
    let_pass(Duration::from_secs(30)).await;
    assert!(
        world.is_held("a"),
        "the second pod lost its hold by the first one's evidence"
    );
    paused.remove();
    let_pass(Duration::from_secs(30)).await;
    assert!(world.is_held("a"));
    assert_ne!(world.find("a").unwrap()["metadata"]["uid"], first);
}

#[tokio::test(start_paused = true)]
async fn answer_410_in_the_watch_is_followed_by_a_list() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    world.cluster().compact(world.cluster().version());
    let gone = belayer_sandbox::WatchEnd::Expired;
    world
        .sandbox
        .faults()
        .end_watches(&Match::watches().client(BELAYER), gone);
    world.consume("a");
    eventually("the release", || world.find("a").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_keep_their_order_under_concurrent_writes() {
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    let mut object = crate::world::pod("a", "build", &uid);
    object["metadata"]["finalizers"] = json!(["z.example/last", "a.example/first"]);
    world.create(&Gvr::PODS, Some(NAMESPACE), object);
    for edit in 0..50 {
        let labels = json!({ "metadata": { "labels": { "edit": edit.to_string() } } });
        world.patch(&Gvr::PODS, "a", labels);
        if edit == 25 {
            world.consume("a");
        }
        let_pass(Duration::from_millis(edit % 7)).await;
    }
    eventually("settled without our hold", || !world.is_held("a")).await;
    let pod = world.find("a").unwrap();
    assert_eq!(
        pod["metadata"]["finalizers"],
        json!(["z.example/last", "a.example/first"])
    );
    for write in world
        .pod_writes()
        .iter()
        .filter(|write| write.outcome == Outcome::Applied)
    {
        let finalizers = write.object.as_ref().unwrap()["metadata"]["finalizers"].clone();
        let others: Vec<_> = finalizers
            .as_array()
            .unwrap()
            .iter()
            .filter(|f| *f != POD_STATUS_HOLD)
            .cloned()
            .collect();
        assert_eq!(others, ["z.example/last", "a.example/first"]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_second_decision_on_a_cache_without_belayers_own_write() {
    let world = World::new();
    let _belayer = world.run();
    let uid = world.workflow("build");
    let_pass(Duration::from_secs(1)).await;
    let slow = Fault::on(patches()).delay(Duration::from_millis(500));
    let slow = world.sandbox.faults().inject(slow);
    world.pod("a", "build", &uid);
    let_pass(Duration::from_millis(200)).await;
    // The write of the hold is in flight; its event is withheld.
    let watches = Match::watches().resource("pods").client(BELAYER);
    let paused = world
        .sandbox
        .faults()
        .inject(Fault::on(watches).pause_watches());
    eventually("the hold", || world.is_held("a")).await;
    slow.remove();
    let touch = json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "false" } } });
    world.patch(&WORKFLOWS, "build", touch);
    let_pass(Duration::from_secs(5)).await;
    assert_eq!(
        world.pod_writes().len(),
        1,
        "decided again on a cache without Belayer's own write"
    );
    paused.remove();
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(world.pod_writes().len(), 1);
}

/// An admission webhook for records whose backend is down.
#[tokio::test(start_paused = true)]
async fn row_07_errors_of_the_server_do_not_stop_the_rules_below_for_ever() {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, outcome::crd());
    let config: PodFinalizerConfig = serde_json::from_value(json!({ "profiles": [{
        "builtIn": "argo", "capture": true,
    }] }))
    .unwrap();
    let records = Match::verb(Verb::Create)
        .resource("podoutcomes")
        .client(BELAYER);
    let webhook = world
        .sandbox
        .faults()
        .inject(Fault::on(records).answer(Answer::internal_error()));
    let _belayer = world.run_with(config.try_into().unwrap(), Writes::Sent);
    deleted_pod(&world).await;
    world.consume("a");
    within(Duration::from_secs(75), "the release", || {
        world.find("a").is_none()
    })
    .await;
    assert!(webhook.hits() > 1);
    assert!(world.events("OutcomeNotRecorded") > 0);
}

/// The deletions of the workflows cause no event then.
#[tokio::test(start_paused = true)]
async fn the_crd_of_workflows_goes_while_their_watch_is_down() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    world.delete_kind_unseen("workflows", "argoproj.io").await;
    assert!(
        world.is_held("a"),
        "the last answer says that its workflow exists"
    );
    within(Duration::from_secs(60), "the release", || {
        world.find("a").is_none()
    })
    .await;
}
