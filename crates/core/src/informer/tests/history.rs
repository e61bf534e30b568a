//! What a store keeps of a pod beyond its newest version.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::server::*;
use crate::informer::StreamingList;
use crate::logical_time::LogicalTime;
use crate::object::ResourceVersion;
use crate::slim::{Continuity, Pod};

/// Version `version` of the pod `a`, merged with `more`.
fn pod(version: u64, more: &Value) -> String {
    let version = version.to_string();
    let mut pod = json!({
        "metadata": { "namespace": "n", "name": "a", "uid": "u1", "resourceVersion": version },
        "spec": {},
        "status": { "phase": "Pending" },
    });
    for (part, fields) in more.as_object().into_iter().flatten() {
        for (name, value) in fields.as_object().into_iter().flatten() {
            pod[part][name] = value.clone();
        }
    }
    pod.to_string()
}

fn pending(version: u64) -> String {
    pod(
        version,
        &json!({ "metadata": { "labels": { "kept": version.to_string() } } }),
    )
}

fn scheduled(version: u64) -> String {
    let since = "2026-01-01T00:00:00Z";
    let condition =
        json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": since });
    pod(
        version,
        &json!({ "spec": { "nodeName": "n1" }, "status": { "conditions": [condition] } }),
    )
}

fn condition(version: u64, name: &str) -> String {
    let condition = json!({ "type": name, "status": "True" });
    pod(version, &json!({ "status": { "conditions": [condition] } }))
}

fn rejected(version: u64) -> String {
    let start = "2026-01-01T00:05:00Z";
    pod(
        version,
        &json!({ "status": { "phase": "Failed", "reason": "OutOfcpu", "startTime": start } }),
    )
}

/// An informer whose store has reached `version` with these `replies`.
async fn run_to(replies: impl IntoIterator<Item = Reply>, version: u64) -> Run<Pod> {
    let run: Run<Pod> = start(replies, |informer| {
        informer.streaming_list(StreamingList::Never)
    });
    run.store
        .wait_for(ResourceVersion::new(version))
        .await
        .unwrap();
    run
}

fn pod_of(run: &Run<Pod>) -> Arc<Pod> {
    let found = run.store.lookup(&Run::<Pod>::key("a")).found().unwrap();
    Arc::clone(&found.object)
}

/// The pod once the store has reached `version` with these `replies`.
async fn after(replies: impl IntoIterator<Item = Reply>, version: u64) -> Arc<Pod> {
    pod_of(&run_to(replies, version).await)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_ran_was_observed_continuously() {
    let events = [
        added(pending(6)),
        modified(scheduled(7)),
        modified(rejected(8)),
    ];
    let seen = after([page(5, &[]), watch(&events)], 8).await;
    let unstarted = seen.unstarted.as_deref().unwrap();
    assert_eq!(unstarted.continuity, Continuity::Unbroken);
    // The rejection has dropped the condition; the store still knows that it was there.
    assert_eq!(
        unstarted.scheduled,
        Some("2026-01-01T00:00:00Z".parse().unwrap())
    );
    assert!(!unstarted.kubelet_reported);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_status_before_the_rejection_is_kept() {
    let taken = pod(
        7,
        &json!({ "status": { "startTime": "2026-01-01T00:00:01Z" } }),
    );
    let events = [added(pending(6)), modified(taken), modified(rejected(8))];
    let seen = after([page(5, &[]), watch(&events)], 8).await;
    assert!(seen.unstarted.as_deref().unwrap().kubelet_reported);
}

#[rstest]
#[case::an_ip(pod(7, &json!({ "status": { "podIP": "10.0.0.1" } })))]
#[case::a_sandbox(condition(7, "PodReadyToStartContainers"))]
#[case::a_container(pod(7, &json!({ "status": { "containerStatuses": [{ "name": "c", "started": true }] } })))]
#[tokio::test(start_paused = true)]
async fn a_sign_that_a_pod_ran_is_never_revoked(#[case] ran: String) {
    let events = [
        added(pending(6)),
        modified(ran.clone()),
        modified(rejected(8)),
    ];
    assert_eq!(
        after([page(5, &[]), watch(&events)], 8).await.unstarted,
        None
    );
    // A list that missed the versions in between does not revoke it either.
    let events = [added(pending(6)), modified(ran)];
    let replies = [
        page(5, &[]),
        watch(&events),
        status(410, ""),
        page(9, &[rejected(8)]),
    ];
    assert_eq!(after(replies, 9).await.unstarted, None);
}

#[rstest]
#[case::a_list_with_a_later_version([
    page(5, &[]), watch(&[added(pending(6))]), status(410, ""), page(9, &[rejected(8)]),
], Continuity::Broken)]
#[case::a_list_with_the_same_version([
    page(5, &[]), watch(&[added(pending(6))]), status(410, ""), page(9, &[pending(6)]),
], Continuity::Unbroken)]
#[case::a_watch_that_continues([
    page(5, &[]), short_watch(&[added(pending(6))]), watch(&[modified(rejected(8))]), watch(&[]),
], Continuity::Unbroken)]
#[case::a_version_that_cannot_be_read([
    page(5, &[]),
    watch(&[
        added(pending(6)),
        modified(pod(7, &json!({ "metadata": { "labels": 5 } }))),
        modified(rejected(8)),
        bookmark(9),
    ]),
    watch(&[]),
    watch(&[]),
], Continuity::Broken)]
#[case::a_first_version_that_cannot_be_read([
    page(5, &[]),
    watch(&[
        added(pod(6, &json!({ "metadata": { "labels": 5 } }))),
        modified(pending(7)),
        modified(rejected(8)),
        bookmark(9),
    ]),
    watch(&[]),
    watch(&[]),
], Continuity::Broken)]
#[tokio::test(start_paused = true)]
async fn what_ends_continuity(#[case] replies: [Reply; 4], #[case] expected: Continuity) {
    let version = match expected {
        Continuity::Unbroken => 6,
        Continuity::Broken => 9,
    };
    let run = run_to(replies, version).await;
    run.server.asked(3).await;
    assert_eq!(pod_of(&run).continuity(), Some(expected));
}

