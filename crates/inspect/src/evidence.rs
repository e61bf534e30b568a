//! Evidence: what the scan alone does not show, looked at once, and only where something hangs.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::future::join_all;

use belayer_core::http::{JSON, Request};
use belayer_core::object::{ObjectKey, Resource};

use crate::book::BOOK;
use crate::details::{
    ApiServiceObject, AttachmentObject, Condition, EndpointSlice, LeaseObject, NamespaceObject,
    NodeObject, PodObject, ServiceRef, VolumeObject, WebhookConfiguration, WorkloadObject,
};
use crate::explain::{Explained, Explainer};
use crate::life::{Lease, Workload};
use crate::object::Terminating;
use crate::reader::{Look, Reader};
use crate::scan::{Scan, Scope};

/// Holds of ours that are explained one by one; of more, these stand for all.
const EXPLAINED: usize = 200;

/// Looks at single objects that run at once.
const PARALLEL: usize = 8;

/// What is to be explained.
#[derive(Debug, Clone)]
pub struct Target {
    /// What hangs.
    pub stuck: Vec<Terminating>,
    /// How many more are being deleted.
    pub within_grace: usize,
    /// Where the scan has looked.
    pub scope: Scope,
}

/// Everything that a report is made of. Owned: no I/O is left.
#[derive(Debug, Clone)]
pub struct World {
    /// The scan.
    pub scan: Scan,
    /// What hangs.
    pub stuck: Vec<Terminating>,
    /// Whether the whole cluster was looked at.
    pub scope: Scope,
    /// How many more are being deleted, within their grace or not old enough.
    pub within_grace: usize,
    /// Namespaces being deleted.
    pub namespaces: BTreeMap<String, Look<NamespaceState>>,
    /// The pods of namespaces in which pods or claims hang.
    pub pods: BTreeMap<String, Look<Vec<PodState>>>,
    /// The nodes of pods that hang.
    pub nodes: BTreeMap<String, Look<NodeState>>,
    /// Volumes that hang.
    pub volumes: BTreeMap<String, Look<VolumeState>>,
    /// All attachments, if a volume hangs.
    pub attachments: Look<Vec<AttachmentState>>,
    /// APIs served by others that do not answer.
    pub dead_apis: Look<Vec<DeadApiService>>,
    /// Webhooks that must agree and that nobody answers.
    pub dead_webhooks: Look<Vec<DeadWebhook>>,
    /// All workloads, if a controller's finalizer keeps something.
    pub workloads: Look<Vec<Workload>>,
    /// The Leases of known controllers, by `namespace/name`.
    pub leases: BTreeMap<String, Look<Lease>>,
    /// What our components say, by UID and hold.
    pub ours: BTreeMap<(String, String), Result<Explained, String>>,
    /// How many requests it took.
    pub requests: u64,
}

/// A namespace being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceState {
    /// `spec.finalizers`.
    pub finalizers: Vec<String>,
    /// Conditions that are true.
    pub conditions: Vec<Condition>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// Its name.
    pub name: String,
    /// Its node; empty before it is bound.
    pub node: String,
    /// Its phase.
    pub phase: String,
    /// Claims it refers to.
    pub claims: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// Its condition `Ready`.
    pub ready: Option<Condition>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeState {
    /// `namespace/name` of the claim it is bound to.
    pub claim: Option<(String, String)>,
    /// `Bound`, `Released`, ...
    pub phase: String,
}

/// An attachment of a volume to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentState {
    /// Its name.
    pub name: String,
    /// The volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// The CSI driver.
    pub attacher: String,
    /// Whether the driver says it is attached.
    pub attached: bool,
    /// Why it could not be detached.
    pub error: Option<String>,
}

/// An APIService that is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadApiService {
    /// `v1.metrics.example.com`.
    pub name: String,
    /// `metrics.example.com/v1`.
    pub group_version: String,
    /// The service behind it.
    pub service: Option<(String, String)>,
    /// Its condition `Available`.
    pub condition: Condition,
}

