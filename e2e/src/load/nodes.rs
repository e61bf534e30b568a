//! The nodes that take part in a run.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::plan::{Plan, RUN, Rejector};
use crate::kinds;

/// How many nodes without a kubelet a run creates: Belayer limits re-creations per node.
const REJECTING: usize = 4;

/// The share of the room for pods that a run uses, in percent.
const USED_ROOM: usize = 80;

/// A node with a kubelet.
#[derive(Debug, Clone)]
struct Node {
    name: String,
    hostname: String,
    room: usize,
}

/// The nodes of a run.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    ready: Vec<Node>,
    rejecting: Vec<String>,
}

impl Nodes {
    /// Finds the nodes that take pods, and creates those that reject them.
    pub(super) async fn prepare(client: &Client, plan: &Plan) -> Result<Self> {
        let listed = kinds::nodes(client).list(&ListParams::default()).await?;
        let ready: Vec<Node> = listed
            .iter()
            .filter(|node| takes_pods(node))
            .map(node)
            .collect();
        ensure!(!ready.is_empty(), "no node is ready and without taints");
        ensure!(
            plan.rejector == Rejector::Status || ready.len() > 1,
            "a kubelet can reject pods only if there are two nodes"
        );
        let mut rejecting = Vec::new();
        if plan.rejector == Rejector::Status && plan.rejected > 0.0 {
            for number in 0..REJECTING {
                let name = format!("{}-rejects-{number}", plan.run());
                let node = json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": { "name": name, "labels": { RUN: plan.run() } },
                    "spec": {
                        "unschedulable": true,
                        "taints": [{ "key": RUN, "effect": "NoSchedule" }],
                    },
                });
                let node = serde_json::from_value(node)?;
                kinds::nodes(client)
                    .create(&PostParams::default(), &node)
                    .await?;
                rejecting.push(name);
            }
        }
        Ok(Self { ready, rejecting })
    }

    /// Deletes the nodes that were created.
    pub(super) async fn remove(client: &Client, plan: &Plan) -> Result<()> {
        let own = ListParams::default().labels(&plan.selector());
        kinds::nodes(client)
            .delete_collection(&DeleteParams::default(), &own)
            .await?;
        Ok(())
    }

    /// How many pods of the run may use a node at a time.
    pub(super) fn room(&self, plan: &Plan) -> usize {
        let room: usize = self.ready.iter().map(|node| node.room).sum();
        let used = room * USED_ROOM / 100;
        plan.at_once.map_or(used, |most| most.min(used)).max(1)
    }

    /// The name of the node that runs the pod of this number.
    pub(super) fn home(&self, index: usize) -> &str {
        self.pick(index).map_or("", |node| &node.name)
    }

    /// The label `kubernetes.io/hostname` of that node.
    pub(super) fn hostname(&self, index: usize) -> &str {
        self.pick(index).map_or("", |node| &node.hostname)
    }

    /// The node on which the pod of this number is rejected.
    pub(super) fn rejecting(&self, index: usize) -> &str {
        match self.rejecting.get(index % self.rejecting.len().max(1)) {
            Some(name) => name,
            None => self.home(index + 1),
        }
    }

    /// Whether this node has no kubelet.
    pub(super) fn is_belayers(&self, name: &str) -> bool {
        self.rejecting.iter().any(|own| own == name)
    }

    fn pick(&self, index: usize) -> Option<&Node> {
        self.ready.get(index % self.ready.len().max(1))
    }

    #[cfg(test)]
    pub(super) fn test(ready: &[&str], rejecting: &[&str]) -> Self {
        let node = |name: &&str| Node {
            name: (*name).to_owned(),
            hostname: format!("host-{name}"),
            room: 100,
        };
        Self {
            ready: ready.iter().map(node).collect(),
            rejecting: rejecting.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

fn node(node: &DynamicObject) -> Node {
    let name = node.name_any();
    let hostname = node.labels().get("kubernetes.io/hostname");
    let room = node.data["status"]["allocatable"]["pods"].as_str();
    Node {
        hostname: hostname.unwrap_or(&name).clone(),
        room: room.and_then(|room| room.parse().ok()).unwrap_or_default(),
        name,
    }
}

fn takes_pods(node: &DynamicObject) -> bool {
    let conditions = node.data["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let taints = node.data["spec"]["taints"].as_array();
    ready && node.data["spec"]["unschedulable"] != true && taints.is_none_or(Vec::is_empty)
}
