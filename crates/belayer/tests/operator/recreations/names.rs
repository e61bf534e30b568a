//! T7: owners whose names lead elsewhere.

use std::time::Duration;

use belayer_core::logged::Log;
use belayer_sandbox::{Gvr, ListOptions};
use serde_json::json;

use super::{YARD, Yard};

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
