//! The pod that replaces a rejected one: what the user submitted, as far as that can be determined, without what the
//! scheduler, admission and consumers added. Admission adds its part again.
//!
//! A server-side dry run of the create shows that the result is valid before the rejected pod is deleted.

mod limits;
mod metadata;

pub(crate) use limits::has_resources_of;
pub(crate) use metadata::{
    ReplacementMetadata, is_creator_known, metadata_to_create, owner_references,
};

use belayer_holds::names::{
    POD_RECREATION_HOLD, RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION, RELEASE_ANNOTATION,
};
use serde_json::{Map, Value, json};

/// Annotations that Belayer writes.
const BELAYERS: &[&str] = &[
    RECREATION_ANNOTATION,
    RECREATION_UID_ANNOTATION,
    RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_ENDED_ANNOTATION,
    RELEASE_ANNOTATION,
];

/// Annotations by which Belayer recognizes the pod of an attempt.
const MARKS: [&str; 3] = [
    RECREATION_ANNOTATION,
    RECREATION_UID_ANNOTATION,
    RECREATION_ATTEMPT_ANNOTATION,
];

/// Prefix of the name of the volume that admission injects for the service account's token.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Mount path of that volume.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The lists of containers that a new pod may have.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// The pod to create, from a rejected pod as the API server returns it: labels, annotations, owner references and
/// spec.
pub(crate) fn pod_to_create(rejected: &Value, lists: &ReplacementMetadata) -> Value {
    json!({
        "metadata": metadata_to_create(rejected, &Value::Null, lists),
        "spec": spec_to_create(rejected, &rejected["metadata"]["labels"]),
    })
}

/// Whether `recorded`, a pod to create, has the spec of the rejected pod. The metadata that shows what the scheduler and
/// admission added may have changed since: the node and the resources that were removed count as added, and a label of
/// `matchLabelKeys` is also read from the recorded labels.
pub(crate) fn has_spec_of(recorded: &Value, rejected: &Value) -> bool {
    let (now, then) = (
        &rejected["metadata"]["labels"],
        &recorded["metadata"]["labels"],
    );
    let with = |labels| {
        let recorded = &recorded["spec"];
        let mut spec = without_additions(rejected, labels);
        if recorded.get("nodeName").is_none() {
            spec.remove("nodeName");
        }
        limits::retain(&mut spec, recorded);
        Value::Object(spec) == *recorded
    };
    with(now) || with(then)
}

/// `pod`, the pod to create, with the resources that were removed from it as defaults of a LimitRange; `None` if none were.
pub(crate) fn with_listed_defaults(pod: &Value, rejected: &Value) -> Option<Value> {
    let mut whole = pod.clone();
    whole["spec"] = spec_with_defaults(rejected, &rejected["metadata"]["labels"]).into();
    (whole != *pod).then_some(whole)
}

fn spec_to_create(rejected: &Value, labels: &Value) -> Value {
    let mut spec = spec_with_defaults(rejected, labels);
    let defaults = &rejected["metadata"]["annotations"][limits::ANNOTATION];
    let resized: Vec<_> = writers_of_spec_through(rejected, &["resize"]).collect();
    limits::undo(&mut spec, defaults.as_str().unwrap_or_default(), &resized);
    Value::Object(spec)
}

fn spec_with_defaults(rejected: &Value, labels: &Value) -> Map<String, Value> {
    let mut spec = without_additions(rejected, labels);
    if !is_bound_by_user(rejected) {
        spec.remove("nodeName");
    }
    spec
}

/// The spec without what can be recognized as added by the spec itself and these labels.
fn without_additions(rejected: &Value, labels: &Value) -> Map<String, Value> {
    let mut spec = rejected["spec"].as_object().cloned().unwrap_or_default();
    spec.remove("ephemeralContainers");
    // Computed from the class; the API server refuses values that differ from the current class.
    spec.remove("priority");
    if spec.contains_key("runtimeClassName") {
        spec.remove("overhead");
    }
    if spec.contains_key("priorityClassName") {
        spec.remove("preemptionPolicy");
    }
    drop_token_volume(&mut spec);
    retain(&mut spec, "tolerations", |toleration| {
        !is_default_toleration(toleration)
    });
    unmerge_label_keys(&mut spec, labels);
    spec
}

/// Whether the creator of the pod chose its node: then a field manager owns the field. The scheduler's binding is in no
/// manager's fields.
pub(crate) fn is_bound_by_user(rejected: &Value) -> bool {
    let mut writers = writers_of_spec(rejected);
    writers.any(|entry| entry["fieldsV1"]["f:spec"].get("f:nodeName").is_some())
}

