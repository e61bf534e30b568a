//! The labels, annotations and owner references of the pod to create.
//!
//! Schedulers, networks and device plugins write annotations to pods that hold for one pod on one node: its addresses,
//! the index of its GPU. A replacement that has them would use resources of another pod. So whether an
//! annotation is copied depends on the field manager that wrote it, which `managedFields` shows.

use serde_json::{Map, Value};

use super::{BELAYERS, limits, writers_of_spec};
use belayer_holds::names::{RECREATE_ANNOTATION, WIPE_ANNOTATION};

/// What the configuration adds to the built-in lists; the key `carry`. An entry that ends in `*` is a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacementMetadata {
    /// Field managers whose annotations are carried, in addition to the creator and `kubectl`.
    pub managers: Vec<String>,
    /// Annotations that are carried, whoever wrote them.
    pub keep: Vec<String>,
    /// Labels and annotations that are not carried. Requests to Belayer always are.
    pub drop: Vec<String>,
}

/// Labels that the API server copies from the node, and that consumers write.
const DROPPED_LABELS: &[&str] = &[
    "topology.kubernetes.io/*",
    "workflows.argoproj.io/completed",
];

/// Annotations that are written about one pod on one node. A restored pod has those of the pod in the backup, written
/// by its creator.
const DROPPED_ANNOTATIONS: &[&str] = &[
    limits::ANNOTATION,
    "k8s.ovn.org/pod-networks",
    "ovn.kubernetes.io/allocated",
    "ovn.kubernetes.io/routed",
    "k8s.v1.cni.cncf.io/network-status",
    "k8s.v1.cni.cncf.io/networks-status",
    "cni.projectcalico.org/containerID",
    "cni.projectcalico.org/podIP",
    "cni.projectcalico.org/podIPs",
    "vpc.amazonaws.com/pod-eni",
    "vpc.amazonaws.com/pod-ips",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
    "scheduler.framework.gpushare.allocation",
    "workflows.argoproj.io/outputs",
];

/// Annotations that request something from Belayer are copied, whoever wrote them.
const KEPT_ANNOTATIONS: &[&str] = &[RECREATE_ANNOTATION, WIPE_ANNOTATION];

/// Prefix of the field managers of `kubectl`: `kubectl-annotate`, `kubectl-client-side-apply`, `kubectl-edit`.
const KUBECTL: &str = "kubectl";

/// The metadata of the pod to create. `recorded` is that of a re-created pod as its record has it, and null for the first
/// pod of a record: Belayer counts as the creator of a re-created pod, so an annotation that its user's controller has changed
/// since is recognized by its name.
pub(crate) fn metadata_to_create(
    pod: &Value,
    recorded: &Value,
    lists: &ReplacementMetadata,
) -> Value {
    let source = &pod["metadata"];
    let mut metadata = Map::new();
    let labels = kept(&source["labels"], |name| {
        !is_listed(DROPPED_LABELS, name) && !is_listed(&lists.drop, name)
    });
    let by_user = creators(pod)
        .next()
        .map(|_| annotations_of_user(pod, lists));
    // A kubelet or a plugin of the node writes these.
    let by_subresource = annotations_by(pod, |entry| !is_by_spec(entry));
    let annotations = kept(&source["annotations"], |name| {
        // Without its request the new pod would not be re-created again.
        if is_listed(KEPT_ANNOTATIONS, name) {
            return true;
        }
        if BELAYERS.contains(&name) || is_listed(&lists.drop, name) {
            return false;
        }
        if is_listed(&lists.keep, name) {
            return true;
        }
        let by_user = by_user.as_ref();
        let is_recorded =
            || recorded["annotations"].get(name).is_some() && !by_subresource.contains(&name);
        let is_users = by_user.is_none_or(|names| names.contains(&name)) || is_recorded();
        is_users && !is_listed(DROPPED_ANNOTATIONS, name)
    });
    for (field, pairs) in [("labels", labels), ("annotations", annotations)] {
        if !pairs.is_empty() {
            metadata.insert(field.to_owned(), pairs.into());
        }
    }
    let owners = owner_references(pod);
    if !owners.is_empty() {
        metadata.insert("ownerReferences".to_owned(), owners.into());
    }
    metadata.into()
}

/// Whether `managedFields` shows who created the pod. If not, all annotations are carried except those of the lists.
pub(crate) fn is_creator_known(pod: &Value) -> bool {
    creators(pod).next().is_some()
}

/// Without `blockOwnerDeletion`, which would require a permission on the owners.
pub(crate) fn owner_references(pod: &Value) -> Vec<Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let owners = owners.into_iter().flatten().cloned();
    owners
        .map(|mut owner| {
            if let Some(owner) = owner.as_object_mut() {
                owner.remove("blockOwnerDeletion");
            }
            owner
        })
        .collect()
}

fn kept(pairs: &Value, is_kept: impl Fn(&str) -> bool) -> Map<String, Value> {
    let pairs = pairs.as_object().into_iter().flatten();
    let pairs = pairs.filter(|(name, _)| is_kept(name));
    pairs.map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn is_listed<S: AsRef<str>>(list: &[S], name: &str) -> bool {
    list.iter()
        .any(|entry| match entry.as_ref().strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == entry.as_ref(),
        })
}

/// The annotations that the creator wrote, or a manager that writes for the user.
fn annotations_of_user<'a>(pod: &'a Value, lists: &ReplacementMetadata) -> Vec<&'a str> {
    let creators: Vec<&Value> = creators(pod).map(|entry| &entry["manager"]).collect();
    annotations_by(pod, |entry| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        let is_users = creators.contains(&&entry["manager"])
            || manager.starts_with(KUBECTL)
            || lists.managers.iter().any(|known| known == manager);
        is_users && is_by_spec(entry)
    })
}

/// Whether an entry of `managedFields` is about writes of the object itself, and not of a subresource.
fn is_by_spec(entry: &Value) -> bool {
    entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// The annotations of these entries of `managedFields`.
fn annotations_by(pod: &Value, is_one: impl Fn(&Value) -> bool) -> Vec<&str> {
    let entries = pod["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten().filter(|entry| is_one(entry));
    let fields =
        entries.filter_map(|entry| entry["fieldsV1"]["f:metadata"]["f:annotations"].as_object());
    let names = fields.flat_map(Map::keys);
    names.filter_map(|name| name.strip_prefix("f:")).collect()
}

/// The entries of the creator: it owns containers. Who changes an image later owns that field alone.
fn creators(pod: &Value) -> impl Iterator<Item = &Value> {
    writers_of_spec(pod).filter(|entry| {
        let containers = entry["fieldsV1"]["f:spec"]["f:containers"].as_object();
        let mut items = containers.into_iter().flat_map(Map::values);
        items.any(|item| item.get(".").is_some() || item.get("f:name").is_some())
    })
}

#[cfg(test)]
mod tests;
