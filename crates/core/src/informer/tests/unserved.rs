use std::time::Duration;

use super::server::*;
use crate::informer::{InformerState, Lookup};
use crate::recorded::Recorded;
use crate::slim::OwnerMeta;

const NOT_SERVED: &str = "404 page not found\n";

type Owners = Run<OwnerMeta>;

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_waited_for() {
    let missing = (0..10).map(|_| status(404, NOT_SERVED));
    let starting = Reply::Status(
        429,
        &[("retry-after", "1")],
        "storage is (re)initializing".into(),
    );
    let rest = [
        starting,
        status(404, NOT_SERVED),
        page(5, &[object("a", "u1", 3)]),
    ];
    let mut run = by_pages(missing.chain(rest));
    run.expect_events(&["unserved"]).await;
    assert_eq!(run.store.state(), InformerState::NotServed);
    assert!(matches!(
        run.store.lookup(&Owners::key("a")),
        Lookup::Unknown
    ));
    assert!(run.store.by_index("by-label", "").is_none());
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    assert_eq!(run.store.state(), InformerState::Synced);
    let times = run.server.times();
    assert!(
        times
            .windows(2)
            .all(|pair| pair[1] - pair[0] <= Duration::from_secs(6))
    );
}

/// The alert about silent informers is for those that the server does not answer.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_not_silent() {
    let recorded = Recorded::default();
    let _guard = metrics::set_default_local_recorder(&recorded);
    let lag = || {
        let [_, gauges, _] = recorded.names();
        let lag = gauges.iter().find(|name| name.contains("lag")).unwrap();
        recorded.gauge(lag)
    };
    let missing = (0..200).map(|_| status(404, NOT_SERVED));
    let down = (0..200).map(|_| status(503, "down"));
    let mut run = by_pages(missing.chain(down));
    run.expect_events(&["unserved"]).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(lag() < 1.0, "{}", lag());
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    assert!(lag() > 300.0, "{}", lag());
    // An informer that has ended is not silent either.
    run.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lag() < 1.0, "{}", lag());
}

#[tokio::test(start_paused = true)]
async fn the_stored_objects_are_compared_when_the_kind_is_served_again() {
    let mut run = by_pages([
        page(5, &[object("a", "u1", 3), object("b", "u2", 4)]),
        short_watch(&[bookmark(6)]),
        status(404, NOT_SERVED),
        status(404, NOT_SERVED),
        page(20, &[object("b", "u2", 4), object("c", "u3", 15)]),
    ]);
    run.expect_events(&[
        "initial a:u1@3",
        "initial b:u2@4",
        "at 5",
        "synced",
        "at 6",
        "unserved",
    ])
    .await;
    assert!(!run.store.is_synced());
    assert!(matches!(
        run.store.lookup(&Owners::key("a")),
        Lookup::Unknown
    ));
    assert!(matches!(
        run.store.lookup(&Owners::key("z")),
        Lookup::Unknown
    ));
    assert_eq!(run.store.count_by_index("by-label", ""), None);
    assert_eq!(run.store.len(), 2);
    run.expect_events(&[
        "vanished a:u1@3",
        "added c:u3@15",
        "at 20",
        "synced",
        "relisted",
    ])
    .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("a")),
        Lookup::Absent
    ));
}

#[tokio::test(start_paused = true)]
async fn a_starting_server_is_not_taken_for_one_without_the_kind() {
    let mut run = by_pages([
        page(5, &[]),
        status(503, "apiserver is starting"),
        watch(&[bookmark(6)]),
    ]);
    run.expect_events(&["at 5", "synced", "at 6"]).await;
}
