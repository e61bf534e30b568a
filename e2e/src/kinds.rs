//! The kinds that scenarios use, as untyped documents.
//!
//! Typed structs would make this crate several times slower to compile, and scenarios read only a
//! few fields.

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};

/// Objects of one kind, as documents.
pub type Objects = Api<DynamicObject>;

/// The pods of a namespace.
pub fn pods(client: &Client, namespace: &str) -> Objects {
    in_namespace(client, namespace, ["v1", "Pod", "pods"])
}

/// The pods of all namespaces.
pub fn all_pods(client: &Client) -> Objects {
    everywhere(client, ["v1", "Pod", "pods"])
}

/// The PVCs of a namespace.
pub fn pvcs(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["v1", "PersistentVolumeClaim", "persistentvolumeclaims"],
    )
}

/// The PVCs of all namespaces.
pub fn all_pvcs(client: &Client) -> Objects {
    everywhere(
        client,
        ["v1", "PersistentVolumeClaim", "persistentvolumeclaims"],
    )
}

/// All PVs.
pub fn volumes(client: &Client) -> Objects {
    everywhere(client, ["v1", "PersistentVolume", "persistentvolumes"])
}

/// All CSIDrivers.
pub fn csi_drivers(client: &Client) -> Objects {
    everywhere(client, ["storage.k8s.io/v1", "CSIDriver", "csidrivers"])
}

/// All VolumeAttachments.
pub fn volume_attachments(client: &Client) -> Objects {
    everywhere(
        client,
        ["storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"],
    )
}

/// The StatefulSets of a namespace.
pub fn stateful_sets(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["apps/v1", "StatefulSet", "statefulsets"],
    )
}

/// The ConfigMaps of a namespace.
pub fn config_maps(client: &Client, namespace: &str) -> Objects {
    in_namespace(client, namespace, ["v1", "ConfigMap", "configmaps"])
}

/// The gates of a namespace.
pub fn gates(client: &Client, namespace: &str) -> Objects {
    in_namespace(client, namespace, ["belayer.dev/v1alpha1", "Gate", "gates"])
}

/// The Events of a namespace.
pub fn events(client: &Client, namespace: &str) -> Objects {
    in_namespace(client, namespace, ["v1", "Event", "events"])
}

/// All namespaces.
pub fn namespaces(client: &Client) -> Objects {
    everywhere(client, ["v1", "Namespace", "namespaces"])
}

/// The ClusterRoleBindings.
pub fn cluster_role_bindings(client: &Client) -> Objects {
    everywhere(
        client,
        [
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
        ],
    )
}

/// The PodRecreations of a namespace.
pub fn records(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["belayer.dev/v1alpha1", "PodRecreation", "podrecreations"],
    )
}

/// The NodeWipes.
pub fn node_wipes(client: &Client) -> Objects {
    everywhere(client, ["belayer.dev/v1alpha1", "NodeWipe", "nodewipes"])
}

/// The Leases of a namespace.
pub fn leases(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["coordination.k8s.io/v1", "Lease", "leases"],
    )
}

/// The Jobs of a namespace.
pub fn jobs(client: &Client, namespace: &str) -> Objects {
    in_namespace(client, namespace, ["batch/v1", "Job", "jobs"])
}

/// The ServiceAccounts of a namespace.
pub fn service_accounts(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["v1", "ServiceAccount", "serviceaccounts"],
    )
}

/// All nodes.
pub fn nodes(client: &Client) -> Objects {
    everywhere(client, ["v1", "Node", "nodes"])
}

/// All CustomResourceDefinitions.
pub fn definitions(client: &Client) -> Objects {
    everywhere(
        client,
        [
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        ],
    )
}

/// The workflows of a namespace.
pub fn workflows(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["argoproj.io/v1alpha1", "Workflow", "workflows"],
    )
}

/// The PodOutcome records of a namespace.
pub fn outcomes(client: &Client, namespace: &str) -> Objects {
    in_namespace(
        client,
        namespace,
        ["belayer.dev/v1alpha1", "PodOutcome", "podoutcomes"],
    )
}

/// The Deployments or DaemonSets of a namespace, by kind and plural.
pub fn workloads(client: &Client, namespace: &str, (kind, plural): (&str, &str)) -> Objects {
    in_namespace(client, namespace, ["apps/v1", kind, plural])
}

/// Those of all namespaces.
pub fn all_workloads(client: &Client, (kind, plural): (&str, &str)) -> Objects {
    everywhere(client, ["apps/v1", kind, plural])
}

/// Admission policies and their bindings.
pub fn policies(client: &Client) -> [Objects; 4] {
    let of = |kind, plural| everywhere(client, ["admissionregistration.k8s.io/v1", kind, plural]);
    [
        of(
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
        ),
        of("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        of(
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        ),
        of("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ]
}

fn in_namespace(client: &Client, namespace: &str, names: [&str; 3]) -> Objects {
    Api::namespaced_with(client.clone(), namespace, &resource(names))
}

fn everywhere(client: &Client, names: [&str; 3]) -> Objects {
    Api::all_with(client.clone(), &resource(names))
}

/// A kind by its `apiVersion`, name and plural.
fn resource([api_version, kind, plural]: [&str; 3]) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}
