//! The re-creation of a rejected pod without faults.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::{Operator, Options};
use belayer::server::Health as _;
use belayer_core::client;
use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_core::object::ObjectKey;
use belayer_holds::names::{POD_RECREATION_HOLD, USER_AGENT};
use belayer_metrics::Exporter;
use belayer_pod_recreation::{Settings, crd};
use belayer_sandbox::{Answer, Fault, Gvr, Match, Subresource, Verb, WatchEnd};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Fate, RECORDS, Running, Yard, uid};
use crate::world::{BELAYER, options};

#[tokio::test(start_paused = true)]
async fn a_pod_rejected_once_runs_under_its_name() {
    let yard = Yard::new();
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    assert_ne!(uid(&pod), first);
    assert_eq!(pod["metadata"]["labels"], json!({ "app": "web" }));
    assert_eq!(
        pod["metadata"]["annotations"]["belayer.dev/recreation-attempt"],
        "1"
    );
    let record = yard.record();
    let status = &record["status"];
    assert_eq!(status["podStarts"], 2);
    assert_eq!(status["podRecreated"], 1);
    assert_eq!(status["attempts"], 1);
    assert_eq!(status["rejectedUID"], first);
    assert_eq!(yard.creates(), 1);
    // The managedFields of the rejected pod name its creator.
    assert_eq!(yard.world.events("CreatorUnknown"), 0);
    belayer.stop().await;
}

/// A dry run decides and logs.
#[tokio::test(start_paused = true)]
async fn a_dry_run_logs_the_next_step() {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).client(BELAYER);
    let refused = Fault::on(creates.resource("podrecreations")).answer(Answer::internal_error());
    let refused = yard.world.sandbox.faults().inject(refused);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("its record is refused", || refused.hits() > 0)
        .await;
    belayer.stop().await;
    refused.remove();
    dry_run_logs(&yard, "the record of the rejected pod").await;
    assert!(yard.records().is_empty());

    let belayer = yard.run();
    yard.wait("its pause begins", || yard.phase() == "Waiting")
        .await;
    belayer.stop().await;
    dry_run_logs(&yard, "the status of its record").await;
    assert_eq!(yard.phase(), "Waiting");
}

async fn dry_run_logs(yard: &Yard, step: &str) {
    let client = yard.world.sandbox.service(BELAYER);
    let client = client::in_process(client, USER_AGENT);
    let options = Options {
        writes: Writes::DryRun,
        ..options(client)
    };
    let writes = yard.world.sandbox.recorder().writes_by(BELAYER).len();
    let log = Log::kept();
    let stop = CancellationToken::new();
    let operator = Operator::new(options, Yard::components(Settings::default()));
    let task = tokio::spawn(operator.run(stop.clone()));
    yard.wait_for(Duration::from_secs(90)).await;
    stop.cancel();
    task.await.unwrap();
    let lines = log.lines("dry run: not sent");
    assert!(!lines.is_empty() && lines.len() < 5, "{lines:#?}");
    let says = |line: &String| line.contains(step) && line.contains("web");
    assert!(lines.iter().all(says), "{lines:#?}");
    let after = yard.world.sandbox.recorder().writes_by(BELAYER).len();
    assert_eq!(after, writes);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_deleted_after_its_ttl() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it runs", || yard.is_settled("web")).await;
    yard.pass(Duration::from_secs(3_500)).await;
    assert_eq!(yard.records().len(), 1);
    yard.until("the record is gone", || yard.records().is_empty())
        .await;
    assert!(yard.is_running("web"));
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_rejected_always_is_recreated_three_times() {
    let yard = Yard::rejecting(99);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("exhausted", || {
        yard.phase() == "Exhausted" && !yard.is_held("web")
    })
    .await;
    assert_eq!(yard.creates(), 3, "three re-creations, not four");
    assert_eq!(yard.pods_seen("web"), 4);
    let status = yard.record()["status"].clone();
    assert_eq!(status["attempts"], 3);
    assert_eq!(status["podStarts"], 4);
    assert_eq!(status["podRecreated"], 3);
    assert_eq!(yard.world.events("RecreationExhausted"), 1);
    let writes = yard.applied(&Gvr::PODS) + yard.applied(&super::RECORDS);
    yard.pass(Duration::from_secs(1_800)).await;
    let later = yard.applied(&Gvr::PODS) + yard.applied(&super::RECORDS);
    assert_eq!(later, writes, "writes after the end");
    yard.pass(Duration::from_secs(1_500)).await;
    // The record is deleted after an hour; the pod is not recorded again, also not after a restart.
    yard.until("the record is gone", || yard.records().is_empty())
        .await;
    belayer.stop().await;
    let again = yard.run();
    yard.pass(Duration::from_secs(600)).await;
    assert_eq!(yard.creates(), 3);
    assert!(yard.records().is_empty());
    again.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_retries_the_pod_stays_and_is_annotated() {
    let yard = Yard::rejecting(99);
    let mut settings = belayer_pod_recreation::Settings::default();
    settings.policy.max_retries = 0;
    let belayer = yard.run_as("belayer", settings.clone());
    let first = yard.pod("web");
    yard.until("exhausted", || {
        yard.phase() == "Exhausted" && !yard.is_held("web")
    })
    .await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), first);
    let reason = &pod["metadata"]["annotations"]["belayer.dev/recreation-ended"];
    assert!(
        reason
            .as_str()
            .is_some_and(|text| text.contains("0 re-creations")),
        "{reason}"
    );
    yard.pass(Duration::from_secs(3_300)).await;
    yard.until("the record is gone", || yard.records().is_empty())
        .await;
    belayer.stop().await;
    let again = yard.run_as("belayer", settings);
    yard.pass(Duration::from_secs(600)).await;
    assert!(
        yard.records().is_empty(),
        "the annotation outlives the record"
    );
    again.stop().await;
}

