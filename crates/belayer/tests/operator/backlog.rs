//! Rule L1: thousands of live reads to come stop neither releases, nor holds, nor the live reads of
//! others.

use std::time::Duration;

use belayer::operator::{Components, Operator, Options};
use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_pod_finalizer::profile::config::Settings;
use belayer_sandbox::{Gvr, Verb};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{BELAYER, World, let_pass, options, pod, within};

/// Pods whose owners are gone, each of which takes a live read of its own to know.
const QUESTIONS: usize = 10_000;

/// Starts Belayer within these bounds.
fn run(world: &World, settings: Settings, bounds: Bounds) -> CancellationToken {
    let components = Components {
        pod_finalizer: Some(settings),
        ..Components::default()
    };
    let client = client::in_process(world.sandbox.service(BELAYER));
    let operator = Operator::new(Options {
        writes: Writes::Sent,
        bounds,
        ..options(client, components)
    });
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    stop
}

#[tokio::test(start_paused = true)]
async fn l1_a_backlog_of_live_reads_stops_nobody() {
    let world = World::new();
    world.create_namespace("quiet");
    for n in 0..QUESTIONS {
        let name = format!("orphan-{n}");
        world.held_pod(&name, &name, &format!("gone-{n}"));
    }
    let uid = world.workflow("build");
    for n in 0..30 {
        world.held_pod(&format!("done-{n}"), "build", &uid);
    }
    let settings = Settings {
        // A backlog of this size is what is measured here.
        backlog_threshold: usize::MAX,
        ..Settings::default()
    };
    let _stop = run(&world, settings, Bounds::default()).drop_guard();
    let_pass(Duration::from_secs(10)).await;
    let begun = Instant::now();
    let asked_before = world.requests(Verb::Get, "workflows.argoproj.io");
    assert!(asked_before < 2_000, "{asked_before}: it is no backlog");

    let mut orphan = pod("orphan", "orphan", "gone");
    orphan["metadata"]["namespace"] = json!("quiet");
    orphan["metadata"]["finalizers"] = json!(["belayer.dev/pod-status"]);
    world.create(&Gvr::PODS, Some("quiet"), orphan);
    for n in 0..2_000 {
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    for n in 0..30 {
        let name = format!("done-{n}");
        world.consume(&name);
        within(Duration::from_millis(100), "a release", || {
            !world.is_held(&name)
        })
        .await;
        let_pass(Duration::from_secs(1)).await;
        if n == 5 {
            let quiet = world.cluster().get(&Gvr::PODS, Some("quiet"), "orphan");
            assert!(quiet.is_err(), "one live read waited for all of others");
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let held = (0..2_000).filter(|n| world.is_held(&format!("new-{n}")));
    let held = held.count() as f64;
    assert!(held >= 20.0 * seconds, "{held} holds in {seconds} s");
    let asked = world.requests(Verb::Get, "workflows.argoproj.io") - asked_before;
    let asked = asked as f64;
    // Reads of the gate are some of the half, too.
    assert!(asked >= 49.0 * seconds, "{asked} live reads in {seconds} s");
    assert!(asked + held <= 101.0 * seconds, "{asked} and {held}");
}

/// The only worker has a key that needs a token, and there will be none for a minute.
#[tokio::test(start_paused = true)]
async fn l1_a_key_without_a_token_frees_its_worker() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("done", "build", &uid);
    let settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    let bounds = Bounds {
        qps: 1.0 / 60.0,
        burst: 1,
        ..Bounds::default()
    };
    let stop = run(&world, settings, bounds);
    let_pass(Duration::from_secs(1)).await;
    for n in 0..10 {
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    let_pass(Duration::from_secs(1)).await;
    let held = || {
        (0..10)
            .filter(|n| world.is_held(&format!("new-{n}")))
            .count()
    };
    assert!(held() <= 1);
    world.consume("done");
    within(Duration::from_millis(100), "the release", || {
        !world.is_held("done")
    })
    .await;
    // Those that wait come back with their tokens and lose nothing: a minute each, and whoever else
    // asks gets a share.
    let_pass(Duration::from_secs(3600)).await;
    assert_eq!(held(), 10);
    stop.cancel();
}