/// A webhook with `failurePolicy: Fail` behind which nobody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadWebhook {
    /// `validatingwebhookconfigurations` or `mutatingwebhookconfigurations`.
    pub resource: &'static str,
    /// The configuration.
    pub configuration: String,
    /// The webhook in it.
    pub name: String,
    /// `namespace/name` of the service.
    pub service: (String, String),
    /// Groups, resources and operations; `*` is any.
    pub rules: Vec<(Vec<String>, Vec<String>, Vec<String>)>,
    /// Whether selectors or conditions may leave objects out.
    pub may_leave_out: bool,
}

impl DeadWebhook {
    /// Whether it has to agree to changes of objects of this kind, unless it leaves them out.
    pub fn intercepts_updates_of(&self, kind: &Resource) -> bool {
        let any = |list: &[String], wanted: &str| {
            list.iter()
                .any(|item| item == "*" || item == "*/*" || item == wanted)
        };
        self.rules.iter().any(|(groups, resources, operations)| {
            any(groups, &kind.group) && any(resources, &kind.plural) && any(operations, "UPDATE")
        })
    }
}

/// Looks at all that a report needs besides the scan.
pub async fn gather(
    reader: &Reader,
    scan: Scan,
    target: Target,
    explainers: &[Box<dyn Explainer>],
) -> World {
    let Target {
        stuck,
        within_grace,
        scope,
    } = target;
    let is = |object: &Terminating, plural: &str| {
        object.object.kind.resource.group.is_empty()
            && *object.object.kind.resource.plural == *plural
    };
    let names = |plural: &str| -> Vec<String> {
        let these = stuck.iter().filter(|object| is(object, plural));
        these
            .map(|object| object.object.key.name().to_owned())
            .collect()
    };
    let pod_places: BTreeSet<String> = stuck
        .iter()
        .filter(|object| is(object, "pods") || is(object, "persistentvolumeclaims"))
        .filter_map(|object| object.object.key.namespace().map(str::to_owned))
        .collect();
    let any = !stuck.is_empty();
    let volumes_hang = stuck.iter().any(|object| {
        is(object, "persistentvolumes")
            || *object.object.kind.resource.plural == *"volumeattachments"
    });

    let namespaces = each(names("namespaces"), |name| namespace(reader, name));
    let pods = each(pod_places.into_iter().collect(), |place| {
        pods(reader, place)
    });
    let volumes = each(names("persistentvolumes"), |name| volume(reader, name));
    let (namespaces, pods, volumes, attachments, dead_apis, dead_webhooks, workloads, leases) = futures::join!(
        namespaces,
        pods,
        volumes,
        when(volumes_hang, attachments(reader)),
        dead_apis(reader),
        when(any, dead_webhooks(reader)),
        when(any, workloads(reader)),
        leases(reader, &stuck),
    );
    let node_names = nodes_in_question(&stuck, &pods, &attachments);
    let nodes = each(node_names, |name| node(reader, name)).await;
    let ours = ours(reader, &stuck, explainers).await;
    World {
        scan,
        stuck,
        scope,
        within_grace,
        namespaces,
        pods,
        nodes,
        volumes,
        attachments,
        dead_apis,
        dead_webhooks,
        workloads,
        leases,
        ours,
        requests: reader.requests(),
    }
}

async fn when<T>(wanted: bool, look: impl Future<Output = Look<T>>) -> Look<T> {
    if wanted { look.await } else { Look::Absent }
}

