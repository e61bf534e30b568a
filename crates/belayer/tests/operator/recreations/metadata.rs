//! What a re-created pod has of the metadata of the rejected one.

use super::*;
use belayer_sandbox::{Fault, Match, Patch, Propagation};
use rstest::rstest;

/// The options of writes by this field manager.
fn by(manager: &str) -> WriteOptions {
    WriteOptions {
        manager: Some(manager.into()),
        ..WriteOptions::default()
    }
}

/// The dry run takes long enough to change the pod before the intent is written.
fn slow_dry_run(yard: &Yard) {
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let slow = Fault::on(creates).times(1).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
}

impl Yard {
    fn patch(&self, name: &str, patch: Value) {
        let pods = &Gvr::PODS;
        self.world
            .patch_in(pods, Some(YARD), name, patch, Subresource::None);
    }

    fn message(&self, reason: &str) -> String {
        let events = self
            .world
            .cluster()
            .list(&Gvr::EVENTS, None, &ListOptions::default());
        let events = events.unwrap().items;
        let mut found = events.iter().filter(|event| event["reason"] == reason);
        found
            .next()
            .map(|event| text(event, "/message"))
            .unwrap_or_default()
    }
}

/// R3: a user labels and annotates the rejected pod after its record was created.
#[tokio::test(start_paused = true)]
async fn r3_metadata_that_changes_after_the_record_is_carried() {
    let yard = Yard::new();
    slow_dry_run(&yard);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    let change = json!({ "metadata": {
        "labels": { "app": null, "tier": "front" }, "annotations": { "note": "late" } } });
    yard.patch("web", change);
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    assert_ne!(uid(&pod), first);
    assert_eq!(pod["metadata"]["labels"], json!({ "tier": "front" }));
    assert_eq!(pod["metadata"]["annotations"]["note"], "late");
    let record = yard.record();
    assert_eq!(
        record["spec"]["pod"]["metadata"]["labels"],
        json!({ "app": "web" })
    );
    assert_eq!(
        record["status"]["podMetadata"]["labels"],
        json!({ "tier": "front" })
    );
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// R3: the metadata of a re-created pod changes before it is rejected too. A label that is removed stays removed.
#[tokio::test(start_paused = true)]
async fn r3_metadata_of_a_re_created_pod_is_carried_too() {
    let yard = Yard::new();
    slow_dry_run(&yard);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    yard.patch(
        "web",
        json!({ "metadata": { "labels": { "a": "1", "b": "2" } } }),
    );
    yard.wait("it is re-created", || yard.phase() == "Recreated")
        .await;
    yard.patch(
        "web",
        json!({ "metadata": { "labels": { "a": null, "b": "3" } } }),
    );
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("it is re-created again", || {
        yard.creates() == 2 && yard.phase() == "Recreated"
    })
    .await;
    let pod = yard.find("web").unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({ "app": "web", "b": "3" }));
    belayer.stop().await;
}