/// As `kubectl get pod web -o yaml | kubectl replace --force -f -` does.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_pod_that_is_not_re_created_is_an_ordinary_pod() {
    let yard = Yard::rejecting(2);
    let mut settings = Settings::default();
    settings.policy.max_retries = 0;
    let belayer = yard.run_as("belayer", settings);
    yard.pod("web");
    yard.until("it is released", || {
        yard.phase() == "Exhausted" && !yard.is_held("web")
    })
    .await;
    belayer.stop().await;
    let annotations = yard.find("web").unwrap()["metadata"]["annotations"].clone();
    assert!(annotations["belayer.dev/recreation-ended"].is_string());
    yard.delete("web");
    let belayer = yard.run();
    let copy = yard.pod_with("web", json!({ "annotations": annotations }));
    yard.until("it runs", || yard.is_running("web")).await;
    assert_ne!(uid(&yard.find("web").unwrap()), copy);
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_reason_is_reported_and_not_recreated() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let yard = Yard::rejecting(99);
    yard.reason.set("SysctlForbidden");
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is released", || {
        yard.pods_seen("web") == 1 && !yard.is_held("web")
    })
    .await;
    yard.pass(Duration::from_secs(60)).await;
    assert!(yard.records().is_empty());
    assert_eq!(yard.creates(), 0);
    assert_eq!(yard.world.events("NotRecreated"), 1);
    let line = "belayer_recreations_total{reason=\"Other\",outcome=\"reported\"} 1\n";
    assert!(exporter.render().contains(line));
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_and_is_rejected_after_a_restart_of_its_kubelet_is_never_recreated() {
    let yard = Yard::rejecting(0);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it runs, not held any more", || {
        yard.is_running("web") && !yard.is_held("web")
    })
    .await;
    // A fresh status, as the kubelet writes it: it does not show that containers ran.
    let fresh = json!({ "status": { "phase": "Failed", "reason": "NodeAffinity",
        "message": "Pod was rejected: Predicate NodeAffinity failed",
        "containerStatuses": null, "podIP": null } });
    let status = belayer_sandbox::Subresource::Status;
    yard.world
        .patch_in(&Gvr::PODS, Some(super::YARD), "web", fresh, status);
    yard.pass(Duration::from_secs(120)).await;
    assert!(yard.records().is_empty());
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_rejected_while_belayer_was_down_is_recreated() {
    let yard = Yard::new();
    yard.pod("web");
    yard.report("web", Fate::Rejected("NodeAffinity"));
    yard.rejections.set(0);
    let belayer = yard.run();
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_controllers_and_mirrors_are_never_touched() {
    let yard = Yard::rejecting(99);
    let belayer = yard.run();
    for kind in ["ReplicaSet", "Job", "DaemonSet", "StatefulSet"] {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u-o", "controller": true }]);
        // Without owner existing, the garbage collector deletes them.
        yard.pod_with(&kind.to_lowercase(), json!({ "ownerReferences": owner }));
    }
    let mirror = json!({ "annotations": {
        "belayer.dev/recreate": "true", "kubernetes.io/config.mirror": "hash" } });
    yard.pod_with("mirror", mirror);
    for pod in yard.list(&Gvr::PODS) {
        yard.report(
            pod["metadata"]["name"].as_str().unwrap(),
            Fate::Rejected("OutOfcpu"),
        );
    }
    yard.pass(Duration::from_secs(60)).await;
    assert_eq!(yard.applied(&Gvr::PODS), 0);
    assert_eq!(yard.applied(&super::RECORDS), 0);
    belayer.stop().await;
}

/// The test plays the node agent.
#[tokio::test(start_paused = true)]
async fn a_pod_that_requests_a_wipe_waits_for_it() {
    let yard = Yard::new();
    yard.world.create(
        &Gvr::NODES,
        None,
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } }),
    );
    let belayer = yard.run();
    wiping_pod(&yard);
    yard.until("it waits", || yard.phase() == "Rejected").await;
    yard.pass(Duration::from_secs(60)).await;
    assert_eq!(yard.phase(), "Rejected", "the node is not wiped");
    let name = yard.record()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut conditions = yard.record()["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().unwrap() {
        if condition["type"] == "StateWiped" {
            condition["status"] = "True".into();
        }
    }
    let status = belayer_sandbox::Subresource::Status;
    let patch = json!({ "status": { "conditions": conditions } });
    yard.world
        .patch_in(&super::RECORDS, Some(super::YARD), &name, patch, status);
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_counts_as_wiped() {
    let yard = Yard::new();
    let belayer = yard.run();
    wiping_pod(&yard);
    yard.until("it runs", || yard.is_settled("web")).await;
    let wiped = condition(&yard, "StateWiped");
    assert_eq!(wiped["reason"], "NodeGone");
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_wiped_in_time_is_avoided() {
    let yard = Yard::new();
    yard.world.create(
        &Gvr::NODES,
        None,
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } }),
    );
    let belayer = yard.run();
    wiping_pod(&yard);
    yard.until("it is created again", || yard.phase() == "Recreated")
        .await;
    let web = ObjectKey::new(super::YARD, "web");
    let seen = crate::explained::explained(&yard.world, &Settings::default(), web).await;
    let notes = seen.unwrap().notes.join("\n");
    assert!(
        notes.contains("it cannot run on node-1: Belayer added a required node affinity"),
        "{notes}"
    );
    yard.until("it runs", || yard.is_settled("web")).await;
    assert_eq!(yard.world.events("WipeTimedOut"), 1);
    let terms = &yard.find("web").unwrap()["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchFields"][0]["values"], json!(["node-1"]));
    belayer.stop().await;
}

