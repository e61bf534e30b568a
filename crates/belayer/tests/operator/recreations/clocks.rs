//! L9: the clock of the leader that wrote a record differs from that of the next one, or the clock jumps.

use belayer_sandbox::{Actor, Answer, Fault, Match, WriteOptions};
use jiff::SignedDuration;
use rstest::rstest;

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const NONE: SignedDuration = SignedDuration::ZERO;

impl Yard {
    /// From now on the clock of Belayer differs by so much from that of the API server.
    pub(super) fn jump(&self, by: SignedDuration) -> Simulated {
        let cluster = self.world.cluster().clone();
        simulate(7, move || cluster.clock().now() + by)
    }
}

#[rstest]
#[case::the_leader_was_a_day_ahead(DAY, NONE)]
#[case::the_leader_was_a_day_behind(-DAY, NONE)]
#[case::it_jumps_ahead(NONE, DAY)]
#[case::it_jumps_back(NONE, -DAY)]
#[tokio::test(start_paused = true)]
async fn l9_a_pause_lasts_at_most_as_long_as_configured(
    #[case] before: SignedDuration,
    #[case] after: SignedDuration,
    #[values(false, true)] restarted: bool,
) {
    let yard = Yard::new();
    let _before = yard.jump(before);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    let _after = yard.jump(after);
    let belayer = if restarted {
        belayer.stop().await;
        yard.run()
    } else {
        belayer
    };
    let begun = Instant::now();
    yard.until("it is re-created", || yard.creates() == 1).await;
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    yard.until("it runs", || yard.is_settled("web")).await;
    // The record is kept for an hour.
    yard.wait_for(Duration::from_secs(3_700)).await;
    assert!(yard.records().is_empty(), "the record is kept longer");
    belayer.stop().await;
}

#[rstest]
#[case::it_jumps_ahead(DAY)]
#[case::it_jumps_back(-DAY)]
#[tokio::test(start_paused = true)]
async fn l9_a_jump_gives_up_no_re_creation(#[case] by: SignedDuration) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let denied = Fault::on(creates).answer(Answer::forbidden("exceeded quota"));
    let denied = yard.world.sandbox.faults().inject(denied);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    let _after = yard.jump(by);
    yard.pass(Duration::from_secs(1_800)).await;
    assert_eq!(yard.phase(), "Rejected");
    denied.remove();
    yard.wait("it is re-created", || yard.phase() == "Recreated")
        .await;
    belayer.stop().await;
}

#[rstest]
#[case::it_jumps_back(-DAY)]
#[case::it_jumps_ahead(DAY)]
#[tokio::test(start_paused = true)]
async fn l9_a_denied_pod_is_given_up_after_an_hour(#[case] by: SignedDuration) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let denied = Fault::on(creates).answer(Answer::forbidden("exceeded quota"));
    yard.world.sandbox.faults().inject(denied);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    let _after = yard.jump(by);
    let begun = Instant::now();
    while yard.phase() != "Ended" {
        assert!(
            begun.elapsed() < Duration::from_secs(5_000),
            "{}",
            yard.phase()
        );
        yard.wait_for(Duration::from_secs(10)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(3_500));
    assert_eq!(yard.world.events("NotRecreated"), 1);
    belayer.stop().await;
}

fn text(time: jiff::Timestamp) -> Value {
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Creates the Lease of a node whose clock is this many seconds ahead.
fn create_lease(yard: &Yard, ahead: i64) {
    let now = yard.world.cluster().clock().now();
    let renewed = now + SignedDuration::from_secs(ahead);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "node-1", "namespace": "kube-node-lease" },
        "spec": { "holderIdentity": "node-1", "leaseDurationSeconds": 40,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string() },
    });
    // By the kubelet, so that its entry in managedFields has the time of the API server.
    let kubelet = Actor::new("kubelet");
    let namespace = Some("kube-node-lease");
    let options = WriteOptions::default();
    let leases = yard.world.cluster();
    leases
        .create(&kubelet, &Gvr::LEASES, namespace, lease, &options)
        .unwrap();
}

