//! Actions of users and other controllers during a re-creation.

use std::time::Duration;

use belayer_holds::names::{FIELD_MANAGER, POD_RECREATION_HOLD};
use belayer_pod_recreation::Settings;
use belayer_pod_recreation::api::record_name;
use belayer_sandbox::{Actor, Answer, Fault, Gvr, Match, Subresource, Verb, WriteOptions};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Fate, RECORDS, YARD, Yard, uid};
use crate::world::BELAYER;

/// The user deletes the pod or its successor once the record is in a phase.
#[rstest]
#[case::before_anything_was_recorded("", 0)]
#[case::rejected("Rejected", 0)]
#[case::created_and_not_recorded_yet("Creating", 1)]
#[case::recreated("Recreated", 1)]
#[case::started("Started", 1)]
#[tokio::test(start_paused = true)]
async fn the_user_deletes_the_pod(#[case] phase: &str, #[case] created: usize) {
    let yard = Yard::new();
    // Slow enough to act in each phase.
    let slow = match phase {
        "Rejected" => Match::verb(Verb::Create).resource("pods").client(BELAYER),
        _ => Match::writes().resource("podrecreations").client(BELAYER),
    };
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(slow).delay(Duration::from_millis(500)));
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is there", || {
        yard.pods_seen("web") > 0 && yard.phase() == phase && yard.find("web").is_some()
    })
    .await;
    yard.delete("web");
    let gone = || yard.find("web").is_none();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !gone() {
        assert!(tokio::time::Instant::now() < deadline, "the pod is stuck");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(gone(), "it was created again");
    assert_eq!(yard.creates(), created);
    belayer.stop().await;
}

/// Once the intent is recorded the deletion is Belayer's: another one by the user changes nothing.
#[tokio::test(start_paused = true)]
async fn a_deletion_after_belayers_intent_cancels_nothing() {
    let yard = Yard::new();
    let deletes = Match::verb(Verb::Delete).resource("pods").client(BELAYER);
    let slow = Fault::on(deletes).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is intended", || yard.phase() == "Deleting")
        .await;
    yard.delete("web");
    yard.until("it runs", || yard.is_settled("web")).await;
    assert_ne!(uid(&yard.find("web").unwrap()), first);
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// Belayer's deletion makes the kubelet write the status of a rejected pod anew. For a pod with `hostNetwork` it then writes the
/// IP of the node.
#[tokio::test(start_paused = true)]
async fn the_ip_of_its_node_does_not_end_the_re_creation_of_a_pod() {
    let yard = Yard::new();
    let deletes = Match::verb(Verb::Delete).resource("pods").client(BELAYER);
    let slow = Fault::on(deletes).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
    let belayer = yard.run();
    yard.pod_on("web", json!({ "hostNetwork": true }));
    yard.until("it is intended", || yard.phase() == "Deleting")
        .await;
    let status = json!({ "status": {
        "hostIP": "10.0.0.1", "podIP": "10.0.0.1",
        "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "busybox", "imageID": "",
            "state": { "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown" } },
        }],
    } });
    let (pods, namespace) = (&Gvr::PODS, Some(YARD));
    yard.world
        .patch_in(pods, namespace, "web", status, Subresource::Status);
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

/// The new pod is deleted before its record names it: its hold keeps it until then; otherwise its absence would
/// mean that it was never created.
#[tokio::test(start_paused = true)]
async fn a_pod_deleted_right_after_its_creation_is_not_created_again() {
    let yard = Yard::new();
    let reads = Match::verb(Verb::Get)
        .resource("podrecreations")
        .client(BELAYER);
    let slow = Fault::on(reads).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("the new one is there", || {
        yard.find("web").is_some_and(|pod| uid(&pod) != first)
    })
    .await;
    assert_eq!(yard.phase(), "Creating", "its record does not name it yet");
    yard.delete("web");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        yard.is_held("web"),
        "it was released before its record named it"
    );
    yard.wait("it is gone", || yard.find("web").is_none()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(yard.find("web").is_none(), "it was created again");
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// Cancelled right before the deletion is sent: the record is read first.
#[tokio::test(start_paused = true)]
async fn a_cancellation_before_the_deletion_keeps_the_rejected_pod() {
    let yard = Yard::new();
    let reads = Match::verb(Verb::Get)
        .resource("podrecreations")
        .client(BELAYER);
    let slow = Fault::on(reads).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is intended", || yard.phase() == "Deleting")
        .await;
    let name = super::text(&yard.record(), "/metadata/name");
    yard.world.delete(&RECORDS, Some(YARD), &name);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), first);
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert!(!yard.is_held("web"));
    belayer.stop().await;
}