/// R3: the rejected pod is orphaned, and then its owner is deleted. What counts are the owners of the pod to create.
#[tokio::test(start_paused = true)]
async fn r3_an_owner_that_the_pod_has_no_more_ends_nothing() {
    let yard = Yard::without_garbage_collection();
    slow_dry_run(&yard);
    let owner = json!({ "metadata": { "name": "owner" } });
    let owner = yard.world.create(&Gvr::CONFIGMAPS, Some(YARD), owner);
    let belayer = yard.run();
    let reference =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner) }]);
    yard.pod_with("web", json!({ "ownerReferences": reference }));
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    yard.patch("web", json!({ "metadata": { "ownerReferences": null } }));
    yard.world.delete(&Gvr::CONFIGMAPS, Some(YARD), "owner");
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    assert!(pod["metadata"]["ownerReferences"].is_null());
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// R3: the owner is deleted with `--cascade=orphan` while the pod exists only in its record. An owner that the pod got after it
/// was recorded is none of the record, and stays.
#[rstest]
#[tokio::test(start_paused = true)]
async fn r3_an_owner_that_is_orphaned_in_the_pause_ends_nothing(
    #[values(false, true)] later: bool,
) {
    let yard = Yard::new();
    slow_dry_run(&yard);
    let reference = |name: &str| {
        let owner = json!({ "metadata": { "name": name } });
        let owner = yard.world.create(&Gvr::CONFIGMAPS, Some(YARD), owner);
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid(&owner) })
    };
    let [first, second] = ["first", "second"].map(reference);
    let belayer = yard.run();
    yard.pod_with("web", json!({ "ownerReferences": [&first] }));
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    if later {
        let owners = json!({ "metadata": { "ownerReferences": [&first, &second] } });
        yard.patch("web", owners);
    }
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    let orphan = DeleteOptions {
        propagation_policy: Some(Propagation::Orphan),
        ..DeleteOptions::default()
    };
    let (actor, cluster) = (Actor::new("user"), yard.world.cluster());
    let deleted = cluster.delete(&actor, &Gvr::CONFIGMAPS, Some(YARD), "first", &orphan);
    deleted.unwrap();
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let owners: Vec<&Value> = owners.into_iter().flatten().collect();
    let expected: &[&Value] = if later { &[&second] } else { &[] };
    assert_eq!(owners, expected);
    belayer.stop().await;
}

/// R3: the record is immutable, so it does not describe a pod whose spec has changed. That is reported.
#[tokio::test(start_paused = true)]
async fn r3_a_changed_spec_ends_the_record_with_an_event() {
    let yard = Yard::new();
    slow_dry_run(&yard);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is recorded", || yard.phase() == "Rejected")
        .await;
    yard.patch(
        "web",
        json!({ "spec": { "containers": [{ "name": "main", "image": "other" }] } }),
    );
    yard.wait("it ends", || yard.phase() == "Ended").await;
    yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
        .await;
    yard.wait_for(Duration::from_secs(60)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert!(!yard.is_held("web"));
    let conditions = yard.record()["status"]["conditions"].clone();
    for name in [
        "PodRejected",
        "Recreated",
        "Started",
        "Exhausted",
        "CreateDenied",
    ] {
        let all = conditions.as_array().unwrap();
        let found = all.iter().find(|condition| condition["type"] == name);
        assert_eq!(
            found.map(|one| &one["status"]),
            Some(&json!("False")),
            "{name}"
        );
    }
    belayer.stop().await;
}

/// R3: a re-created pod is changed before its node rejects it too.
#[rstest]
#[case::its_image(json!({ "containers": [{ "name": "main", "image": "other" }] }))]
#[case::its_deadline(json!({ "activeDeadlineSeconds": 60 }))]
#[tokio::test(start_paused = true)]
async fn r3_a_changed_spec_of_a_re_created_pod_ends_the_record_too(#[case] spec: Value) {
    let (yard, belayer) = re_created().await;
    let second = uid(&yard.find("web").unwrap());
    let patch = Patch::Strategic(json!({ "spec": spec }));
    let (actor, options, face) = (Actor::new("user"), by("kubectl-edit"), Subresource::None);
    let cluster = yard.world.cluster();
    let patched = cluster.patch(&actor, &Gvr::PODS, Some(YARD), "web", patch, face, &options);
    patched.unwrap();
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("it ends", || yard.phase() == "Ended").await;
    yard.wait("it is reported", || yard.world.events("NotRecreated") == 1)
        .await;
    let message = yard.record()["status"]["message"].clone();
    let expected = "not re-created: another client changed the spec of the re-created pod (field manager kubectl-edit)";
    assert_eq!(message, expected);
    yard.wait_for(Duration::from_secs(60)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), second);
    assert!(!yard.is_held("web"));
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// R3: a client that keeps a cluster as its repository says applies the pod again, without a change.
#[tokio::test(start_paused = true)]
async fn r3_an_apply_that_changes_nothing_ends_no_re_creation() {
    let (yard, belayer) = re_created().await;
    let pod = yard.find("web").unwrap();
    let container = &pod["spec"]["containers"][0];
    let same = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": container["name"], "image": container["image"] }] },
    });
    let options = by("gitops");
    let actor = Actor::new("user");
    let apply = Patch::Apply(same);
    let applied = yard.world.cluster().patch(
        &actor,
        &Gvr::PODS,
        Some(YARD),
        "web",
        apply,
        Subresource::None,
        &options,
    );
    applied.unwrap();
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("it is re-created again", || yard.creates() == 2)
        .await;
    belayer.stop().await;
}

