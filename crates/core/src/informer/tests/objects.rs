use rstest::rstest;

use super::server::*;
use crate::informer::{Lookup, StreamingList};
use crate::slim::{OwnerMeta, Pod, Slim};

type Owners = Run<OwnerMeta>;

#[tokio::test(start_paused = true)]
async fn another_uid_is_a_deletion_and_an_addition() {
    let mut run = by_pages([
        page(5, &[labelled("a", "u1", 3, "x")]),
        slow_watch(&[(1, modified(labelled("a", "u2", 7, "x")))]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    let before = run.store.lookup(&Owners::key("a")).found().unwrap();
    run.expect_events(&["vanished a:u1@3", "added a:u2@7", "at 7"])
        .await;
    let after = run.store.lookup(&Owners::key("a")).found().unwrap();
    assert!(after.first_seen > before.first_seen);
    assert_eq!(run.store.count_by_index("by-label", "x"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_later_uid_shows_that_the_stored_one_was_deleted() {
    let mut run = by_pages([
        page(5, &[object("a", "u1", 3)]),
        watch(&[deleted(object("a", "u2", 9)), bookmark(10)]),
    ]);
    run.expect_events(&[
        "initial a:u1@3",
        "at 5",
        "synced",
        "vanished a:u1@3",
        "at 9",
        "at 10",
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_unknown_object_causes_no_event() {
    let mut run = by_pages([page(5, &[]), watch(&[deleted(object("a", "u1", 6))])]);
    run.expect_events(&["at 5", "synced", "at 6"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_no_decision_reads_is_stored_without_an_event() {
    let mut run = by_pages([
        page(5, &[labelled("a", "u1", 3, "x")]),
        watch(&[modified(labelled("a", "u1", 7, "x"))]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 5", "synced", "at 7"])
        .await;
    assert_eq!(run.version("a"), Some(7));
    let found = run.store.by_index("by-label", "x").unwrap();
    assert_eq!(found[0].resource_version().get(), 7);
}

#[tokio::test(start_paused = true)]
async fn each_version_is_an_update_if_that_is_asked_for() {
    let replies = [
        page(5, &[labelled("a", "u1", 3, "x")]),
        watch(&[modified(labelled("a", "u1", 7, "x"))]),
        status(410, ""),
        page(9, &[labelled("a", "u1", 8, "x")]),
        watch(&[]),
        status(410, ""),
        page(12, &[labelled("a", "u1", 8, "x")]),
    ];
    let mut run: Owners = start(replies, |informer| {
        informer.streaming_list(StreamingList::Never).each_version()
    });
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    run.expect_events(&["updated a:u1@7 from a:u1@3", "at 7"])
        .await;
    run.expect_events(&["updated a:u1@8 from a:u1@7", "at 9", "relisted"])
        .await;
    run.expect_events(&["at 12", "relisted"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_at_which_a_deletion_was_seen_stays() {
    let deleting = |version: u64, label: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"n","name":"a","uid":"u1","resourceVersion":"{version}",
            "deletionTimestamp":"2026-01-01T00:00:00Z","labels":{{"kept":"{label}"}}}}}}"#
        )
        .replace('\n', "")
    };
    let mut run = by_pages([
        page(5, &[object("a", "u1", 3)]),
        slow_watch(&[
            (1, modified(deleting(6, "x"))),
            (1, modified(deleting(7, "y"))),
        ]),
        status(410, ""),
        page(9, &[deleting(8, "z")]),
    ]);
    let stored = |run: &Owners| run.store.lookup(&Owners::key("a")).found().unwrap();
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    let alive = stored(&run);
    assert_eq!(alive.deletion_seen, None);
    run.expect_events(&["updated a:u1@6 from a:u1@3", "at 6"])
        .await;
    let deleting = stored(&run);
    assert!(deleting.deletion_seen.unwrap() > alive.first_seen);
    run.expect_events(&["updated a:u1@7 from a:u1@6", "at 7"])
        .await;
    run.expect_events(&["updated a:u1@8 from a:u1@7", "at 9", "relisted"])
        .await;
    let later = stored(&run);
    assert_eq!(later.deletion_seen, deleting.deletion_seen);
    assert_eq!(later.first_seen, alive.first_seen);
}

#[rstest]
#[case::no_uid(r#"{"metadata":{"namespace":"n","name":"bad","resourceVersion":"6"}}"#)]
#[case::no_version(r#"{"metadata":{"namespace":"n","name":"bad","uid":"u1"}}"#)]
#[case::a_strange_version(
    r#"{"metadata":{"namespace":"n","name":"bad","uid":"u1","resourceVersion":"x"}}"#
)]
#[case::a_number_for_a_version(
    r#"{"metadata":{"namespace":"n","name":"bad","uid":"u1","resourceVersion":6}}"#
)]
#[case::labels_of_another_type(
    r#"{"metadata":{"labels":[],"namespace":"n","name":"bad","uid":"u1","resourceVersion":"6"}}"#
)]
#[case::finalizers_of_another_type(r#"{"metadata":{"finalizers":{"a":1},"namespace":"n","name":"bad","uid":"u1","resourceVersion":"6"}}"#)]
#[tokio::test(start_paused = true)]
async fn a_bad_object_does_not_affect_others(#[case] bad: &str) {
    let good = || object("good", "u2", 3);
    // A new object in a list.
    let mut run = by_pages([page(5, &[bad.to_owned(), good()])]);
    run.expect_events(&["skipped bad", "initial good:u2@3", "at 5", "synced"])
        .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("bad")),
        Lookup::Unknown
    ));
    assert!(matches!(
        run.store.lookup(&Owners::key("other")),
        Lookup::Absent
    ));
    assert_eq!(run.store.unreadable(), 1);

    // A stored object in a watch and in a relist.
    let mut run = by_pages([
        page(5, &[object("bad", "u1", 2)]),
        watch(&[
            modified(bad),
            added(object("good", "u2", 8)),
            event("ERROR", &error_status(410, "Expired")),
        ]),
        page(9, &[object("good", "u2", 8), bad.to_owned()]),
        watch(&[modified(labelled("bad", "u1", 10, "x"))]),
    ]);
    run.expect_events(&[
        "initial bad:u1@2",
        "at 5",
        "synced",
        "skipped bad",
        "added good:u2@8",
        "at 8",
    ])
    .await;
    run.expect_events(&["skipped bad", "at 9", "relisted"])
        .await;
    run.expect_events(&["updated bad:u1@10 from bad:u1@2", "at 10"])
        .await;
    assert_eq!(run.store.unreadable(), 0);
}

#[rstest]
#[case::an_unknown_type(r#"{"type":"RENAMED","object":{"metadata":{}}}"#)]
#[case::a_bookmark_without_version(r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#)]
#[tokio::test(start_paused = true)]
async fn an_event_about_no_object_is_skipped(#[case] frame: &str) {
    let mut run = by_pages([
        page(5, &[object("a", "u1", 3)]),
        watch(&[frame.to_owned(), added(object("b", "u2", 6))]),
    ]);
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    run.expect_events(&["added b:u2@6", "at 6"]).await;
    assert_eq!(run.server.requests().len(), 2);
    assert_eq!(run.version("a"), Some(3));
    // Also in a streaming list, which stays complete.
    let mut run = by_stream([watch(&[
        frame.to_owned(),
        added(object("a", "u1", 3)),
        list_end(5),
    ])]);
    run.expect_events(&["initial a:u1@3", "at 5", "synced"])
        .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("b")),
        Lookup::Absent
    ));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_object_is_identified_if_possible() {
    let frame =
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"n","uid":"u1","#;
    let mut run = by_pages([page(5, &[object("a", "u1", 3)]), watch(&[frame.to_owned()])]);
    run.expect_events(&["initial a:u1@3", "at 5", "synced", "skipped a"])
        .await;
    assert_eq!(run.version("a"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_huge_object_does_not_affect_others() {
    let huge = labelled("huge", "u1", 6, &"x".repeat(100_000));
    let replies = [
        page(5, &[]),
        watch(&[added(huge), added(object("b", "u2", 7))]),
    ];
    let mut run: Owners = start(replies, |informer| {
        informer
            .streaming_list(crate::informer::StreamingList::Never)
            .frame_limit(50_000)
    });
    run.expect_events(&["at 5", "synced", "skipped huge", "added b:u2@7", "at 7"])
        .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("huge")),
        Lookup::Unknown
    ));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_applied_although_the_object_cannot_be_decoded() {
    let bad = r#"{"metadata":{"namespace":"n","name":"a","uid":"u1","labels":7}}"#;
    let mut run = by_pages([page(5, &[object("a", "u1", 3)]), watch(&[deleted(bad)])]);
    run.expect_events(&[
        "initial a:u1@3",
        "at 5",
        "synced",
        "skipped a",
        "vanished a:u1@3",
    ])
    .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("a")),
        Lookup::Absent
    ));
}