/// Another controller's finalizer: the name is not free before it is removed.
#[tokio::test(start_paused = true)]
async fn belayer_waits_for_finalizers_of_others() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.wait("it is held", || yard.is_held("web")).await;
    let finalizers = |all: &[&str]| json!({ "metadata": { "finalizers": all } });
    let none = belayer_sandbox::Subresource::None;
    let both = finalizers(&["belayer.dev/pod-recreation", "example.com/theirs"]);
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", both, none);
    yard.pass(Duration::from_secs(300)).await;
    assert_eq!(yard.phase(), "Deleting");
    assert!(!yard.is_held("web"));
    assert_eq!(yard.creates(), 0);
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", finalizers(&[]), none);
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

#[rstest]
#[case("Rejected")]
#[case("Deleting")]
#[case("Waiting")]
#[case("Creating")]
#[tokio::test(start_paused = true)]
async fn the_user_cancels_by_deleting_the_record(#[case] phase: &str) {
    let yard = Yard::new();
    // Slow enough to act in each phase.
    let pods = Match::verbs([Verb::Create, Verb::Delete])
        .resource("pods")
        .client(BELAYER);
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(pods).delay(Duration::from_millis(500)));
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is there", || yard.phase() == phase).await;
    let name = yard.record()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    yard.world.delete(&RECORDS, Some(YARD), &name);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(yard.started("web"), 0);
    assert!(!yard.is_held("web"), "a hold is left behind");
    if phase == "Creating" {
        // The create was in flight: a read afterwards shows that the pod is not wanted any more.
        assert_eq!(yard.creates(), 1);
        assert!(yard.find("web").is_none(), "it was not deleted again");
    }
    assert!(
        yard.find("web")
            .is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_null()),
        "a pod is stuck"
    );
    belayer.stop().await;
}

