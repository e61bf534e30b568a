//! The nodes in a workflow's status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Version;

/// The phase of a workflow or of one of its nodes. Part of a [`Node`](crate::model::Node), which
/// follows from the [rules](crate::model).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as Argo names them")]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Error,
    Skipped,
    Omitted,
}

impl Phase {
    pub(super) fn read(text: Option<&str>) -> Option<Self> {
        serde_json::from_value(json!(text?)).ok()
    }

    /// Whether it is final.
    #[must_use]
    pub fn is_completed(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }

    /// Whether it is a failure.
    #[must_use]
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Error)
    }
}

/// The type of a node. Part of a [`Node`](crate::model::Node), which follows from the
/// [rules](crate::model).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as Argo names them")]
pub enum Kind {
    #[default]
    Pod,
    Container,
    Steps,
    StepGroup,
    Retry,
    Suspend,
    #[serde(rename = "HTTP")]
    Http,
}

/// A node. Which nodes a workflow has follows from the [rules](crate::model).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Its key in `status.nodes`.
    pub id: String,
    /// Its name: the path of its steps.
    pub name: String,
    /// The last part of its name.
    pub display_name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The template that it runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template_name: String,
    /// The key of the node of steps that it belongs to.
    #[serde(rename = "boundaryID", skip_serializing_if = "String::is_empty")]
    pub boundary: String,
    /// Its phase.
    pub phase: Phase,
    /// Why it is in this phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Whether the outputs of its pod have arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_result_synced: Option<bool>,
    /// Whether it runs beside the steps that follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemoned: Option<bool>,
    /// The keys of its children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
}

impl Node {
    pub(super) fn new(id: String, name: String, kind: Kind, now: Timestamp) -> Self {
        Self {
            id,
            name,
            kind,
            started_at: Some(now),
            ..Self::default()
        }
    }

    /// Whether it is final and its outputs have arrived. Before 3.7.1 only the phase counts.
    pub(super) fn is_settled(&self, version: Version) -> bool {
        let waits = version >= Version::UpTo3_7_18 && self.task_result_synced == Some(false);
        self.phase.is_completed() && !waits
    }

    /// Whether the steps that follow it may run.
    pub(super) fn is_fulfilled(&self, version: Version) -> bool {
        self.is_settled(version) || self.is_daemoned() && self.phase != Phase::Pending
    }

    pub(super) fn is_daemoned(&self) -> bool {
        self.daemoned == Some(true)
    }

    /// Changes its phase, and its message if there is a new one.
    pub(super) fn mark(
        &mut self,
        phase: Phase,
        message: Option<&str>,
        now: Timestamp,
        version: Version,
    ) {
        // It never ran, so that no outputs will arrive.
        if self.phase != Phase::Running && phase.is_failed() && self.task_result_synced.is_some() {
            self.task_result_synced = Some(true);
        }
        self.phase = phase;
        if let Some(message) = message {
            message.clone_into(&mut self.message);
        }
        if self.is_fulfilled(version) && self.finished_at.is_none() {
            self.finished_at = Some(now);
        }
    }
}

/// The nodes by their keys.
pub(super) type Nodes = BTreeMap<String, Node>;

/// Where versions before 3.7.1 keep whether outputs have arrived.
const COMPLETION: &str = "taskResultsCompletionStatus";

/// The nodes of a workflow.
pub(super) fn read(workflow: &Value) -> Nodes {
    let field = |name: &str| {
        workflow
            .pointer(&format!("/status/{name}"))
            .and_then(Value::as_object)
    };
    let nodes = field("nodes").into_iter().flatten();
    let mut nodes: Nodes = nodes
        .filter_map(|(id, node)| Some((id.clone(), Node::deserialize(node).ok()?)))
        .collect();
    for (id, complete) in field(COMPLETION).into_iter().flatten() {
        if let Some(node) = nodes.get_mut(id) {
            node.task_result_synced = complete.as_bool();
        }
    }
    nodes
}

/// The fields of a workflow's status that change so that it has these nodes.
pub(super) fn changes(
    workflow: &Value,
    nodes: &Nodes,
    version: Version,
) -> Vec<(&'static str, Value)> {
    let old = read(workflow);
    let changed = nodes.iter().filter(|(id, node)| old.get(*id) != Some(node));
    let changed: Vec<&Node> = changed.map(|(_, node)| node).collect();
    if changed.is_empty() {
        return vec![];
    }
    let by_field = version >= Version::UpTo3_7_18;
    let mut patch = Map::new();
    for node in &changed {
        let mut node = (*node).clone();
        if !by_field {
            node.task_result_synced = None;
        }
        let mut value = json!(node);
        for field in ["message", "finishedAt", "daemoned"] {
            if value.get(field).is_none() {
                value[field] = Value::Null;
            }
        }
        patch.insert(node.id, value);
    }
    let mut fields = vec![("nodes", Value::Object(patch))];
    if !by_field {
        let synced = changed
            .iter()
            .filter(|node| node.task_result_synced.is_some());
        let synced: Map<_, _> = synced
            .map(|node| (node.id.clone(), json!(node.task_result_synced)))
            .collect();
        fields.push((COMPLETION, Value::Object(synced)));
    }
    fields
}

/// The key of a node: the hash of its name behind the workflow's name.
pub(super) fn hashed(workflow: &str, name: &str) -> String {
    if name == workflow {
        return name.to_owned();
    }
    format!("{workflow}-{}", fnv32(name))
}

pub(super) fn fnv32(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_a_real_controller() {
        assert_eq!(
            hashed("retry-onerror", "retry-onerror(0)"),
            "retry-onerror-2023954152"
        );
        assert_eq!(hashed("gc-none", "gc-none"), "gc-none");
        assert_eq!(hashed("http-agent", "agent"), "http-agent-1340600742");
    }
}
