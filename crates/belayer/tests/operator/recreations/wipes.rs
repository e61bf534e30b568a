//! The list of wipes of a node (rules R6, R7, T6). The test plays the node agent.

use std::borrow::Cow;
use std::time::Duration;

use belayer_metrics::exposition::parse;
use belayer_metrics::{Exporter, OLDEST_WIPE};
use belayer_pod_recreation::Settings;
use belayer_pod_recreation::api::Policy;
use belayer_sandbox::{Answer, Fault, FaultHandle, Gvr, Match, Subresource};
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Fate, Yard, uid};
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

/// The agent cannot report that while it is down.
#[tokio::test(start_paused = true)]
async fn the_age_of_the_oldest_pending_wipe_is_a_metric() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let oldest = || {
        let families = parse(&exporter.render()).unwrap();
        families[OLDEST_WIPE].value(&[]).unwrap()
    };
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("the wipe is requested", || has_entry(&yard, &pod))
        .await;
    assert!(oldest() < 60.0, "{}", oldest());
    yard.wait_for(Duration::from_secs(3_600)).await;
    report(&yard, &pod, "NotWiped", "a mount in use");
    yard.pass(Duration::from_secs(30)).await;
    assert!(oldest() > 3_600.0, "{}", oldest());
    report(&yard, &pod, "Wiped", "");
    yard.until("none waits", || oldest() == 0.0).await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r7_an_entry_stays_after_a_day_and_goes_with_its_node() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    yard.wait_for(Duration::from_secs(25 * 3_600)).await;
    assert!(has_entry(&yard, &pod), "removed although its node exists");
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

/// Until the fault is removed, no wipe can be requested: the API server is overloaded.
fn no_requests(yard: &Yard) -> FaultHandle {
    let writes = Match::writes().resource("nodewipes").client(BELAYER);
    let fault = Fault::on(writes).answer(Answer::service_unavailable());
    yard.world.sandbox.faults().inject(fault)
}

/// R6: neither Belayer nor the API server may be available for minutes after a rejection.
#[rstest]
#[case::belayer_was_down(true)]
#[case::the_api_server_was_overloaded(false)]
#[tokio::test(start_paused = true)]
async fn r6_a_wipe_is_requested_after_an_outage(#[case] is_down: bool) {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let fault = no_requests(&yard);
    let mut belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    if is_down {
        belayer.stop().await;
        yard.wait_for(Duration::from_secs(300)).await;
        fault.remove();
        belayer = yard.run_as(BELAYER, settings(0));
    } else {
        yard.wait_for(Duration::from_secs(300)).await;
        assert_eq!(yard.phase(), "Rejected");
        fault.remove();
    }
    yard.wait("the wipe is requested", || has_entry(&yard, &pod))
        .await;
    yard.wait("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    belayer.stop().await;
}

/// R6: the API server refuses every request of a wipe. That keeps no pod for ever, and the condition says so.
#[tokio::test(start_paused = true)]
async fn r6_a_refused_request_is_reported_by_the_condition() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let writes = Match::writes().resource("nodewipes").client(BELAYER);
    let refused = Fault::on(writes).answer(Answer::forbidden("no"));
    yard.world.sandbox.faults().inject(refused);
    let belayer = yard.run_as(BELAYER, settings(0));
    create_pod(&yard);
    yard.until("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    let condition = condition(&yard);
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "NotRequested");
    belayer.stop().await;
}

const DAY: SignedDuration = SignedDuration::from_hours(25);

#[tokio::test(start_paused = true)]
async fn l9_a_jump_ahead_forgets_no_wipe() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    let _after = yard.jump(DAY);
    report(&yard, &pod, "NotWiped", "a mount in use");
    yard.wait_for(Duration::from_secs(600)).await;
    assert!(has_entry(&yard, &pod), "the entry was removed");
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l9_a_jump_skips_no_required_wipe() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let fault = no_requests(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    let _after = yard.jump(DAY);
    yard.wait_for(Duration::from_secs(5)).await;
    fault.remove();
    yard.wait("the wipe is requested", || has_entry(&yard, &pod))
        .await;
    belayer.stop().await;
}

