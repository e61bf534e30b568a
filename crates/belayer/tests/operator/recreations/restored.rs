//! Records that a list does not have although no client deleted them.

use std::sync::atomic::{AtomicBool, Ordering};

use belayer_sandbox::{Answer, Fault, Match, WatchEnd};
use rstest::rstest;
use tower::Service as _;

use super::*;

/// Until the fault is removed, the record stays in phase `Rejected`.
fn deny(yard: &Yard) {
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let denied = Fault::on(creates).answer(Answer::forbidden("exceeded quota"));
    yard.world.sandbox.faults().inject(denied);
}

fn delete_record(yard: &Yard) {
    let name = text(&yard.record(), "/metadata/name");
    yard.world.delete(&RECORDS, Some(YARD), &name);
}

/// The data of the API server is restored from a backup in which the pod is Pending and has no record.
#[rstest]
#[case::the_record_was_created_after_the_backup(false)]
#[case::the_record_was_deleted_after_the_backup(true)]
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_backup_is_recreated(#[case] is_deleted: bool) {
    // The same seed: the same UIDs.
    let (backup, yard) = (Yard::new(), Yard::new());
    let first = yard.pod("web");
    assert_eq!(backup.pod("web"), first);
    deny(&yard);
    let [before, after] = [&yard, &backup].map(|yard| yard.world.sandbox.service(BELAYER));
    let is_restored = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_restored);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let restored = switch.load(Ordering::Relaxed);
        let mut service = if restored {
            after.clone()
        } else {
            before.clone()
        };
        service.call(request)
    });
    let client = client::in_process(service, belayer_holds::names::USER_AGENT);
    let operator = Operator::new(options(client), Yard::components(Settings::default()));
    let stop = CancellationToken::new();
    let task = tokio::spawn(operator.run(stop.clone()));
    let belayer = Running { stop, task };
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    if is_deleted {
        delete_record(&yard);
        yard.wait("it is released", || !yard.is_held("web")).await;
    }
    assert!(yard.world.cluster().version() > backup.world.cluster().version());
    is_restored.store(true, Ordering::Relaxed);
    yard.world.sandbox.faults().cut_off();
    // Until the watches are connected again. They begin at a version that the backup does not have.
    yard.wait_for(Duration::from_secs(60)).await;
    let watches = Match::watches().client(BELAYER);
    backup
        .world
        .sandbox
        .faults()
        .end_watches(&watches, WatchEnd::Expired);
    backup.until("it runs", || backup.is_settled("web")).await;
    assert_eq!(backup.creates(), 1);
    belayer.stop().await;
}

/// As after a restart: only a deletion that Belayer sees cancels.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_while_its_watch_is_interrupted_is_created_again() {
    let yard = Yard::new();
    deny(&yard);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    let faults = yard.world.sandbox.faults();
    let records = || Match::watches().resource("podrecreations").client(BELAYER);
    let cut = faults.inject(Fault::on(records()).pause_watches());
    delete_record(&yard);
    faults.end_watches(&records(), WatchEnd::Expired);
    cut.remove();
    yard.wait("it is recorded again", || yard.phase() == "Rejected")
        .await;
    faults.clear();
    let begun = Instant::now();
    while !yard.is_settled("web") {
        assert!(begun.elapsed() < Duration::from_secs(1_200));
        yard.pass(Duration::from_secs(1)).await;
    }
    belayer.stop().await;
}

/// The leader was killed after it had created the record. The one that leads now has not seen the pod.
#[rstest]
#[case::its_pod_waits(false)]
#[case::its_pod_is_being_deleted(true)]
#[tokio::test(start_paused = true)]
async fn the_record_of_a_pod_that_the_cache_lacks_does_not_expire(#[case] is_deleted: bool) {
    let yard = Yard::rejecting(1);
    let settings = || Settings {
        record_ttl: Duration::from_secs(30),
        ..Settings::default()
    };
    let next = yard.run_as("belayer/2", settings());
    yard.wait_for(Duration::from_secs(1)).await;
    let faults = yard.world.sandbox.faults();
    let pods = Match::watches().resource("pods").client("belayer/2");
    let late = faults.inject(Fault::on(pods).pause_watches());
    let statuses = Match::verb(Verb::Patch).resource("podrecreations");
    faults.inject(Fault::on(statuses.client("belayer/1")).lose_request());
    let leader = yard.run_as("belayer/1", settings());
    yard.pod("web");
    yard.until("it is recorded", || !yard.records().is_empty())
        .await;
    leader.crash();
    let record = uid(&yard.record());
    if is_deleted {
        yard.delete("web");
    }
    yard.pass(Duration::from_secs(120)).await;
    assert_eq!(uid(&yard.record()), record);
    late.remove();
    if is_deleted {
        yard.wait("it is gone", || yard.find("web").is_none()).await;
    } else {
        yard.until("it runs", || yard.is_settled("web")).await;
    }
    assert_eq!(yard.creates(), usize::from(!is_deleted));
    next.stop().await;
}
