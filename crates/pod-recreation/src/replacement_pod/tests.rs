//! Field by field: what the user wrote is kept, what was added later is removed.

use belayer_core::damage::{Edit, damaged};
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn rejected(metadata: Value, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1,
            "finalizers": ["belayer.dev/pod-recreation", "example.com/theirs"],
        },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        "status": { "phase": "Failed", "reason": "OutOfcpu" },
    });
    for (to, from) in [("metadata", metadata), ("spec", spec)] {
        for (name, value) in from.as_object().unwrap() {
            pod[to][name] = value.clone();
        }
    }
    pod
}

fn spec_of(spec: Value) -> Value {
    pod_to_create(&rejected(json!({}), spec), &ReplacementMetadata::default())["spec"].clone()
}

#[test]
fn identity_and_status_are_removed() {
    let pod = pod_to_create(
        &rejected(json!({}), json!({})),
        &ReplacementMetadata::default(),
    );
    assert_eq!(
        pod,
        json!({
            "metadata": {},
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        })
    );
}

#[test]
fn what_the_user_wrote_is_kept() {
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o-1" }]);
    let metadata = json!({
        "labels": { "app": "web" },
        "annotations": { "belayer.dev/recreate": "true", "note": "mine" },
        "ownerReferences": owner,
    });
    let spec = json!({
        "nodeSelector": { "disk": "ssd" }, "restartPolicy": "Never", "hostname": "h",
        "tolerations": [{ "key": "gpu", "operator": "Exists" }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "d" } }],
        "initContainers": [{ "name": "side", "image": "b", "restartPolicy": "Always" }],
        "priorityClassName": "high", "serviceAccountName": "robot",
        "containers": [{ "name": "main", "image": "busybox",
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
    });
    let pod = pod_to_create(
        &rejected(metadata.clone(), spec.clone()),
        &ReplacementMetadata::default(),
    );
    assert_eq!(pod, json!({ "metadata": metadata, "spec": spec }));
}

#[test]
fn annotations_of_belayer_and_labels_of_consumers_are_removed() {
    let metadata = json!({
        "labels": { "workflows.argoproj.io/completed": "true", "app": "web" },
        "annotations": {
            "belayer.dev/recreation": "web-1", "belayer.dev/recreation-uid": "r-1",
            "belayer.dev/recreation-attempt": "2", "belayer.dev/recreation-ended": "x",
            "belayer.dev/release": "true", "kubernetes.io/limit-ranger": "set cpu",
        },
    });
    let pod = pod_to_create(
        &rejected(metadata, json!({})),
        &ReplacementMetadata::default(),
    );
    assert_eq!(pod["metadata"], json!({ "labels": { "app": "web" } }));
}

#[rstest]
#[case::set_by_the_scheduler(json!([]), None)]
#[case::without_any_managed_fields(Value::Null, None)]
#[case::chosen_by_the_creator(
    json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": { "f:nodeName": {} } } }]),
    Some("node-1")
)]
#[case::written_through_a_subresource(
    json!([{ "manager": "x", "subresource": "status", "fieldsV1": { "f:spec": { "f:nodeName": {} } } }]),
    None
)]
fn the_node(#[case] managed: Value, #[case] expected: Option<&str>) {
    let metadata = json!({ "managedFields": managed });
    let pod = pod_to_create(
        &rejected(metadata, json!({ "nodeName": "node-1" })),
        &ReplacementMetadata::default(),
    );
    assert_eq!(pod["spec"]["nodeName"].as_str(), expected);
}

