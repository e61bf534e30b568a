//! The nodes of a workflow's status, plain or packed, of which the fulfilled ones are kept.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

use belayer_core::object::{ResourceVersion, Uid};

/// Largest table of nodes that is read, in bytes, once it is unpacked. A workflow's object has at
/// most 1.5 MB, packed about a twentieth of its table.
const NODES_LIMIT: u64 = 64 << 20;

/// The fulfilled nodes of a workflow, as of one version of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    version: ResourceVersion,
    ids: HashSet<Box<str>>,
    names: HashSet<Box<str>>,
}

/// Which node is a pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRef {
    /// By its key in the table of nodes.
    Id(Arc<str>),
    /// By its name.
    Name(Arc<str>),
}

impl Nodes {
    /// Whether this node is fulfilled.
    pub fn is_fulfilled(&self, node: &NodeRef) -> bool {
        match node {
            NodeRef::Id(id) => self.ids.contains(&**id),
            NodeRef::Name(name) => self.names.contains(&**name),
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
            ids: ids.iter().map(|id| Box::from(*id)).collect(),
            names: HashSet::new(),
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
    nodes: Option<&'a serde_json::value::RawValue>,
    compressed_nodes: Option<String>,
    offload_node_status_version: Option<String>,
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
    if let Some(packed) = status.compressed_nodes.filter(|packed| !packed.is_empty()) {
        nodes.add(&unpack(&packed, NODES_LIMIT)?)?;
    }
    if let Some(plain) = status.nodes {
        nodes.add(plain.get().as_bytes())?;
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
struct Node {
    #[serde(default)]
    name: Option<Box<str>>,
    #[serde(default)]
    phase: Option<String>,
}

impl Node {
    /// The phases after which the workflow controller asks nothing of the pod any more.
    fn is_fulfilled(&self) -> bool {
        matches!(
            self.phase.as_deref(),
            Some("Succeeded" | "Failed" | "Error" | "Skipped" | "Omitted")
        )
    }
}

impl Nodes {
    /// Takes the fulfilled ones out of a table, without keeping the others.
    fn add(&mut self, table: &[u8]) -> Result<(), String> {
        let mut deserializer = serde_json::Deserializer::from_slice(table);
        Table(self)
            .deserialize(&mut deserializer)
            .map_err(|error| format!("its nodes cannot be read: {error}"))
    }
}

struct Table<'n>(&'n mut Nodes);

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
            let node: Node = map.next_value()?;
            if node.is_fulfilled() {
                self.0.ids.insert(id);
                self.0.names.extend(node.name);
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
                nodes.is_fulfilled(&NodeRef::Id(id.into())),
                expected,
                "{id}"
            );
            assert_eq!(
                nodes.is_fulfilled(&NodeRef::Name(name.into())),
                expected,
                "{name}"
            );
        }
    }

    #[rstest]
    #[case::no_status(Value::Null)]
    #[case::no_nodes(json!({"phase": "Running"}))]
    #[case::null_nodes(json!({"nodes": null, "compressedNodes": ""}))]
    fn no_nodes_are_no_evidence(#[case] status: Value) {
        assert!(!fulfilled(status).is_fulfilled(&NodeRef::Id("w-1".into())));
    }

    #[rstest]
    #[case::offloaded(json!({"offloadNodeStatusVersion": "fnv:12"}), "offloaded")]
    #[case::no_base64(json!({"compressedNodes": "%%%"}), "no base64")]
    #[case::no_gzip(json!({"compressedNodes": "aGVsbG8="}), "no gzip")]
    #[case::no_table(json!({"compressedNodes": pack(b"[1]")}), "cannot be read")]
    #[case::no_nodes_at_all(json!({"nodes": {"w-1": 3}}), "cannot be read")]
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
