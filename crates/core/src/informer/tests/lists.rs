use rstest::rstest;
use std::time::Duration;

use super::server::*;
use crate::informer::{InformerState, Lookup, Scope};
use crate::slim::OwnerMeta;

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_followed_by_a_watch_from_its_first_version() {
    let mut run = by_pages([
        page_before(7, "t1", &[object("b", "u1", 3)]),
        page(9, &[object("a", "u2", 8)]),
        watch(&[added(object("c", "u3", 10))]),
    ]);
    run.expect_events(&["initial b:u1@3", "initial a:u2@8", "at 7", "synced"])
        .await;
    run.expect_events(&["added c:u3@10", "at 10"]).await;
    let requests = run.server.requests();
    let path = "/apis/argoproj.io/v1alpha1/workflows";
    assert_eq!(requests[0], format!("{path}?limit=500"));
    assert_eq!(requests[1], format!("{path}?limit=500&continue=t1"));
    assert!(requests[2].starts_with(&format!("{path}?watch=true&allowWatchBookmarks=true")));
    assert!(
        requests[2].ends_with("resourceVersion=7"),
        "{}",
        requests[2]
    );
}

#[tokio::test(start_paused = true)]
async fn t3_a_page_of_more_than_32_mib_is_requested_in_halves() {
    let large = labelled("a", "u1", 3, &"x".repeat(32 << 20));
    let mut run = by_pages([page(7, &[large]), page(7, &[object("b", "u2", 3)])]);
    run.expect_events(&["initial b:u2@3", "at 7", "synced"])
        .await;
    let requests = run.server.requests();
    assert!(requests[0].ends_with("limit=500"), "{requests:?}");
    assert!(requests[1].ends_with("limit=250"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn one_namespace_can_be_listed_alone() {
    let run = start::<crate::slim::OwnerMeta>([page(7, &[])], |informer| {
        informer
            .scope(Scope::Namespace("shop".into()))
            .page_size(10)
    });
    run.server.asked(1).await;
    let path = "/apis/argoproj.io/v1alpha1/namespaces/shop/workflows";
    assert!(run.server.requests()[0].starts_with(path));
}

#[tokio::test(start_paused = true)]
async fn every_list_and_watch_has_the_field_selector() {
    let run = start::<crate::slim::OwnerMeta>(
        [page_before(7, "t1", &[]), page(9, &[]), watch(&[])],
        |informer| informer.fields("status.nodeName=node-1"),
    );
    run.server.asked(3).await;
    let requests = run.server.requests();
    assert!(requests[2].contains("watch=true"), "{requests:?}");
    for request in &requests[..3] {
        assert!(
            request.contains("fieldSelector=status.nodeName%3Dnode-1"),
            "{request}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_takes_effect_at_its_end_and_continues_as_a_watch() {
    let mut run = by_stream([slow_watch(&[
        (1, added(object("b", "u1", 3))),
        (1, added(object("a", "u2", 8))),
        (1, modified(object("b", "u1", 9))),
        (1, list_end(9)),
        (1, deleted(object("a", "u2", 11))),
    ])]);
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert!(matches!(
        run.store.lookup(&Run::<crate::slim::OwnerMeta>::key("b")),
        crate::informer::Lookup::Unknown
    ));
    run.expect_events(&["initial b:u1@9", "initial a:u2@8", "at 9", "synced"])
        .await;
    run.expect_events(&["deleted a:u2@11", "at 11"]).await;
    let requests = run.server.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
    assert!(!requests[0].contains("resourceVersion="));
}

#[rstest]
#[case::unprocessable(status(422, &error_status(422, "Invalid")))]
#[case::bad_request(status(400, "unknown parameter"))]
#[case::forbidden(status(403, &error_status(403, "Invalid")))]
#[case::in_the_stream(watch(&[event("ERROR", &error_status(422, "Invalid"))]))]
#[case::never_complete(watch(&[added(object("a", "u1", 3)), bookmark(5)]))]
#[case::broken_off(watch(&[added(object("z", "u9", 2)), added(object("a", "u1", 3))]))]
#[case::an_end_annotation_that_is_false(watch(&[added(object("z", "u9", 2)), list_end_saying("false", 5)]))]
#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_gets_page_requests_from_then_on(#[case] refusal: Reply) {
    let mut run = by_stream([
        refusal,
        page(7, &[object("a", "u1", 3)]),
        status(410, &error_status(410, "Expired")),
        page(9, &[object("a", "u1", 3)]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 7", "synced", "at 9", "relisted"])
        .await;
    run.server.asked(5).await;
    let requests = run.server.requests();
    assert_eq!(requests.iter().filter(|uri| streaming(uri)).count(), 1);
    assert!(run.server.times()[1] <= Duration::from_secs(31));
}

/// Objects change while the server sends the list.
#[tokio::test(start_paused = true)]
async fn changes_during_a_streaming_list_cause_one_event_or_none() {
    let mut run = by_stream([watch(&[
        added(object("a", "u1", 3)),
        added(object("b", "u2", 4)),
        modified(object("a", "u1", 5)),
        added(object("c", "u3", 6)),
        deleted(object("c", "u3", 7)),
        deleted(object("b", "u2", 8)),
        added(object("b", "u4", 9)),
        list_end(9),
        added(object("d", "u5", 10)),
    ])]);
    run.expect_events(&["initial a:u1@5", "initial b:u4@9", "at 9", "synced"])
        .await;
    run.expect_events(&["added d:u5@10", "at 10"]).await;
    assert_eq!(run.version("c"), None);
    assert_eq!(run.store.len(), 3);
}

/// A version that cannot be decoded is followed by one that can, or by a deletion, also one that cannot be decoded itself.
#[tokio::test(start_paused = true)]
async fn undecodable_changes_during_a_streaming_list_leave_nothing_behind() {
    let bad = |name: &str, uid: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"5","labels":7}}}}"#
        )
    };
    let mut run = by_stream([watch(&[
        added(object("a", "u1", 3)),
        deleted(bad("a", "u1")),
        added(bad("b", "u2")),
        modified(object("b", "u2", 6)),
        added(bad("c", "u3")),
        deleted(object("c", "u3", 7)),
        list_end(9),
    ])]);
    run.expect_events(&["skipped b", "skipped c", "initial b:u2@6", "at 9", "synced"])
        .await;
    assert!(matches!(
        run.store.lookup(&Run::<OwnerMeta>::key("a")),
        Lookup::Absent
    ));
    assert!(matches!(
        run.store.lookup(&Run::<OwnerMeta>::key("b")),
        Lookup::Found(_)
    ));
    assert!(matches!(
        run.store.lookup(&Run::<OwnerMeta>::key("c")),
        Lookup::Absent
    ));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_parameters_is_not_taken_for_a_streaming_list() {
    let changes: Vec<_> = (4..1000)
        .map(|version| (10, modified(object("a", "u1", version))))
        .collect();
    let mut run = by_stream([slow_watch(&changes), page(7, &[])]);
    run.expect_events(&["at 7", "synced"]).await;
    assert!(run.server.times()[1] <= Duration::from_secs(31));
}

fn in_pages(uri: &str) -> bool {
    uri.ends_with("?limit=500")
}

fn streaming(uri: &str) -> bool {
    uri.contains("sendInitialEvents")
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_stay_enabled_while_a_server_is_down_or_busy() {
    let down = (0..10).map(|n| {
        if n % 2 == 0 {
            status(503, "")
        } else {
            Reply::Refuse
        }
    });
    let busy = || Reply::Status(429, &[("retry-after", "7")], String::new());
    let busy = (0..4).map(|_| busy());
    let mut run = by_stream(down.chain(busy).chain([watch(&[list_end(4)])]));
    run.expect_events(&["at 4", "synced"]).await;
    assert!(run.server.requests().iter().all(|uri| streaming(uri)));
    let times = run.server.times();
    assert!(
        times[14] - times[10] >= Duration::from_secs(28),
        "{times:?}"
    );
}

/// A proxy that interrupts long responses, or a server that supports only one of the two ways.
#[rstest]
#[case::broken_off(|| short_watch(&[added(object("z", "u9", 2))]))]
#[case::failed(|| status(500, &error_status(500, "InternalError")))]
#[case::failed_in_the_stream(|| watch(&[event("ERROR", &error_status(500, "InternalError"))]))]
#[case::timed_out(|| status(504, ""))]
#[case::never_answered(|| Reply::Hang)]
#[case::silent(|| watch(&[]))]
#[tokio::test(start_paused = true)]
async fn after_several_broken_streams_one_list_is_read_in_pages(#[case] broken: fn() -> Reply) {
    let mut run = by_stream([
        broken(),
        broken(),
        broken(),
        page(7, &[object("a", "u1", 3)]),
        status(410, &error_status(410, "Expired")),
        watch(&[added(object("a", "u1", 3)), list_end(9)]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 7", "synced", "at 9", "relisted"])
        .await;
    let requests = run.server.requests();
    assert!(
        requests[..3].iter().all(|uri| streaming(uri)),
        "{requests:?}"
    );
    assert!(in_pages(&requests[3]), "{requests:?}");
    assert!(requests[4].ends_with("resourceVersion=7"), "{requests:?}");
    assert!(streaming(&requests[5]), "the next list: {requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_before_its_list_is_repeated_and_leaves_nothing() {
    let mut run = by_stream([
        short_watch(&[added(object("a", "u1", 1)), added(object("gone", "u9", 2))]),
        watch(&[added(object("a", "u1", 1)), list_end(5)]),
    ]);
    run.expect_events(&["initial a:u1@1", "at 5", "synced"])
        .await;
    assert!(run.server.requests().iter().all(|uri| streaming(uri)));
    assert_eq!(run.store.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_after_its_list_continues_as_a_watch_from_its_last_version() {
    let mut run = by_stream([
        short_watch(&[
            added(object("a", "u1", 1)),
            list_end(2),
            added(object("b", "u2", 3)),
        ]),
        watch(&[added(object("c", "u3", 4))]),
    ]);
    run.expect_events(&["initial a:u1@1", "at 2", "synced", "added b:u2@3", "at 3"])
        .await;
    run.expect_events(&["added c:u3@4", "at 4"]).await;
    let requests = run.server.requests();
    assert!(
        !streaming(&requests[1]) && requests[1].ends_with("resourceVersion=3"),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_relist_causes_events_for_what_changed_in_between() {
    let mut run = by_pages([
        page(
            7,
            &[
                object("same", "u1", 1),
                labelled("changed", "u2", 2, "before"),
                object("z-gone", "u3", 3),
                object("gone", "u4", 4),
                object("replaced", "u5", 5),
                labelled("heartbeat", "u6", 6, "x"),
            ],
        ),
        watch(&[event("ERROR", &error_status(410, "Expired"))]),
        page(
            20,
            &[
                object("new", "u9", 18),
                labelled("heartbeat", "u6", 16, "x"),
                object("replaced", "u10", 15),
                labelled("changed", "u2", 12, "after"),
                object("same", "u1", 1),
            ],
        ),
    ]);
    run.expect_events(&[
        "initial same:u1@1",
        "initial changed:u2@2",
        "initial z-gone:u3@3",
        "initial gone:u4@4",
        "initial replaced:u5@5",
        "initial heartbeat:u6@6",
        "at 7",
        "synced",
        "vanished gone:u4@4",
        "vanished z-gone:u3@3",
        "added new:u9@18",
        "vanished replaced:u5@5",
        "added replaced:u10@15",
        "updated changed:u2@12 from changed:u2@2",
        "at 20",
        "relisted",
    ])
    .await;
    assert_eq!(run.version("heartbeat"), Some(16));
    assert_eq!(run.store.len(), 5);
    assert_eq!(run.store.count_by_index("by-label", "before"), Some(0));
    assert_eq!(run.store.count_by_index("by-label", "after"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_old_objects_stay_until_the_relist_is_complete() {
    let mut run = by_pages([
        page(7, &[object("a", "u1", 3)]),
        status(410, ""),
        page_before(20, "t", &[object("b", "u2", 18)]),
        Reply::Hang,
    ]);
    run.expect_events(&["initial a:u1@3", "at 7", "synced"])
        .await;
    run.server.asked(4).await;
    assert_eq!(run.version("a"), Some(3));
    assert_eq!(run.version("b"), None);
    assert!(run.store.is_synced());
}

#[tokio::test(start_paused = true)]
async fn l5_expired_paging_starts_over_with_larger_pages_and_never_without_a_limit() {
    let expired = || status(410, &error_status(410, "Expired"));
    let mut run = by_pages([
        page_before(5, "t", &[object("a", "u1", 3)]),
        expired(),
        page_before(6, "t", &[object("a", "u1", 3)]),
        expired(),
        page_before(7, "t", &[object("a", "u1", 3)]),
        expired(),
        page(8, &[object("b", "u2", 4)]),
        status(410, &error_status(410, "Expired")),
        page(9, &[object("b", "u2", 4)]),
    ]);
    run.expect_events(&["initial b:u2@4", "at 8", "synced", "at 9", "relisted"])
        .await;
    let requests = run.server.requests();
    for (request, limit) in [(2, 1000), (4, 2000), (6, 4000), (8, 4000)] {
        let end = format!("?limit={limit}");
        assert!(requests[request].ends_with(&end), "{}", requests[request]);
    }
}

#[tokio::test(start_paused = true)]
async fn l5_a_page_size_that_was_too_large_is_not_tried_again() {
    let large = labelled("a", "u1", 3, &"x".repeat(32 << 20));
    let expired = || status(410, &error_status(410, "Expired"));
    let mut run = by_pages([
        page(7, &[large]),
        page_before(7, "t", &[]),
        expired(),
        page(8, &[]),
    ]);
    run.expect_events(&["at 8", "synced"]).await;
    let requests = run.server.requests();
    assert!(requests[1].ends_with("?limit=250"), "{}", requests[1]);
    assert!(requests[3].ends_with("?limit=250"), "{}", requests[3]);
}

#[rstest]
#[case::at_once(|| status(410, &error_status(410, "Expired")), 0)]
#[case::after_two_seconds(|| slow_watch(&[(2, event("ERROR", &error_status(410, "Expired")))]), 2)]
#[tokio::test(start_paused = true)]
async fn l5_a_server_that_forgets_every_version_is_not_listed_without_a_pause(
    #[case] expired: fn() -> Reply,
    #[case] after: u64,
) {
    let replies = (0..12).flat_map(|round| [page(round + 5, &[]), expired()]);
    let run = by_pages(replies);
    run.server.asked(24).await;
    let times = run.server.times();
    let watched = |watches: u64| Duration::from_secs(after * watches);
    let nearly = |time: Duration| time < Duration::from_millis(100);
    assert!(nearly(times[2] - watched(1)), "once at once");
    let paused = times[23] - watched(11);
    assert!(paused > Duration::from_secs(10), "{times:?}");
}

/// The list would never end.
#[tokio::test(start_paused = true)]
async fn a_list_whose_server_repeats_a_continue_token_starts_over_after_a_pause() {
    let repeated = || page_before(7, "t", &[object("a", "u1", 3)]);
    let mut run = by_pages([repeated(), repeated(), page(9, &[object("b", "u2", 8)])]);
    run.expect_events(&["initial b:u2@8", "at 9", "synced"])
        .await;
    let requests = run.server.requests();
    assert!(requests[1].ends_with("continue=t"), "{requests:?}");
    assert!(in_pages(&requests[2]), "{requests:?}");
    assert!(run.server.times()[2] > Duration::ZERO);
}

#[rstest]
#[case::no_list("{}")]
#[case::no_version(r#"{"metadata":{},"items":[]}"#)]
#[case::no_items(r#"{"metadata":{"resourceVersion":"5"}}"#)]
#[case::strange_items(r#"{"metadata":{"resourceVersion":"5"},"items":{}}"#)]
#[case::truncated(r#"{"metadata":{"resourceVersion":"5"},"items":[{"#)]
#[case::empty("")]
#[tokio::test(start_paused = true)]
async fn an_invalid_list_is_not_taken_for_an_empty_one(#[case] text: &str) {
    let mut run = by_pages([
        page(7, &[object("a", "u1", 3)]),
        status(410, ""),
        body(text.to_owned()),
        page(9, &[object("a", "u1", 3)]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 7", "synced", "at 9", "relisted"])
        .await;
    assert_eq!(run.store.state(), InformerState::Synced);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_may_be_written_as_null() {
    let text = r#"{"metadata":{"resourceVersion":"5"},"items":null}"#;
    by_pages([body(text.to_owned())])
        .expect_events(&["at 5", "synced"])
        .await;
}
