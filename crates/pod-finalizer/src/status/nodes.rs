//! The requested nodes of a workflow's status, which may be compressed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use belayer_core::object::{ResourceVersion, Uid};

use super::Unread;
use super::consumed_when::{ConsumedWhen, NoValue};
use super::scan::{Members, Scanner};
use super::unpack::{NODES_LIMIT, unpack};

/// The message for a node whose outputs have not arrived.
const IN_PART: &str = "its workflow has the final phase of its node, but not its outputs yet (taskResultSynced is false)";

/// The message of a node whose pod was gone before its result was read.
const POD_GONE: &str = "pod deleted";

/// How much later than a pod's creation, by the API server's clock, its workflow must have been started again for the
/// pod to belong to an earlier run (A11). That time is by the clock of whoever retried it: the Argo server, or the machine
/// on which a user ran `argo retry`. So its node must have begun as much later, by the workflow controller's clock.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// The longest UID that is kept: the server writes 36 characters.
const UID_LIMIT: usize = 64;

/// The requested nodes of a workflow, at one version of it. The [module's example](crate::status)
/// is what a user can configure in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    version: ResourceVersion,
    /// When it was retried; `None` if it runs for the first time or has finished.
    retried: Option<Timestamp>,
    /// Each requested node, and its state.
    asked: HashMap<NodeRef, Entry>,
}

/// Which node is a pod's. The [module's example](crate::status) is what a user can configure in
/// its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeRef {
    /// By its key in the table of nodes.
    Id(Arc<str>),
    /// By its name.
    Name(Arc<str>),
    /// None: its owner as a whole shows whether the results of its pods were read.
    Owner,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(name) | Self::Name(name) => f.write_str(name),
            Self::Owner => f.write_str("owner"),
        }
    }
}

/// The state of a node in a status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    /// Once it has a final phase, or cannot be read.
    taken: Option<Taken>,
    /// The pod that the workflow controller replaces by another one, if the status names it.
    retired: Option<Uid>,
    /// When the node began.
    began: NodeBegan,
}

/// When a node of the current run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum NodeBegan {
    /// The current run has no such node.
    #[default]
    Absent,
    At(Timestamp),
    /// The status does not show it.
    Unknown,
}

/// How much of a node's result its workflow has, once the node has a final phase.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Taken {
    /// All of it.
    All,
    /// Unknown: `consumedWhen` has no value for the owner, for this reason.
    NoValue(Box<str>),
    /// The result of this pod; other pods of the same node were not read.
    Of(Uid),
    /// Nothing: its pod was gone at this time, and the result was given up. That is not about a pod that was created later.
    GivenUp(Timestamp),
    /// Its phase, but not its outputs yet. If the pod is deleted now, the node fails with "pod deleted".
    InPart,
    /// Unknown: the node cannot be decoded.
    Unreadable,
}

impl Nodes {
    /// Whether this node was requested; if not, nothing is known about it.
    pub fn covers(&self, node: &NodeRef) -> bool {
        self.asked.contains_key(node)
    }

    /// Whether the workflow no longer needs this pod: its node is fulfilled (by this pod, if the node names one), or the
    /// pod is to be replaced by another one of the same name, which cannot be created before this one is deleted. A node
    /// that failed because its pod was gone says nothing about a pod that was `created` later: Argo reads its result.
    /// Only of pods that are being deleted is it known when they were created.
    pub fn is_fulfilled(&self, node: &NodeRef, pod: &Uid, created: Option<Timestamp>) -> bool {
        let Some(entry) = self.asked.get(node) else {
            return false;
        };
        match &entry.taken {
            Some(Taken::All) => true,
            Some(Taken::Of(uid)) => uid == pod,
            Some(Taken::GivenUp(at)) => created.is_some_and(|created| created <= *at),
            Some(Taken::InPart | Taken::Unreadable | Taken::NoValue(_)) | None => {
                entry.retired.as_ref() == Some(pod)
            }
        }
    }

    /// Whether a pod of this node that was created at `created` belongs to an earlier run of an unfinished workflow: the
    /// workflow was retried later, and its status has no such node or one that began later. The absence of the node alone
    /// proves nothing: Argo creates a pod before it writes its node.
    pub fn is_of_earlier_run(&self, node: &NodeRef, created: Timestamp) -> bool {
        let is_later = |time: Timestamp| {
            let created = created.checked_add(CLOCKS_DIFFER);
            created.is_ok_and(|created| time > created)
        };
        let was_retried = self.retried.is_some_and(is_later);
        let Some(entry) = self.asked.get(node).filter(|_| was_retried) else {
            return false;
        };
        match entry.began {
            NodeBegan::Absent => true,
            NodeBegan::At(began) => is_later(began),
            NodeBegan::Unknown => false,
        }
    }

