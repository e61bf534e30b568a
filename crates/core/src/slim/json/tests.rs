use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::slim::{Keep, Namespace, OwnerMeta, Phase, Pod};

fn context() -> DecodeContext {
    let keep = Keep::nothing()
        .labels(["app", "gone"])
        .annotations(["example.com/release"]);
    DecodeContext {
        keep,
        ..DecodeContext::default()
    }
}

fn read<K: SlimJson>(text: &str, context: &DecodeContext) -> Result<K, DecodeError> {
    let json: K::Json<'_> = serde_json::from_str(text)?;
    K::from_json(&json, context)
}

fn pod(value: &Value) -> Pod {
    read(&value.to_string(), &context()).unwrap()
}

/// As kubectl prints the pod of a workflow, without most of the fields that are not read.
const WORKFLOW_POD: &str = r#"{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": {
    "annotations": {"kubectl.kubernetes.io/default-container": "main", "example.com/release": "true"},
    "creationTimestamp": "2026-03-01T10:00:00Z",
    "deletionGracePeriodSeconds": 30,
    "deletionTimestamp": "2026-03-01T10:05:00Z",
    "finalizers": ["example.com/pod-status", "example.org/\u0061rchive"],
    "labels": {"app": "bu\"ild", "workflows.argoproj.io/workflow": "build-x2x"},
    "managedFields": [
      {"manager": "argo", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T10:00:00Z",
       "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}}},
      {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T10:04:00Z",
       "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}, "subresource": "status"},
      {"manager": "someone", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T10:06:00Z",
       "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}, "subresource": "status"}
    ],
    "name": "build-x2x-1",
    "namespace": "ci",
    "ownerReferences": [
      {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u-0"},
      {"apiVersion": "argoproj.io/v1alpha1", "blockOwnerDeletion": true, "controller": true,
       "kind": "Workflow", "name": "build-x2x", "uid": "u-1"}
    ],
    "resourceVersion": "123456",
    "uid": "0a1b2c3d"
  },
  "spec": {
    "containers": [{"name": "main", "image": "x", "env": [{"name": "A", "value": null}]}],
    "nodeName": "node-7",
    "volumes": [
      {"name": "work", "persistentVolumeClaim": {"claimName": "build-x2x-work"}},
      {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
      {"name": "token", "projected": {"sources": []}}
    ]
  },
  "status": {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: memory.",
    "podIP": "10.1.2.3",
    "startTime": "2026-03-01T10:00:01Z",
    "containerStatuses": [
      {"name": "main", "ready": false, "restartCount": 0, "started": false, "lastState": {},
       "state": {"terminated": {"exitCode": 137, "startedAt": "2026-03-01T10:00:05Z"}}}
    ],
    "qosClass": "Burstable"
  }
}"#;

#[test]
fn a_real_pod_keeps_what_decisions_read() {
    let context = context();
    let pod: Pod = read(WORKFLOW_POD, &context).unwrap();
    let meta = &pod.meta;
    assert_eq!(meta.key.to_string(), "ci/build-x2x-1");
    assert_eq!(meta.uid.as_str(), "0a1b2c3d");
    assert_eq!(meta.resource_version.get(), 123_456);
    assert_eq!(meta.deletion_timestamp, "2026-03-01T10:05:00Z".parse().ok());
    assert_eq!(meta.deletion_grace_period, Some(30));
    assert_eq!(
        *meta.finalizers,
        [
            Arc::from("example.com/pod-status"),
            Arc::from("example.org/archive")
        ]
    );
    let owner = meta.controller.as_ref().unwrap();
    assert_eq!(
        (&*owner.api_version, &*owner.kind),
        ("argoproj.io/v1alpha1", "Workflow")
    );
    assert_eq!((&*owner.name, owner.uid.as_str()), ("build-x2x", "u-1"));
    assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("app", "bu\"ild")]);
    assert_eq!(
        meta.annotations.iter().collect::<Vec<_>>(),
        [("example.com/release", "true")]
    );
    assert_eq!(pod.node_name.as_deref(), Some("node-7"));
    assert_eq!(*pod.pvcs, [Arc::from("build-x2x-work")]);
    assert_eq!(*pod.ephemeral_pvcs, [Arc::from("build-x2x-1-scratch")]);
    assert_eq!(pod.phase, Phase::Failed);
    assert_eq!(pod.reason.as_deref(), Some("Evicted"));
    assert_eq!(
        pod.message().map(|message| &**message),
        Some("The node was low on resource: memory.")
    );
    assert!(pod.has_ip && pod.started);
    let failure = pod.failure.as_deref().unwrap();
    assert_eq!(failure.start_time, "2026-03-01T10:00:01Z".parse().ok());
    assert_eq!(failure.status_written, "2026-03-01T10:04:00Z".parse().ok());
    assert_eq!(failure.created, "2026-03-01T10:00:00Z".parse().ok());

    let again: Pod = read(WORKFLOW_POD, &context).unwrap();
    let namespace = |pod: &Pod| Arc::clone(pod.meta.key.shared_namespace());
    assert!(
        Arc::ptr_eq(&namespace(&pod), &namespace(&again)),
        "repeated strings are shared"
    );
    assert_eq!(pod, again);
}

#[test]
fn a_pod_that_was_just_created_has_almost_nothing() {
    let fresh = pod(&json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": null, "deletionTimestamp": null, "finalizers": null,
            "ownerReferences": null, "labels": null, "annotations": null, "managedFields": null,
            "deletionGracePeriodSeconds": null,
        },
        "spec": {"volumes": null, "nodeName": null},
        "status": {"phase": null, "containerStatuses": null, "startTime": null, "podIP": null},
    }));
    let meta = fresh.meta.clone();
    assert_eq!(fresh, Pod::new(meta));
    assert!(!fresh.meta.is_deleting());
    let bare = pod(&json!({"metadata": {
        "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}}));
    assert_eq!(bare, fresh);
}

#[test]
fn a_message_is_kept_only_of_a_failed_pod() {
    let with = |phase: &str| {
        pod(
            &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": phase, "message": "m", "reason": "r"}}),
        )
    };
    assert_eq!(with("Failed").message().map(|m| &**m), Some("m"));
    assert_eq!(with("Pending").failure, None);
    assert_eq!(with("Pending").reason.as_deref(), Some("r"));
    assert_eq!(with("NeverHeardOf").phase, Phase::Unknown);
}

#[rstest]
#[case::nothing(json!([]), false)]
#[case::waiting(json!([{"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {},
    "restartCount": 0, "started": false}]), false)]