/// A record that is deleted after it has named the re-created pod: the pod stays, and is not re-created again.
#[tokio::test(start_paused = true)]
async fn a_re_created_pod_stays_when_its_record_is_deleted() {
    let (yard, belayer) = super::re_created().await;
    let second = uid(&yard.find("web").unwrap());
    let name = super::text(&yard.record(), "/metadata/name");
    yard.world.delete(&RECORDS, Some(YARD), &name);
    yard.wait("it is released", || !yard.is_held("web")).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait_for(Duration::from_secs(300)).await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), second);
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert!(yard.records().is_empty());
    assert_eq!(yard.world.events("RecreationCancelled"), 1);
    let seen = super::explained::explained(&yard).await;
    let why = seen.why_not.unwrap();
    assert!(why.starts_with("its record was deleted"), "{why}");
    assert!(seen.notes.is_empty(), "{:?}", seen.notes);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_controller_takes_the_name() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the name is free", || yard.phase() == "Waiting")
        .await;
    let other = yard.pod_with("web", json!({ "annotations": {} }));
    yard.until("it stops", || yard.phase() == "Ended").await;
    yard.pass(Duration::from_secs(120)).await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), other, "the other pod is not changed");
    assert!(pod["metadata"]["finalizers"].is_null());
    assert_eq!(yard.creates(), 0);
    assert_eq!(yard.world.events("NameTaken"), 1);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_pod_takes_the_name_before_it_was_read_as_free() {
    let yard = Yard::new();
    let belayer = yard.run();
    let others = json!({
        "annotations": { "belayer.dev/recreate": "true" },
        "finalizers": [POD_RECREATION_HOLD, "x.example.com/f"],
    });
    yard.pod_with("web", others);
    yard.until("only the finalizer of the other controller is left", || {
        let pod = yard.find("web").unwrap();
        yard.phase() == "Deleting" && pod["metadata"]["finalizers"] == json!(["x.example.com/f"])
    })
    .await;
    // The live read that finds the name free takes a while.
    let reads = Match::verb(Verb::Get).resource("pods").client(BELAYER);
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(reads).delay(Duration::from_secs(5)));
    let freed = json!({ "metadata": { "finalizers": null } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", freed, Subresource::None);
    yard.until("the rejected pod is gone", || yard.find("web").is_none())
        .await;
    yard.wait_for(Duration::from_secs(1)).await;
    let other = yard.pod_with("web", json!({ "annotations": {} }));
    yard.until("it stops", || yard.phase() == "Ended").await;
    assert_eq!(uid(&yard.find("web").unwrap()), other);
    yard.wait("it is reported", || yard.world.events("NameTaken") == 1)
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_and_is_rejected_after_its_hold_is_reported_once() {
    let yard = Yard::rejecting(0);
    let belayer = yard.run();
    let pod = yard.pod("web");
    yard.until("it is released", || {
        yard.started("web") == 1 && !yard.is_held("web")
    })
    .await;
    // Its kubelet restarts and rejects it.
    let rejected = json!({ "status": {
        "phase": "Failed", "reason": "NodeAffinity", "message": "Pod was rejected",
        "containerStatuses": null,
    }});
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", rejected, Subresource::Status);
    yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
        .await;
    yard.wait_for(Duration::from_secs(3_700)).await;
    belayer.stop().await;
    // The next leader repeats only what is younger than an hour.
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(3600)).await;
    assert_eq!(yard.world.events("NotRecreated"), 1);
    assert_eq!(uid(&yard.find("web").unwrap()), pod);
    assert!(yard.records().is_empty());
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_under_another_name_is_a_pod_of_its_own() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it runs again", || yard.started("web") == 1)
        .await;
    let annotations = yard.find("web").unwrap()["metadata"]["annotations"].clone();
    assert!(annotations["belayer.dev/recreation"].is_string());
    yard.pod_with("web-a", json!({ "annotations": annotations }));
    // It is rejected once, like any other pod.
    yard.until("the copy runs and is released", || {
        yard.started("web-a") == 1 && !yard.is_held("web-a")
    })
    .await;
    assert_eq!(yard.records().len(), 2);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_bound_by_its_user_to_an_avoided_node_is_reported() {
    let yard = Yard::new();
    let mut settings = Settings::default();
    settings.policy.avoid_rejected_node = true;
    let belayer = yard.run_as(BELAYER, settings);
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeName": "fx", "containers": [{ "name": "main", "image": "busybox" }] },
    });
    yard.world.create(&Gvr::PODS, Some(YARD), pod);
    yard.until("it stops", || yard.phase() == "Ended").await;
    yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
        .await;
    let message = yard.record()["status"]["message"].to_string();
    assert!(message.contains("bound it to node fx"), "{message}");
    yard.pass(Duration::from_secs(120)).await;
    assert_eq!(yard.creates(), 0);
    assert!(yard.find("web").is_some(), "the rejected pod is gone");
    belayer.stop().await;
}

/// A pod was re-created and has started. Returns its annotations, which its user may copy.
async fn annotations_of_a_re_created_pod(yard: &Yard) -> Value {
    yard.pod("web");
    yard.until("the record has ended", || yard.phase() == "Started")
        .await;
    let annotations = yard.find("web").unwrap()["metadata"]["annotations"].clone();
    assert!(annotations["belayer.dev/recreation-uid"].is_string());
    annotations
}

/// As `kubectl replace --force` does, or a client that applies an exported pod.
#[tokio::test(start_paused = true)]
async fn a_copy_that_replaces_a_pod_is_not_belayers() {
    let yard = Yard::new();
    let belayer = yard.run();
    let annotations = annotations_of_a_re_created_pod(&yard).await;
    yard.delete("web");
    yard.until("it is gone", || yard.find("web").is_none())
        .await;
    let copy = yard.pod_with("web", json!({ "annotations": annotations }));
    yard.pass(Duration::from_secs(300)).await;
    let pod = yard.find("web").expect("the copy was deleted");
    assert_eq!(uid(&pod), copy);
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert!(!yard.is_held("web"), "it stays held");
    belayer.stop().await;
}

/// A backup tool, which is another field manager, restores the pod after the record has expired.
#[tokio::test(start_paused = true)]
async fn a_restored_pod_is_an_ordinary_one() {
    let yard = Yard::new();
    let belayer = yard.run();
    let annotations = annotations_of_a_re_created_pod(&yard).await;
    yard.delete("web");
    yard.wait_for(Duration::from_secs(3_700)).await;
    assert!(yard.records().is_empty(), "the record has not expired");
    yard.rejections.set(3);
    let restored = yard.pod_with("web", json!({ "annotations": annotations }));
    yard.until("it runs again", || yard.started("web") == 2)
        .await;
    assert_ne!(uid(&yard.find("web").unwrap()), restored);
    belayer.stop().await;
}

