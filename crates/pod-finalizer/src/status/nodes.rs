//! The nodes of a workflow's status, plain or packed, of which the fulfilled ones are kept.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use belayer_core::object::{ResourceVersion, Uid};

/// Largest table of nodes that is read, in bytes, once it is unpacked. A workflow's object has at
/// most 1.5 MB, packed about a twentieth of its table.
const NODES_LIMIT: u64 = 64 << 20;

/// What a node says whose outputs are still on their way.
const IN_PART: &str =
    "its workflow has the phase of its node and not yet its outputs (taskResultSynced is false)";

/// The fulfilled nodes of a workflow, as of one version of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    version: ResourceVersion,
    ids: HashMap<Box<str>, Taken>,
    names: HashMap<Box<str>, Taken>,
    /// UIDs of pods in whose place the controller starts another one, as it has written down.
    retired: HashSet<Box<str>>,
}

/// Which node is a pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRef {
    /// By its key in the table of nodes.
    Id(Arc<str>),
    /// By its name.
    Name(Arc<str>),
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Id(name) | Self::Name(name)) = self;
        f.write_str(name)
    }
}

/// How much of a node's result its workflow has, once the node has a final phase.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Taken {
    /// All of it.
    All,
    /// All of what this pod left behind: another pod of the same node was not asked.
    Of(Box<str>),
    /// Its phase, and not yet its outputs. A pod that goes now makes the node fail as deleted.
    InPart,
    /// Nobody knows: the node cannot be read.
    Unreadable,
}

impl Nodes {
    /// Whether the workflow asks nothing of this pod any more: its node is fulfilled, by this pod
    /// where the node says by which, or the pod is to be replaced by another one under its name,
    /// which cannot be created before this one is gone.
    pub fn is_fulfilled(&self, node: &NodeRef, pod: &Uid) -> bool {
        if self.retired.contains(pod.as_str()) {
            return true;
        }
        match self.taken(node) {
            Some(Taken::All) => true,
            Some(Taken::Of(uid)) => **uid == *pod.as_str(),
            Some(Taken::InPart | Taken::Unreadable) | None => false,
        }
    }

    /// Why this node says nothing for the pod that asks, in words, where more is to be said than
    /// that it is not fulfilled.
    pub fn objection(&self, node: &NodeRef) -> Option<Cow<'static, str>> {
        match self.taken(node)? {
            Taken::InPart => Some(IN_PART.into()),
            Taken::Unreadable => Some("its node in its workflow's status cannot be read".into()),
            Taken::Of(uid) => Some(
                format!("its workflow took the result of its node from another pod, uid {uid}")
                    .into(),
            ),
            Taken::All => None,
        }
    }

    fn taken(&self, node: &NodeRef) -> Option<&Taken> {
        match node {
            NodeRef::Id(id) => self.ids.get(&**id),
            NodeRef::Name(name) => self.names.get(&**name),
        }
    }

    /// The version of the workflow.
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// Nodes for tests of decisions.
    #[cfg(test)]
    pub(crate) fn scripted(version: u64, ids: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            version: ResourceVersion::new(version),
            ids: ids.iter().map(|id| (Box::from(*id), Taken::All)).collect(),
            ..Self::default()
        })
    }
}

#[derive(Deserialize)]
struct Workflow<'a> {
    metadata: Metadata,
    #[serde(default, borrow)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
    compressed_nodes: Option<String>,
    offload_node_status_version: Option<String>,
    /// Before a node said of itself whether its outputs have arrived.
    task_results_completion_status: Option<HashMap<Box<str>, bool>>,
}

