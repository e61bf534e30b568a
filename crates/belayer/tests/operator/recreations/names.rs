//! Owners whose names lead elsewhere (T7), and pods with the same name.

use std::time::Duration;

use belayer_core::logged::Log;
use belayer_pod_recreation::Settings;
use belayer_sandbox::{Gvr, ListOptions, Subresource};
use rstest::rstest;
use serde_json::json;

use super::{Running, YARD, Yard};
use crate::world::BELAYER;

/// The name of a cluster-scoped owner that would lead to another tenant's pod, and that of one that leads to nothing.
#[tokio::test(start_paused = true)]
async fn t7_a_cluster_scoped_owner_is_not_read() {
    let log = Log::kept();
    let yard = Yard::without_garbage_collection();
    yard.world.create_namespace("prod");
    let theirs = yard.world.create(
        &Gvr::PODS,
        Some("prod"),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "db-0", "namespace": "prod" },
            "spec": { "containers": [{ "name": "main", "image": "db" }] },
        }),
    );
    let theirs = theirs["metadata"]["uid"].as_str().unwrap().to_owned();
    let belayer = yard.run();
    for (pod, name) in [
        ("a", "prod/pods/db-0"),
        ("b", "prod"),
        ("c", "prod/../prod"),
    ] {
        let owner =
            json!([{ "apiVersion": "v1", "kind": "Namespace", "name": name, "uid": "u-o" }]);
        yard.pod_with(
            pod,
            json!({ "annotations": { "belayer.dev/recreate": "true" }, "ownerReferences": owner }),
        );
    }
    yard.pass(Duration::from_secs(300)).await;
    belayer.stop().await;
    let events = yard
        .world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let events = events.iter().map(|event| event.to_string());
    let records = yard.list(&super::RECORDS);
    let records = records.iter().map(|record| record.to_string());
    // It may be logged as a pod of its own, but never because of an owner.
    let about_owners = log.text();
    let about_owners = about_owners.lines().filter(|line| line.contains("owner"));
    for text in events.chain(records).chain(about_owners.map(str::to_owned)) {
        assert!(!text.contains(&theirs), "{text}");
    }
    assert!(
        yard.world
            .cluster()
            .get(&Gvr::PODS, Some("prod"), "db-0")
            .is_ok()
    );
    assert!(yard.list(&Gvr::PODS).len() >= 3, "{YARD}");
}

/// A pod whose owner reference names an API that cannot exist. Its record waited for ever, without an Event.
#[rstest]
#[case::an_escaped_group("%/v1")]
#[case::a_parent("../v1")]
#[case::an_escaped_version("v%31")]
#[tokio::test(start_paused = true)]
async fn t7_an_owner_of_an_impossible_api_delays_no_re_creation(#[case] api_version: &str) {
    let yard = Yard::rejecting(1);
    let belayer = yard.run();
    let owner = json!([{ "apiVersion": api_version, "kind": "Widget", "name": "w", "uid": "u-o" }]);
    yard.pod_with(
        "web",
        json!({ "annotations": { "belayer.dev/recreate": "true" }, "ownerReferences": owner }),
    );
    yard.until("the pod runs", || yard.started("web") == 1)
        .await;
    belayer.stop().await;
}

/// A cluster whose kubelet rejects each pod this many times, in which a rejected pod `web` is deleted and the pause before its
/// re-creation runs.
async fn in_its_pause(rejections: usize) -> (Yard, Running) {
    let yard = Yard::rejecting(rejections);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the rejected pod is deleted", || yard.phase() == "Waiting")
        .await;
    (yard, belayer)
}

/// A user creates a new version of a rejected pod while the pause before the re-creation of the old one runs. The new one is
/// rejected as well, and deleted before the record of the old one is worked on. That record created the old version then, and the new
/// one was lost.
#[tokio::test(start_paused = true)]
async fn a_pod_that_replaces_a_rejected_one_is_the_one_that_is_created_again() {
    let (yard, belayer) = in_its_pause(2).await;
    yard.pod_on(
        "web",
        json!({ "containers": [{ "name": "main", "image": "new" }] }),
    );
    yard.until("the pod runs", || yard.started("web") == 1)
        .await;
    let pod = yard.find("web").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "new");
    yard.pass(Duration::from_secs(60)).await;
    assert_eq!(yard.world.events("NameTaken"), 1);
    let phases = yard.records();
    let mut phases: Vec<_> = phases
        .iter()
        .map(|record| &record["status"]["phase"])
        .collect();
    phases.sort_by_key(|phase| phase.to_string());
    assert_eq!(phases, ["Ended", "Started"]);
    belayer.stop().await;
}