#[case::rejected_before_it_ran(json!([{"state": {"terminated": {"exitCode": 137,
    "reason": "ContainerStatusUnknown", "startedAt": null}}}]), false)]
#[case::running(json!([{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]), true)]
#[case::running_without_a_start_time(json!([{"state": {"running": {}}}]), true)]
#[case::terminated_after_a_run(json!([{"state": {"terminated": {"startedAt": "2026-01-01T00:00:00Z"}}}]), true)]
#[case::waiting_to_restart(json!([{"state": {"waiting": {}}, "lastState": {"terminated": {}}}]), true)]
#[case::restarted(json!([{"restartCount": 1}]), true)]
#[case::started(json!([{"started": true}]), true)]
#[case::the_second_one(json!([{"state": {}}, {"started": true}]), true)]
fn a_pod_has_started_once_any_container_may_have_run(
    #[case] statuses: Value,
    #[case] started: bool,
    #[values(
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses"
    )]
    field: &str,
) {
    let pod = pod(
        &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
        "status": {field: statuses}}),
    );
    assert_eq!(pod.started, started);
}

#[rstest]
#[case::nothing(json!([]), false, false)]
#[case::waiting(json!([{"state": {"waiting": {"reason": "ContainerCreating"}}}]), false, false)]
#[case::its_end_was_not_seen(json!([{"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}]), true, false)]
#[case::it_was_created(json!([{"state": {"waiting": {}}, "containerID": "containerd://abc"}]), true, true)]
fn a_rejection_has_no_container(
    #[case] statuses: Value,
    #[case] expected: bool,
    #[case] has_id: bool,
    #[values("containerStatuses", "initContainerStatuses")] field: &str,
) {
    let pod = pod(
        &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
        "status": {"phase": "Failed", field: statuses}}),
    );
    let failure = pod.failure.unwrap();
    assert_eq!(failure.has_container, expected);
    assert_eq!(failure.has_container_id, has_id);
}