    /// Why this node is no evidence for the pod, for messages; `None` if it is simply not fulfilled.
    pub fn objection(&self, node: &NodeRef) -> Option<Cow<'static, str>> {
        match self.asked.get(node)?.taken.as_ref()? {
            Taken::InPart => Some(IN_PART.into()),
            Taken::Unreadable => Some("its node in its workflow's status cannot be read".into()),
            Taken::Of(uid) => Some(
                format!("its workflow took the result of its node from another pod, uid {uid}")
                    .into(),
            ),
            Taken::NoValue(why) => {
                Some(format!("`consumedWhen` has no value for its owner: {why}").into())
            }
            Taken::GivenUp(_) => {
                Some("its node is that of an earlier pod, which was deleted".into())
            }
            Taken::All => None,
        }
    }

    /// Whether something that a decision about a pod of this node uses is not as in `old`.
    pub(super) fn differs(&self, old: &Self, node: &NodeRef) -> bool {
        self.retried != old.retried || self.asked.get(node) != old.asked.get(node)
    }

    /// The version of the workflow.
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// Approximate size in bytes.
    pub(super) fn weight(&self) -> usize {
        let texts = self.asked.iter().map(|(node, entry)| {
            let name = match node {
                NodeRef::Id(name) | NodeRef::Name(name) => name.len(),
                NodeRef::Owner => 0,
            };
            let why = match &entry.taken {
                Some(Taken::NoValue(why)) => why.len(),
                _ => 0,
            };
            name + why
        });
        self.asked.capacity() * size_of::<(NodeRef, Entry)>() + texts.sum::<usize>()
    }

    /// The workflow was retried then, for tests of decisions.
    #[cfg(test)]
    pub(crate) fn retried_at(self: Arc<Self>, retried: Timestamp) -> Arc<Self> {
        let absent = |(node, _)| (node, Entry::default());
        Arc::new(Self {
            version: self.version,
            retried: Some(retried),
            asked: self.asked.clone().into_iter().map(absent).collect(),
        })
    }

    /// Nodes for tests of decisions.
    #[cfg(test)]
    pub(crate) fn scripted(version: u64, asked: &[&str], fulfilled: &[&str]) -> Arc<Self> {
        let entry = |id: &&str| Entry {
            taken: fulfilled.contains(id).then_some(Taken::All),
            began: NodeBegan::Unknown,
            ..Entry::default()
        };
        Arc::new(Self {
            version: ResourceVersion::new(version),
            retried: None,
            asked: asked
                .iter()
                .map(|id| (NodeRef::Id((*id).into()), entry(id)))
                .collect(),
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

/// Borrows from the response body.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
    #[serde(borrow)]
    compressed_nodes: Option<&'a RawValue>,
    #[serde(borrow)]
    offload_node_status_version: Option<&'a RawValue>,
    #[serde(borrow)]
    phase: Option<&'a RawValue>,
    #[serde(borrow)]
    started_at: Option<&'a RawValue>,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
    /// Whether the outputs of nodes have arrived, in versions of Argo whose nodes do not show that themselves.
    #[serde(borrow)]
    task_results_completion_status: Option<&'a RawValue>,
}

/// Reads those nodes of a workflow of this UID that are `asked` for. To unpack them, it first takes a permit
/// of `unpacking`.
///
/// # Errors
/// The reason why its nodes cannot be read.
pub(super) async fn read(
    body: &[u8],
    uid: &Uid,
    asked: impl IntoIterator<Item = NodeRef>,
    unpacking: &Semaphore,
) -> Result<Nodes, Unread> {
    let workflow: Workflow<'_> = serde_json::from_slice(body)
        .map_err(|error| Unread::Otherwise(format!("it cannot be read: {error}")))?;
    if workflow.metadata.uid != uid.as_str() {
        return Err(Unread::Otherwise("another object has its name".into()));
    }
    let version = ResourceVersion::parse(&workflow.metadata.resource_version).unwrap_or_default();
    let status = workflow.status.unwrap_or_default();
    if !text(status.offload_node_status_version)?.is_empty() {
        return Err(Unread::Offloaded);
    }
    let retried = match text(status.phase).as_deref() {
        Ok("" | "Pending" | "Running") if was_retried(status.conditions) => {
            let retried = text(status.started_at).ok();
            retried.and_then(|retried| retried.parse().ok())
        }
        Ok(_) | Err(_) => None,
    };
    let mut table = Table::new(asked);
    let packed = text(status.compressed_nodes)?;
    if !packed.is_empty() {
        let _leave = unpacking.acquire().await;
        table = unpack(packed.as_bytes(), NODES_LIMIT, table).await?;
    }
    if let Some(plain) = status.nodes {
        table = scanned(plain, table)?;
    }
    if let Some(arrived) = status.task_results_completion_status {
        table = scanned(arrived, Arrived(table))?.0;
    }
    Ok(Nodes {
        version,
        retried,
        asked: table.entry(),
    })
}

/// Whether the conditions say that the workflow had finished and has not finished any more. A retry writes that together
/// with the time at which it began. The first run has no such condition, and its time is that of the first status that is
/// written, which may be long after the creation of its pods.
fn was_retried(conditions: Option<&RawValue>) -> bool {
    let conditions: Vec<Condition<'_>> = conditions
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|one| one.kind == "Completed" && one.status == "False")
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
}

/// Evaluates the expression over an owner of this UID. It first takes a permit of `evaluating`: one owner at a time is
/// in memory as a tree.
///
/// # Errors
///
/// If the owner cannot be read, or is another object.
pub(super) async fn read_owner(
    body: &[u8],
    uid: &Uid,
    when: &ConsumedWhen,
    evaluating: &Semaphore,
) -> Result<Nodes, Unread> {
    let _leave = evaluating.acquire().await;
    let owner: Value = serde_json::from_slice(body)
        .map_err(|error| Unread::Otherwise(format!("it cannot be read: {error}")))?;
    let metadata = &owner["metadata"];
    if metadata["uid"] != uid.as_str() {
        return Err(Unread::Otherwise("another object has its name".into()));
    }
    let version = metadata["resourceVersion"].as_str();
    let version = version.and_then(ResourceVersion::parse).unwrap_or_default();
    let entry = Entry {
        taken: match when.is_true_for(&owner) {
            Ok(is_true) => is_true.then_some(Taken::All),
            Err(NoValue(why)) => Some(Taken::NoValue(why)),
        },
        ..Entry::default()
    };
    Ok(Nodes {
        version,
        retried: None,
        asked: [(NodeRef::Owner, entry)].into_iter().collect(),
    })
}

/// A string of the status, borrowed if possible; empty if there is none.
fn text(raw: Option<&RawValue>) -> Result<Cow<'_, str>, Unread> {
    let Some(raw) = raw.map(RawValue::get) else {
        return Ok(Cow::Borrowed(""));
    };
    let quoted = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    if let Some(plain) = quoted.filter(|text| !text.contains('\\')) {
        return Ok(Cow::Borrowed(plain));
    }
    serde_json::from_str(raw)
        .map(Cow::Owned)
        .map_err(|error| Unread::Otherwise(format!("its status cannot be read: {error}")))
}

