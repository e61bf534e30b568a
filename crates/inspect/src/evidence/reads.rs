//! Live reads of single objects and lists: namespaces, pods, nodes and so on.

use futures::future::join_all;
use serde::de::IgnoredAny;

use belayer_core::object::{ObjectKey, Resource};

use super::state::{
    AttachmentState, DeadApiService, NamespaceState, NodeState, PodState, VolumeState,
};
use crate::controller_health::{Lease, Workload};
use crate::details::{
    ApiServiceSpec, AttachmentSpec, AttachmentStatus, Conditions, LeaseSpec, Meta, NamespaceSpec,
    Object, Phase, PodSpec, VolumeSpec, WorkloadObject,
};
use crate::reader::{ReadResult, Reader, explain};

pub(super) async fn namespace(reader: &Reader, name: String) -> ReadResult<NamespaceState> {
    let resource = Resource::namespaces();
    let found: ReadResult<Object<NamespaceSpec, Conditions>> =
        reader.object(&resource, &ObjectKey::cluster(name)).await;
    found.map(|namespace| NamespaceState {
        finalizers: namespace.spec.finalizers.unwrap_or_default(),
        conditions: namespace
            .status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .filter(|condition| condition.status == "True")
            .collect(),
    })
}

/// Reads the pods of a namespace.
pub(crate) async fn pods(reader: &Reader, namespace: String) -> ReadResult<Vec<PodState>> {
    let path = Resource::pods().path(Some(&namespace));
    let found = ReadResult::from(reader.all::<Object<PodSpec, Phase>>(&path).await);
    found.map(|pods| pods.into_iter().map(pod).collect())
}

fn pod(pod: Object<PodSpec, Phase>) -> PodState {
    let Meta {
        name,
        deletion_grace_period_seconds,
        ..
    } = pod.metadata;
    // The kubelet is done with it, or it was deleted by force.
    let is_shut_down = deletion_grace_period_seconds == Some(0);
    let volumes = pod.spec.volumes.unwrap_or_default();
    let pvcs = volumes
        .into_iter()
        .filter_map(
            |volume| match (volume.persistent_volume_claim, volume.ephemeral) {
                (Some(pvc), _) => Some(pvc.claim_name),
                (None, Some(_)) if !is_shut_down => Some(format!("{name}-{}", volume.name)),
                _ => None,
            },
        )
        .collect();
    PodState {
        name,
        node: pod.spec.node_name,
        phase: pod.status.phase,
        pvcs,
    }
}

pub(super) async fn node(reader: &Reader, name: String) -> ReadResult<NodeState> {
    let resource = Resource::nodes();
    let found: ReadResult<Object<IgnoredAny, Conditions>> =
        reader.object(&resource, &ObjectKey::cluster(name)).await;
    found.map(|node| NodeState {
        ready: node
            .status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition.kind == "Ready"),
    })
}

pub(super) async fn volume(reader: &Reader, name: String) -> ReadResult<VolumeState> {
    let resource = Resource::new("", "v1", "PersistentVolume", "persistentvolumes");
    let found: ReadResult<Object<VolumeSpec, Phase>> =
        reader.object(&resource, &ObjectKey::cluster(name)).await;
    found.map(|volume| VolumeState {
        pvc: volume.spec.claim_ref,
        phase: volume.status.phase,
        message: volume.status.message,
        driver: volume.spec.csi.driver,
    })
}

/// Reads the UID of a PVC.
pub(super) async fn pvc(reader: &Reader, place: String) -> ReadResult<String> {
    let (namespace, name) = place.split_once('/').unwrap_or(("", &place));
    let key = ObjectKey::new(namespace, name);
    let found: ReadResult<Object> = reader.object(&Resource::pvcs(), &key).await;
    found.map(|pvc| pvc.metadata.uid)
}

