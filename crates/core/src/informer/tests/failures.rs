use std::time::Duration;

use rstest::rstest;

use super::server::*;
use crate::informer::{InformerState, WaitError};
use crate::logged::Log;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_up_to_half_a_minute_and_set_the_state() {
    let failures = (0..20).map(|i| {
        if i % 2 == 0 {
            Reply::Refuse
        } else {
            status(500, "no")
        }
    });
    let mut run = by_pages(failures.chain([page(5, &[])]));
    let mut state = run.store.watch_state();
    let failing = state
        .wait_for(|s| matches!(s, InformerState::Failing { .. }))
        .await;
    let Ok(InformerState::Failing { since, reason }) = failing else {
        panic!("not failing")
    };
    assert!(reason.contains("refused"), "{reason}");
    run.server.asked(3).await;
    assert!(matches!(run.store.state(), InformerState::Failing { since: s, .. } if s == since));
    run.expect_events(&["at 5", "synced"]).await;
    let times = run.server.times();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] <= Duration::from_millis(801), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= seconds(31)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap >= seconds(8)), "{gaps:?}");
    assert_eq!(run.store.state(), InformerState::Synced);
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_are_logged_once_per_cause() {
    let log = Log::kept();
    let forbidden = (0..10).map(|_| status(403, &error_status(403, "Forbidden")));
    let broken = (0..5).map(|_| status(500, "no"));
    let mut run = by_pages(forbidden.chain(broken).chain([page(5, &[])]));
    run.expect_events(&["at 5", "synced"]).await;
    assert_eq!(log.lines("WARN").len(), 2, "{:#?}", log.lines(""));
    assert_eq!(log.lines("failed again").len(), 13);
    let over = log.lines("work again");
    assert!(
        over.len() == 1 && over[0].contains("attempts=15"),
        "{over:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_and_ended_each_time_is_one_outage() {
    let log = Log::kept();
    let failing = || watch(&[event("ERROR", &error_status(500, "InternalError"))]);
    let replies = [page(5, &[]), failing(), failing(), watch(&[bookmark(6)])];
    let mut run = by_pages(replies);
    run.expect_events(&["at 5", "synced", "at 6"]).await;
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
    assert_eq!(log.lines("work again").len(), 1);
}

#[rstest]
#[case(429)]
#[case(503)]
#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_in_lists_and_watches(#[case] code: u16) {
    let busy = || Reply::Status(code, &[("retry-after", "45")], String::new());
    let mut run = by_pages([busy(), page(5, &[]), busy(), watch(&[bookmark(6)])]);
    run.expect_events(&["at 5", "synced", "at 6"]).await;
    let times = run.server.times();
    assert!(
        times[1] >= seconds(45) && times[1] <= seconds(46),
        "{times:?}"
    );
    assert!(times[3] - times[2] >= seconds(45), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_times_out() {
    let mut run = by_pages([Reply::Hang, page(5, &[])]);
    run.expect_events(&["at 5", "synced"]).await;
    assert!(run.server.times()[1] <= seconds(61));
}

#[rstest]
#[case::before_its_head(Reply::Hang, 60)]
#[case::of_a_server_without_bookmarks(watch(&[]), 350)]
#[case::of_a_server_with_bookmarks(watch(&[bookmark(6)]), 150)]
#[tokio::test(start_paused = true)]
async fn a_watch_that_hangs_is_opened_again(#[case] hanging: Reply, #[case] limit: u64) {
    let run = by_pages([page(5, &[]), hanging]);
    run.server.asked(3).await;
    let times = run.server.times();
    let open = times[2] - times[1];
    assert!(
        open <= seconds(limit + 1) && open >= seconds(limit - 2),
        "{open:?}"
    );
    assert!(run.server.requests()[2].contains("watch=true"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_an_event_now_and_then_stays_open() {
    let bookmarks: Vec<_> = (6..40).map(|version| (60, bookmark(version))).collect();
    let mut run = by_pages([page(5, &[]), slow_watch(&bookmarks)]);
    run.expect_events(&["at 5", "synced"]).await;
    tokio::time::sleep(seconds(30 * 60)).await;
    assert_eq!(run.server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_the_last_version_bookmarks_included() {
    let mut run = by_pages([
        page(5, &[]),
        short_watch(&[added(object("a", "u1", 6)), bookmark(9)]),
        watch(&[]),
    ]);
    run.expect_events(&["at 5", "synced", "added a:u1@6", "at 6", "at 9"])
        .await;
    run.server.asked(3).await;
    assert!(run.server.requests()[2].ends_with("resourceVersion=9"));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_frame_is_requested_again() {
    let whole = format!("{}\n", added(object("a", "u1", 6)));
    let (start, _) = whole.split_at(whole.len() / 2);
    let mut run = by_pages([
        page(5, &[]),
        body(start.to_owned()),
        watch(&[added(object("a", "u1", 6))]),
    ]);
    run.expect_events(&["at 5", "synced", "added a:u1@6", "at 6"])
        .await;
    assert!(run.server.requests()[2].ends_with("resourceVersion=5"));
}

#[rstest]
#[case::at_once(status(410, &error_status(410, "Expired")))]
#[case::in_the_stream(watch(&[event("ERROR", &error_status(410, "Expired"))]))]
#[case::in_the_stream_by_reason(watch(&[event("ERROR", r#"{"kind":"Status","reason":"Expired"}"#)]))]
#[tokio::test(start_paused = true)]
async fn a_watch_whose_version_is_too_old_lists_again_at_once(#[case] expired: Reply) {
    let mut run = by_pages([page(5, &[]), expired, page(9, &[object("a", "u1", 7)])]);
    run.expect_events(&["at 5", "synced", "added a:u1@7", "at 9", "relisted"])
        .await;
    assert_eq!(run.server.times()[2], Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn other_errors_of_a_watch_do_not_list_again() {
    let mut run = by_pages([
        page(5, &[]),
        watch(&[event("ERROR", &error_status(500, "InternalError"))]),
        status(503, ""),
        Reply::Refuse,
        watch(&[bookmark(6)]),
    ]);
    run.expect_events(&["at 5", "synced", "at 6"]).await;
    assert!(
        run.server.requests()[1..]
            .iter()
            .all(|uri| uri.contains("watch=true"))
    );
}

#[rstest]
#[case::in_the_stream(|| watch(&[event("ERROR", &error_status(500, "InternalError"))]))]
#[case::as_invalid(|| status(400, "the version is not mine"))]
#[case::as_too_large(|| status(504, r#"{"kind":"Status","reason":"Timeout","code":504,
    "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large"}]}}"#))]
#[tokio::test(start_paused = true)]
async fn repeatedly_refused_watches_cause_a_list(#[case] refusal: fn() -> Reply) {
    let replies = [page(5, &[]), refusal(), refusal(), refusal(), page(6, &[])];
    let mut run = by_pages(replies);
    run.expect_events(&["at 5", "synced", "at 6", "relisted"])
        .await;
    assert!(!run.server.requests()[4].contains("watch=true"));
}

/// Lists would increase the load of the server.
#[rstest]
#[case::at_once(|| Reply::Status(429, &[("retry-after", "2")], String::new()))]
#[case::in_the_stream(|| watch(&[event("ERROR", 
    r#"{"kind":"Status","code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":2}}"#)]))]
#[tokio::test(start_paused = true)]
async fn a_busy_server_gets_no_request_for_another_list(#[case] busy: fn() -> Reply) {
    let busy = (0..10).map(|_| busy());
    let mut run = by_pages(
        [page(5, &[])]
            .into_iter()
            .chain(busy)
            .chain([watch(&[bookmark(6)])]),
    );
    run.expect_events(&["at 5", "synced", "at 6"]).await;
    let requests = run.server.requests();
    assert!(requests[1..].iter().all(|uri| uri.contains("watch=true")));
    assert!(run.server.times()[11] >= seconds(20));
}

/// The server can delete an object without being able to decode it; the event then has no object.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_object_that_the_server_cannot_decode_causes_one_list() {
    let unread = event("ERROR", &error_status(500, "StoreReadError"));
    let mut run = by_pages([
        page(3, &[object("a", "u1", 1)]),
        watch(&[added(object("corrupt", "u2", 4)), unread]),
        page(5, &[object("a", "u1", 1)]),
        watch(&[bookmark(6)]),
    ]);
    run.expect_events(&[
        "initial a:u1@1",
        "at 3",
        "synced",
        "added corrupt:u2@4",
        "at 4",
    ])
    .await;
    run.expect_events(&["vanished corrupt:u2@4", "at 5", "relisted", "at 6"])
        .await;
    assert_eq!(run.server.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_opened_in_a_loop() {
    let endings = (0..500).map(|_| short_watch(&[]));
    let run = by_pages([page(5, &[])].into_iter().chain(endings));
    tokio::time::sleep(seconds(600)).await;
    let requests = run.server.requests().len();
    assert!((10..120).contains(&requests), "{requests} requests");
}

#[tokio::test(start_paused = true)]
async fn readers_see_that_the_informer_stopped() {
    let run = by_pages([Reply::Hang]);
    let waiting = tokio::spawn({
        let store = run.store.clone();
        async move {
            (
                store.synced().await,
                store.wait_for(crate::object::ResourceVersion::new(1)).await,
            )
        }
    });
    run.server.asked(1).await;
    run.stop.cancel();
    assert_eq!(
        waiting.await.unwrap(),
        (Err(WaitError::Stopped), Err(WaitError::Stopped))
    );
    assert_eq!(run.store.state(), InformerState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_has_the_same_delays() {
    let mut times = Vec::new();
    for _ in 0..2 {
        let failures = (0..5).map(|_| Reply::Refuse);
        let mut run = by_pages(failures.chain([page(5, &[])]));
        run.expect_events(&["at 5", "synced"]).await;
        times.push(run.server.times());
    }
    assert_eq!(times[0], times[1]);
}
