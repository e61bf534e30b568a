//! Whether a pod's node is lost, by a live read of the Node.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::{LiveAnswer, LiveReader, Query, ReadError};
use belayer_core::slim::{Phase, Pod};

use super::containers::Containers;

/// Taint by which an admin declares that a node is shut down and its pods may be deleted.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether this node exists and is ready.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeQuery(Arc<str>);

impl NodeQuery {
    /// The query for the node of `pod`, if the pod looks as if its node was lost: it is deleted by force or by pod
    /// garbage collection, and its last known status shows that main or Argo's own container has not ended. If the
    /// containers have ended, the result can still be read.
    pub fn about(pod: &Pod) -> Option<Self> {
        let node = pod.node_name.as_ref()?;
        let shutdown = pod.shutdown.as_ref()?;
        if !(pod.is_shut_down() || shutdown.by_pod_gc) || pod.phase == Phase::Succeeded {
            return None;
        }
        let containers = Containers::of(pod);
        let open = !containers.can_be_read() && !containers.are_over(pod);
        open.then(|| Self(Arc::clone(node)))
    }
}

impl fmt::Display for NodeQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is node {} lost", self.0)
    }
}

/// The result of a live read of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// The server says that there is no node of that name.
    Gone,
    /// It is not ready, and an admin has tainted it as out of service.
    OutOfService,
    /// It is not ready: its kubelet does not report.
    NotReady,
    /// It is ready.
    Ready,
    /// The answer proves nothing about the node: reading it is not allowed, or it cannot be decoded.
    Unknown(Arc<str>),
}

impl Query for NodeQuery {
    type Answer = NodeState;

    const NAME: &'static str = "node";

    fn outcome(answer: &NodeState) -> &'static str {
        match answer {
            NodeState::Gone => "gone",
            NodeState::OutOfService => "out-of-service",
            NodeState::NotReady => "not-ready",
            NodeState::Ready => "ready",
            NodeState::Unknown(_) => "unknown",
        }
    }
}

/// The pod's node is lost: no kubelet will ever report how its containers ended, and without Belayer the
/// pod would be gone.
///
/// Proven by a live read of the Node that began after the pod looked as if its node was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLost(Loss);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Gone,
    OutOfService,
    DeletedByForce,
}

impl NodeLost {
    /// Returns the proof if `answer` provides it for `pod`, of which [`NodeQuery::about`] first returned a query at
    /// `suspected`.
    pub fn prove(
        pod: &Pod,
        answer: &LiveAnswer<NodeState>,
        suspected: LogicalTime,
    ) -> Option<Self> {
        NodeQuery::about(pod)?;
        if answer.begun() <= suspected {
            return None;
        }
        match answer.answer() {
            NodeState::Gone => Some(Self(Loss::Gone)),
            NodeState::OutOfService => Some(Self(Loss::OutOfService)),
            // Without Belayer a pod that is deleted by force is gone at once.
            NodeState::NotReady if pod.is_shut_down() => Some(Self(Loss::DeletedByForce)),
            NodeState::NotReady | NodeState::Ready | NodeState::Unknown(_) => None,
        }
    }
}

impl fmt::Display for NodeLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Loss::Gone => "its node is gone",
            Loss::OutOfService => "its node is not ready and tainted as out of service",
            Loss::DeletedByForce => "its node is not ready and the pod was deleted by force",
        })
    }
}

/// Answers [`NodeQuery`]s by live GETs.
#[derive(Debug)]
pub(crate) struct NodeReader {
    executor: Arc<Executor>,
}

impl NodeReader {
    /// Reads through `executor`.
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }
}

/// Reads the node of this name.
///
/// # Errors
///
/// A transient error of the request.
pub(crate) async fn read_node(
    executor: &Executor,
    name: &Arc<str>,
) -> Result<NodeState, RequestError> {
    let nodes = Resource::nodes();
    let key = ObjectKey::cluster(Arc::clone(name));
    let request = Request::get(nodes.object_path(&key));
    let error = match executor.read(&request, Class::Evidence).await {
        Ok(answer) => {
            return Ok(answer.json::<Node>().map_or_else(
                |error| NodeState::Unknown(error.to_string().into()),
                |node| node.state(),
            ));
        }
        Err(error) => error,
    };
    if error.is_gone(&nodes, &key) {
        return Ok(NodeState::Gone);
    }
    match error.class() {
        ErrorClass::Forbidden
        | ErrorClass::NotFound
        | ErrorClass::NotServed
        | ErrorClass::Invalid
        | ErrorClass::Decode => Ok(NodeState::Unknown(error.to_string().into())),
        _ => Err(error),
    }
}

impl LiveReader<NodeQuery> for NodeReader {
    fn read<'a>(&'a self, query: &'a NodeQuery) -> BoxFuture<'a, Result<NodeState, ReadError>> {
        Box::pin(async move {
            let state = read_node(&self.executor, &query.0).await;
            state.map_err(ReadError::from)
        })
    }
}

#[derive(Deserialize, Default)]
struct Node {
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
struct NodeSpec {
    #[serde(default)]
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize)]
struct Taint {
    key: String,
}

#[derive(Deserialize, Default)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Node {
    /// A node whose kubelet has not reported yet has no condition `Ready`: that proves nothing.
    fn state(&self) -> NodeState {
        let mut conditions = self.status.conditions.iter().flatten();
        let ready = conditions.find(|one| one.kind == "Ready");
        match ready.map(|one| one.status.as_str()) {
            Some("True") => return NodeState::Ready,
            Some(_) => {}
            None => return NodeState::Unknown("the node reports no condition Ready".into()),
        }
        let mut taints = self.spec.taints.iter().flatten();
        if taints.any(|taint| taint.key == OUT_OF_SERVICE) {
            NodeState::OutOfService
        } else {
            NodeState::NotReady
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::ready(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), NodeState::Ready)]
    #[case::ready_and_tainted(
        json!({"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        NodeState::Ready
    )]
    #[case::silent(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), NodeState::NotReady)]
    #[case::not_ready(json!({"spec": {"taints": null}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}), NodeState::NotReady)]
    #[case::out_of_service(
        json!({"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        NodeState::OutOfService
    )]
    fn a2_the_state_of_a_node(#[case] node: Value, #[case] expected: NodeState) {
        let node: Node = serde_json::from_value(node).unwrap();
        assert_eq!(node.state(), expected);
    }

    #[rstest]
    #[case(json!({}))]
    #[case::only_other_conditions(json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}))]
    fn a2_a_node_without_the_condition_proves_nothing(#[case] node: Value) {
        let node: Node = serde_json::from_value(node).unwrap();
        assert!(matches!(node.state(), NodeState::Unknown(_)));
    }
}
