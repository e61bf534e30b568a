//! Rule L2: a server that refuses requests because of overload gets few of them, and nothing is lost.

use std::time::Duration;

use belayer_core::executor::Writes;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_sandbox::{Answer, Fault, Match, Verb};
use tokio::time::Instant;

use crate::world::{BELAYER, World, eventually, let_pass};

/// Releases that are due together.
const DUE: usize = 1_000;

const STORM: Duration = Duration::from_secs(60);

fn refuse(world: &World, verb: Verb, resource: &'static str) {
    let busy = Answer::too_many_requests(Duration::from_secs(1));
    let requests = Match::verb(verb).resource(resource).client(BELAYER);
    world
        .sandbox
        .faults()
        .inject(Fault::on(requests).answer(busy));
}

fn settings() -> Settings {
    Settings {
        backlog_threshold: usize::MAX,
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn l2_a_storm_of_429_costs_at_most_three_requests_for_each_release() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..DUE {
        let name = format!("done-{n}");
        world.held_pod(&name, "build", &uid);
        world.end(&name);
        world.consume(&name);
    }
    refuse(&world, Verb::Patch, "pods");
    let belayer = world.run_with(settings(), Writes::Sent);
    let_pass(STORM).await;
    assert_eq!(world.held_pods(), DUE);
    let during = world.requests(Verb::Patch, "pods");
    // Halved from 64 on, then one a second.
    assert!((40..=190).contains(&during), "{during} in {STORM:?}");
    world.sandbox.faults().clear();
    eventually("all are released", || world.held_pods() == 0).await;
    let all = world.requests(Verb::Patch, "pods");
    assert!(all <= during + DUE as u64, "{all} after {during}");
    belayer.stop().await;
}

/// The paused requests are only those of the class for the resource, and no worker waits for their end: a live read
/// of an owner is sent at once.
#[tokio::test(start_paused = true)]
async fn l2_a_storm_on_releases_delays_no_live_read() {
    let world = World::new();
    let uid = world.workflow("build");
    for n in 0..200 {
        let name = format!("done-{n}");
        world.held_pod(&name, "build", &uid);
        world.end(&name);
        world.consume(&name);
    }
    refuse(&world, Verb::Patch, "pods");
    world.held_pod("orphan", "gone", "gone-uid");
    world.end("orphan");
    let _belayer = world.run_with(settings(), Writes::Sent);
    let before = world.requests(Verb::Get, "workflows.argoproj.io");
    let begun = Instant::now();
    eventually("its owner is read", || {
        world.requests(Verb::Get, "workflows.argoproj.io") > before
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(1));
}