/// T10: a tenant may read the record, and may create pods in another namespace, as any field manager.
#[tokio::test(start_paused = true)]
async fn t10_a_pod_in_another_namespace_ends_no_re_creation() {
    let yard = Yard::new();
    yard.world.create_namespace("other");
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the pod exists only in its record", || {
        yard.phase() == "Waiting"
    })
    .await;
    let record = yard.record();
    let pod = json!({
        "metadata": { "name": "web", "annotations": {
            "belayer.dev/recreation": record["metadata"]["name"],
            "belayer.dev/recreation-uid": record["metadata"]["uid"],
            "belayer.dev/recreation-attempt": "1",
        } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let as_belayer = WriteOptions {
        manager: Some(FIELD_MANAGER.into()),
        ..WriteOptions::default()
    };
    let tenant = Actor::new("tenant");
    yard.world
        .cluster()
        .create(&tenant, &Gvr::PODS, Some("other"), pod, &as_belayer)
        .unwrap();
    yard.until("it runs", || yard.is_settled("web")).await;
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// Another finalizer delays the removal of a pod that Belayer deletes. Meanwhile its user turns re-creation off, so that
/// the event of the removal does not reach the record.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_no_longer_selected_while_it_is_deleted_does_not_stop_its_record() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.wait("it is held", || yard.is_held("web")).await;
    let patch = |metadata: Value| {
        let patch = json!({ "metadata": metadata });
        let none = belayer_sandbox::Subresource::None;
        yard.world
            .patch_in(&Gvr::PODS, Some(YARD), "web", patch, none);
    };
    patch(json!({ "finalizers": ["belayer.dev/pod-recreation", "example.com/theirs"] }));
    yard.until("Belayer deletes it", || {
        yard.phase() == "Deleting" && !yard.is_held("web")
    })
    .await;
    patch(json!({ "annotations": { "belayer.dev/recreate": "false" } }));
    yard.wait_for(Duration::from_secs(5)).await;
    patch(json!({ "finalizers": [] }));
    yard.wait("the record goes on", || yard.phase() != "Deleting")
        .await;
    belayer.stop().await;
}

/// A re-created pod loses the annotation that names its record.
#[tokio::test(start_paused = true)]
async fn a_re_created_pod_without_annotations_does_not_stop_its_record() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is re-created", || yard.phase() == "Waiting")
        .await;
    yard.wait("its record names it", || yard.phase() == "Recreated")
        .await;
    let patch = json!({ "metadata": { "annotations": { "belayer.dev/recreation": null } } });
    let none = belayer_sandbox::Subresource::None;
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", patch, none);
    yard.until("the record ends", || yard.phase() == "Started")
        .await;
    belayer.stop().await;
}

#[rstest]
#[case::no_name("Not A Name!")]
#[case::another_pods("web-0a1b2c3d")]
#[tokio::test(start_paused = true)]
async fn an_annotation_of_a_user_names_no_record(#[case] text: &str) {
    let yard = Yard::new();
    let belayer = yard.run();
    let annotations = json!({
        "belayer.dev/recreate": "true", "belayer.dev/recreation": text,
        "belayer.dev/recreation-uid": "u-1", "belayer.dev/recreation-attempt": "-1",
    });
    let pod = yard.pod_with("odd", json!({ "annotations": annotations }));
    yard.until("it runs again", || yard.started("odd") == 1)
        .await;
    assert_eq!(yard.record()["metadata"]["name"], record_name("odd", &pod));
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_with_a_changed_spec_creates_no_pod() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the name is free", || yard.phase() == "Waiting")
        .await;
    let record = yard.record();
    let name = record["metadata"]["name"].as_str().unwrap();
    let other = json!({ "spec": { "pod": { "spec": { "hostNetwork": true } } } });
    yard.world
        .patch_in(&RECORDS, Some(YARD), name, other, Subresource::None);
    yard.until("it stops", || yard.phase() == "Ended").await;
    yard.pass(Duration::from_secs(120)).await;
    assert_eq!(yard.creates(), 0);
    assert!(yard.find("web").is_none());
    belayer.stop().await;
}

/// The namespace's pods are removed before its records. While it is deleted, Belayer's writes of statuses are refused.
#[tokio::test(start_paused = true)]
async fn the_namespace_is_deleted_meanwhile() {
    let steps = [
        ("", 0),
        ("Rejected", 0),
        ("Deleting", 0),
        ("Waiting", 0),
        ("Creating", 0),
        ("Creating", 1),
        ("Recreated", 1),
    ];
    for (phase, created) in steps {
        let yard = Yard::new();
        let pods = Match::verbs([Verb::Create, Verb::Delete])
            .resource("pods")
            .client(BELAYER);
        let slow = Fault::on(pods).delay(Duration::from_millis(500));
        yard.world.sandbox.faults().inject(slow);
        let statuses = Match::verb(Verb::Patch)
            .resource("podrecreations")
            .client(BELAYER);
        let mut refused = None;
        let belayer = yard.run();
        yard.pod("web");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
        loop {
            if yard.phase() == phase {
                let refusal = Fault::on(statuses.clone()).answer(Answer::forbidden("policy"));
                refused.get_or_insert_with(|| yard.world.sandbox.faults().inject(refusal));
                if !yard.records().is_empty() && yard.creates() >= created {
                    break;
                }
            }
            assert!(tokio::time::Instant::now() < deadline, "never {phase}");
            if yard.pods_seen("web") == 0 {
                yard.play();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        yard.world.delete(&Gvr::NAMESPACES, None, YARD);
        tokio::time::sleep(Duration::from_secs(2)).await;
        refused.take().unwrap().remove();
        let gone = || {
            yard.world
                .cluster()
                .get(&Gvr::NAMESPACES, None, YARD)
                .is_err()
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
        while !gone() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{phase}: the namespace is stuck"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        belayer.stop().await;
    }
}

/// A record that a user created for a pod that does not exist.
#[tokio::test(start_paused = true)]
async fn a_record_of_a_user_creates_no_pod() {
    let yard = Yard::new();
    let belayer = yard.run();
    let record = |name: &str, uid: &str| {
        json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
            "metadata": { "namespace": YARD, "name": name },
            "spec": {
                "podName": "web", "firstUID": uid, "policy": {},
                "pod": { "metadata": {}, "spec": { "hostPID": true,
                    "containers": [{ "name": "evil", "image": "evil" }] } },
            },
        })
    };
    yard.world.create(
        &RECORDS,
        Some(YARD),
        record("web-12345678", "12345678-0000-4000-8000-000000000000"),
    );
    yard.pass(Duration::from_secs(120)).await;
    assert!(yard.find("web").is_none());
    assert_eq!(yard.world.events("Ignored"), 1);
    // Nor for a pod that exists.
    let first = yard.pod("web");
    let name = belayer_pod_recreation::api::record_name("web", &first);
    yard.world
        .create(&RECORDS, Some(YARD), record(&name, &first));
    yard.pass(Duration::from_secs(300)).await;
    assert_eq!(yard.creates(), 0);
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    belayer.stop().await;
}

/// Another controller's finalizer keeps a rejected pod while Belayer deletes it, and only then its kubelet reports that a container
/// of it had started.
#[tokio::test(start_paused = true)]
async fn step_5_a_pod_that_turns_out_to_have_run_is_not_created_again() {
    let yard = Yard::rejecting(1);
    let belayer = yard.run();
    yard.pod_with("web", json!({ "finalizers": ["example.com/keep"] }));
    yard.wait("it is held", || yard.is_held("web")).await;
    yard.report("web", super::Fate::Rejected("NodeAffinity"));
    let is_deleting = || !yard.find("web").unwrap()["metadata"]["deletionTimestamp"].is_null();
    yard.wait("it is being deleted", || {
        yard.phase() == "Deleting" && is_deleting()
    })
    .await;
    let ended = json!({ "exitCode": 137, "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z", "containerID": "containerd://1" });
    let status = json!({ "status": { "containerStatuses": [{
        "name": "main", "ready": false, "restartCount": 0, "image": "busybox", "imageID": "",
        "state": { "terminated": ended },
    }] } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", status, Subresource::Status);
    yard.wait("the record ends", || yard.phase() == "Ended")
        .await;
    let free = json!({ "metadata": { "finalizers": [] } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", free, Subresource::None);
    yard.wait_for(Duration::from_secs(120)).await;
    assert!(yard.find("web").is_none());
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}
