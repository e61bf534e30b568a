//! A kube-rs controller runs unchanged against the sandbox.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]
#![cfg(all(feature = "client", feature = "serve"))]

use std::time::Duration;

use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb, WatchEnd, WriteFilter};

#[path = "../examples/controller.rs"]
mod controller;

#[tokio::test(start_paused = true)]
async fn a_kube_rs_controller_with_watcher_and_finalizer_runs_from_start_to_end() {
    let sandbox = Sandbox::builder().seed(1).build();
    controller::story(&sandbox).await.unwrap();
    let patches = WriteFilter::any()
        .by("client")
        .verb(Verb::Patch)
        .resource("configmaps");
    // The finalizer is added and removed.
    sandbox.recorder().assert_count(&patches.applied(), 2);
}

/// Lost watches, an expired version and refused writes only slow it down.
#[tokio::test(start_paused = true)]
async fn it_also_runs_through_faults() {
    let sandbox = Sandbox::builder().seed(2).build();
    let faults = sandbox.faults();
    faults.inject(
        Fault::on(Match::watches())
            .times(2)
            .end_watch_after(0, WatchEnd::Expired),
    );
    faults.inject(
        Fault::on(Match::verb(Verb::List))
            .nth(1)
            .answer(Answer::service_unavailable()),
    );
    let slow = Answer::too_many_requests(Duration::from_secs(1));
    faults.inject(Fault::on(Match::verb(Verb::Patch)).nth(1).answer(slow));
    faults.inject(
        Fault::on(Match::verb(Verb::Patch))
            .nth(2)
            .answer(Answer::conflict()),
    );
    controller::story(&sandbox).await.unwrap();
}
