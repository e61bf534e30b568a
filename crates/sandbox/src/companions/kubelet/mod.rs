//! Simulated kubelets: nodes that run, reject, stop and lose pods as scripted.
//!
//! How a pod fares is decided when its node first sees it: by its annotations
//! ([`annotations`]), by chance ([`RejectionChance`]) and by a program ([`KubeletScript`]). Besides, a node
//! refuses what its own checks refuse (node affinity, host ports, `NoExecute` taints, room), and starts no pod
//! whose claim is missing or being deleted.

mod admit;
mod decide;
mod host;
mod lifecycle;
mod node;
mod plan;
mod status;
#[cfg(test)]
mod tests;
mod volumes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use self::host::Hosts;
pub use self::node::NodeSpec;
pub use self::plan::{
    KubeletScript, PodPlan, Rejection, RejectionChance, RunFor, RunPlan, annotations, fingerprint,
};

/// Who declares a silent node unknown.
pub const NODE_LIFECYCLE_ACTOR: &str = "node-lifecycle-controller";
/// Who deletes the Node of a machine that is gone for good.
pub const CLOUD_ACTOR: &str = "cloud-node-controller";

/// Who the kubelet of a node writes as: `kubelet/NODE`.
#[must_use]
pub fn actor_of(node: &str) -> String {
    format!("kubelet/{node}")
}

/// How the simulated nodes behave.
#[derive(Clone)]
pub struct KubeletConfig {
    /// The nodes that register at the start.
    pub nodes: Vec<NodeSpec>,
    /// How a pod fares that says nothing about it.
    pub default_plan: RunPlan,
    /// Rejections by chance.
    pub rejections: Option<RejectionChance>,
    /// The program that has the last word.
    pub script: Option<Arc<dyn KubeletScript>>,
    /// What chance is drawn from.
    pub seed: u64,
    /// How long after its last sign of life a node's `Ready` turns `Unknown`.
    pub unreachable_after: Duration,
}

impl Default for KubeletConfig {
    /// Three nodes too big to be filled; pods run until stopped.
    fn default() -> Self {
        Self {
            nodes: NodeSpec::many(3),
            default_plan: RunPlan::default(),
            rejections: None,
            script: None,
            seed: 0,
            unreachable_after: Duration::from_secs(40),
        }
    }
}

impl fmt::Debug for KubeletConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletConfig")
            .field("nodes", &self.nodes)
            .field("default_plan", &self.default_plan)
            .field("rejections", &self.rejections)
            .field("script", &self.script.as_ref().map(|_| "..."))
            .field("seed", &self.seed)
            .field("unreachable_after", &self.unreachable_after)
            .finish()
    }
}

/// What happens to a node by somebody else's doing.
#[derive(Debug)]
enum Command {
    Vanish(String),
    ComeBack(String),
    Add(NodeSpec),
    Destroy(String),
    Restart(String),
}

/// The hand on the simulated nodes. Orders take effect when the kubelets get their next turn;
/// orders for a node that does not exist have none.
#[derive(Debug, Clone)]
pub struct Kubelets {
    commands: mpsc::UnboundedSender<Command>,
}

impl Kubelets {
    /// Cuts the node off: no status, no deletes. Its containers run on.
    pub fn vanish(&self, node: impl Into<String>) {
        self.order(Command::Vanish(node.into()));
    }

    /// Lets a node that vanished be heard again. If its Node object is gone it registers anew.
    pub fn come_back(&self, node: impl Into<String>) {
        self.order(Command::ComeBack(node.into()));
    }

    /// Adds a node.
    pub fn add(&self, node: NodeSpec) {
        self.order(Command::Add(node));
    }

    /// Takes the machine away for good: its containers are gone, and so is its Node object.
    pub fn destroy(&self, node: impl Into<String>) {
        self.order(Command::Destroy(node.into()));
    }

    /// Restarts the node's kubelet: it checks every pod that runs there anew, against the node as it is by now,
    /// and refuses those that do not fit any more. Their containers were running; what is told of them is
    /// gone with the refusal, but for the time they were first started.
    pub fn restart(&self, node: impl Into<String>) {
        self.order(Command::Restart(node.into()));
    }

    fn order(&self, command: Command) {
        // Without kubelets there is nobody to obey.
        let _ = self.commands.send(command);
    }
}