/// A pod on node-1 that requests a wipe.
fn wiping_pod(yard: &Yard) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": super::YARD, "name": "web", "annotations": {
            "belayer.dev/recreate": "true", "belayer.dev/wipe": "true" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    yard.world.create(&Gvr::PODS, Some(super::YARD), pod);
    yard.bind("web", "node-1");
}

fn condition(yard: &Yard, name: &str) -> serde_json::Value {
    let record = yard.record();
    let all = record["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == name);
    found.cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn without_its_crd_the_process_is_ready_and_starts_when_it_is_created() {
    let yard = Yard::new();
    let definition = "podrecreations.belayer.dev";
    yard.world
        .delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
    let operator = yard.operator(BELAYER, Yard::components(Settings::default()));
    let vitals = Arc::clone(operator.vitals());
    let stop = CancellationToken::new();
    let task = tokio::spawn(operator.run(stop.clone()));
    yard.until("it is ready", || vitals.not_ready().is_empty())
        .await;
    let installed: Value = serde_saphyr::from_str(crd::YAML).unwrap();
    yard.world
        .create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, installed);
    yard.pod("web");
    yard.until("it runs", || yard.is_settled("web")).await;
    stop.cancel();
    task.await.unwrap();
}

/// A deleted pod waits for the first status of its record, whose deletion causes no event then.
#[tokio::test(start_paused = true)]
async fn its_crd_goes_while_the_watch_of_the_records_is_down() {
    let yard = Yard::new();
    let belayer = yard.run();
    let statuses = Match::verb(Verb::Patch).resource("podrecreations");
    let denied = Fault::on(statuses.client(BELAYER)).answer(Answer::forbidden("no"));
    yard.world.sandbox.faults().inject(denied);
    yard.pod("web");
    yard.wait("it is held", || yard.is_held("web")).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("its record", || !yard.records().is_empty()).await;
    yard.delete("web");
    yard.wait_for(Duration::from_secs(1)).await;
    assert!(yard.is_held("web"));
    yard.world
        .delete_kind_unseen("podrecreations", "belayer.dev")
        .await;
    yard.wait("it is released", || yard.find("web").is_none())
        .await;
    belayer.stop().await;
}

/// Runs Belayer, and the pod `web` whose hold is sent and takes effect only after `delay`. Returns the pod's UID.
async fn with_a_late_hold(yard: &Yard, delay: Duration) -> (Running, String) {
    let holds = Match::verb(Verb::Patch).resource("pods").client(BELAYER);
    let late = Fault::on(holds).nth(1).delay(delay);
    let late = yard.world.sandbox.faults().inject(late);
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(1)).await;
    let first = yard.pod("web");
    yard.wait("its hold is on the way", || late.hits() == 1)
        .await;
    (belayer, first)
}

