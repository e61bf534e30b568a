//! The built-in kinds.

use std::sync::Arc;

use super::{ResourceInfo, Schemas, Scope, ServedVersion, StatusFace, Traits};

const UNCONDITIONAL: Traits = Traits::UNCONDITIONAL_UPDATE;
const PLAIN: Traits = Traits(0);
const COUNTED: Traits = Traits::GENERATION.and(UNCONDITIONAL);
const RETURNED: Traits = UNCONDITIONAL.and(Traits::RETURNS_DELETED);
const UPSERT: Traits = UNCONDITIONAL.and(Traits::CREATE_ON_UPDATE);

/// One row of the table below: group/version, plural, singular, kind, short names, scope, status, traits.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    Scope,
    StatusFace,
    Traits,
);

use Scope::{Cluster, Namespaced};
use StatusFace::{None as NoStatus, StatusOnly, WithMetadata};

const APPS: &str = "apps/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("v1", "configmaps", "configmap", "ConfigMap", &["cm"], Namespaced, NoStatus, UNCONDITIONAL),
    ("v1", "events", "event", "Event", &["ev"], Namespaced, NoStatus, UPSERT.and(Traits::NO_GARBAGE_COLLECTION)),
    ("events.k8s.io/v1", "events", "event", "Event", &["ev"], Namespaced, NoStatus, UPSERT.and(Traits::NO_GARBAGE_COLLECTION)),
    ("v1", "namespaces", "namespace", "Namespace", &["ns"], Cluster, WithMetadata, UNCONDITIONAL),
    ("v1", "nodes", "node", "Node", &["no"], Cluster, WithMetadata, UNCONDITIONAL.and(Traits::STATUS_ON_CREATE)),
    ("v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", &["pvc"], Namespaced, WithMetadata, RETURNED),
    ("v1", "persistentvolumes", "persistentvolume", "PersistentVolume", &["pv"], Cluster, WithMetadata, RETURNED),
    ("v1", "pods", "pod", "Pod", &["po"], Namespaced, WithMetadata, RETURNED.and(Traits::GENERATION)),
    ("v1", "secrets", "secret", "Secret", &[], Namespaced, NoStatus, UNCONDITIONAL),
    ("v1", "serviceaccounts", "serviceaccount", "ServiceAccount", &["sa"], Namespaced, NoStatus, RETURNED),
    ("v1", "services", "service", "Service", &["svc"], Namespaced, WithMetadata, RETURNED),
    ("v1", "resourcequotas", "resourcequota", "ResourceQuota", &["quota"], Namespaced, WithMetadata, RETURNED),
    (APPS, "daemonsets", "daemonset", "DaemonSet", &["ds"], Namespaced, WithMetadata, COUNTED),
    (APPS, "deployments", "deployment", "Deployment", &["deploy"], Namespaced, WithMetadata, COUNTED),
    (APPS, "replicasets", "replicaset", "ReplicaSet", &["rs"], Namespaced, WithMetadata, COUNTED),
    (APPS, "statefulsets", "statefulset", "StatefulSet", &["sts"], Namespaced, WithMetadata, COUNTED),
    ("batch/v1", "cronjobs", "cronjob", "CronJob", &["cj"], Namespaced, WithMetadata, COUNTED),
    ("batch/v1", "jobs", "job", "Job", &[], Namespaced, WithMetadata, COUNTED.and(Traits::ORPHANS_BY_DEFAULT)),
    ("coordination.k8s.io/v1", "leases", "lease", "Lease", &[], Namespaced, NoStatus, Traits::CREATE_ON_UPDATE),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition", &["crd", "crds"], Cluster, StatusOnly, Traits::GENERATION),
    ("policy/v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", &["pdb"], Namespaced, WithMetadata, Traits::GENERATION),
    ("storage.k8s.io/v1", "volumeattachments", "volumeattachment", "VolumeAttachment", &[], Cluster, WithMetadata, RETURNED),
    ("discovery.k8s.io/v1", "endpointslices", "endpointslice", "EndpointSlice", &[], Namespaced, NoStatus, COUNTED),
    ("apiregistration.k8s.io/v1", "apiservices", "apiservice", "APIService", &[], Cluster, WithMetadata, PLAIN),
    ("storage.k8s.io/v1", "storageclasses", "storageclass", "StorageClass", &["sc"], Cluster, NoStatus, RETURNED),
    ("scheduling.k8s.io/v1", "priorityclasses", "priorityclass", "PriorityClass", &["pc"], Cluster, NoStatus, UNCONDITIONAL),
    ("networking.k8s.io/v1", "networkpolicies", "networkpolicy", "NetworkPolicy", &["netpol"], Namespaced, NoStatus, COUNTED),
    ("networking.k8s.io/v1", "ingresses", "ingress", "Ingress", &["ing"], Namespaced, WithMetadata, COUNTED),
    ("networking.k8s.io/v1", "ingressclasses", "ingressclass", "IngressClass", &[], Cluster, NoStatus, COUNTED),
    ("v1", "endpoints", "endpoints", "Endpoints", &["ep"], Namespaced, NoStatus, UNCONDITIONAL),
    ("v1", "limitranges", "limitrange", "LimitRange", &["limits"], Namespaced, NoStatus, UNCONDITIONAL),
    ("autoscaling/v2", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", &["hpa"], Namespaced, WithMetadata, UNCONDITIONAL),
    (RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", &[], Cluster, NoStatus, UPSERT.and(Traits::PATH_NAMES)),
    (RBAC, "clusterroles", "clusterrole", "ClusterRole", &[], Cluster, NoStatus, UPSERT.and(Traits::PATH_NAMES)),
    (RBAC, "rolebindings", "rolebinding", "RoleBinding", &[], Namespaced, NoStatus, UPSERT.and(Traits::PATH_NAMES)),
    (RBAC, "roles", "role", "Role", &[], Namespaced, NoStatus, UPSERT.and(Traits::PATH_NAMES)),
    (ADMISSION, "mutatingadmissionpolicies", "mutatingadmissionpolicy", "MutatingAdmissionPolicy", &[], Cluster, NoStatus, Traits::GENERATION),
    (ADMISSION, "mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding", "MutatingAdmissionPolicyBinding", &[], Cluster, NoStatus, Traits::GENERATION),
    (ADMISSION, "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration", &[], Cluster, NoStatus, Traits::GENERATION),
    (ADMISSION, "validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy", &[], Cluster, StatusOnly, Traits::GENERATION),
    (ADMISSION, "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding", &[], Cluster, NoStatus, Traits::GENERATION),
    (ADMISSION, "validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration", &[], Cluster, NoStatus, Traits::GENERATION),
    ("node.k8s.io/v1", "runtimeclasses", "runtimeclass", "RuntimeClass", &[], Cluster, NoStatus, PLAIN),
];

fn selectable(resource: &str) -> &'static [&'static str] {
    match resource {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "namespaces" => &["status.phase"],
        "nodes" => &["spec.unschedulable"],
        "secrets" => &["type"],
        "jobs" => &["status.successful"],
        "replicasets" => &["status.replicas"],
        _ => &[],
    }
}

/// Every built-in kind.
pub(crate) fn builtin() -> Vec<ResourceInfo> {
    ROWS.iter().map(build).collect()
}

fn build(row: &Row) -> ResourceInfo {
    let &(api_version, resource, singular, kind, short_names, scope, status, traits) = row;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let served = ServedVersion {
        name: version.to_owned(),
        status,
        columns: Vec::new(),
        schema: None,
        checks: Arc::default(),
        selectable: selectable(resource)
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    let workload = matches!(group, "apps" | "batch") || matches!(resource, "pods" | "services");
    ResourceInfo {
        group: group.to_owned(),
        versions: vec![served],
        storage_version: version.to_owned(),
        resource: resource.to_owned(),
        singular: singular.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        short_names: short_names.iter().map(ToString::to_string).collect(),
        categories: if workload {
            vec!["all".to_owned()]
        } else {
            Vec::new()
        },
        scope,
        custom: false,
        traits,
        schemas: Schemas::default(),
    }
}