/// The volume that admission injects, with this name.
fn token(name: &str) -> Value {
    json!({ "name": name, "projected": { "defaultMode": 420, "sources": [
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "items": [{ "key": "ca.crt", "path": "ca.crt" }],
            "name": "kube-root-ca.crt" } },
        { "downwardAPI": { "items": [{ "path": "namespace",
            "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
    ] } })
}

fn mount(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": true })
}

const INJECTED: &str = "kube-api-access-x2b4d";

#[test]
fn only_the_injected_token_volume_is_removed() {
    let spec = spec_of(json!({
        "volumes": [token(INJECTED), token("vault")],
        "containers": [{ "name": "main", "image": "b", "volumeMounts": [
            mount(INJECTED, TOKEN_PATH), mount("vault", "/vault"),
        ] }],
        "initContainers": [
            { "name": "init", "image": "b", "volumeMounts": [mount(INJECTED, TOKEN_PATH)] },
            { "name": "own", "image": "b", "volumeMounts": [mount("vault", TOKEN_PATH)] },
        ],
    }));
    assert_eq!(spec["volumes"], json!([token("vault")]));
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([mount("vault", "/vault")])
    );
    assert_eq!(
        spec["initContainers"],
        json!([
            { "name": "init", "image": "b" },
            { "name": "own", "image": "b", "volumeMounts": [mount("vault", TOKEN_PATH)] },
        ])
    );
}

#[rstest]
#[case::injected(&[], false)]
#[case::with_a_name_that_is_not_generated(&[("/volumes/0/name", json!("kube-api-access-longer"))], true)]
#[case::without_automount(&[("/automountServiceAccountToken", json!(false))], true)]
#[case::for_another_audience(&[(
    "/volumes/0/projected/sources/0/serviceAccountToken",
    json!({ "audience": "vault", "expirationSeconds": 3607, "path": "token" }),
)], true)]
#[case::for_a_shorter_time(&[(
    "/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds",
    json!(900),
)], true)]
#[case::without_the_namespace(&[("/volumes/0/projected/sources/2", json!({ "secret": { "name": "s" } }))], true)]
#[case::of_another_kind(&[("/volumes/0", json!({ "name": INJECTED, "emptyDir": {} }))], true)]
#[case::mounted_elsewhere(&[("/containers/0/volumeMounts/0/mountPath", json!("/vault"))], true)]
#[case::mounted_in_part(&[("/containers/0/volumeMounts/0", json!({
    "name": INJECTED, "mountPath": TOKEN_PATH, "readOnly": true, "subPath": "token",
}))], true)]
fn a_token_volume_of_the_user_is_kept(#[case] edits: &[(&str, Value)], #[case] is_kept: bool) {
    let mut spec = json!({
        "automountServiceAccountToken": true,
        "volumes": [token(INJECTED)],
        "containers": [{ "name": "main", "image": "b",
            "volumeMounts": [mount(INJECTED, TOKEN_PATH)] }],
    });
    for (pointer, value) in edits {
        *spec.pointer_mut(pointer).unwrap() = value.clone();
    }
    let expected = if is_kept {
        spec.clone()
    } else {
        json!({ "automountServiceAccountToken": true,
            "containers": [{ "name": "main", "image": "b" }] })
    };
    assert_eq!(spec_of(spec), expected);
}

#[test]
fn only_default_tolerations_are_removed() {
    let toleration = |key: &str, seconds: u32| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
    let spec = spec_of(json!({ "tolerations": [
        toleration("node.kubernetes.io/not-ready", 300),
        toleration("node.kubernetes.io/unreachable", 300),
        toleration("node.kubernetes.io/unreachable", 5),
    ] }));
    assert_eq!(
        spec["tolerations"],
        json!([toleration("node.kubernetes.io/unreachable", 5)])
    );
}

#[test]
fn ephemeral_containers_and_computed_fields_are_removed() {
    let spec = spec_of(json!({
        "ephemeralContainers": [{ "name": "debug" }], "priority": 100,
        "priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority",
        "runtimeClassName": "kata", "overhead": { "cpu": "1" },
    }));
    assert_eq!(
        spec,
        json!({
            "containers": [{ "name": "main", "image": "busybox" }],
            "priorityClassName": "high", "runtimeClassName": "kata",
        })
    );
}

#[test]
fn expressions_merged_from_label_keys_are_removed() {
    let metadata = json!({ "labels": { "app": "web", "rev": "7" } });
    let own = json!({ "key": "app", "operator": "In", "values": ["web"] });
    let merged = json!({ "key": "rev", "operator": "In", "values": ["7"] });
    let unlike = json!({ "key": "rev", "operator": "NotIn", "values": ["7"] });
    let term = |keys: &str, expressions: Value| json!({ "topologyKey": "zone", keys: ["rev"], "labelSelector": { "matchExpressions": expressions } });
    let spec = json!({
        "topologySpreadConstraints": [term("matchLabelKeys", json!([own, merged]))],
        "affinity": {
            "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                [term("matchLabelKeys", json!([merged, own]))] },
            "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
                [{ "weight": 1, "podAffinityTerm": term("mismatchLabelKeys", json!([own, unlike])) }] },
        },
    });
    let spec =
        pod_to_create(&rejected(metadata, spec), &ReplacementMetadata::default())["spec"].clone();
    assert_eq!(
        spec["topologySpreadConstraints"],
        json!([term("matchLabelKeys", json!([own]))])
    );
    assert_eq!(
        spec["affinity"],
        json!({
            "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                [term("matchLabelKeys", json!([own]))] },
            "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
                [{ "weight": 1, "podAffinityTerm": term("mismatchLabelKeys", json!([own])) }] },
        })
    );
}