/// R1: bound and rejected before its hold was written. The write has a conflict, but Belayer watched every version.
#[tokio::test(start_paused = true)]
async fn r1_rejected_before_its_hold_was_written_it_is_re_created() {
    let yard = Yard::new();
    let (belayer, first) = with_a_late_hold(&yard, Duration::from_secs(1)).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("it is re-created", || {
        yard.find("web").is_some_and(|pod| uid(&pod) != first)
    })
    .await;
    yard.report("web", Fate::Runs);
    yard.wait("it is settled", || yard.is_settled("web")).await;
    assert_eq!(yard.creates(), 1);
    // The hold was added first, then the record created.
    let patches = yard.writes_of(&Gvr::PODS);
    let held = patches
        .iter()
        .find(|write| write.uid == first && write.changed());
    let record = &yard.writes_of(&RECORDS)[0];
    assert!(
        held.is_some_and(|held| held.index < record.index),
        "{patches:#?}"
    );
    belayer.stop().await;
}

/// R1: the watch broke in between, and a list contained the rejection: versions may have been missed.
#[tokio::test(start_paused = true)]
async fn r1_a_rejection_from_a_list_proves_nothing() {
    let yard = Yard::new();
    let (belayer, first) = with_a_late_hold(&yard, Duration::from_secs(30)).await;
    let faults = yard.world.sandbox.faults();
    let pods = || Match::watches().resource("pods").client(BELAYER);
    let cut = faults.inject(Fault::on(pods()).pause_watches());
    yard.report("web", Fate::Rejected("OutOfcpu"));
    faults.end_watches(&pods(), WatchEnd::Expired);
    cut.remove();
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert_eq!((yard.creates(), yard.records().len()), (0, 0));
    assert!(
        yard.world.events("NotRecreated") > 0,
        "the pod is not reported"
    );
    belayer.stop().await;
}

/// R1: it ran, its hold was released, and Belayer was killed before the kubelet restarted and rejected it. The next
/// Belayer reads a rejected pod without the finalizer, which is removed when a pod starts.
#[tokio::test(start_paused = true)]
async fn r1_a_pod_that_ran_is_not_created_again_after_a_restart() {
    let yard = Yard::new();
    let belayer = yard.run();
    let first = yard.pod("web");
    let held = || {
        yard.find("web")
            .is_some_and(|pod| pod["metadata"]["finalizers"][0] == POD_RECREATION_HOLD)
    };
    yard.wait("it is held", held).await;
    let accepted = yard.world.cluster().clock().now();
    let start = json!({ "status": { "startTime": accepted.to_string() } });
    let status = |patch| {
        let pods = &Gvr::PODS;
        yard.world
            .patch_in(pods, Some(super::YARD), "web", patch, Subresource::Status);
    };
    status(start);
    yard.report("web", Fate::Runs);
    yard.wait("its hold is released", || !held()).await;
    belayer.crash();
    yard.wait_for(Duration::from_secs(5)).await;
    status(json!({ "status": { "podIP": null, "containerStatuses": null } }));
    yard.report("web", Fate::Rejected("NodeAffinity"));

    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert_eq!((yard.creates(), yard.records().len()), (0, 0));
    belayer.stop().await;
}
