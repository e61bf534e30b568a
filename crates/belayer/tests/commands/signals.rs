//! What SIGTERM and SIGHUP do.

use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use crate::check::manifests;
use crate::watch::Watching;
use crate::world::{World, gates};

/// Nothing may end the leader but SIGTERM and SIGINT: otherwise the Lease is not handed over.
#[tokio::test(flavor = "multi_thread")]
async fn run_ignores_sighup_if_it_does_not_reload() {
    let world = World::new().await;
    let mut running = Watching::start(world.command(&[
        "run",
        "--feature-gates=ConfigReload=false",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        "--debug-bind-address=0",
    ]));
    running.reports("starting").await;
    running.signal(Signal::HUP);
    let says = "ignoring SIGHUP: the feature gate ConfigReload is off";
    running.reports(says).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ends().await, 0);
}

#[rstest]
#[case::after_sigterm(Signal::TERM, 143)]
#[case::after_ctrl_c(Signal::INT, 130)]
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_drain_says_that_belayer_is_in_draining_mode(
    #[case] signal: Signal,
    #[case] code: i32,
) {
    let world = World::new().await;
    manifests(&world, &["namespace"]);
    world.gate("belayer-system", &json!({ "mode": "normal", "hold": "on" }));
    let mut draining = Watching::start(world.command(&["drain"]));
    draining.reports("set mode to draining").await;
    draining.signal(signal);
    assert_eq!(draining.ends().await, code);
    draining
        .reports("interrupted: Belayer stays in draining mode; run `belayer drain` again")
        .await;
    let cluster = world.sandbox.cluster();
    let gate = cluster.get(&gates(), Some("belayer-system"), "belayer-gate");
    assert_eq!(gate.unwrap()["data"]["mode"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_is_a_clean_end_of_the_status_page() {
    let world = World::new().await;
    let arguments = ["status", "--serve=127.0.0.1:0"];
    let mut running = Watching::start(world.command(&arguments));
    running.reports("The status page is at").await;
    running.signal(Signal::TERM);
    assert_eq!(running.ends().await, 0);
}