/// A user creates another pod with the name while the pause before the re-creation runs, and deletes it before the pause ends. The
/// rejected version was created then, after its user had replaced it and deleted the replacement.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_name_was_in_use_during_its_pause_is_not_created_again() {
    let (yard, belayer) = in_its_pause(1).await;
    yard.pod_with("web", json!({}));
    yard.pass(Duration::from_secs(1)).await;
    yard.delete("web");
    yard.pass(Duration::from_secs(120)).await;
    assert!(yard.find("web").is_none());
    assert_eq!(yard.phase(), "Ended");
    assert_eq!(yard.world.events("NameTaken"), 1);
    belayer.stop().await;
}

/// `kubectl replace` of a re-created pod. A second record was written for it: the two ended each other, and both counted
/// attempts.
#[rstest]
#[case::and_is_re_created_again(3, "Started", 2)]
#[case::and_was_the_last_allowed_attempt(1, "Exhausted", 1)]
#[tokio::test(start_paused = true)]
async fn a_pod_whose_annotations_a_client_removes_stays_a_pod_of_its_record(
    #[case] max_retries: u32,
    #[case] phase: &str,
    #[case] created: usize,
) {
    let yard = Yard::rejecting(2);
    let mut settings = Settings::default();
    settings.policy.max_retries = max_retries;
    let belayer = yard.run_as(BELAYER, settings);
    yard.pod("web");
    yard.until("it is rejected", || !yard.phase().is_empty())
        .await;
    yard.wait("it is re-created", || yard.phase() == "Recreated")
        .await;
    let annotations = json!({
        "belayer.dev/recreation": null, "belayer.dev/recreation-uid": null,
        "belayer.dev/recreation-attempt": null,
    });
    let patch = json!({ "metadata": { "annotations": annotations } });
    let (pods, namespace) = (&Gvr::PODS, Some(YARD));
    yard.world
        .patch_in(pods, namespace, "web", patch, Subresource::None);
    yard.until("it is over", || yard.phase() == phase).await;
    yard.wait("it is released", || !yard.is_held("web")).await;
    assert_eq!(yard.record()["status"]["attempts"], created);
    // Neither before nor after the end of the record, which is kept for an hour.
    yard.pass(Duration::from_secs(7_200)).await;
    assert!(yard.records().is_empty());
    assert_eq!(yard.creates(), created);
    belayer.stop().await;
}

/// As with an exported pod: the copy has the annotations of the re-created pod, but Belayer did not create it.
#[tokio::test(start_paused = true)]
async fn a_copy_that_takes_the_name_ends_the_re_creation() {
    let yard = Yard::rejecting(2);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the second pod is rejected", || {
        yard.phase() == "Waiting" && yard.record()["status"]["attempts"] == 1
    })
    .await;
    let record = yard.record();
    let annotations = json!({
        "belayer.dev/recreate": "true",
        "belayer.dev/recreation": record["metadata"]["name"],
        "belayer.dev/recreation-uid": record["metadata"]["uid"],
        "belayer.dev/recreation-attempt": "1",
    });
    yard.pod_with("web", json!({ "annotations": annotations }));
    yard.until("the record has ended", || yard.phase() == "Ended")
        .await;
    assert_eq!(yard.world.events("NameTaken"), 1);
    yard.delete("web");
    yard.pass(Duration::from_secs(120)).await;
    assert!(yard.find("web").is_none(), "it is created again");
    belayer.stop().await;
}

/// A backup brings back a record of an earlier pod of the name, without its status, where no policy forbids that. It is ignored, and
/// ends no re-creation.
#[tokio::test(start_paused = true)]
async fn a_restored_record_does_not_replace_the_one_that_is_worked_on() {
    let (yard, belayer) = in_its_pause(1).await;
    let mut restored = yard.record();
    restored["metadata"] = json!({ "namespace": YARD, "name": "web-0badcafe" });
    restored["spec"]["firstUID"] = json!("0badcafe-0000-0000-0000-000000000000");
    restored["status"] = json!(null);
    // The time of a record is to the second: this one is later.
    yard.wait_for(Duration::from_secs(2)).await;
    yard.world.create(&super::RECORDS, Some(YARD), restored);
    yard.until("the pod runs", || yard.started("web") == 1)
        .await;
    assert_eq!(yard.creates(), 1);
    assert_eq!(yard.world.events("NameTaken"), 0);
    belayer.stop().await;
}