/// A kubelet writes its IP into every status of a pod with `hostNetwork`, also of one that it rejected.
#[rstest]
#[case::of_the_pod(json!(null), true)]
#[case::not_in_the_network_of_the_node(json!(false), true)]
#[case::of_the_node(json!(true), false)]
fn the_ip_of_the_node_is_none_of_the_pod(#[case] host_network: Value, #[case] has_ip: bool) {
    let pod = pod(
        &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"hostNetwork": host_network},
        "status": {"phase": "Failed", "hostIP": "10.0.0.1", "podIP": "10.0.0.1"}}),
    );
    assert_eq!((pod.has_ip, pod.unstarted.is_none()), (has_ip, has_ip));
}

#[rstest]
#[case::the_kubelets_last(json!([
    {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:01Z"},
    {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:03Z"},
    {"manager": "kubelet", "time": "2026-01-01T00:00:09Z"}]), Some("2026-01-01T00:00:03Z"))]
#[case::any_components_if_the_kubelet_never_wrote(json!([
    {"manager": "a", "subresource": "status", "time": "2026-01-01T00:00:05Z"},
    {"manager": "b", "subresource": "status", "time": "2026-01-01T00:00:04Z"},
    {"manager": "c", "time": "2026-01-01T00:00:09Z"}]), Some("2026-01-01T00:00:05Z"))]
#[case::none(json!([{"manager": "kubelet", "time": "2026-01-01T00:00:09Z"}]), None)]
#[case::an_unreadable_one(json!([
    {"manager": "kubelet", "subresource": "status", "time": "yesterday"}]), None)]
fn the_last_write_of_the_status_is_read_from_managed_fields(
    #[case] fields: Value,
    #[case] expected: Option<&str>,
) {
    let pod = pod(
        &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1",
        "managedFields": fields}, "status": {"phase": "Failed"}}),
    );
    assert_eq!(
        pod.failure.unwrap().status_written,
        expected.map(|time| time.parse().unwrap())
    );
}

#[rstest]
#[case::the_last(json!([
    {"manager": "a", "time": "2026-01-01T00:00:03Z", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"x/y\"": {}}}}},
    {"manager": "b", "time": "2026-01-01T00:00:01Z", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}},
    {"manager": "c", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {}}}]),
    Some("2026-01-01T00:00:03Z"))]
#[case::through_a_subresource(json!([
    {"subresource": "status", "time": "2026-01-01T00:00:03Z", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}}]),
    Some("2026-01-01T00:00:03Z"))]
#[case::one_at_an_unknown_time(json!([
    {"time": "2026-01-01T00:00:03Z", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}},
    {"fieldsV1": {"f:metadata": {"f:finalizers": {}}}}]), None)]
#[case::unreadable_fields(json!([{"time": "2026-01-01T00:00:03Z", "fieldsV1": "?"}]), Some("2026-01-01T00:00:03Z"))]
#[case::none(json!([{"time": "2026-01-01T00:00:03Z", "fieldsV1": {"f:spec": {}}}]), None)]
fn the_last_write_of_finalizers_is_read_from_managed_fields(
    #[case] fields: Value,
    #[case] expected: Option<&str>,
) {
    let pod = pod(
        &json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1",
        "managedFields": fields}, "status": {"phase": "Failed"}}),
    );
    assert_eq!(
        pod.failure.unwrap().finalizers_written,
        expected.map(|time| time.parse().unwrap())
    );
}

#[rstest]
#[case::its_creator(json!([{"manager": "me", "fieldsV1": {"f:spec": {}}}]), true)]
#[case::one_of_several(json!([
    {"manager": "other", "fieldsV1": {"f:spec": {}}},
    {"manager": "me", "fieldsV1": {"f:metadata": {}, "f:spec": {"f:x": {}}}}]), true)]
#[case::another_one(json!([{"manager": "other", "fieldsV1": {"f:spec": {}}}]), false)]
#[case::it_wrote_metadata_only(json!([{"manager": "me", "fieldsV1": {"f:metadata": {"f:spec": {}}}}]), false)]
#[case::it_wrote_a_subresource(json!([
    {"manager": "me", "subresource": "status", "fieldsV1": {"f:spec": {}}}]), false)]
#[case::an_empty_list(json!([]), true)]
#[case::no_managed_fields(json!(null), true)]
fn an_annotation_may_count_on_objects_of_one_creator_only(
    #[case] managers: Value,
    #[case] counts: bool,
) {
    let keep = Keep::nothing().annotations(["always"]);
    let context = DecodeContext {
        keep: keep.annotations_if_created_by("me", ["mine"]),
        ..DecodeContext::default()
    };
    let text = json!({"metadata": {
        "name": "p", "uid": "u", "resourceVersion": "1", "managedFields": managers,
        "annotations": {"always": "1", "mine": "2", "other": "3"},
    }})
    .to_string();
    let object: OwnerMeta = read(&text, &context).unwrap();
    let annotations = &object.meta.annotations;
    assert_eq!(annotations.get("always"), Some("1"));
    assert_eq!(annotations.get("mine"), counts.then_some("2"));
    assert_eq!(annotations.get("other"), None);
}