#[tokio::test(start_paused = true)]
async fn the_version_of_a_bad_object_is_not_used() {
    let bad = r#"{"metadata":{"namespace":"n","name":"a","resourceVersion":"999999"}}"#;
    let mut run = by_pages([
        page(5, &[]),
        watch(&[added(bad), added(object("b", "u2", 6))]),
    ]);
    run.expect_events(&["at 5", "synced", "skipped a", "added b:u2@6", "at 6"])
        .await;
}

#[rstest]
#[case::no_name(added(r#"{"metadata":{"uid":"u1"}}"#))]
#[case::truncated(r#"{"type":"ADDED","object":{"metadata":{"na"#.to_owned())]
#[case::not_json("this is not JSON".to_owned())]
#[case::no_type(r#"{"object":{}}"#.to_owned())]
#[case::a_list("[1,2,3]".to_owned())]
#[case::null("null".to_owned())]
#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_identified_is_requested_again(#[case] garbage: String) {
    let mut run = by_pages([
        page(5, &[]),
        watch(&[
            added(object("a", "u1", 6)),
            garbage,
            added(object("c", "u3", 8)),
        ]),
        watch(&[added(object("b", "u2", 7)), added(object("c", "u3", 8))]),
    ]);
    run.expect_events(&["at 5", "synced", "added a:u1@6", "at 6"])
        .await;
    run.expect_events(&["added b:u2@7", "at 7", "added c:u3@8", "at 8"])
        .await;
    let requests = run.server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].contains("resourceVersion=6"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_never_identified_causes_a_list() {
    let garbage = || watch(&[added(r#"{"metadata":{"uid":"u1"}}"#)]);
    let mut run = by_pages([
        page(5, &[]),
        garbage(),
        garbage(),
        garbage(),
        page(9, &[object("a", "u1", 6)]),
    ]);
    run.expect_events(&["at 5", "synced", "added a:u1@6", "at 9", "relisted"])
        .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("b")),
        Lookup::Absent
    ));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_identified_hides_what_is_absent_until_the_next_list() {
    let mut run = by_pages([
        page(5, &[r#"{"metadata":{"uid":"u1"}}"#.to_owned()]),
        short_watch(&[]),
        page(9, &[object("a", "u1", 6)]),
    ]);
    run.expect_events(&["skipped something", "at 5", "synced"])
        .await;
    assert!(matches!(
        run.store.lookup(&Owners::key("a")),
        Lookup::Unknown
    ));
    run.expect_events(&["added a:u1@6", "at 9", "relisted"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_with_an_event_that_cannot_be_identified_is_repeated() {
    let mut run = by_stream([
        watch(&[added(r#"{"metadata":{"uid":"u1"}}"#), list_end(9)]),
        watch(&[added(object("a", "u1", 6)), list_end(9)]),
    ]);
    run.expect_events(&["initial a:u1@6", "at 9", "synced"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pods_heartbeat_is_no_update() {
    let pod = |version: u64, time: &str, phase: &str| {
        format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","resourceVersion":"{version}",
            "managedFields":[{{"manager":"kubelet","subresource":"status","time":"2026-01-01T00:00:{time}Z"}}]}},
            "status":{{"phase":"{phase}"}}}}"#
        )
        .replace('\n', "")
    };
    let replies = [
        page(5, &[pod(3, "01", "Running")]),
        watch(&[
            modified(pod(6, "11", "Running")),
            modified(pod(7, "12", "Failed")),
        ]),
    ];
    let mut run: Run<Pod> = start(replies, |i| {
        i.streaming_list(crate::informer::StreamingList::Never)
    });
    run.expect_events(&["initial p:u@3", "at 5", "synced", "at 6"])
        .await;
    run.expect_events(&["updated p:u@7 from p:u@6", "at 7"])
        .await;
    let pod = run.store.lookup(&Run::<Pod>::key("p")).found().unwrap();
    let written = pod.failure.as_ref().unwrap().status_written;
    assert_eq!(written, "2026-01-01T00:00:12Z".parse().ok());
}