/// R2: a network has written the addresses of the rejected pod.
#[tokio::test(start_paused = true)]
async fn r2_annotations_of_a_network_are_not_carried() {
    let yard = Yard::new();
    let belayer = yard.run();
    let (actor, cluster) = (Actor::new("user"), yard.world.cluster());
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true", "note": "mine" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let created = cluster.create(&actor, &Gvr::PODS, Some(YARD), pod, &by("kubectl-create"));
    created.unwrap();
    let address = json!({ "metadata": { "annotations": { "example.com/address": "10.0.0.7" } } });
    let (patch, face) = (Patch::Merge(address), Subresource::None);
    let network = by("network");
    let patched = cluster.patch(&actor, &Gvr::PODS, Some(YARD), "web", patch, face, &network);
    patched.unwrap();
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["note"], "mine");
    assert!(
        annotations["example.com/address"].is_null(),
        "{annotations}"
    );
    assert_eq!(yard.world.events("CreatorUnknown"), 0);
    belayer.stop().await;
}

/// R2: a re-created pod shows Belayer as its creator. The controller that created the first pod changes its annotation, and
/// a network adds one.
#[tokio::test(start_paused = true)]
async fn r2_an_annotation_of_the_user_is_carried_from_a_re_created_pod() {
    let yard = Yard::new();
    let belayer = yard.run();
    let (actor, cluster) = (Actor::new("user"), yard.world.cluster());
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true", "note": "1" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let created = cluster.create(&actor, &Gvr::PODS, Some(YARD), pod, &by("my-operator"));
    created.unwrap();
    yard.until("it is rejected", || !yard.phase().is_empty())
        .await;
    yard.wait("it is re-created", || yard.phase() == "Recreated")
        .await;
    for (name, value, manager) in [
        ("note", "2", "my-operator"),
        ("example.com/address", "10.0.0.7", "network"),
    ] {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { name: value } } }));
        let (face, options) = (Subresource::None, by(manager));
        let patched = cluster.patch(&actor, &Gvr::PODS, Some(YARD), "web", patch, face, &options);
        patched.unwrap();
    }
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("it is re-created again", || yard.creates() == 2)
        .await;
    let pod = yard.find("web").unwrap();
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["note"], "2");
    assert!(
        annotations["example.com/address"].is_null(),
        "{annotations}"
    );
    belayer.stop().await;
}

/// R2 and R12: what the user should know is reported once, at the first rejection.
#[tokio::test(start_paused = true)]
async fn r12_a_pod_bound_by_its_user_is_reported_at_its_first_rejection() {
    let yard = Yard::rejecting(2);
    let belayer = yard.run();
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeName": "fx", "containers": [{ "name": "main", "image": "busybox" }] },
    });
    yard.world.create(&Gvr::PODS, Some(YARD), pod);
    yard.until("it runs", || yard.is_settled("web")).await;
    assert_eq!(yard.find("web").unwrap()["spec"]["nodeName"], "fx");
    let message = yard.message("BoundByUser");
    assert!(message.contains("bound it to node fx"), "{message}");
    let counts = ["BoundByUser", "CreatorUnknown"].map(|reason| yard.world.events(reason));
    assert_eq!(counts, [1, 0]);
    belayer.stop().await;
}

/// R12: it must not return to the node of its user, so that one Event says that it is not re-created.
#[tokio::test(start_paused = true)]
async fn r12_a_pod_that_must_not_return_to_its_node_is_reported_once() {
    let yard = Yard::new();
    let mut settings = Settings::default();
    settings.policy.avoid_rejected_node = true;
    let belayer = yard.run_as(BELAYER, settings);
    yard.pod_on("web", json!({ "nodeName": "fx" }));
    yard.until("it ends", || yard.phase() == "Ended").await;
    let counts = ["BoundByUser", "NotRecreated"].map(|reason| yard.world.events(reason));
    assert_eq!(counts, [0, 1]);
    belayer.stop().await;
}