/// The API server would refuse the pod: it merges the new value into the selector, too.
#[rstest]
#[case::match_of_another_value("matchLabelKeys", &[("In", "1")], json!([]))]
#[case::mismatch_of_another_value("mismatchLabelKeys", &[("NotIn", "1")], json!([]))]
#[case::written_before_by_the_user("mismatchLabelKeys", &[("NotIn", "x"), ("NotIn", "1")], json!(["x"]))]
#[case::of_the_other_list("mismatchLabelKeys", &[("In", "x")], json!(["x"]))]
fn a_label_of_label_keys_may_have_changed_since_the_create(
    #[case] keys: &str,
    #[case] expressions: &[(&str, &str)],
    #[case] kept: Value,
) {
    let expression = |(operator, value): &(&str, &str)| json!({ "key": "v", "operator": operator, "values": [value] });
    let term = json!({ "topologyKey": "zone", keys: ["v"], "labelSelector": {
        "matchLabels": { "app": "web" },
        "matchExpressions": expressions.iter().map(expression).collect::<Vec<_>>() } });
    let spec = json!({ "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term] } } });
    let pod = rejected(json!({ "labels": { "v": "2" } }), spec);
    let recorded = pod_to_create(&pod, &ReplacementMetadata::default());
    let term = recorded.pointer(
        "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector",
    );
    let values = term.and_then(|selector| selector["matchExpressions"].as_array());
    let values: Vec<_> = values
        .into_iter()
        .flatten()
        .map(|one| &one["values"][0])
        .collect();
    assert_eq!(json!(values), kept);
    assert!(has_spec_of(&recorded, &pod));
}

/// An empty term matches no node: with a field it would match all but one.
#[test]
fn a_node_is_excluded_from_each_term_that_can_match() {
    let in_zone = json!([{ "key": "zone", "operator": "In", "values": ["a"] }]);
    let terms = json!([{ "matchExpressions": in_zone }, {}, { "matchExpressions": [] }]);
    let mut spec = json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } });
    exclude_nodes(&mut spec, &["node-1".to_owned()]);
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let other = json!([{ "key": "metadata.name", "operator": "NotIn", "values": ["node-1"] }]);
    let terms = required["nodeSelectorTerms"].as_array().unwrap();
    assert_eq!(
        terms[0],
        json!({ "matchExpressions": in_zone, "matchFields": other })
    );
    assert!(terms[1..].iter().all(|term| is_empty(&term["matchFields"])));
}

fn chain(avoid_nodes: &[String]) -> Chain<'_> {
    Chain {
        namespace: "shop",
        pod_name: "web",
        record: "web-u-1",
        record_uid: "r-1",
        attempt: 2,
        avoid_nodes,
    }
}