fn deleting(version: u64, containers: &Value) -> String {
    let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:30Z" });
    pod(
        version,
        &json!({ "metadata": deleted, "status": { "containerStatuses": containers } }),
    )
}

fn ended(name: &str, code: i32) -> Value {
    let at = "2026-01-01T00:00:05Z";
    json!({ "name": name, "state": { "terminated": { "exitCode": code, "startedAt": at, "finishedAt": at } } })
}

fn running(name: &str) -> Value {
    json!({ "name": name, "state": { "running": {} } })
}

/// The names of the containers that were unfinished after the deletion.
fn unfinished(pod: &Pod) -> Vec<&str> {
    let containers = pod.containers().iter();
    containers
        .filter(|c| c.unfinished_at_deletion)
        .map(|c| &*c.name)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn containers_unfinished_at_the_deletion_are_kept() {
    let alive = pod(
        6,
        &json!({ "status": { "containerStatuses": [ended("main", 0), running("wait")] } }),
    );
    let events = [
        added(alive),
        modified(deleting(7, &json!([ended("main", 0), running("wait")]))),
        modified(deleting(8, &json!([ended("main", 0), ended("wait", 143)]))),
    ];
    let seen = after([page(5, &[]), watch(&events)], 8).await;
    assert_eq!(unfinished(&seen), ["wait"]);
    // Also across a list that missed the end.
    let events = [added(deleting(6, &json!([running("main")])))];
    let last = deleting(8, &json!([ended("main", 143)]));
    let replies = [
        page(5, &[]),
        watch(&events),
        status(410, ""),
        page(9, &[last]),
    ];
    assert_eq!(unfinished(&*after(replies, 9).await), ["main"]);
}

/// A container that the version with the deletion does not report yet had not ended.
#[tokio::test(start_paused = true)]
async fn a6_a_container_without_a_report_was_unfinished_at_the_deletion() {
    let last = deleting(8, &json!([ended("main", 143), ended("wait", 143)]));
    let events = [
        added(scheduled(6)),
        modified(deleting(7, &json!([running("wait")]))),
        modified(last.clone()),
    ];
    let seen = after([page(5, &[]), watch(&events)], 8).await;
    assert_eq!(unfinished(&seen), ["main", "wait"]);
    // Also if the first version seen is the one with the deletion.
    let replies = [
        page(7, &[deleting(7, &json!([]))]),
        watch(&[modified(last.clone())]),
    ];
    assert_eq!(unfinished(&*after(replies, 8).await), ["main", "wait"]);
    // A kubelet that restarts rejects also pods that have run, and writes no containers at first.
    let mut rejected: Value = serde_json::from_str(&deleting(7, &json!([]))).unwrap();
    rejected["status"]["phase"] = json!("Failed");
    let events = [
        added(scheduled(6)),
        modified(rejected.to_string()),
        modified(last),
    ];
    let seen = after([page(5, &[]), watch(&events)], 8).await;
    assert_eq!(unfinished(&seen), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pod_first_seen_after_its_end_proves_nothing() {
    let last = deleting(4, &json!([ended("main", 143)]));
    let seen = after([page(5, &[last]), watch(&[])], 5).await;
    assert_eq!(unfinished(&seen), Vec::<&str>::new());
}

/// The pod of a store that takes over from one that has seen `earlier`, and whose first list contains `listed`.
async fn taken_over(earlier: &[String], listed: String) -> Arc<Pod> {
    let previous = run_to([page(5, &[]), watch(earlier)], 5 + earlier.len() as u64).await;
    let next: Run<Pod> = start([page(9, &[listed])], |informer| {
        informer.streaming_list(StreamingList::Never)
    });
    next.store.take_over(&previous.store);
    next.store.wait_for(ResourceVersion::new(9)).await.unwrap();
    pod_of(&next)
}

#[tokio::test(start_paused = true)]
async fn r8_a_store_that_takes_over_keeps_what_was_seen() {
    let earlier = [added(pending(6)), modified(rejected(7))];
    assert!(taken_over(&earlier, rejected(7)).await.is_known_unstarted());
    // Versions between the last one seen and the listed one are missing.
    let later = taken_over(&earlier, rejected(8)).await;
    assert!(!later.is_known_unstarted());
    assert!(later.unstarted.as_deref().unwrap().seen_before_failure);
}

#[tokio::test(start_paused = true)]
async fn a6_a_store_that_takes_over_keeps_the_order_of_end_and_deletion() {
    let deleting = |version, state: Value| {
        let mut pod: Value = serde_json::from_str(&pod(
            version,
            &json!({ "status": { "containerStatuses": [{ "name": "main", "state": state }] } }),
        ))
        .unwrap();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        pod.to_string()
    };
    let ended = deleting(8, json!({ "terminated": { "exitCode": 143 } }));
    let earlier = [
        added(pending(6)),
        modified(deleting(7, json!({ "running": {} }))),
        modified(ended.clone()),
    ];
    let seen = taken_over(&earlier, ended.clone()).await;
    assert!(seen.containers()[0].unfinished_at_deletion);
    let seen = after([page(9, &[ended])], 9).await;
    assert!(!seen.containers()[0].unfinished_at_deletion);
}

/// The server's data goes back (a restored etcd): what was read before it proves nothing about what is seen after it.
#[rstest]
#[case::to_before_the_deletion(pending(3), false)]
#[case::to_after_the_deletion(deleting(4, &json!([])), true)]
#[case::to_the_same_version(deleting(7, &json!([])), true)]
#[tokio::test(start_paused = true)]
async fn a_deletion_is_seen_anew_once_the_data_went_back(
    #[case] restored: String,
    #[case] is_deleting: bool,
) {
    let listed = || page(8, std::slice::from_ref(&restored));
    let deleted = deleting(9, &json!([]));
    let mut replies = vec![page(10, &[deleting(7, &json!([]))]), status(410, "")];
    replies.extend((0..4).map(|_| listed()));
    replies.extend([slow_watch(&[(5, modified(deleted))])]);
    let run = run_to(replies, 10).await;
    let stored = || run.store.lookup(&Run::<Pod>::key("a")).found().unwrap();
    let before = stored();
    while run.store.resource_version() != ResourceVersion::new(8) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let between = LogicalTime::now();
    assert!(stored().first_seen > before.first_seen);
    assert_eq!(stored().deletion_seen.is_some(), is_deleting);
    assert!(
        stored()
            .deletion_seen
            .is_none_or(|seen| Some(seen) > before.deletion_seen && seen < between)
    );
    run.store.wait_for(ResourceVersion::new(9)).await.unwrap();
    assert_eq!(
        stored().deletion_seen.is_some_and(|seen| seen > between),
        !is_deleting
    );
}