/// R8: the clock of the node is this many seconds ahead. Its kubelet accepted the pod `ran` seconds before it rejected it,
/// and reported that if it was long before.
#[rstest]
#[case::it_never_ran(90, 1, true)]
#[case::it_ran_and_seems_to_be_rejected_at_once(90, 90, false)]
#[case::a_slow_clock(-60, 1, true)]
#[case::a_clock_slower_than_any_limit(-200, 1, true)]
#[case::it_ran_on_a_node_with_a_slow_clock(-60, 90, false)]
#[case::the_node_does_not_show_its_clock(0, -90, false)]
#[tokio::test(start_paused = true)]
async fn r8_the_clock_of_the_node_is_corrected(
    #[case] ahead: i64,
    #[case] ran: i64,
    #[case] re_created: bool,
) {
    let yard = Yard::new();
    if ahead != 0 {
        create_lease(&yard, ahead);
    }
    reject_after(&yard, ahead, ran, re_created).await;
}

/// R8: an overloaded API server stored the Lease this many seconds after its renewal. The clock of the node is right.
#[rstest]
#[case::it_never_ran(4, 0, true)]
#[case::it_may_have_run(8, 15, false)]
#[tokio::test(start_paused = true)]
async fn r8_a_late_renewal_is_not_a_slow_clock(
    #[case] late: i64,
    #[case] ran: i64,
    #[case] re_created: bool,
) {
    let yard = Yard::new();
    create_lease(&yard, -late);
    reject_after(&yard, 0, ran, re_created).await;
}

/// The kubelet rejects a pod that it accepted `ran` seconds before, by a clock that is `ahead` seconds ahead.
async fn reject_after(yard: &Yard, ahead: i64, ran: i64, re_created: bool) {
    let cluster = yard.world.cluster().clone();
    let now = || cluster.clock().now();
    let seconds = SignedDuration::from_secs;
    let belayer = yard.run();
    yard.pod_on("web", json!({ "nodeName": "node-1" }));
    yard.wait("it is held", || yard.is_held("web")).await;
    let first = uid(&yard.find("web").unwrap());
    let started = now() + seconds(ahead) - seconds(ran);
    let report = |status: serde_json::Value| {
        let status = json!({ "status": status });
        yard.world
            .patch_in(&Gvr::PODS, Some(YARD), "web", status, Subresource::Status);
    };
    if ran > 10 {
        report(json!({ "startTime": text(started) }));
    }
    report(json!({
        "phase": "Failed", "reason": "NodeAffinity", "message": "Pod was rejected: NodeAffinity",
        "startTime": text(started) }));
    if re_created {
        yard.wait("it is re-created", || yard.phase() == "Recreated")
            .await;
    } else {
        yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
            .await;
        yard.wait_for(Duration::from_secs(120)).await;
        assert_eq!(uid(&yard.find("web").unwrap()), first);
        assert_eq!((yard.creates(), yard.records().len()), (0, 0));
        assert!(!yard.is_held("web"));
    }
    belayer.stop().await;
}

/// R8: a re-created pod ran for 90 seconds on a node whose clock is 90 seconds ahead, and was then rejected.
#[tokio::test(start_paused = true)]
async fn r8_the_clock_is_read_before_a_second_rejection_is_recorded() {
    let yard = Yard::new();
    create_lease(&yard, 90);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is re-created", || yard.phase() == "Recreated")
        .await;
    let second = uid(&yard.find("web").unwrap());
    let known = || yard.record()["status"]["podUID"] == second;
    yard.wait("it is recorded", known).await;
    // `until` lets the pod run otherwise.
    yard.bind("web", "node-1");
    let now = yard.world.cluster().clock().now();
    let report = |status: Value| {
        let status = json!({ "status": status });
        yard.world
            .patch_in(&Gvr::PODS, Some(YARD), "web", status, Subresource::Status);
    };
    report(json!({ "startTime": text(now) }));
    report(json!({ "phase": "Failed", "reason": "NodeAffinity",
        "message": "Pod was rejected: NodeAffinity", "startTime": text(now) }));
    yard.wait("it is reported", || yard.phase() == "Ended")
        .await;
    assert_eq!(yard.creates(), 1);
    assert_eq!(uid(&yard.find("web").unwrap()), second);
    belayer.stop().await;
}