/// Reads a workflow of this UID.
///
/// # Errors
/// Why its nodes cannot be read, in words.
pub(super) fn read(body: &[u8], uid: &Uid) -> Result<Nodes, String> {
    let workflow: Workflow<'_> =
        serde_json::from_slice(body).map_err(|error| format!("it cannot be read: {error}"))?;
    if workflow.metadata.uid != uid.as_str() {
        return Err("another object has its name".into());
    }
    let version = ResourceVersion::parse(&workflow.metadata.resource_version).unwrap_or_default();
    let status = workflow.status.unwrap_or_default();
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if given(&status.offload_node_status_version) {
        return Err("its nodes are offloaded to a database".into());
    }
    let mut nodes = Nodes {
        version,
        ..Nodes::default()
    };
    let arrived = status.task_results_completion_status.unwrap_or_default();
    if let Some(packed) = status.compressed_nodes.filter(|packed| !packed.is_empty()) {
        nodes.add(&unpack(&packed, NODES_LIMIT)?, &arrived)?;
    }
    if let Some(plain) = status.nodes {
        nodes.add(plain.get().as_bytes(), &arrived)?;
    }
    Ok(nodes)
}

/// gzip in base64. A small text can unpack to anything: `limit` is what is read of it, in bytes.
fn unpack(packed: &str, limit: u64) -> Result<Vec<u8>, String> {
    let bytes = STANDARD
        .decode(packed)
        .map_err(|error| format!("its compressed nodes are no base64: {error}"))?;
    let mut nodes = Vec::new();
    GzDecoder::new(&*bytes)
        .take(limit + 1)
        .read_to_end(&mut nodes)
        .map_err(|error| format!("its compressed nodes are no gzip: {error}"))?;
    if nodes.len() as u64 > limit {
        return Err(format!(
            "its compressed nodes unpack to more than {limit} bytes"
        ));
    }
    Ok(nodes)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    #[serde(default)]
    name: Option<Box<str>>,
    #[serde(default)]
    phase: Option<String>,
    /// Whether its outputs, which come by an object of their own, have arrived.
    #[serde(default)]
    task_result_synced: Option<bool>,
    /// By which pod it was fulfilled.
    #[serde(default, rename = "capturedPodUID")]
    captured_pod_uid: Option<Box<str>>,
    /// The pod that is to be replaced by another one.
    #[serde(default, rename = "restartingPodUID")]
    restarting_pod_uid: Option<Box<str>>,
}

impl Node {
    /// What was taken, after the phases in which the workflow controller asks nothing of the pod
    /// any more. `arrived` counts where the node itself does not say.
    fn taken(&self, arrived: Option<bool>) -> Option<Taken> {
        let ended = matches!(
            self.phase.as_deref(),
            Some("Succeeded" | "Failed" | "Error" | "Skipped" | "Omitted")
        );
        let captured = self.captured_pod_uid.as_ref().filter(|uid| !uid.is_empty());
        ended.then(|| match (self.task_result_synced.or(arrived), captured) {
            (Some(false), _) => Taken::InPart,
            (_, Some(uid)) => Taken::Of(uid.clone()),
            (_, None) => Taken::All,
        })
    }

    /// The pod that is retired, as long as its successor does not run.
    fn retired(&self) -> Option<&str> {
        let waits = self.phase.as_deref() == Some("Pending");
        let pod = self.restarting_pod_uid.as_deref();
        pod.filter(|uid| waits && !uid.is_empty())
    }
}

type Arrived = HashMap<Box<str>, bool>;

impl Nodes {
    /// Takes the fulfilled ones out of a table, without keeping the others.
    fn add(&mut self, table: &[u8], arrived: &Arrived) -> Result<(), String> {
        let mut deserializer = serde_json::Deserializer::from_slice(table);
        Table(self, arrived)
            .deserialize(&mut deserializer)
            .map_err(|error| format!("its nodes cannot be read: {error}"))
    }
}

struct Table<'n>(&'n mut Nodes, &'n Arrived);

