use std::time::Duration;

use super::server::*;
use crate::informer::WaitError;
use crate::object::ResourceVersion;

#[tokio::test(start_paused = true)]
async fn a_server_that_lags_cannot_move_objects_backwards() {
    let mut run = by_pages([
        page(10, &[labelled("a", "u2", 9, "new"), object("b", "u5", 4)]),
        watch(&[
            // Events that led to the stored state, sent again.
            added(labelled("a", "u1", 5, "old")),
            deleted(labelled("a", "u1", 6, "old")),
            added(object("gone", "u3", 6)),
            modified(labelled("a", "u2", 8, "older")),
            modified(labelled("a", "u2", 9, "new")),
            // A new event.
            modified(labelled("a", "u2", 11, "newest")),
        ]),
    ]);
    run.expect_events(&["initial a:u2@9", "initial b:u5@4", "at 10", "synced"])
        .await;
    run.expect_events(&["updated a:u2@11 from a:u2@9", "at 11"])
        .await;
    run.is_quiet_for(Duration::from_secs(80)).await;
    assert_eq!(run.store.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_only_old_events_causes_a_list() {
    let past: Vec<_> = (2..30)
        .map(|version| (10, modified(object("a", "u1", version))))
        .collect();
    let mut run = by_pages([
        page(100, &[object("a", "u1", 50)]),
        slow_watch(&past),
        page(101, &[]),
    ]);
    run.expect_events(&["initial a:u1@50", "at 100", "synced"])
        .await;
    run.expect_events(&["vanished a:u1@50", "at 101", "relisted"])
        .await;
    let listed = run.server.times()[2];
    assert!(
        listed >= Duration::from_secs(90) && listed <= Duration::from_secs(111),
        "{listed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn old_bookmarks_count_as_lag() {
    let mut run = by_pages([page(100, &[]), watch(&[bookmark(40)]), page(101, &[])]);
    run.expect_events(&["at 100", "synced", "at 101", "relisted"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_older_list_is_requested_again_until_it_is_new_enough() {
    let mut run = by_pages([
        page(100, &[object("a", "u1", 50)]),
        status(410, ""),
        page(40, &[]),
        page(60, &[]),
        page(99, &[]),
        page(100, &[object("a", "u1", 50)]),
    ]);
    run.expect_events(&["initial a:u1@50", "at 100", "synced", "at 100", "relisted"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stays_older_is_accepted_in_the_end() {
    let old = || page(40, &[labelled("a", "u1", 30, "restored")]);
    let mut run = by_pages([
        page(
            100,
            &[labelled("a", "u1", 50, "lost"), object("b", "u2", 60)],
        ),
        status(410, ""),
        old(),
        old(),
        old(),
        old(),
        watch(&[modified(labelled("a", "u1", 41, "next"))]),
    ]);
    run.expect_events(&["initial a:u1@50", "initial b:u2@60", "at 100", "synced"])
        .await;
    let waiting = tokio::spawn({
        let store = run.store.clone();
        async move { store.wait_for(ResourceVersion::new(105)).await }
    });
    run.expect_events(&["vanished b:u2@60", "updated a:u1@30 from a:u1@50", "at 40"])
        .await;
    run.expect_events(&["relisted, regressed"]).await;
    assert_eq!(waiting.await.unwrap(), Err(WaitError::Regressed));
    run.expect_events(&["updated a:u1@41 from a:u1@30", "at 41"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_does_not_reach_a_version_from_before_its_own() {
    let mut run = by_pages([page(100, &[])]);
    run.expect_events(&["at 100", "synced"]).await;
    let [earlier, version] = [99, 100].map(ResourceVersion::new);
    assert!(run.store.reaches_soon(version, version).await);
    assert!(!run.store.reaches_soon(earlier, version).await);
}

#[tokio::test(start_paused = true)]
async fn an_older_streaming_list_is_requested_again_too() {
    let mut run = by_stream([
        watch(&[list_end(100), event("ERROR", &error_status(410, "Expired"))]),
        watch(&[list_end(99)]),
        watch(&[list_end(100)]),
    ]);
    run.expect_events(&["at 100", "synced", "at 100", "relisted"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_item_older_than_the_stored_one_is_ignored_in_a_newer_list() {
    let mut run = by_pages([
        page(100, &[labelled("a", "u1", 50, "new")]),
        status(410, ""),
        page(101, &[labelled("a", "u1", 40, "old")]),
    ]);
    run.expect_events(&["initial a:u1@50", "at 100", "synced", "at 101", "relisted"])
        .await;
    assert_eq!(run.version("a"), Some(50));
    assert_eq!(run.store.count_by_index("by-label", "new"), Some(1));
    assert_eq!(run.store.count_by_index("by-label", "old"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_ends_with_the_event_or_bookmark_that_reaches_it() {
    let run = by_pages([
        page(5, &[]),
        slow_watch(&[
            (10, added(object("a", "u1", 6))),
            (10, bookmark(9)),
            (10, bookmark(12)),
        ]),
    ]);
    let start = tokio::time::Instant::now();
    let wait = async |version| {
        let waited = run.store.wait_for(ResourceVersion::new(version)).await;
        (waited, start.elapsed().as_secs())
    };
    assert_eq!(wait(5).await, (Ok(()), 0));
    assert_eq!(wait(6).await, (Ok(()), 10));
    assert_eq!(run.version("a"), Some(6));
    assert_eq!(wait(8).await, (Ok(()), 20));
    assert_eq!(wait(12).await, (Ok(()), 30));
    assert_eq!(run.store.resource_version(), ResourceVersion::new(12));
}