/// R8: the leader starts after pods were rejected that may have run, and reads the clock of their node for the first of them.
#[tokio::test(start_paused = true)]
async fn r8_all_rejected_pods_of_a_node_are_decided_once_its_clock_is_read() {
    let yard = Yard::new();
    let names = ["a", "b", "c", "d"];
    let belayer = yard.run();
    for name in names {
        yard.pod_on(name, json!({ "nodeName": "node-1" }));
        yard.wait("it is held", || yard.is_held(name)).await;
    }
    belayer.stop().await;
    let started = yard.world.cluster().clock().now() - SignedDuration::from_secs(60);
    for name in names {
        reject(&yard, name, started);
    }
    let settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    let belayer = yard.run_as(BELAYER, settings);
    yard.wait("they are reported", || {
        yard.world.events("NotRecreated") == 4
    })
    .await;
    yard.wait("they are released", || {
        !names.iter().any(|name| yard.is_held(name))
    })
    .await;
    assert_eq!((yard.creates(), yard.records().len()), (0, 0));
    belayer.stop().await;
}

/// R8: the clock that showed that the pod may have run has to be read again before the hold can be removed.
#[tokio::test(start_paused = true)]
async fn r8_a_pod_whose_release_fails_is_released_although_its_clock_is_old() {
    let yard = Yard::new();
    create_lease(&yard, 90);
    let belayer = yard.run();
    yard.pod_on("web", json!({ "nodeName": "node-1" }));
    yard.wait("it is held", || yard.is_held("web")).await;
    let patches = Match::verb(Verb::Patch).resource("pods").client(BELAYER);
    let failing = Fault::on(patches).answer(Answer::internal_error());
    let failing = yard.world.sandbox.faults().inject(failing);
    let started = yard.world.cluster().clock().now();
    let accepted = json!({ "status": { "startTime": text(started) } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", accepted, Subresource::Status);
    reject(&yard, "web", started);
    yard.wait("its release fails", || failing.hits() > 0).await;
    yard.wait_for(Duration::from_secs(60)).await;
    failing.remove();
    yard.wait("it is released", || !yard.is_held("web")).await;
    assert_eq!((yard.creates(), yard.records().len()), (0, 0));
    belayer.stop().await;
}

/// R8: a pod was accepted seven seconds before its rejection, and ran, but by the clock of its node only a second before. Belayer
/// finds it rejected, adds its hold, and then reads the clock: that hold proves nothing, also if another leader has added it.
#[rstest]
#[case::by_the_same_leader(false)]
#[case::by_the_next_leader(true)]
#[tokio::test(start_paused = true)]
async fn r8_a_hold_that_was_added_after_the_rejection_proves_nothing(#[case] next: bool) {
    let yard = Yard::new();
    create_lease(&yard, 6);
    yard.pod_on("web", json!({ "nodeName": "node-1" }));
    let first = uid(&yard.find("web").unwrap());
    yard.wait_for(Duration::from_secs(7)).await;
    let now = yard.world.cluster().clock().now();
    reject(&yard, "web", now - SignedDuration::from_secs(1));
    yard.wait_for(Duration::from_secs(2)).await;
    let leases = Match::verb(Verb::Get).resource("leases").name("node-1");
    let failing = Fault::on(leases.client(BELAYER)).answer(Answer::internal_error());
    let failing = next.then(|| yard.world.sandbox.faults().inject(failing));
    let mut belayer = yard.run();
    if let Some(failing) = failing {
        yard.wait("it is held", || yard.is_held("web")).await;
        belayer.stop().await;
        failing.remove();
        belayer = yard.run();
    }
    yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
        .await;
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert_eq!((yard.creates(), yard.records().len()), (0, 0));
    assert!(!yard.is_held("web"));
    belayer.stop().await;
}

/// The kubelet rejects a pod that it accepted then, by its clock.
fn reject(yard: &Yard, name: &str, started: jiff::Timestamp) {
    let status = json!({ "status": { "phase": "Failed", "reason": "NodeAffinity",
        "message": "Pod was rejected: NodeAffinity", "startTime": text(started) } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), name, status, Subresource::Status);
}