/// The entries of `managedFields` whose manager wrote a field of the spec, and not through a subresource.
pub(crate) fn writers_of_spec(pod: &Value) -> impl Iterator<Item = &Value> {
    writers_of_spec_through(pod, &[""])
}

/// The same, through one of these subresources; the empty one is the object itself.
pub(crate) fn writers_of_spec_through<'a>(
    pod: &'a Value,
    subresources: &'a [&str],
) -> impl Iterator<Item = &'a Value> {
    let managers = pod["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten().filter(|entry| {
        let subresource = entry["subresource"].as_str().unwrap_or_default();
        subresources.contains(&subresource) && entry["fieldsV1"]["f:spec"].is_object()
    })
}

/// Removes the token volume that admission injected, and its mounts. Token volumes of users have other names, contents or mounts.
/// Admission injects none into a pod that declines it.
fn drop_token_volume(spec: &mut Map<String, Value>) {
    let declined = spec.get("automountServiceAccountToken") == Some(&Value::Bool(false));
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let name = volumes.into_iter().flatten().find_map(injected_name);
    let Some(name) = name.filter(|_| !declined).map(str::to_owned) else {
        return;
    };
    let injected = json!({ "name": name, "mountPath": TOKEN_PATH, "readOnly": true });
    let mounts = |list| spec.get(list)?.as_array();
    let mut mounts = CONTAINERS
        .into_iter()
        .filter_map(mounts)
        .flatten()
        .filter_map(|container| container["volumeMounts"].as_array())
        .flatten();
    if mounts.any(|mount| mount["name"] == name && *mount != injected) {
        return;
    }
    retain(spec, "volumes", |volume| volume["name"] != name);
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            retain(container, "volumeMounts", |mount| *mount != injected);
        }
    }
}

/// The name of a token volume, if it is as admission injects it.
fn injected_name(volume: &Value) -> Option<&str> {
    let name = volume["name"].as_str()?;
    let suffix = name.strip_prefix(TOKEN_VOLUME)?;
    let is_generated = suffix.len() == 5 && suffix.bytes().all(|b| b.is_ascii_alphanumeric());
    let injected = json!({ "name": name, "projected": { "defaultMode": 420, "sources": [
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": {
            "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }],
        } },
        { "downwardAPI": { "items": [{
            "path": "namespace",
            "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
        }] } },
    ] } });
    (is_generated && *volume == injected).then_some(name)
}

/// Removes the other items of a list, and the list if none is left.
fn retain(object: &mut Map<String, Value>, list: &str, keeps: impl Fn(&Value) -> bool) {
    let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    items.retain(keeps);
    if items.is_empty() {
        object.remove(list);
    }
}

/// Whether the admission plugin DefaultTolerationSeconds adds this toleration.
fn is_default_toleration(toleration: &Value) -> bool {
    let of = |key: &str| {
        *toleration
            == json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 })
    };
    of("node.kubernetes.io/not-ready") || of("node.kubernetes.io/unreachable")
}

/// Removes what the API server merged from `matchLabelKeys` into the selectors. It does so again at the next create.
fn unmerge_label_keys(spec: &mut Map<String, Value>, labels: &Value) {
    let spreads = spec
        .get_mut("topologySpreadConstraints")
        .and_then(Value::as_array_mut);
    for spread in spreads.into_iter().flatten() {
        unmerge(spread, labels);
    }
    let Some(affinity) = spec.get_mut("affinity") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(kind) = affinity.get_mut(kind) else {
            continue;
        };
        let required = kind
            .get_mut("requiredDuringSchedulingIgnoredDuringExecution")
            .and_then(Value::as_array_mut);
        for term in required.into_iter().flatten() {
            unmerge(term, labels);
        }
        let preferred = kind
            .get_mut("preferredDuringSchedulingIgnoredDuringExecution")
            .and_then(Value::as_array_mut);
        for weighted in preferred.into_iter().flatten() {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                unmerge(term, labels);
            }
        }
    }
}

