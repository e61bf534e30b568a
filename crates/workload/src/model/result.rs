//! How a workflow ended.

use std::fmt;

use serde_json::Value;

use super::{Kind, Phase, node};

/// The end of a workflow: what is compared to tell whether something changed it. It follows from
/// the [rules](crate::model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowResult {
    /// Its phase; `None` if no controller has seen it.
    pub phase: Option<Phase>,
    /// Its message.
    pub message: String,
    /// Its nodes, in order.
    pub nodes: Vec<NodeResult>,
}

/// The end of one node. Part of a [`WorkflowResult`](crate::model::WorkflowResult), which follows
/// from the [rules](crate::model).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeResult {
    /// The last part of its name.
    pub display_name: String,
    /// Its type.
    pub kind: Kind,
    /// Its phase.
    pub phase: Phase,
    /// Why. Of a pod without a node, the first word: the rest counts the cluster's nodes.
    pub message: String,
}

impl WorkflowResult {
    /// The end that a workflow's status shows.
    #[must_use]
    pub fn of(workflow: &Value) -> Self {
        let text = |pointer| workflow.pointer(pointer).and_then(Value::as_str);
        let result = |node: node::Node| NodeResult {
            message: match node.message.split_once(": ") {
                Some((first @ "Unschedulable", _)) => first.to_owned(),
                _ => node.message,
            },
            display_name: node.display_name,
            kind: node.kind,
            phase: node.phase,
        };
        let mut nodes: Vec<NodeResult> = node::read(workflow).into_values().map(result).collect();
        nodes.sort();
        Self {
            phase: Phase::read(text("/status/phase")),
            message: text("/status/message").unwrap_or_default().to_owned(),
            nodes,
        }
    }
}

impl fmt::Display for WorkflowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, phase: Option<Phase>, message: &str| {
            match phase {
                Some(phase) => write!(f, "{phase:?}")?,
                None => f.write_str("not begun")?,
            }
            if message.is_empty() {
                Ok(())
            } else {
                write!(f, " ({message})")
            }
        };
        write(f, self.phase, &self.message)?;
        for node in &self.nodes {
            write!(f, ", {} ", node.display_name)?;
            write(f, Some(node.phase), &node.message)?;
        }
        Ok(())
    }
}