/// R2 and R12: without managedFields nobody knows who created the pod, nor who bound it.
#[tokio::test(start_paused = true)]
async fn r12_a_pod_of_an_unknown_creator_is_reported_at_its_first_rejection() {
    let yard = Yard::rejecting(2);
    let belayer = yard.run();
    yard.pod("web");
    yard.patch("web", json!({ "metadata": { "managedFields": [{}] } }));
    yard.until("it runs", || yard.is_settled("web")).await;
    let counts = ["BoundByUser", "CreatorUnknown"].map(|reason| yard.world.events(reason));
    assert_eq!(counts, [0, 1]);
    belayer.stop().await;
}

/// R9: the pod of a record that has no status yet does not exist. The record contains the pod's inline values.
#[tokio::test(start_paused = true)]
async fn r9_a_record_without_status_and_pod_is_deleted_after_its_ttl() {
    let yard = Yard::new();
    let first = "0a1b2c3d-0000-4000-8000-000000000001";
    let record = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
        "metadata": { "name": "web-0a1b2c3d" },
        "spec": { "podName": "web", "firstUID": first, "policy": {},
            "pod": { "spec": { "containers": [{ "name": "main", "image": "busybox" }] } } },
    });
    yard.world.create(&RECORDS, Some(YARD), record);
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(3_500)).await;
    assert_eq!(yard.records().len(), 1);
    yard.wait("it is deleted", || yard.records().is_empty())
        .await;
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}

/// L8: a re-creation that the rate limits delay sends no request before its turn.
#[tokio::test(start_paused = true)]
async fn l8_a_limited_re_creation_reads_nothing() {
    const PODS: usize = 20;
    let yard = Yard::rejecting(1);
    let mut settings = Settings::default();
    settings.policy.backoff_seconds = 0;
    settings.rate_limits.per_namespace.per_second = 0.1;
    settings.rate_limits.per_namespace.burst = 1;
    let belayer = yard.run_as(BELAYER, settings);
    for n in 0..PODS {
        yard.pod(&format!("web-{n}"));
    }
    yard.until("all wait", || {
        let records = yard.records();
        let waits = |record: &&Arc<Value>| record["status"]["phase"] == "Waiting";
        records.iter().filter(waits).count() == PODS - 1
    })
    .await;
    yard.wait_for(Duration::from_secs(5)).await;
    let reads = || yard.world.requests(Verb::Get, "podrecreations");
    let (before, begun) = (reads(), yard.creates());
    yard.pass(Duration::from_secs(60)).await;
    let begun = yard.creates() - begun;
    let reads = reads() - before;
    assert!((5..=7).contains(&begun), "{begun}");
    // To reserve, to create, after the create.
    assert!(
        reads <= 4 * begun as u64,
        "{reads} reads of records for {begun} re-creations"
    );
    belayer.stop().await;
}