fn unmerge(term: &mut Value, labels: &Value) {
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term[field].as_array().cloned().unwrap_or_default();
        for key in keys {
            let Some(key) = key.as_str() else {
                continue;
            };
            let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut)
            else {
                continue;
            };
            let Some(all) = selector
                .get_mut("matchExpressions")
                .and_then(Value::as_array_mut)
            else {
                continue;
            };
            // The value is that of the label at the create: the label may have changed since. Of expressions like this the API
            // server's is the last one. A user can write others only for `mismatchLabelKeys`.
            let merged = all.iter().rposition(|one| {
                let is_of_one_value = one["values"].as_array().is_some_and(|all| all.len() == 1);
                labels[key].is_string()
                    && one["key"] == key
                    && one["operator"] == operator
                    && is_of_one_value
            });
            if let Some(merged) = merged {
                all.remove(merged);
            }
            if all.is_empty() {
                selector.remove("matchExpressions");
            }
        }
    }
    // Indexing a missing field of a mutable value inserts `null`.
    if let Some(term) = term.as_object_mut() {
        term.retain(|_, value| !value.is_null());
    }
}

/// What distinguishes the pod of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// Name of every pod of the chain.
    pub pod_name: &'a str,
    /// Name of the record.
    pub record: &'a str,
    /// UID of the record.
    pub record_uid: &'a str,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Nodes on which it may not run.
    pub avoid_nodes: &'a [String],
}

/// The pod of an attempt: the pod to create, with its name and Belayer's hold and annotations.
pub(crate) fn pod_of_attempt(pod: &Value, chain: Chain<'_>) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod["metadata"],
        "spec": pod["spec"],
    });
    let metadata = &mut object["metadata"];
    *field(metadata, "namespace") = chain.namespace.into();
    *field(metadata, "name") = chain.pod_name.into();
    *field(metadata, "finalizers") = json!([POD_RECREATION_HOLD]);
    let annotations = field(metadata, "annotations");
    *field(annotations, RECREATION_ANNOTATION) = chain.record.into();
    *field(annotations, RECREATION_UID_ANNOTATION) = chain.record_uid.into();
    *field(annotations, RECREATION_ATTEMPT_ANNOTATION) = chain.attempt.to_string().into();
    exclude_nodes(&mut object["spec"], chain.avoid_nodes);
    object
}

/// As [`pod_of_attempt`] with a generated name, for a server-side dry run while the rejected pod has the name.
pub(crate) fn dry_run_pod(pod: &Value, chain: Chain<'_>) -> Value {
    let mut object = pod_of_attempt(pod, chain);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("name");
        let prefix = generated_prefix(chain.pod_name);
        metadata.insert("generateName".to_owned(), prefix.into());
    }
    object
}

/// The marks that `sent`, the pod of an attempt, has, and that admission removed from it or changed.
pub(crate) fn missing_marks(admitted: &Value, sent: &Value) -> Vec<&'static str> {
    let (admitted, sent) = (&admitted["metadata"], &sent["metadata"]);
    let finalizers = admitted["finalizers"].as_array();
    let is_held = finalizers.is_some_and(|all| all.iter().any(|one| one == POD_RECREATION_HOLD));
    let is_missing = |name: &&str| admitted["annotations"][*name] != sent["annotations"][*name];
    let annotations = MARKS.iter().copied().filter(is_missing);
    let finalizer = (!is_held).then_some(POD_RECREATION_HOLD);
    finalizer.into_iter().chain(annotations).collect()
}

/// The API server keeps this many characters of a `generateName`, and adds five.
const PREFIX: usize = 58;

fn generated_prefix(pod_name: &str) -> String {
    let mut prefix = format!("{pod_name}-");
    prefix.truncate(prefix.floor_char_boundary(PREFIX));
    // The API server accepts a dash at the end, but no dot.
    prefix.truncate(prefix.trim_end_matches('.').len());
    prefix
}

/// Adds a required node affinity that excludes these nodes. A requirement for a node field takes one value.
fn exclude_nodes(spec: &mut Value, nodes: &[String]) {
    if nodes.is_empty() {
        return;
    }
    let affinity = field(field(spec, "affinity"), "nodeAffinity");
    let required = field(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = field(required, "nodeSelectorTerms");
    let exclusions = nodes
        .iter()
        .map(|node| json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] }));
    if is_empty(terms) {
        *terms = json!([{ "matchFields": exclusions.collect::<Vec<_>>() }]);
        return;
    }
    for term in terms.as_array_mut().into_iter().flatten() {
        // An empty term matches no node. With a field it would match all others.
        if is_empty(&term["matchExpressions"]) && is_empty(&term["matchFields"]) {
            continue;
        }
        if term["matchFields"].is_null() {
            term["matchFields"] = json!([]);
        }
        if let Some(fields) = term["matchFields"].as_array_mut() {
            fields.extend(exclusions.clone());
        }
    }
}

/// A field of an object. A record may contain anything: another value is replaced by an object.
fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    &mut object[name]
}

/// Whether this is no list, or an empty one.
fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests;
