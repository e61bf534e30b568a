//! Pods of Argo Workflows: evidence from the pod and its node that releases it although no result was read.
//!
//! Belayer never changes how a workflow ends, except by saving results of pods that ended by themselves. If the
//! API does not show whether a pod did, the pod is held.

mod component;
mod containers;
mod ending;
mod node;

use std::sync::Arc;
use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::{ObjectMeta, Pod};

pub(crate) use component::NeverHeld;
pub(crate) use containers::MAIN;
pub(crate) use ending::{EndedByDeletion, Ending, Held};
pub(crate) use node::read_node;
pub(crate) use node::{NodeLost, NodeQuery, NodeReader, NodeState};

use crate::profile::argo;

/// A pod whose controller is a Workflow of Argo. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct ArgoPod {
    /// The pod at the version that a release would name.
    pub pod: Arc<Pod>,
    /// Its node; `None` unless the pod looks as if its node was lost.
    pub node: Option<NodeView>,
}

/// The node of a pod that looks as if its node was lost.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The query for the Node.
    pub query: NodeQuery,
    /// The last live read.
    pub answer: Option<LiveAnswer<NodeState>>,
    /// When this process first saw that the pod looks as if its node was lost: only a read that begins later is a
    /// proof. A node that was gone before may have come back.
    pub suspected: LogicalTime,
    /// How long this process has known the loss, if a release waits for `nodeLostDelay`.
    pub lost_for: Option<Duration>,
}

/// Whether a pod's controller is a Workflow of Argo.
pub(crate) fn is_of_workflow(pod: &ObjectMeta) -> bool {
    let controller = pod.controller.as_ref();
    controller.is_some_and(|owner| argo::is_workflow_reference(owner))
}