/// R6: the re-created pod is rejected for a reason that no further re-creation can help.
#[tokio::test(start_paused = true)]
async fn r6_a_permanent_rejection_is_wiped_too() {
    let yard = Yard::rejecting(1);
    create_node(&yard);
    let belayer = yard.run_as(BELAYER, settings(3));
    let first = create_pod(&yard);
    yard.until("its wipe is requested", || has_entry(&yard, &first))
        .await;
    report(&yard, &first, "Wiped", "");
    yard.wait("it is re-created", || {
        yard.phase() == "Recreated" && yard.is_held("web")
    })
    .await;
    let second = uid(&yard.find("web").unwrap());
    yard.bind("web", NODE);
    yard.report("web", Fate::Rejected("SysctlForbidden"));
    yard.wait("it is reported", || yard.phase() == "Ended")
        .await;
    assert!(has_entry(&yard, &second), "its directories stay");
    assert_eq!(yard.creates(), 1);
    assert_eq!(yard.world.events("NotRecreated"), 1);
    report(&yard, &second, "Wiped", "");
    yard.wait("the condition says so", || {
        condition(&yard)["status"] == "True"
    })
    .await;
    belayer.stop().await;
}

/// T8: the list of a node has space for 1,000 wipes.
#[tokio::test(start_paused = true)]
async fn t8_one_namespace_does_not_fill_the_list_of_a_node() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let entry = |name: usize| {
        json!({ "namespace": super::YARD, "podName": format!("web-{name}"), "record": format!("web-{name}-1"),
            "requestedAt": "2026-01-01T00:00:00Z" })
    };
    let uid_of = |name: usize| format!("0a1b2c3d-0000-4000-8000-{name:012}");
    let entries: serde_json::Map<_, _> = (0..250).map(|n| (uid_of(n), entry(n))).collect();
    let full = json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "NodeWipe", "metadata": { "name": NODE },
        "spec": { "wipes": entries } });
    yard.world.create(&WIPES, None, full);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is exhausted", || yard.phase() == "Exhausted")
        .await;
    assert!(!has_entry(&yard, &pod));
    assert_eq!(condition(&yard)["reason"], "NotRequested");

    let other = "other";
    yard.world.create_namespace(other);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": other, "name": "web", "annotations": {
            "belayer.dev/recreate": "true", "belayer.dev/wipe": "true" } },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let pod = uid(&yard.world.create(&Gvr::PODS, Some(other), pod));
    let rejected = json!({ "status": { "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: x" } });
    yard.wait_for(Duration::from_secs(5)).await;
    yard.world.patch_in(
        &Gvr::PODS,
        Some(other),
        "web",
        rejected,
        Subresource::Status,
    );
    yard.wait("its wipe is requested", || has_entry(&yard, &pod))
        .await;
    belayer.stop().await;
}

/// T1: the pods of a node are too large for a page of a list.
#[tokio::test(start_paused = true)]
async fn t1_large_pods_do_not_hide_a_uid() {
    let yard = Yard::rejecting(99);
    create_node(&yard);
    let fault = no_requests(&yard);
    let belayer = yard.run_as(BELAYER, settings(0));
    let pod = create_pod(&yard);
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    let value = "x".repeat(1 << 20);
    for n in 0..40 {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": super::YARD, "name": format!("large-{n}") },
            "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "busybox",
                "env": [{ "name": "LARGE", "value": value }] }] },
        });
        yard.world.create(&Gvr::PODS, Some(super::YARD), pod);
    }
    // Its user deletes it: whether it is gone, only a list of the pods of its node shows.
    yard.delete("web");
    yard.wait("it does not exist", || yard.find("web").is_none())
        .await;
    fault.remove();
    yard.wait("the wipe is requested", || has_entry(&yard, &pod))
        .await;
    belayer.stop().await;
}
