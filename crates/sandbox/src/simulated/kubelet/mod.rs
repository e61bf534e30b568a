//! Simulated kubelets: nodes that run, reject, stop and lose pods as scripted.
//!
//! A pod's plan is made when its node first sees it: from its annotations
//! ([`annotations`]), at random ([`RejectionChance`]) and by a program ([`KubeletScript`]). In addition, a node
//! rejects pods that fail its admission checks (node affinity, host ports, `NoExecute` taints, resources), and
//! does not start a pod whose PVC is missing or being deleted.
//!
//! It runs the pod of the [example](crate::simulated).

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
    ContainerPlan, KubeletScript, PodPlan, Rejection, RejectionChance, RunFor, RunPlan,
    annotations, fingerprint,
};

/// The actor that sets `Ready` to `Unknown` on a silent node.
pub const NODE_LIFECYCLE_ACTOR: &str = "node-lifecycle-controller";
/// The actor that deletes the Node object of a destroyed machine.
pub const CLOUD_ACTOR: &str = "cloud-node-controller";

/// The actor name of a node's kubelet: `kubelet/NODE`.
#[must_use]
pub(crate) fn actor_of(node: &str) -> String {
    format!("kubelet/{node}")
}

/// Settings of the simulated nodes. An argument of
/// [`SimulatedControllers::kubelet`](crate::simulated::SimulatedControllers::kubelet); the
/// [example](crate::simulated) keeps the default.
#[derive(Clone)]
pub struct KubeletConfig {
    /// The nodes that register at the start.
    pub nodes: Vec<NodeSpec>,
    /// The plan of a pod without annotations.
    pub default_plan: RunPlan,
    /// Random rejections.
    pub rejections: Option<RejectionChance>,
    /// A program that can change each plan.
    pub script: Option<Arc<dyn KubeletScript>>,
    /// Seed of the random choices.
    pub seed: u64,
    /// How long after its last heartbeat a node's `Ready` turns `Unknown`.
    pub unreachable_after: Duration,
}

impl Default for KubeletConfig {
    /// Three nodes with room for any test; pods run until stopped.
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

/// A command to the simulated nodes.
#[derive(Debug)]
enum Command {
    Vanish(String),
    ComeBack(String),
    Add(NodeSpec),
    Destroy(String),
    Restart(String),
}

/// Commands to the simulated nodes. They take effect when the kubelets next run; a command for a
/// node that does not exist has no effect.
/// [`RunningControllers::kubelets`](crate::simulated::RunningControllers::kubelets) returns it,
/// for the nodes of the [example](crate::simulated).
#[derive(Debug, Clone)]
pub struct Kubelets {
    commands: mpsc::UnboundedSender<Command>,
}

impl Kubelets {
    /// Cuts the node off from the API server: no status writes, no deletes. Its containers keep running.
    pub fn vanish(&self, node: impl Into<String>) {
        self.order(Command::Vanish(node.into()));
    }

    /// Reconnects a node that was cut off. If its Node object is gone, the node registers again.
    pub fn come_back(&self, node: impl Into<String>) {
        self.order(Command::ComeBack(node.into()));
    }

    /// Adds a node.
    pub fn add(&self, node: NodeSpec) {
        self.order(Command::Add(node));
    }

    /// Destroys the machine: its containers end and its Node object is deleted.
    pub fn destroy(&self, node: impl Into<String>) {
        self.order(Command::Destroy(node.into()));
    }

    /// Restarts the node's kubelet: it checks every pod that runs there again, against the current Node,
    /// and rejects those that no longer fit. Their containers were running; the rejection overwrites their
    /// statuses, except for the first start time.
    pub fn restart(&self, node: impl Into<String>) {
        self.order(Command::Restart(node.into()));
    }

    fn order(&self, command: Command) {
        // The receiver is gone when no kubelets run.
        let _ = self.commands.send(command);
    }
}