fn scanned<M: Members>(raw: &RawValue, members: M) -> Result<M, Unread> {
    let mut scanner = Scanner::new(members);
    scanner.push(raw.get().as_bytes())?;
    Ok(scanner.finish()?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    started_at: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    finished_at: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    message: Option<Cow<'a, str>>,
    /// Whether its outputs, which come by an object of their own, have arrived.
    #[serde(default)]
    task_result_synced: Option<bool>,
    /// The pod that fulfilled it.
    #[serde(default, borrow, rename = "capturedPodUID")]
    captured_pod_uid: Option<Cow<'a, str>>,
    /// The pod that is to be replaced by another one.
    #[serde(default, borrow, rename = "restartingPodUID")]
    restarting_pod_uid: Option<Cow<'a, str>>,
}

/// The fields that are kept of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Node {
        ended: bool,
        waits: bool,
        began: Option<Timestamp>,
        given_up: Option<Timestamp>,
        synced: Option<bool>,
        captured: Option<Uid>,
        restarting: Option<Uid>,
    },
    Unreadable,
}

impl Kept {
    /// Parses the fields, and the name of the node if it has one.
    fn of(json: &[u8]) -> (Self, Option<String>) {
        let Ok(node) = serde_json::from_slice::<Node<'_>>(json) else {
            return (Self::Unreadable, None);
        };
        let long =
            |uid: &Option<Cow<'_, str>>| uid.as_ref().is_some_and(|uid| uid.len() > UID_LIMIT);
        let name = node.name.map(Cow::into_owned);
        if long(&node.captured_pod_uid) || long(&node.restarting_pod_uid) {
            return (Self::Unreadable, name);
        }
        let uid = |uid: Option<Cow<'_, str>>| uid.filter(|uid| !uid.is_empty()).map(Uid::new);
        let kept = Self::Node {
            // The phases in which the workflow controller no longer needs the pod.
            ended: matches!(
                node.phase.as_deref(),
                Some("Succeeded" | "Failed" | "Error" | "Skipped" | "Omitted")
            ),
            waits: node.phase.as_deref() == Some("Pending"),
            began: node.started_at.and_then(|time| time.parse().ok()),
            given_up: node
                .finished_at
                // Argo leaves the message if another pod of the node succeeds.
                .filter(|_| node.phase.as_deref() == Some("Error"))
                .filter(|_| node.message.as_deref() == Some(POD_GONE))
                .and_then(|time| time.parse().ok()),
            synced: node.task_result_synced,
            captured: uid(node.captured_pod_uid),
            restarting: uid(node.restarting_pod_uid),
        };
        (kept, name)
    }

    /// The resulting state. `arrived` is used if the node itself has no value.
    fn entry(self, arrived: Option<bool>) -> Entry {
        match self {
            Self::Unreadable => Entry {
                taken: Some(Taken::Unreadable),
                retired: None,
                began: NodeBegan::Unknown,
            },
            Self::Node {
                ended,
                waits,
                began,
                given_up,
                synced,
                captured,
                restarting,
            } => Entry {
                began: began.map_or(NodeBegan::Unknown, NodeBegan::At),
                taken: ended.then(|| match (synced.or(arrived), captured) {
                    (Some(false), _) => Taken::InPart,
                    (_, Some(uid)) => Taken::Of(uid),
                    (_, None) => given_up.map_or(Taken::All, Taken::GivenUp),
                }),
                // Only while its successor does not run.
                retired: restarting.filter(|_| waits),
            },
        }
    }
}

