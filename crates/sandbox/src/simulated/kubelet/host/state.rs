//! The state of the simulated nodes and of their pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::decide::Progress as PodProgress;
use super::super::lifecycle::Now;
use super::super::plan::{Planner, PodPlan};
use super::super::volumes::Pvcs;
use super::super::{Command, NodeSpec};
use crate::address::Actor;
use crate::cluster::Cluster;
use crate::simulated::agenda::Agenda;
use crate::simulated::object;
use crate::simulated::quantity::Amount;

pub(super) type Uid = Arc<str>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(String),
    Pod(Uid),
}

/// Whether a node is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    Silent { since: Instant },
}

/// Whether a node's kubelet has yet to create its Node object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registration {
    Wanted,
    Done,
}

pub(super) struct Host {
    pub(super) spec: NodeSpec,
    pub(super) actor: Actor,
    pub(super) address: String,
    pub(super) link: Link,
    pub(super) registration: Registration,
    pub(super) object: Option<Arc<Value>>,
    /// The resources of the pods that it accepted.
    pub(super) used: Amount,
    /// How many pod addresses it has assigned.
    pub(super) addresses: u32,
    pub(super) number: u32,
}

impl Host {
    pub(super) fn next_pod_address(&mut self) -> String {
        self.addresses = self.addresses.wrapping_add(1);
        let [_, _, high, low] = self.addresses.to_be_bytes();
        format!("10.{}.{high}.{low}", 128 + self.number % 128)
    }
}

pub(super) struct Pod {
    pub(super) object: Arc<Value>,
    pub(super) node: String,
    pub(super) plan: Option<PodPlan>,
    pub(super) progress: PodProgress,
    pub(super) address: String,
    /// The resources counted for it on its node.
    pub(super) charged: Amount,
    /// Its kubelet has restarted and has not checked it again yet.
    pub(super) unchecked: bool,
    /// Why its volumes are not mounted, as last reported.
    pub(super) unmounted: String,
}

impl Pod {
    /// It was accepted, its containers have not ended, and it is not being deleted.
    pub(super) fn is_alive(&self) -> bool {
        let runs = |progress: &PodProgress| matches!(progress, PodProgress::Accepted { runtime, .. } if !runtime.has_ended());
        runs(&self.progress)
            && !object::is_deleting(&self.object)
            && !object::is_ended(&self.object)
    }
}

/// The simulated nodes.
pub(crate) struct Hosts {
    pub(super) cluster: Cluster,
    pub(super) planner: Planner,
    pub(super) unreachable_after: Duration,
    pub(super) hosts: BTreeMap<String, Host>,
    pub(super) pods: BTreeMap<Uid, Pod>,
    pub(super) by_node: BTreeMap<String, BTreeSet<Uid>>,
    pub(super) pvcs: Pvcs,
    pub(super) agenda: Agenda<Key>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) inbox: VecDeque<Command>,
}

impl Hosts {
    pub(super) fn now(&self, instant: Instant) -> Now {
        Now {
            instant,
            wall: self.cluster.clock().now(),
        }
    }

    pub(super) fn process_all_of(&mut self, node: &str) {
        for uid in self.by_node.get(node).into_iter().flatten() {
            self.agenda.add(Key::Pod(Arc::clone(uid)));
        }
    }
}