/// Whoever may write records may write anything into them.
#[rstest]
#[case::metadata("/metadata")]
#[case::annotations("/metadata/annotations")]
#[case::spec("/spec")]
#[case::affinity("/spec/affinity")]
#[case::node_affinity("/spec/affinity/nodeAffinity")]
#[case::the_required_one(
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
)]
#[case::terms(
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
)]
fn r3_a_record_may_contain_anything(
    #[case] pointer: &str,
    #[values(json!("text"), json!(["text"]), json!(7))] value: Value,
) {
    let mut pod = json!({ "metadata": { "annotations": {} }, "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{}] } } } } });
    *pod.pointer_mut(pointer).unwrap() = value;
    let avoid = ["node-1".to_owned()];
    let next = pod_of_attempt(&pod, chain(&avoid));
    let metadata = &next["metadata"];
    assert_eq!(metadata["name"], "web");
    assert_eq!(metadata["finalizers"], json!([POD_RECREATION_HOLD]));
    assert_eq!(metadata["annotations"][RECREATION_UID_ANNOTATION], "r-1");
}

#[test]
fn the_pod_of_an_attempt_has_the_hold_and_names_its_record() {
    let pod = pod_to_create(
        &rejected(json!({ "labels": { "app": "web" } }), json!({})),
        &ReplacementMetadata::default(),
    );
    let avoid = ["node-1".to_owned()];
    let next = pod_of_attempt(&pod, chain(&avoid));
    assert_eq!(
        next["metadata"],
        json!({
            "name": "web", "namespace": "shop", "labels": { "app": "web" },
            "finalizers": ["belayer.dev/pod-recreation"],
            "annotations": {
                "belayer.dev/recreation": "web-u-1", "belayer.dev/recreation-uid": "r-1",
                "belayer.dev/recreation-attempt": "2",
            },
        })
    );
    let required =
        &next["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        required["nodeSelectorTerms"],
        json!([{ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-1"] }] }])
    );
    assert_eq!(
        pod_to_create(&next, &ReplacementMetadata::default()),
        json!({ "metadata": { "labels": { "app": "web" } }, "spec": next["spec"] }),
        "Belayer's annotations are removed again"
    );
    let tried = dry_run_pod(&pod, chain(&avoid));
    assert_eq!(tried["metadata"]["generateName"], "web-");
    assert!(tried["metadata"].get("name").is_none());
}

/// The policies of an admin may remove what Belayer recognizes a re-created pod by.
#[test]
fn what_admission_removes_from_a_re_created_pod_is_named() {
    let pod = pod_to_create(
        &rejected(json!({}), json!({})),
        &ReplacementMetadata::default(),
    );
    let sent = dry_run_pod(&pod, chain(&[]));
    assert!(missing_marks(&sent, &sent).is_empty());
    let mut admitted = sent.clone();
    admitted["metadata"]["annotations"]["belayer.dev/recreation"] = "another".into();
    assert_eq!(missing_marks(&admitted, &sent), [RECREATION_ANNOTATION]);
    admitted["metadata"] = json!({ "finalizers": ["example.com/theirs"] });
    let all = [
        POD_RECREATION_HOLD,
        RECREATION_ANNOTATION,
        RECREATION_UID_ANNOTATION,
        RECREATION_ATTEMPT_ANNOTATION,
    ];
    assert_eq!(missing_marks(&admitted, &sent), all);
}

/// The list of defaults may come with a copied manifest: then admission does not add them again.
#[rstest]
#[case::added_again(json!([{ "name": "other" }, { "name": "main", "resources": { "requests": { "cpu": "2" } } }]), true)]
#[case::not_added(json!([{ "name": "main", "resources": {} }]), false)]
#[case::another_resource(json!([{ "name": "main", "resources": { "requests": { "memory": "1Gi" } } }]), false)]
fn admission_shows_whether_listed_defaults_are_those_of_a_limit_range(
    #[case] containers: Value,
    #[case] is_added: bool,
) {
    let annotations =
        json!({ limits::ANNOTATION: "LimitRanger plugin set: cpu request for container main" });
    let spec =
        json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] });
    let rejected = rejected(json!({ "annotations": annotations }), spec);
    let pod = pod_to_create(&rejected, &ReplacementMetadata::default());
    let whole = with_listed_defaults(&pod, &rejected).unwrap();
    assert_eq!(whole["spec"]["containers"], rejected["spec"]["containers"]);
    assert!(has_spec_of(&whole, &rejected));
    let admitted = json!({ "spec": { "containers": containers } });
    assert_eq!(has_resources_of(&admitted, &whole), is_added);
    assert_eq!(with_listed_defaults(&whole, &rejected), None);
}

#[test]
fn defaults_of_a_limit_range_are_removed() {
    let metadata = json!({ "annotations": {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container main",
    } });
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox",
        "resources": { "requests": { "cpu": "100m" } } }] });
    let pod = pod_to_create(&rejected(metadata, spec), &ReplacementMetadata::default());
    assert_eq!(
        pod["spec"]["containers"],
        json!([{ "name": "main", "image": "busybox", "resources": {} }])
    );
}

/// R3: metadata may change after the record was created, the spec may not.
#[test]
fn r3_the_spec_is_compared_and_not_the_metadata() {
    let constraint = |more: Value| json!([{ "topologyKey": "zone", "matchLabelKeys": ["rev"], "labelSelector": { "matchExpressions": more } }]);
    let merged = json!([{ "key": "rev", "operator": "In", "values": ["7"] }]);
    let spec = |more: &Value| json!({ "topologySpreadConstraints": constraint(more.clone()) });
    let pod = |labels: Value, spec: Value| rejected(json!({ "labels": labels }), spec);
    let recorded = pod_to_create(
        &pod(json!({ "rev": "7" }), spec(&merged)),
        &ReplacementMetadata::default(),
    );
    assert_eq!(recorded["spec"], spec_of(spec(&json!([]))));
    for labels in [
        json!({ "rev": "7" }),
        json!({ "rev": "8", "a": "b" }),
        json!({}),
    ] {
        let now = pod(labels, spec(&merged));
        assert!(has_spec_of(&recorded, &now), "{now:#}");
    }
    let mut other = pod(json!({ "rev": "7" }), spec(&merged));
    other["spec"]["containers"][0]["image"] = "another".into();
    assert!(!has_spec_of(&recorded, &other));
}

