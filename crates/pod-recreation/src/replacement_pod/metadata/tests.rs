//! R2: which labels and annotations re-created pods have, with what real networks, schedulers and backups write.

use rstest::rstest;
use serde_json::json;

use super::*;

/// An entry of `managedFields` for annotations.
fn wrote(manager: &str, subresource: &str, annotations: &[&str]) -> Value {
    let fields: Map<String, Value> = annotations
        .iter()
        .map(|name| (format!("f:{name}"), json!({})))
        .collect();
    let mut entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:metadata": { "f:annotations": fields } },
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    entry
}

/// The same for who created the pod.
fn created(manager: &str, annotations: &[&str]) -> Value {
    let mut entry = wrote(manager, "", annotations);
    entry["fieldsV1"]["f:spec"] = json!({ "f:containers": {
        "k:{\"name\":\"main\"}": { ".": {}, "f:image": {}, "f:name": {} } } });
    entry
}

fn pod(managed: &[Value]) -> Value {
    let names = managed.iter().flat_map(|entry| {
        let fields = entry["fieldsV1"]["f:metadata"]["f:annotations"].as_object();
        fields.into_iter().flat_map(Map::keys)
    });
    let annotations: Map<String, Value> = names
        .map(|name| (name.trim_start_matches("f:").to_owned(), json!("x")))
        .collect();
    json!({ "metadata": { "name": "web", "annotations": annotations, "managedFields": managed } })
}

fn annotations(pod: &Value, lists: &ReplacementMetadata) -> Vec<String> {
    let metadata = metadata_to_create(pod, &Value::Null, lists);
    let annotations = metadata["annotations"].as_object();
    annotations
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect()
}

#[rstest]
#[case::ovn_kubernetes(
    &[
        created("kubectl-create", &["k8s.ovn.org/routing-namespaces"]),
        wrote("ovnkube-cluster-manager", "status", &["k8s.ovn.org/pod-networks"]),
    ],
    &["k8s.ovn.org/routing-namespaces"]
)]
#[case::ovn_kubernetes_before_it_used_the_subresource(
    &[
        created("kubectl-create", &["note"]),
        wrote("ovnkube", "", &["k8s.ovn.org/pod-networks"]),
    ],
    &["note"]
)]
#[case::multus(
    &[
        created("kubectl-client-side-apply", &["k8s.v1.cni.cncf.io/networks"]),
        wrote("multus", "status", &["k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status"]),
    ],
    &["k8s.v1.cni.cncf.io/networks"]
)]
#[case::calico(
    &[
        created("argo", &["cni.projectcalico.org/ipAddrs"]),
        wrote("calico", "status", &["cni.projectcalico.org/containerID", "cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs"]),
    ],
    &["cni.projectcalico.org/ipAddrs"]
)]
#[case::cilium(
    &[
        created("kubectl-create", &["ipam.cilium.io/ip-pool"]),
        wrote("kubectl-annotate", "", &["policy.cilium.io/proxy-visibility"]),
        wrote("cilium-agent", "status", &["cilium.io/identity"]),
    ],
    &["ipam.cilium.io/ip-pool", "policy.cilium.io/proxy-visibility"]
)]
#[case::aliyun_gpushare(
    &[
        created("kubectl-create", &["note"]),
        wrote("gpushare-sche-extender", "", &[
            "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "ALIYUN_COM_GPU_MEM_DEV",
            "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "scheduler.framework.gpushare.allocation",
        ]),
    ],
    &["note"]
)]
#[case::velero_restored_what_a_network_had_written(
    &[created("velero-server", &[
        "backup.velero.io/backup-volumes", "note", "k8s.ovn.org/pod-networks", "cni.projectcalico.org/podIP",
        "k8s.v1.cni.cncf.io/network-status", "ALIYUN_COM_GPU_MEM_IDX",
    ])],
    &["backup.velero.io/backup-volumes", "note"]
)]
#[case::an_agent_of_its_own(
    &[
        created("workspace-controller", &["note"]),
        wrote("workspace-controller", "status", &["example.com/state"]),
        wrote("billing", "", &["example.com/account"]),
    ],
    &["note"]
)]
#[case::who_changed_the_image_is_not_the_creator(
    &[
        created("kubectl-create", &["note"]),
        {
            let mut entry = wrote("image-updater", "", &["example.com/digest"]);
            entry["fieldsV1"]["f:spec"] = json!({ "f:containers": {
                "k:{\"name\":\"main\"}": { "f:image": {} } } });
            entry
        },
    ],
    &["note"]
)]
#[case::a_creator_owns_the_container_or_its_name(
    &[
        {
            let mut entry = created("apply", &["note"]);
            entry["fieldsV1"]["f:spec"] = json!({ "f:containers": {
                "k:{\"name\":\"main\"}": { "f:name": {} } } });
            entry
        },
        {
            let mut entry = created("controller", &["example.com/pool"]);
            entry["fieldsV1"]["f:spec"] = json!({ "f:containers": {
                "k:{\"name\":\"more\"}": { ".": {} } } });
            entry
        },
    ],
    &["example.com/pool", "note"]
)]
#[case::requests_to_belayer_count_whoever_wrote_them(
    &[
        created("kubectl-create", &[]),
        wrote("platform", "", &["belayer.dev/recreate", "belayer.dev/wipe", "belayer.dev/recreation-ended"]),
    ],
    &["belayer.dev/recreate", "belayer.dev/wipe"]
)]
fn r2_annotations_are_carried_by_their_writer(
    #[case] managed: &[Value],
    #[case] expected: &[&str],
) {
    let pod = pod(managed);
    assert!(is_creator_known(&pod));
    assert_eq!(annotations(&pod, &ReplacementMetadata::default()), expected);
}