async fn each<T, F, Fut>(names: Vec<String>, look: F) -> BTreeMap<String, Look<T>>
where
    F: Fn(String) -> Fut,
    Fut: Future<Output = Look<T>>,
{
    futures::stream::iter(names)
        .map(|name| {
            let found = look(name.clone());
            async move { (name, found.await) }
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await
}

fn nodes_in_question(
    stuck: &[Terminating],
    pods: &BTreeMap<String, Look<Vec<PodState>>>,
    attachments: &Look<Vec<AttachmentState>>,
) -> Vec<String> {
    let of_pods = stuck
        .iter()
        .filter(|object| *object.object.kind.resource.plural == *"pods")
        .filter_map(|object| {
            let found = pods.get(object.object.key.namespace()?)?.found()?;
            found
                .iter()
                .find(|pod| pod.name == object.object.key.name())
        })
        .map(|pod| pod.node.clone());
    let of_attachments = attachments
        .found()
        .into_iter()
        .flatten()
        .map(|attachment| attachment.node.clone());
    let names: BTreeSet<String> = of_pods.chain(of_attachments).collect();
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn map<A, B>(look: Look<A>, f: impl FnOnce(A) -> B) -> Look<B> {
    match look {
        Look::Found(found) => Look::Found(f(found)),
        Look::Absent => Look::Absent,
        Look::Unknown(why) => Look::Unknown(why),
    }
}

async fn namespace(reader: &Reader, name: String) -> Look<NamespaceState> {
    let resource = Resource::namespaces();
    let found: Look<NamespaceObject> = reader.object(&resource, &ObjectKey::cluster(name)).await;
    map(found, |namespace| NamespaceState {
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

async fn pods(reader: &Reader, namespace: String) -> Look<Vec<PodState>> {
    let path = Resource::pods().path(Some(&namespace));
    let found: Look<Vec<PodObject>> = reader.all(&path).await;
    map(found, |pods| pods.into_iter().map(pod).collect())
}

fn pod(pod: PodObject) -> PodState {
    let name = pod.metadata.name;
    let volumes = pod.spec.volumes.unwrap_or_default();
    let claims = volumes
        .into_iter()
        .filter_map(
            |volume| match (volume.persistent_volume_claim, volume.ephemeral) {
                (Some(claim), _) => Some(claim.claim_name),
                (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
                (None, None) => None,
            },
        )
        .collect();
    PodState {
        name,
        node: pod.spec.node_name,
        phase: pod.status.phase,
        claims,
    }
}

async fn node(reader: &Reader, name: String) -> Look<NodeState> {
    let resource = Resource::nodes();
    let found: Look<NodeObject> = reader.object(&resource, &ObjectKey::cluster(name)).await;
    map(found, |node| NodeState {
        ready: node
            .status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition.kind == "Ready"),
    })
}

async fn volume(reader: &Reader, name: String) -> Look<VolumeState> {
    let resource = Resource::new("", "v1", "PersistentVolume", "persistentvolumes");
    let found: Look<VolumeObject> = reader.object(&resource, &ObjectKey::cluster(name)).await;
    map(found, |volume| VolumeState {
        claim: volume
            .spec
            .claim_ref
            .map(|claim| (claim.namespace, claim.name)),
        phase: volume.status.phase,
    })
}

async fn attachments(reader: &Reader) -> Look<Vec<AttachmentState>> {
    let found: Look<Vec<AttachmentObject>> = reader
        .all("/apis/storage.k8s.io/v1/volumeattachments")
        .await;
    map(found, |all| {
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

async fn dead_apis(reader: &Reader) -> Look<Vec<DeadApiService>> {
    let found: Look<Vec<ApiServiceObject>> = reader
        .all("/apis/apiregistration.k8s.io/v1/apiservices")
        .await;
    map(found, |all| all.into_iter().filter_map(dead_api).collect())
}

fn dead_api(api: ApiServiceObject) -> Option<DeadApiService> {
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

async fn dead_webhooks(reader: &Reader) -> Look<Vec<DeadWebhook>> {
    let mut dead = Vec::new();
    for resource in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        let configurations: Vec<WebhookConfiguration> = match reader.all(&path).await {
            Look::Found(found) => found,
            Look::Absent => continue,
            Look::Unknown(why) => return Look::Unknown(why),
        };
        for candidate in configurations
            .into_iter()
            .flat_map(|configuration| candidates(resource, configuration))
        {
            if has_no_endpoint(reader, &candidate.service).await {
                dead.push(candidate);
            }
        }
    }
    Look::Found(dead)
}

/// Webhooks of a configuration that must agree and have a service in the cluster.
fn candidates(
    resource: &'static str,
    configuration: WebhookConfiguration,
) -> impl Iterator<Item = DeadWebhook> {
    let name = configuration.metadata.name;
    configuration
        .webhooks
        .unwrap_or_default()
        .into_iter()
        .filter_map(move |webhook| {
            let must_agree = webhook.failure_policy.as_deref().unwrap_or("Fail") == "Fail";
            let ServiceRef {
                namespace,
                name: service,
            } = webhook.client_config.service.filter(|_| must_agree)?;
            let selects = [
                &webhook.namespace_selector,
                &webhook.object_selector,
                &webhook.match_conditions,
            ]
            .iter()
            .any(|selector| !is_empty(selector.as_ref()));
            Some(DeadWebhook {
                resource,
                configuration: name.clone(),
                name: webhook.name,
                service: (namespace, service),
                rules: webhook
                    .rules
                    .unwrap_or_default()
                    .into_iter()
                    .map(|rule| (rule.api_groups, rule.resources, rule.operations))
                    .collect(),
                may_leave_out: selects,
            })
        })
}

fn is_empty(value: Option<&serde_json::Value>) -> bool {
    match value {
        None | Some(serde_json::Value::Null) => true,
        Some(serde_json::Value::Object(map)) => map.is_empty(),
        Some(serde_json::Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

/// Only what was seen counts: an answer that cannot be had proves nothing.
async fn has_no_endpoint(reader: &Reader, (namespace, service): &(String, String)) -> bool {
    #[derive(serde::Deserialize)]
    struct Slices {
        items: Option<Vec<EndpointSlice>>,
    }
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let request = Request::get(path)
        .query(
            "labelSelector",
            format!("kubernetes.io/service-name={service}"),
        )
        .accept(JSON);
    let Ok(slices) = reader.json::<Slices>(&request).await else {
        return false;
    };
    !slices
        .items
        .unwrap_or_default()
        .into_iter()
        .flat_map(|slice| slice.endpoints.unwrap_or_default())
        .any(|endpoint| endpoint.conditions.ready != Some(false))
}

async fn workloads(reader: &Reader) -> Look<Vec<Workload>> {
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
            Look::Found(found) => {
                all.extend(found.into_iter().map(|object| workload(kind, object)));
            }
            Look::Absent => {}
            Look::Unknown(why) => return Look::Unknown(why),
        }
    }
    Look::Found(all)
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

/// The Leases that the book names for what keeps these objects.
async fn leases(reader: &Reader, stuck: &[Terminating]) -> BTreeMap<String, Look<Lease>> {
    let finalizers: BTreeSet<&str> = stuck
        .iter()
        .flat_map(|object| object.finalizers.iter().map(String::as_str))
        .chain(stuck.iter().any(is_namespace).then_some("kubernetes"))
        .collect();
    let places: BTreeSet<String> = finalizers
        .into_iter()
        .filter_map(|finalizer| BOOK.find(finalizer))
        .flat_map(|entry| &entry.controllers)
        .filter_map(|controller| {
            let lease = controller.lease.as_ref()?;
            Some(format!("{}/{lease}", controller.namespace))
        })
        .collect();
    each(places.into_iter().collect(), |place| lease(reader, place)).await
}

fn is_namespace(object: &Terminating) -> bool {
    *object.object.kind.resource.plural == *"namespaces"
}

pub(crate) async fn lease(reader: &Reader, place: String) -> Look<Lease> {
    let resource = Resource::leases();
    let (namespace, name) = place.split_once('/').unwrap_or(("", &place));
    let found: Look<LeaseObject> = reader
        .object(&resource, &ObjectKey::new(namespace, name))
        .await;
    map(found, |lease| Lease {
        holder: lease.spec.holder_identity.unwrap_or_default(),
        renewed: lease.spec.renew_time,
        seconds: lease.spec.lease_duration_seconds.unwrap_or(15),
        place,
    })
}

async fn ours(
    reader: &Reader,
    stuck: &[Terminating],
    explainers: &[Box<dyn Explainer>],
) -> BTreeMap<(String, String), Result<Explained, String>> {
    let held = stuck.iter().flat_map(|object| {
        let fitting = explainers.iter().filter(|explainer| {
            explainer.is_about(&object.object.kind.resource)
                && object
                    .finalizers
                    .iter()
                    .any(|name| name == explainer.hold())
        });
        fitting.map(move |explainer| (object, explainer))
    });
    futures::stream::iter(held.take(EXPLAINED))
        .map(|(object, explainer)| async move {
            let id = (
                object.object.uid.as_str().to_owned(),
                explainer.hold().to_owned(),
            );
            (
                id,
                explainer
                    .explain(&object.object.kind.resource, &object.object.key, reader)
                    .await,
            )
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await
}