/// R3: the metadata that shows what was added changes after the record was created.
#[rstest]
#[case::nothing_changes("/metadata/labels", json!({}), true)]
#[case::the_defaults_are_not_listed_any_more("/metadata/annotations", json!({}), true)]
#[case::another_default_is_listed(
    "/metadata/annotations",
    json!({ limits::ANNOTATION: "LimitRanger plugin set: cpu, memory request for container main" }),
    true
)]
#[case::the_node_has_an_owner(
    "/metadata/managedFields",
    json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": { "f:nodeName": {} } } }]),
    true
)]
#[case::another_image("/spec/containers/0/image", json!("another"), false)]
#[case::another_amount("/spec/containers/0/resources/requests/memory", json!("2Gi"), false)]
#[case::no_limit("/spec/containers/0/resources/limits", json!({}), false)]
fn r3_what_was_added_is_not_compared(
    #[case] field: &str,
    #[case] value: Value,
    #[case] is_same: bool,
) {
    let metadata = json!({ "labels": {}, "managedFields": [], "annotations": {
        limits::ANNOTATION: "LimitRanger plugin set: cpu request for container main; cpu limit for container main",
    } });
    let spec = json!({ "nodeName": "node-1", "containers": [{ "name": "main", "image": "busybox",
        "resources": { "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "2", "memory": "1Gi" } } }] });
    let mut pod = rejected(metadata, spec);
    let recorded = pod_to_create(&pod, &ReplacementMetadata::default());
    *pod.pointer_mut(field).unwrap() = value;
    assert_eq!(has_spec_of(&recorded, &pod), is_same, "{recorded:#}");
}

/// R3: the record has what its user wrote; it does not count as added later.
#[test]
fn r3_the_node_of_the_user_is_compared() {
    let managed = json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": { "f:nodeName": {} } } }]);
    let mut pod = rejected(
        json!({ "managedFields": managed }),
        json!({ "nodeName": "node-1" }),
    );
    let recorded = pod_to_create(&pod, &ReplacementMetadata::default());
    pod["metadata"]["managedFields"] = json!([]);
    assert!(has_spec_of(&recorded, &pod));
    pod["spec"]["nodeName"] = "node-2".into();
    assert!(!has_spec_of(&recorded, &pod));
}

proptest! {
    /// Whatever a tenant writes into a pod: the pod to create has no identity, no status and no finalizer of the first, and
    /// the same pod is recognized as its origin.
    #[test]
    fn fuzz_any_pod_is_carried(edits in prop::collection::vec(any::<Edit>(), 1..8)) {
        let injected = json!([{ "name": "kube-api-access-x", "projected": { "sources": [] } }]);
        let whole = rejected(
            json!({
                "labels": { "app": "web", "rev": "7" },
                "annotations": {
                    "belayer.dev/recreate": "true",
                    limits::ANNOTATION: "LimitRanger plugin set: cpu request for container main",
                },
                "managedFields": [{ "manager": "kubectl", "operation": "Update",
                    "fieldsV1": { "f:spec": { "f:nodeName": {} }, "f:metadata": { "f:annotations": { "f:a": {} } } } }],
            }),
            json!({
                "nodeName": "n", "volumes": injected, "priority": 0, "priorityClassName": "high",
                "tolerations": [{ "key": "gpu", "operator": "Exists" }],
                "topologySpreadConstraints": [{ "topologyKey": "zone", "matchLabelKeys": ["rev"],
                    "labelSelector": { "matchLabels": { "app": "web" } } }],
            }),
        );
        let text = damaged(whole.to_string().as_bytes(), &edits);
        let Ok(pod) = serde_json::from_slice::<Value>(&text) else {
            return Ok(());
        };
        let created = pod_to_create(&pod, &ReplacementMetadata::default());
        prop_assert!(created.get("status").is_none());
        for field in ["uid", "resourceVersion", "finalizers", "managedFields"] {
            prop_assert!(created["metadata"].get(field).is_none(), "{field}: {created}");
        }
        prop_assert!(has_spec_of(&created, &pod));
    }
}