#[test]
fn r2_without_a_creator_everything_but_the_lists_is_carried() {
    let mut pod = pod(&[wrote("ovnkube", "", &["k8s.ovn.org/pod-networks", "note"])]);
    assert!(!is_creator_known(&pod));
    assert_eq!(annotations(&pod, &ReplacementMetadata::default()), ["note"]);
    pod["metadata"]["managedFields"] = Value::Null;
    assert_eq!(annotations(&pod, &ReplacementMetadata::default()), ["note"]);
}

/// The user's controller has changed `note` since. The node's plugin has filled in `address`, which the user left open.
#[test]
fn r2_a_recorded_annotation_is_carried_unless_a_subresource_wrote_it() {
    let pod = pod(&[
        created("belayer", &[]),
        wrote("my-operator", "", &["note"]),
        wrote("plugin", "status", &["address"]),
        wrote("network", "", &["ip"]),
    ]);
    let recorded = json!({ "annotations": { "note": "1", "address": "" } });
    let metadata = metadata_to_create(&pod, &recorded, &ReplacementMetadata::default());
    assert_eq!(metadata["annotations"], json!({ "note": "x" }));
}

#[test]
fn r2_the_configuration_extends_the_lists() {
    let pod = pod(&[
        created("kubectl-create", &["note", "example.com/secret"]),
        wrote("billing", "", &["example.com/account"]),
        wrote("network", "status", &["example.net/pool", "example.net/ip"]),
        wrote("ovnkube", "", &["k8s.ovn.org/pod-networks"]),
        wrote("audit", "", &["example.org/seen"]),
    ]);
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let lists = ReplacementMetadata {
        managers: list(&["billing", "ovnkube", "network"]),
        keep: list(&["example.net/p*"]),
        drop: list(&["example.com/secret"]),
    };
    let expected = ["example.com/account", "example.net/pool", "note"];
    assert_eq!(annotations(&pod, &lists), expected);
}

#[test]
fn r2_labels_are_carried_except_those_of_the_node_and_of_consumers() {
    let pod = json!({ "metadata": { "labels": {
        "app": "web", "velero.io/backup-name": "b", "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/region": "r", "workflows.argoproj.io/completed": "true",
        "workflows.argoproj.io/workflow": "w", "example.com/shard": "3",
    } } });
    let lists = ReplacementMetadata {
        drop: vec!["example.com/*".to_owned()],
        ..ReplacementMetadata::default()
    };
    let expected = json!({
        "app": "web", "velero.io/backup-name": "b", "workflows.argoproj.io/workflow": "w",
    });
    assert_eq!(
        metadata_to_create(&pod, &Value::Null, &lists)["labels"],
        expected
    );
}

#[test]
fn r2_owner_references_do_not_block_the_deletion_of_the_owner() {
    let owner = |more: Value| {
        let mut owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true });
        for (name, value) in more.as_object().unwrap() {
            owner[name] = value.clone();
        }
        owner
    };
    let pod = json!({ "metadata": { "ownerReferences": [owner(json!({ "blockOwnerDeletion": true }))] } });
    let metadata = metadata_to_create(&pod, &Value::Null, &ReplacementMetadata::default());
    assert_eq!(metadata["ownerReferences"], json!([owner(json!({}))]));
}