impl<'de> DeserializeSeed<'de> for Table<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Table<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of nodes")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(id) = map.next_key::<Box<str>>()? {
            let raw: &RawValue = map.next_value()?;
            // A node that is no node is no evidence for its own pod, and no obstacle to others.
            let Ok(node) = serde_json::from_str::<Node>(raw.get()) else {
                self.0.ids.insert(id, Taken::Unreadable);
                continue;
            };
            self.0.retired.extend(node.retired().map(Box::from));
            if let Some(taken) = node.taken(self.1.get(&id).copied()) {
                let named = node.name.map(|name| (name, taken.clone()));
                self.0.names.extend(named);
                self.0.ids.insert(id, taken);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn workflow(status: Value) -> Vec<u8> {
        let workflow = json!({
            "metadata": {"uid": "u-1", "resourceVersion": "7", "name": "w"},
            "spec": {"entrypoint": "main"}, "status": status,
        });
        serde_json::to_vec(&workflow).unwrap()
    }

    fn table() -> Value {
        json!({
            "w-1": {"id": "w-1", "name": "w.a", "type": "Pod", "phase": "Succeeded"},
            "w-2": {"id": "w-2", "name": "w.b", "type": "Pod", "phase": "Running"},
            "w-3": {"id": "w-3", "name": "w.c", "type": "Pod", "phase": "Error"},
            "w-4": {"id": "w-4", "name": "w.d", "type": "Pod"},
        })
    }

    fn pod() -> Uid {
        Uid::new("p-1")
    }

    /// A workflow whose one node is `node`.
    fn of_node(node: Value) -> Value {
        json!({ "nodes": { "w-1": node } })
    }

    fn pack(bytes: &[u8]) -> String {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        STANDARD.encode(encoder.finish().unwrap())
    }

    fn fulfilled(status: Value) -> Nodes {
        read(&workflow(status), &Uid::new("u-1")).unwrap()
    }

    fn unreadable(status: Value) -> String {
        read(&workflow(status), &Uid::new("u-1")).unwrap_err()
    }

    #[rstest]
    #[case::plain(json!({"nodes": table()}))]
    #[case::compressed(json!({"compressedNodes": pack(table().to_string().as_bytes())}))]
    fn fulfilled_nodes_are_found_by_id_and_by_name(#[case] status: Value) {
        let nodes = fulfilled(status);
        assert_eq!(nodes.version(), ResourceVersion::new(7));
        for (id, name, expected) in [
            ("w-1", "w.a", true),
            ("w-2", "w.b", false),
            ("w-3", "w.c", true),
            ("w-4", "w.d", false),
            ("w-5", "w.e", false),
        ] {
            assert_eq!(
                nodes.is_fulfilled(&NodeRef::Id(id.into()), &pod()),
                expected,
                "{id}"
            );
            assert_eq!(
                nodes.is_fulfilled(&NodeRef::Name(name.into()), &pod()),
                expected,
                "{name}"
            );
        }
    }

    /// What Argo Workflows writes beside the phase: whether the outputs have arrived (3.6), whose
    /// successor is awaited (4.0), and whose result it was (4.2).
    #[rstest]
    #[case::outputs_have_arrived(of_node(json!({"phase": "Succeeded", "taskResultSynced": true})), true)]
    #[case::outputs_have_not_arrived(of_node(json!({"phase": "Succeeded", "taskResultSynced": false})), false)]
    #[case::nobody_says_whether(of_node(json!({"phase": "Succeeded", "taskResultSynced": null})), true)]
    #[case::the_table_says_not_yet(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-1": false}}), false)]
    #[case::the_table_says_so(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-1": true}}), true)]
    #[case::the_table_is_about_others(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-2": false}}), true)]
    #[case::the_node_knows_better(json!({"nodes": {"w-1": {"phase": "Failed", "taskResultSynced": true}}, "taskResultsCompletionStatus": {"w-1": false}}), true)]
    #[case::of_this_pod(of_node(json!({"phase": "Succeeded", "capturedPodUID": "p-1"})), true)]
    #[case::of_another_pod(of_node(json!({"phase": "Succeeded", "capturedPodUID": "p-0"})), false)]
    #[case::of_nobody_named(of_node(json!({"phase": "Succeeded", "capturedPodUID": ""})), true)]
    #[case::to_be_replaced(of_node(json!({"phase": "Pending", "restartingPodUID": "p-1"})), true)]
    #[case::to_be_replaced_before_it_reported(of_node(json!({"phase": "Pending", "restartingPodUID": "p-1", "taskResultSynced": false})), true)]
    #[case::its_predecessor_is_replaced(of_node(json!({"phase": "Pending", "restartingPodUID": "p-0"})), false)]
    #[case::its_successor_runs(of_node(json!({"phase": "Running", "restartingPodUID": "p-1"})), false)]
    fn a_phase_is_not_all_that_a_consumer_takes(#[case] status: Value, #[case] expected: bool) {
        let compressed = {
            let mut status = status.clone();
            let table = status["nodes"].take();
            status["compressedNodes"] = json!(pack(table.to_string().as_bytes()));
            status
        };
        for status in [status, compressed] {
            let nodes = fulfilled(status);
            let node = NodeRef::Id("w-1".into());
            assert_eq!(nodes.is_fulfilled(&node, &pod()), expected);
        }
    }

    #[rstest]
    #[case::a_number(json!(3))]
    #[case::a_text(json!("garbage"))]
    #[case::a_phase_that_is_none(json!({"phase": 7}))]
    #[case::no_word_about_outputs(json!({"phase": "Succeeded", "taskResultSynced": "no"}))]
    fn one_node_that_cannot_be_read_says_nothing_of_the_others(#[case] bad: Value) {
        let nodes = fulfilled(json!({"nodes": {"w-0": bad, "w-1": {"phase": "Succeeded"}}}));
        assert!(nodes.is_fulfilled(&NodeRef::Id("w-1".into()), &pod()));
        let bad = NodeRef::Id("w-0".into());
        assert!(!nodes.is_fulfilled(&bad, &pod()));
        assert!(nodes.objection(&bad).unwrap().contains("cannot be read"));
    }

    #[rstest]
    #[case::in_part(json!({"name": "w.a", "phase": "Failed", "taskResultSynced": false}), Some("not yet its outputs"))]
    #[case::of_another_pod(json!({"name": "w.a", "phase": "Failed", "capturedPodUID": "p-0"}), Some("another pod, uid p-0"))]
    #[case::all_of_it(json!({"name": "w.a", "phase": "Failed"}), None)]
    #[case::nothing_yet(json!({"name": "w.a", "phase": "Running"}), None)]
    fn what_a_node_that_ended_lacks_can_be_told(#[case] node: Value, #[case] why: Option<&str>) {
        let told = fulfilled(of_node(node)).objection(&NodeRef::Name("w.a".into()));
        assert_eq!(told.is_some(), why.is_some(), "{told:?}");
        assert!(told.is_none_or(|told| told.contains(why.unwrap())));
    }

    #[rstest]
    #[case::no_status(Value::Null)]
    #[case::no_nodes(json!({"phase": "Running"}))]
    #[case::null_nodes(json!({"nodes": null, "compressedNodes": ""}))]
    fn no_nodes_are_no_evidence(#[case] status: Value) {
        assert!(!fulfilled(status).is_fulfilled(&NodeRef::Id("w-1".into()), &pod()));
    }

    #[rstest]
    #[case::offloaded(json!({"offloadNodeStatusVersion": "fnv:12"}), "offloaded")]
    #[case::no_base64(json!({"compressedNodes": "%%%"}), "no base64")]
    #[case::no_gzip(json!({"compressedNodes": "aGVsbG8="}), "no gzip")]
    #[case::no_table(json!({"compressedNodes": pack(b"[1]")}), "cannot be read")]
    #[case::no_map(json!({"nodes": [3]}), "cannot be read")]
    #[case::no_table_of_outputs(json!({"taskResultsCompletionStatus": {"w-1": "no"}}), "cannot be read")]
    fn what_cannot_be_read_gives_none_and_says_so(#[case] status: Value, #[case] why: &str) {
        let told = unreadable(status);
        assert!(told.contains(why), "{told}");
    }

    #[test]
    fn a_small_text_that_unpacks_to_a_lot_is_cut_off() {
        let bomb = pack(&vec![b' '; 1 << 20]);
        assert!(bomb.len() < 4096);
        assert!(
            unpack(&bomb, 1 << 16)
                .unwrap_err()
                .contains("more than 65536")
        );
        assert!(unpack(&bomb, 1 << 20).is_ok());
    }

    #[test]
    fn another_object_of_that_name_says_nothing() {
        read(&workflow(json!({"nodes": table()})), &Uid::new("u-2")).unwrap_err();
    }
}
