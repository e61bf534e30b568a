//! Why an object may lose a hold, by the record alone.

use belayer_workload::names;
use serde_json::Value;

use super::objects::{annotation, is_deleting, text, uid, workflow_of};
use super::past::Past;
use crate::{CLAIM_HOLD, POD_HOLD, RECREATION_HOLD, WORKFLOW_HOLD};

/// What the stand-in writes about a pod that was gone before its result was taken.
const LOST: &str = "pod deleted";

/// Why a hold may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The pod's result stands in its workflow's status.
    ResultTaken,
    /// Somebody asked for the deletion of the workflow.
    WorkflowDeleted,
    /// Somebody asked for the deletion of the namespace.
    NamespaceDeleted,
    /// The pod's deletion ended it before it had a result.
    CutShort,
    /// No workflow owns the pod.
    NoWorkflow,
    /// The pod has started.
    Started,
    /// The pod is being deleted.
    PodDeleted,
    /// Somebody asked for the deletion of the claim.
    ClaimDeleted,
}

impl Why {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ResultTaken => "result taken",
            Self::WorkflowDeleted => "workflow deleted",
            Self::NamespaceDeleted => "namespace deleted",
            Self::CutShort => "ended by its deletion",
            Self::NoWorkflow => "no workflow",
            Self::Started => "pod started",
            Self::PodDeleted => "rejected pod deleted",
            Self::ClaimDeleted => "claim deleted",
        }
    }
}

/// What a workflow's status says about one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// Its result was taken.
    Taken,
    /// It was gone before.
    Lost,
    /// Nothing final.
    Open,
}

impl Past {
    /// Why an object may lose this hold, if it may. What else has to be gone by then is judged
    /// apart.
    pub(crate) fn why_may_go(&self, object: &Value, hold: &str) -> Option<Why> {
        match hold {
            POD_HOLD => self.why_nobody_waits(object),
            RECREATION_HOLD => self.why_it_need_not_come_back(object),
            WORKFLOW_HOLD => self.is_to_go(uid(object)).then_some(Why::WorkflowDeleted),
            CLAIM_HOLD => self.is_to_go(uid(object)).then_some(Why::ClaimDeleted),
            _ => None,
        }
    }

    /// Why nobody waits for the result of this pod any more.
    pub(crate) fn why_nobody_waits(&self, pod: &Value) -> Option<Why> {
        if self.is_namespace_going(text(pod, "/metadata/namespace")) {
            return Some(Why::NamespaceDeleted);
        }
        let Some(owner) = workflow_of(pod) else {
            return Some(Why::NoWorkflow);
        };
        if self.is_to_go(owner) || self.object(owner).is_none() {
            return Some(Why::WorkflowDeleted);
        }
        if self.node_of(pod) == Node::Taken {
            return Some(Why::ResultTaken);
        }
        self.was_cut_short(pod).then_some(Why::CutShort)
    }

    fn why_it_need_not_come_back(&self, pod: &Value) -> Option<Why> {
        if self.has_run(uid(pod)) {
            return Some(Why::Started);
        }
        // That a rejected one is not lost with it is another promise: NO-LOSS.
        is_deleting(pod).then_some(Why::PodDeleted)
    }

    /// What the pod's workflow, matched by UID, says about it.
    pub(crate) fn node_of(&self, pod: &Value) -> Node {
        let id = annotation(pod, names::NODE_ID);
        let Some(workflow) = workflow_of(pod).and_then(|owner| self.object(owner)) else {
            return Node::Open;
        };
        let node = workflow
            .pointer("/status/nodes")
            .and_then(|nodes| nodes.get(id));
        match node {
            Some(node) if text(node, "/message") == LOST => Node::Lost,
            Some(node) if matches!(text(node, "/phase"), "Succeeded" | "Failed" | "Error") => {
                Node::Taken
            }
            _ => Node::Open,
        }
    }
}
