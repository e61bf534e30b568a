//! What the cache does not show yet.

use std::time::Duration;

use belayer_sandbox::{Answer, Fault, FaultHandle, Gvr, Match, Subresource, Verb, WatchEnd};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Fate, YARD, Yard, uid};
use crate::world::BELAYER;

/// These requests of Belayer fail.
fn fails(yard: &Yard, verb: Verb, resource: &'static str) -> FaultHandle {
    let requests = Match::verb(verb).resource(resource).client(BELAYER);
    let faults = yard.world.sandbox.faults();
    faults.inject(Fault::on(requests).answer(Answer::internal_error()))
}

/// Belayer's watch of pods delivers nothing.
fn delay_pods(yard: &Yard) -> FaultHandle {
    let watches = Match::watches().resource("pods").client(BELAYER);
    let faults = yard.world.sandbox.faults();
    faults.inject(Fault::on(watches).pause_watches())
}

/// A pod that may have run was rejected while no Belayer ran. Each process reports that once, if it was not long ago.
#[rstest]
#[case::a_reason_of_the_table("OutOfcpu", 60, 1)]
#[case::a_permanent_reason("SysctlForbidden", 60, 1)]
#[case::another_failure("DeadlineExceeded", 60, 0)]
#[case::long_ago("OutOfcpu", 3_700, 0)]
#[tokio::test(start_paused = true)]
async fn r1_a_pod_that_is_found_rejected_is_reported(
    #[case] reason: &str,
    #[case] age: u64,
    #[case] events: usize,
) {
    let yard = Yard::new();
    yard.pod("web");
    let started = yard.world.cluster().clock().now();
    yard.wait_for(Duration::from_secs(30)).await;
    let status = json!({ "status": { "phase": "Failed", "reason": reason,
        "message": format!("Pod was rejected: {reason}"), "startTime": started.to_string() } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", status, Subresource::Status);
    yard.wait_for(Duration::from_secs(age)).await;
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(7_200)).await;
    assert_eq!(yard.world.events("NotRecreated"), events);
    assert_eq!((yard.applied(&Gvr::PODS), yard.records().len()), (0, 0));
    belayer.stop().await;
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(60)).await;
    assert_eq!(yard.world.events("NotRecreated"), events, "repeated");
    belayer.stop().await;
}

/// The create is refused until the user has written an annotation that the watch delivers late.
#[rstest]
#[case::declines(json!({ "belayer.dev/recreate": "false" }))]
#[case::requests_the_release(json!({ "belayer.dev/release": "true" }))]
#[tokio::test(start_paused = true)]
async fn a_pod_whose_user_stops_its_recreation_stays(#[case] annotations: Value) {
    let yard = Yard::rejecting(1);
    let refused = fails(&yard, Verb::Create, "pods");
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("its rejection is recorded", || yard.phase() == "Rejected")
        .await;
    let late = delay_pods(&yard);
    let patch = json!({ "metadata": { "annotations": annotations } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", patch, Subresource::None);
    refused.remove();
    yard.wait_for(Duration::from_secs(300)).await;
    assert_eq!(yard.phase(), "Rejected");
    late.remove();
    yard.wait("its record ends", || yard.phase() == "Ended")
        .await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}

/// The cache still shows that the pod declines its re-creation; its user has changed that.
#[tokio::test(start_paused = true)]
async fn a_record_does_not_end_because_of_an_older_version_of_its_pod() {
    let yard = Yard::rejecting(1);
    let creates = fails(&yard, Verb::Create, "pods");
    let belayer = yard.run();
    yard.pod("web");
    yard.until("its rejection is recorded", || yard.phase() == "Rejected")
        .await;
    let statuses = fails(&yard, Verb::Patch, "podrecreations");
    let recreate = |value: &str| {
        let patch = json!({ "metadata": { "annotations": { "belayer.dev/recreate": value } } });
        yard.world
            .patch_in(&Gvr::PODS, Some(YARD), "web", patch, Subresource::None);
    };
    recreate("false");
    yard.wait_for(Duration::from_secs(5)).await;
    let late = delay_pods(&yard);
    recreate("true");
    statuses.remove();
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(yard.phase(), "Rejected");
    late.remove();
    creates.remove();
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

/// Its kubelet reports the start after the intent was written, and the record cannot end yet.
#[tokio::test(start_paused = true)]
async fn r5_a_pod_that_ran_after_all_is_held_until_its_record_has_ended() {
    let yard = Yard::rejecting(1);
    let deletes = fails(&yard, Verb::Delete, "pods");
    let belayer = yard.run();
    yard.pod("web");
    yard.until("its deletion is intended", || yard.phase() == "Deleting")
        .await;
    let statuses = fails(&yard, Verb::Patch, "podrecreations");
    yard.report("web", Fate::Runs);
    yard.delete("web");
    yard.wait_for(Duration::from_secs(120)).await;
    let request = json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", request, Subresource::None);
    yard.wait_for(Duration::from_secs(120)).await;
    assert!(yard.is_held("web"));
    statuses.remove();
    deletes.remove();
    yard.wait("it is gone", || yard.find("web").is_none()).await;
    yard.wait_for(Duration::from_secs(300)).await;
    assert_eq!((&*yard.phase(), yard.creates()), ("Ended", 0));
    belayer.stop().await;
}

/// Its pod does not exist, so that no event of a pod enqueues the record.
#[tokio::test(start_paused = true)]
async fn a_record_goes_on_at_once_when_its_crd_is_served_again() {
    let yard = Yard::rejecting(1);
    let faults = yard.world.sandbox.faults();
    // The first create is the server-side dry run.
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let creates = Fault::on(creates).after(1).answer(Answer::internal_error());
    let creates = faults.inject(creates);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("its pod is to be created", || yard.phase() == "Creating")
        .await;
    let kind = || Match::any().resource("podrecreations").client(BELAYER);
    let unserved = faults.inject(Fault::on(kind()).answer(Answer::page_not_found()));
    faults.end_watches(&kind(), WatchEnd::Close);
    yard.wait_for(Duration::from_secs(10)).await;
    creates.remove();
    yard.wait_for(Duration::from_secs(240)).await;
    assert!(yard.find("web").is_none());
    unserved.remove();
    let requests = || {
        let resource = "podrecreations.belayer.dev";
        yard.world.requests(Verb::Watch, resource)
    };
    let before = requests();
    yard.wait("it is served again", || requests() > before)
        .await;
    yard.wait_for(Duration::from_secs(1)).await;
    assert!(yard.find("web").is_some());
    belayer.stop().await;
}