/// Collects the requested nodes from a table.
struct Table {
    ids: HashMap<Arc<str>, Option<Found>>,
    names: HashMap<Arc<str>, Option<Found>>,
    /// The names of the nodes requested by name, by their keys in the table.
    named: HashMap<Box<str>, Arc<str>>,
}

struct Found {
    kept: Kept,
    arrived: Option<bool>,
    /// Its key in the table.
    id: Box<str>,
}

impl Table {
    fn new(asked: impl IntoIterator<Item = NodeRef>) -> Self {
        let mut table = Self {
            ids: HashMap::new(),
            names: HashMap::new(),
            named: HashMap::new(),
        };
        for node in asked {
            match node {
                NodeRef::Id(id) => table.ids.insert(id, None),
                NodeRef::Name(name) => table.names.insert(name, None),
                NodeRef::Owner => None,
            };
        }
        table
    }

    fn entry(self) -> HashMap<NodeRef, Entry> {
        let entry = |found: Option<Found>| {
            found.map_or_else(Entry::default, |found| found.kept.entry(found.arrived))
        };
        let ids = self.ids.into_iter();
        let ids = ids.map(|(id, found)| (NodeRef::Id(id), entry(found)));
        let names = self.names.into_iter();
        let names = names.map(|(name, found)| (NodeRef::Name(name), entry(found)));
        ids.chain(names).collect()
    }

    /// A node that is asked for by its name: if there are several, the last counts.
    fn note_name(&mut self, id: &str, name: &str, kept: &Kept) {
        let Some((name, _)) = self.names.get_key_value(name) else {
            return;
        };
        let name = Arc::clone(name);
        let found = Found {
            kept: kept.clone(),
            arrived: None,
            id: id.into(),
        };
        let before = self.names.insert(Arc::clone(&name), Some(found)).flatten();
        if let Some(before) = before {
            self.named.remove(&before.id);
        }
        self.named.insert(id.into(), name);
    }
}

impl Members for Table {
    fn wants(&self, id: &str) -> bool {
        // The name of a node is inside its value.
        !self.names.is_empty() || self.ids.contains_key(id)
    }

    fn member(&mut self, id: &str, json: Option<&[u8]>) {
        // A node that is not an object is no evidence for its own pod, and does not affect others.
        let (kept, name) = json.map_or((Kept::Unreadable, None), Kept::of);
        if let Some(name) = name {
            self.note_name(id, &name, &kept);
        }
        if let Some(found) = self.ids.get_mut(id) {
            *found = Some(Found {
                kept,
                arrived: None,
                id: id.into(),
            });
        }
    }
}

/// Whether the outputs of the nodes at hand have arrived, from a table of its own.
struct Arrived(Table);

impl Members for Arrived {
    fn wants(&self, id: &str) -> bool {
        self.0.ids.contains_key(id) || self.0.named.contains_key(id)
    }

    fn member(&mut self, id: &str, json: Option<&[u8]>) {
        let table = &mut self.0;
        let read: Option<Option<bool>> = json.and_then(|json| serde_json::from_slice(json).ok());
        let by_id = table.ids.get_mut(id).and_then(Option::as_mut);
        let by_name = table.named.get(id);
        let by_name = by_name.and_then(|name| table.names.get_mut(name));
        for found in by_id.into_iter().chain(by_name.and_then(Option::as_mut)) {
            match read {
                Some(arrived) => found.arrived = arrived,
                None => found.kept = Kept::Unreadable,
            }
        }
    }
}

#[cfg(test)]
mod tests;