/// R3: a user labels a rejected pod, or its kubelet restarts: the kubelet writes ends of containers that never started.
#[rstest]
#[case::it_was_not_seen_to_start(None, true)]
#[case::a_container_has_an_id(Some("containerd://7"), false)]
#[tokio::test(start_paused = true)]
async fn r3_a_kubelet_that_rewrites_a_rejected_pod_ends_nothing(
    #[case] id: Option<&str>,
    #[case] re_created: bool,
    #[values(false, true)] restarted: bool,
) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let denied = Fault::on(creates).answer(belayer_sandbox::Answer::forbidden("exceeded quota"));
    let denied = yard.world.sandbox.faults().inject(denied);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    let belayer = if restarted {
        belayer.stop().await;
        None
    } else {
        Some(belayer)
    };
    let time = "2026-01-01T00:00:00Z";
    let written = yard.world.cluster().clock().now() + jiff::SignedDuration::from_secs(60);
    let end = json!({ "exitCode": 137, "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated" });
    let mut container = json!({ "name": "main", "image": "busybox", "imageID": "", "ready": false,
        "restartCount": 0, "state": { "terminated": end } });
    if let Some(id) = id {
        container["containerID"] = id.into();
    }
    let status = json!({ "status": { "startTime": time, "containerStatuses": [container] } });
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", status, Subresource::Status);
    yard.patch(
        "web",
        json!({ "metadata": { "labels": { "seen": "true" },
        "managedFields": [{ "manager": "kubelet", "operation": "Update", "subresource": "status",
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:status": {} },
            "time": written.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() }] } }),
    );
    let belayer = belayer.unwrap_or_else(|| yard.run());
    yard.wait_for(Duration::from_secs(60)).await;
    denied.remove();
    if re_created {
        yard.until("it runs", || yard.is_settled("web")).await;
        assert_eq!(yard.creates(), 1);
    } else {
        yard.wait("it is reported", || yard.phase() == "Ended")
            .await;
        assert_eq!(yard.creates(), 0);
        assert_eq!(yard.world.events("NotRecreated"), 1);
    }
    belayer.stop().await;
}

/// R3: an admin requests the release of a rejected pod whose record exists.
#[tokio::test(start_paused = true)]
async fn r3_a_released_rejected_pod_ends_its_record() {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let denied = Fault::on(creates).answer(belayer_sandbox::Answer::forbidden("exceeded quota"));
    yard.world.sandbox.faults().inject(denied);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is denied", || yard.world.events("RecreationDenied") > 0)
        .await;
    yard.patch(
        "web",
        json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } }),
    );
    yard.wait("its record ends", || {
        yard.phase() == "Ended" && !yard.is_held("web")
    })
    .await;
    assert_eq!(yard.world.events("RecreationCancelled"), 1);
    let message = yard.message("RecreationCancelled");
    assert!(message.contains("belayer.dev/release"), "{message}");
    yard.wait_for(Duration::from_secs(600)).await;
    assert_eq!(
        (yard.creates(), uid(&yard.find("web").unwrap())),
        (0, first)
    );
    belayer.stop().await;
}

/// Its manifest was copied from a namespace with a LimitRange; here is none.
#[tokio::test(start_paused = true)]
async fn the_resources_of_a_copied_manifest_are_carried() {
    let yard = Yard::new();
    let belayer = yard.run();
    let resources = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "1" } });
    let list =
        "LimitRanger plugin set: cpu request for container main; cpu limit for container main";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": YARD, "name": "web", "annotations": {
            "belayer.dev/recreate": "true", "kubernetes.io/limit-ranger": list } },
        "spec": { "containers": [{ "name": "main", "image": "busybox", "resources": resources }] },
    });
    let first = uid(&yard.world.create(&Gvr::PODS, Some(YARD), pod));
    yard.until("it runs", || yard.is_settled("web")).await;
    let pod = yard.find("web").unwrap();
    assert_ne!(uid(&pod), first);
    assert_eq!(pod["spec"]["containers"][0]["resources"], resources);
    belayer.stop().await;
}

/// The list `drop` of the configuration is about the user's annotations. Without its request the new pod would not be
/// re-created again.
#[tokio::test(start_paused = true)]
async fn the_request_is_carried_whatever_the_configuration_drops() {
    let yard = Yard::rejecting(2);
    let mut settings = Settings::default();
    settings.carry.drop = vec!["belayer.dev/*".into(), "note".into()];
    let belayer = yard.run_as(BELAYER, settings);
    let annotations = json!({ "belayer.dev/recreate": "true", "note": "x" });
    yard.pod_with("web", json!({ "annotations": annotations }));
    yard.until("it runs", || yard.is_settled("web")).await;
    assert_eq!(yard.pods_seen("web"), 3);
    let pod = yard.find("web").unwrap();
    assert_eq!(pod["metadata"]["annotations"]["note"], Value::Null);
    belayer.stop().await;
}