pub(super) async fn attachments(reader: &Reader) -> ReadResult<Vec<AttachmentState>> {
    const PATH: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let found = ReadResult::from(
        reader
            .all::<Object<AttachmentSpec, AttachmentStatus>>(PATH)
            .await,
    );
    found.map(|all| {
        all.into_iter()
            .map(|attachment| AttachmentState {
                name: attachment.metadata.name,
                volume: attachment
                    .spec
                    .source
                    .persistent_volume_name
                    .unwrap_or_default(),
                node: attachment.spec.node_name,
                attacher: attachment.spec.attacher,
                attached: attachment.status.attached,
                error: attachment
                    .status
                    .detach_error
                    .map(|error| error.message)
                    .filter(|message| !message.is_empty()),
            })
            .collect()
    })
}

pub(super) async fn dead_apis(reader: &Reader) -> ReadResult<Vec<DeadApiService>> {
    const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let found = ReadResult::from(reader.all::<Object<ApiServiceSpec, Conditions>>(PATH).await);
    found.map(|all| all.into_iter().filter_map(dead_api).collect())
}

fn dead_api(api: Object<ApiServiceSpec, Conditions>) -> Option<DeadApiService> {
    let condition = api
        .status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .find(|condition| condition.kind == "Available" && condition.status == "False")?;
    Some(DeadApiService {
        name: api.metadata.name,
        group_version: format!("{}/{}", api.spec.group, api.spec.version),
        service: api
            .spec
            .service
            .map(|service| (service.namespace, service.name)),
        condition,
    })
}

pub(super) async fn workloads(reader: &Reader) -> ReadResult<Vec<Workload>> {
    let kinds = [
        ("deployment", "deployments"),
        ("statefulset", "statefulsets"),
        ("daemonset", "daemonsets"),
    ];
    let lists = join_all(kinds.map(|(kind, plural)| async move {
        let path = format!("/apis/apps/v1/{plural}");
        (kind, reader.all::<WorkloadObject>(&path).await)
    }))
    .await;
    let mut all = Vec::new();
    for (kind, list) in lists {
        match list {
            Ok(found) => all.extend(found.into_iter().map(|object| workload(kind, object))),
            Err(error) => return ReadResult::Unknown(explain(&error)),
        }
    }
    ReadResult::Found(all)
}

fn workload(kind: &'static str, object: WorkloadObject) -> Workload {
    let status = object.status;
    let desired = status
        .desired_number_scheduled
        .or(object.spec.replicas)
        .unwrap_or(1);
    Workload {
        kind,
        namespace: object.metadata.namespace,
        name: object.metadata.name,
        desired,
        ready: status.number_ready.or(status.ready_replicas).unwrap_or(0),
        images: object
            .spec
            .template
            .spec
            .containers
            .into_iter()
            .map(|container| container.image)
            .collect(),
    }
}

pub(crate) async fn lease(reader: &Reader, place: String) -> ReadResult<Lease> {
    let resource = Resource::leases();
    let (namespace, name) = place.split_once('/').unwrap_or(("", &place));
    let found: ReadResult<Object<LeaseSpec>> = reader
        .object(&resource, &ObjectKey::new(namespace, name))
        .await;
    found.map(lease_of)
}

/// A Lease as it was read.
pub(crate) fn lease_of(lease: Object<LeaseSpec>) -> Lease {
    Lease {
        place: format!("{}/{}", lease.metadata.namespace, lease.metadata.name),
        holder: lease.spec.holder_identity.unwrap_or_default(),
        renewed: lease.spec.renew_time,
        seconds: lease.spec.lease_duration_seconds.unwrap_or(15),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// As in Kubernetes' PVC protection.
    #[rstest]
    #[case::running(None, true)]
    #[case::within_its_grace_period(Some(30), true)]
    #[case::shut_down(Some(0), false)]
    fn a_pod_that_is_shut_down_does_not_use_its_ephemeral_volume(
        #[case] grace: Option<i64>,
        #[case] expected: bool,
    ) {
        let found = serde_json::from_value(json!({
            "metadata": { "name": "p", "deletionGracePeriodSeconds": grace },
            "spec": { "nodeName": "n", "volumes": [
                { "name": "a", "ephemeral": {} },
                { "name": "b", "persistentVolumeClaim": { "claimName": "data" } },
            ] },
        }));
        let found = pod(found.unwrap());
        assert_eq!((found.uses("p-a"), found.uses("data")), (expected, true));
    }
}
