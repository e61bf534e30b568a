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
    Api::namespaced_with(
        client.clone(),
        namespace,
        &resource("", "v1", "Pod", "pods"),
    )
}

/// The pods of all namespaces.
pub fn all_pods(client: &Client) -> Objects {
    Api::all_with(client.clone(), &resource("", "v1", "Pod", "pods"))
}

/// The PVCs of a namespace.
pub fn pvcs(client: &Client, namespace: &str) -> Objects {
    let resource = resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The PVCs of all namespaces.
pub fn all_pvcs(client: &Client) -> Objects {
    let resource = resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    Api::all_with(client.clone(), &resource)
}

/// All PVs.
pub fn volumes(client: &Client) -> Objects {
    let resource = resource("", "v1", "PersistentVolume", "persistentvolumes");
    Api::all_with(client.clone(), &resource)
}

/// All CSIDrivers.
pub fn csi_drivers(client: &Client) -> Objects {
    let resource = resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers");
    Api::all_with(client.clone(), &resource)
}

/// All VolumeAttachments.
pub fn volume_attachments(client: &Client) -> Objects {
    let resource = resource(
        "storage.k8s.io",
        "v1",
        "VolumeAttachment",
        "volumeattachments",
    );
    Api::all_with(client.clone(), &resource)
}

/// The StatefulSets of a namespace.
pub fn stateful_sets(client: &Client, namespace: &str) -> Objects {
    let resource = resource("apps", "v1", "StatefulSet", "statefulsets");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The ConfigMaps of a namespace.
pub fn config_maps(client: &Client, namespace: &str) -> Objects {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &resource("", "v1", "ConfigMap", "configmaps"),
    )
}

/// The gates of a namespace.
pub fn gates(client: &Client, namespace: &str) -> Objects {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &resource("belayer.dev", "v1alpha1", "Gate", "gates"),
    )
}

/// The Events of a namespace.
pub fn events(client: &Client, namespace: &str) -> Objects {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &resource("", "v1", "Event", "events"),
    )
}

/// All namespaces.
pub fn namespaces(client: &Client) -> Objects {
    Api::all_with(
        client.clone(),
        &resource("", "v1", "Namespace", "namespaces"),
    )
}

/// The ClusterRoleBindings.
pub fn cluster_role_bindings(client: &Client) -> Objects {
    let resource = resource(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
    );
    Api::all_with(client.clone(), &resource)
}

/// The PodRecreations of a namespace.
pub fn records(client: &Client, namespace: &str) -> Objects {
    let resource = resource("belayer.dev", "v1alpha1", "PodRecreation", "podrecreations");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The NodeWipes.
pub fn node_wipes(client: &Client) -> Objects {
    let resource = resource("belayer.dev", "v1alpha1", "NodeWipe", "nodewipes");
    Api::all_with(client.clone(), &resource)
}

/// The Leases of a namespace.
pub fn leases(client: &Client, namespace: &str) -> Objects {
    let resource = resource("coordination.k8s.io", "v1", "Lease", "leases");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The Jobs of a namespace.
pub fn jobs(client: &Client, namespace: &str) -> Objects {
    let resource = resource("batch", "v1", "Job", "jobs");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The ServiceAccounts of a namespace.
pub fn service_accounts(client: &Client, namespace: &str) -> Objects {
    let resource = resource("", "v1", "ServiceAccount", "serviceaccounts");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// All nodes.
pub fn nodes(client: &Client) -> Objects {
    Api::all_with(client.clone(), &resource("", "v1", "Node", "nodes"))
}

/// All CustomResourceDefinitions.
pub fn definitions(client: &Client) -> Objects {
    let group = "apiextensions.k8s.io";
    let resource = resource(
        group,
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    Api::all_with(client.clone(), &resource)
}

/// The workflows of a namespace.
pub fn workflows(client: &Client, namespace: &str) -> Objects {
    let resource = resource("argoproj.io", "v1alpha1", "Workflow", "workflows");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The PodOutcome records of a namespace.
pub fn outcomes(client: &Client, namespace: &str) -> Objects {
    let resource = resource("belayer.dev", "v1alpha1", "PodOutcome", "podoutcomes");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The Deployments or DaemonSets of a namespace, by kind and plural.
pub fn workloads(client: &Client, namespace: &str, (kind, plural): (&str, &str)) -> Objects {
    let resource = resource("apps", "v1", kind, plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Those of all namespaces.
pub fn all_workloads(client: &Client, (kind, plural): (&str, &str)) -> Objects {
    Api::all_with(client.clone(), &resource("apps", "v1", kind, plural))
}

/// Admission policies and their bindings.
pub fn policies(client: &Client) -> [Objects; 4] {
    let of = |kind: &str, plural: &str| {
        let resource = resource("admissionregistration.k8s.io", "v1", kind, plural);
        Api::all_with(client.clone(), &resource)
    };
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

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() {
        version.into()
    } else {
        format!("{group}/{version}")
    };
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    }
}
