//! The table columns of built-in kinds.

use serde_json::{Value, json};

use super::cells::{
    AGE, Builtin, NAME, access_modes, event_first_seen, event_object, event_seen, event_source,
    name, node_address, node_info, node_roles, node_status, or_none, pod_ready, pod_restarts,
    pod_status, pvc_status, unset,
};
use super::workloads;
use crate::meta;

const DATA: Builtin = ("Data", "string", "", 0, |o, _| {
    let keys = |field: &str| {
        o.get(field)
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len)
    };
    json!((keys("data") + keys("binaryData")).to_string())
});
const ATTRIBUTES_CLASS: Builtin = ("VolumeAttributesClass", "string", "", 0, |o, _| {
    json!(unset(meta::text(o, &["spec", "volumeAttributesClassName"])))
});
const VOLUME_MODE: Builtin = ("VolumeMode", "string", "", 1, |o, _| {
    json!(unset(meta::text(o, &["spec", "volumeMode"])))
});

/// The columns of a built-in kind.
pub(super) fn builtin(resource: &str) -> &'static [Builtin] {
    match resource {
        "pods" => &[
            NAME,
            ("Ready", "string", "", 0, pod_ready),
            ("Status", "string", "", 0, pod_status),
            ("Restarts", "string", "", 0, pod_restarts),
            AGE,
            ("IP", "string", "", 1, |o, _| {
                or_none(o, &["status", "podIP"])
            }),
            ("Node", "string", "", 1, |o, _| {
                or_none(o, &["spec", "nodeName"])
            }),
            ("Nominated Node", "string", "", 1, |o, _| {
                or_none(o, &["status", "nominatedNodeName"])
            }),
            ("Readiness Gates", "string", "", 1, |_, _| json!("<none>")),
        ],
        "namespaces" => &[
            NAME,
            ("Status", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "phase"]))
            }),
            AGE,
        ],
        "nodes" => &[
            NAME,
            ("Status", "string", "", 0, node_status),
            ("Roles", "string", "", 0, node_roles),
            AGE,
            ("Version", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "nodeInfo", "kubeletVersion"]))
            }),
            ("Internal-IP", "string", "", 1, |o, _| {
                node_address(o, "InternalIP")
            }),
            ("External-IP", "string", "", 1, |o, _| {
                node_address(o, "ExternalIP")
            }),
            ("OS-Image", "string", "", 1, |o, _| node_info(o, "osImage")),
            ("Kernel-Version", "string", "", 1, |o, _| {
                node_info(o, "kernelVersion")
            }),
            ("Container-Runtime", "string", "", 1, |o, _| {
                node_info(o, "containerRuntimeVersion")
            }),
        ],
        "persistentvolumeclaims" => &[
            NAME,
            ("Status", "string", "", 0, pvc_status),
            ("Volume", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "volumeName"]))
            }),
            ("Capacity", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "capacity", "storage"]))
            }),
            ("Access Modes", "string", "", 0, |o, _| {
                access_modes(o, "status")
            }),
            ("StorageClass", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "storageClassName"]))
            }),
            ATTRIBUTES_CLASS,
            AGE,
            VOLUME_MODE,
        ],
        "persistentvolumes" => &[
            NAME,
            ("Capacity", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "capacity", "storage"]))
            }),
            ("Access Modes", "string", "", 0, |o, _| {
                access_modes(o, "spec")
            }),
            ("Reclaim Policy", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "persistentVolumeReclaimPolicy"]))
            }),
            ("Status", "string", "", 0, pvc_status),
            ("Claim", "string", "", 0, |o, _| {
                let part = |name| meta::text(o, &["spec", "claimRef", name]).to_owned();
                let (home, name) = (part("namespace"), part("name"));
                json!(if name.is_empty() {
                    name
                } else {
                    format!("{home}/{name}")
                })
            }),
            ("StorageClass", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "storageClassName"]))
            }),
            ATTRIBUTES_CLASS,
            ("Reason", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "reason"]))
            }),
            AGE,
            VOLUME_MODE,
        ],
        "events" => &[
            ("Last Seen", "string", "", 0, event_seen),
            ("Type", "string", "", 0, |o, _| {
                json!(meta::text(o, &["type"]))
            }),
            ("Reason", "string", "", 0, |o, _| {
                json!(meta::text(o, &["reason"]))
            }),
            ("Object", "string", "", 0, event_object),
            ("Subobject", "string", "", 1, |o, _| {
                json!(meta::text(o, &["involvedObject", "fieldPath"]))
            }),
            ("Source", "string", "", 1, event_source),
            ("Message", "string", "", 0, |o, _| {
                json!(meta::text(o, &["message"]).trim())
            }),
            ("First Seen", "string", "", 1, event_first_seen),
            ("Count", "string", "", 1, |o, _| {
                let count = o.get("count").and_then(Value::as_i64).unwrap_or(0);
                json!(count.max(1).to_string())
            }),
            ("Name", "string", "name", 1, name),
        ],
        "customresourcedefinitions" => &[
            NAME,
            ("Created At", "date", "", 0, |o, _| {
                json!(meta::field(o, "creationTimestamp"))
            }),
        ],
        "configmaps" => &[NAME, DATA, AGE],
        "secrets" => &[
            NAME,
            ("Type", "string", "", 0, |o, _| {
                json!(meta::text(o, &["type"]))
            }),
            DATA,
            AGE,
        ],
        "leases" => &[
            NAME,
            ("Holder", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "holderIdentity"]))
            }),
            AGE,
        ],
        other => workloads::columns(other).unwrap_or(&[NAME, AGE]),
    }
}