#[rstest]
#[case::no_name(json!({"uid": "u", "resourceVersion": "1"}), "metadata.name is missing")]
#[case::no_uid(json!({"name": "p", "resourceVersion": "1"}), "metadata.uid is missing")]
#[case::no_version(json!({"name": "p", "uid": "u"}), "metadata.resourceVersion is missing")]
#[case::a_strange_version(json!({"name": "p", "uid": "u", "resourceVersion": "1-2"}),
    "invalid metadata.resourceVersion: \"1-2\"")]
fn the_error_names_the_invalid_field(#[case] metadata: Value, #[case] expected: &str) {
    let text = json!({"metadata": metadata}).to_string();
    let error = read::<OwnerMeta>(&text, &context()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// A tenant deletes a pod with a grace period of ten thousand years; a node reports a start in the year 9999, which is
/// beyond the range of the time library.
#[test]
fn t9_a_time_that_cannot_be_represented_is_present_and_proves_nothing() {
    let pod = json!({
        "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": "99999-01-01T00:00:00Z", "deletionTimestamp": "12026-03-01T10:05:00Z",
            "managedFields": [{ "manager": "kubelet", "subresource": "status", "time": "9999-12-31T23:59:59Z" }] },
        "status": { "phase": "Failed", "startTime": "9999-12-31T23:59:59Z" },
    });
    let pod: Pod = read(&pod.to_string(), &context()).unwrap();
    assert_eq!(pod.meta.deletion_timestamp, Some(Timestamp::MAX));
    let failure = pod.failure.unwrap();
    assert_eq!(failure.start_time, Some(Timestamp::MIN));
    assert_eq!((failure.created, failure.status_written), (None, None));
}

#[test]
fn metadata_only_ignores_the_other_fields() {
    let text = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"1"},"spec":7,"status":[]}"#;
    assert_eq!(
        read::<OwnerMeta>(text, &context()).unwrap().meta.key.name(),
        "n"
    );
    assert_eq!(
        read::<Namespace>(text, &context())
            .unwrap()
            .meta
            .key
            .namespace(),
        None
    );
    assert!(read::<Pod>(text, &context()).is_err());
}

#[test]
fn a_truncated_object_is_identified_as_far_as_possible() {
    let text = r#"{"type":"MODIFIED","object":{"spec":{"name":"no"},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","#;
    let identity = sniff(text.as_bytes());
    assert_eq!(identity.event.as_deref(), Some("MODIFIED"));
    assert_eq!(identity.key().unwrap().to_string(), "n/a");
    assert_eq!(identity.uid().unwrap().as_str(), "u");
    assert_eq!(identity.resource_version().unwrap().get(), 7);
    assert_eq!(sniff(b"[]"), Identity::default());
    // A Secret has a `type` field too.
    let secret = r#"{"type":"DELETED","object":{"type":"Opaque","metadata":{"name":7}}}"#;
    assert_eq!(sniff(secret.as_bytes()).event.as_deref(), Some("DELETED"));
    assert_eq!(sniff(secret.as_bytes()).key(), None);
}

#[test]
fn a_claim_keeps_what_decisions_read() {
    let text = r#"{
      "apiVersion": "v1", "kind": "PersistentVolumeClaim",
      "metadata": {
        "name": "web-0-scratch", "namespace": "shop", "uid": "c-1", "resourceVersion": "7",
        "deletionTimestamp": "2026-03-01T10:05:00Z", "deletionGracePeriodSeconds": 0,
        "finalizers": ["kubernetes.io/pvc-protection"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "p-1", "controller": true}]
      },
      "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1"}, "status": {"phase": "Bound"}
    }"#;
    let pvc: crate::slim::Pvc = read(text, &context()).unwrap();
    assert_eq!(pvc.meta.key.to_string(), "shop/web-0-scratch");
    assert!(pvc.meta.is_deleting());
    assert!(pvc.meta.has_finalizer("kubernetes.io/pvc-protection"));
    assert_eq!(pvc.meta.controller.unwrap().uid.as_str(), "p-1");
}
