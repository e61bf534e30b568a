//! The list of wipes of a node (rules R6, R7, T6). The test plays the node agent.

use std::borrow::Cow;
use std::time::Duration;

use belayer_pod_recreation::Settings;
use belayer_pod_recreation::api::Policy;
use belayer_sandbox::{Gvr, Subresource};
use serde_json::{Value, json};

use super::{Yard, uid};
use crate::world::BELAYER;

const WIPES: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("nodewipes"),
};

const NODE: &str = "node-1";

/// A cluster with a node that rejects every pod, and Belayer that re-creates none.
fn settings(max_retries: u32) -> Settings {
    let settings = Settings::default();
    let policy = Policy {
        max_retries,
        ..settings.policy
    };
    Settings {
        policy,
        record_ttl: Duration::from_secs(60),
        ..settings
    }
}

fn create_node(yard: &Yard) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
    yard.world.create(&Gvr::NODES, None, node);
}

/// Creates a pod on the node that requests a wipe. Returns its UID.
fn create_pod(yard: &Yard) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": super::YARD, "name": "web", "annotations": {
            "belayer.dev/recreate": "true", "belayer.dev/wipe": "true" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let created = yard.world.create(&Gvr::PODS, Some(super::YARD), pod);
    yard.bind("web", NODE);
    uid(&created)
}

fn list(yard: &Yard) -> Option<Value> {
    let found = yard.world.cluster().get(&WIPES, None, NODE).ok()?;
    Some((*found).clone())
}

fn has_entry(yard: &Yard, pod: &str) -> bool {
    list(yard).is_some_and(|list| list["spec"]["wipes"][pod].is_object())
}

/// The agent reports.
fn report(yard: &Yard, pod: &str, state: &str, message: &str) {
    let report = json!({ "state": state, "reason": "NotComplete", "message": message });
    let patch = json!({ "status": { "wipes": { pod: report } } });
    yard.world
        .patch_in(&WIPES, None, NODE, patch, Subresource::Status);
}

fn condition(yard: &Yard) -> Value {
    let record = yard.record();
    let all = record["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    let found = all.find(|one| one["type"] == "StateWiped");
    found.cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn r6_the_last_rejected_pod_is_wiped_and_its_hold_leaves_at_once() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is exhausted and has no hold", || {
        yard.phase() == "Exhausted" && !yard.is_held("web")
    })
    .await;
    let list = list(&yard).unwrap();
    let entry = &list["spec"]["wipes"][&pod];
    assert_eq!(entry["podName"], "web");
    assert_eq!(entry["namespace"], super::YARD);
    assert_eq!(list["metadata"]["ownerReferences"][0]["kind"], "Node");
    report(&yard, &pod, "NotWiped", "a mount in use");
    yard.until("the condition says so", || {
        condition(&yard)["message"] == "a mount in use"
    })
    .await;
    assert_eq!(yard.phase(), "Exhausted");
    report(&yard, &pod, "Wiped", "");
    yard.until("the condition says so", || {
        condition(&yard)["status"] == "True"
    })
    .await;
    yard.until("the entry is removed", || !has_entry(&yard, &pod))
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r7_an_entry_outlives_its_record() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("the record is deleted", || {
        has_entry(&yard, &pod) && yard.records().is_empty()
    })
    .await;
    // Neither the pod nor its record exists any more: that is how an exhausted re-creation ends.
    yard.delete("web");
    yard.wait_for(Duration::from_secs(600)).await;
    assert!(has_entry(&yard, &pod), "the entry was removed");
    report(&yard, &pod, "Wiped", "");
    yard.wait("the entry is removed", || !has_entry(&yard, &pod))
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r7_an_entry_goes_after_a_day_and_with_its_node() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    yard.wait_for(Duration::from_secs(23 * 3_600)).await;
    assert!(has_entry(&yard, &pod), "removed within a day");
    yard.wait_for(Duration::from_secs(2 * 3_600)).await;
    assert!(!has_entry(&yard, &pod), "kept for more than a day");
    assert!(list(&yard).is_some());
    yard.world.delete(&Gvr::NODES, None, NODE);
    yard.until("the list is deleted with its node", || {
        list(&yard).is_none()
    })
    .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r7_a_later_rejection_keeps_the_entry_of_the_first_pod() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(1));
    let first = create_pod(&yard);
    // No agent: after two minutes the pod is re-created elsewhere, and rejected there.
    yard.until("the second pod is rejected", || yard.phase() == "Exhausted")
        .await;
    assert!(has_entry(&yard, &first));
    belayer.stop().await;
}

/// A client that passes the policy writes the UID of another pod into a record.
#[tokio::test(start_paused = true)]
async fn t1_a_uid_that_another_pod_has_is_not_listed() {
    let yard = Yard::rejecting(1);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(3));
    yard.rejections.set(0);
    let victim = create_pod(&yard);
    yard.until("the victim runs", || yard.is_running("web"))
        .await;
    yard.rejections.set(1);
    let mine = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": super::YARD, "name": "mine", "annotations": {
            "belayer.dev/recreate": "true", "belayer.dev/wipe": "true" } },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let mine = uid(&yard.world.create(&Gvr::PODS, Some(super::YARD), mine));
    yard.until("the wipe is requested", || has_entry(&yard, &mine))
        .await;
    let name = yard.record()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let lie = json!({ "status": { "phase": "Rejected", "nodeName": NODE, "rejectedUID": victim, "conditions": null } });
    yard.world.patch_in(
        &super::RECORDS,
        Some(super::YARD),
        &name,
        lie,
        Subresource::Status,
    );
    yard.until("the request is refused", || {
        condition(&yard)["message"] == "the record's pod never had this UID"
    })
    .await;
    yard.pass(Duration::from_secs(120)).await;
    assert!(!has_entry(&yard, &victim));
    belayer.stop().await;
}
