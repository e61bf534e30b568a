//! What users, admins, machines and networks do during a run.

pub(crate) mod admin;
pub(crate) mod others;
pub(crate) mod tenant;
pub(crate) mod user;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use belayer_holds::names::{DEFAULT_NAMESPACE, IGNORE_LABEL};
use belayer_sandbox::simulated::NodeSpec;
use belayer_sandbox::{
    Actor, Cluster, DeleteOptions, Gvr, ListOptions, Patch, Sandbox, Subresource, WriteOptions,
};
use belayer_workload::{Argo, USER, WorkflowScript};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fault::FaultKind;
use crate::nodes::Nodes;
use crate::objects;
use crate::replica::{Controllers, Replica};
use user::{ACTIONS, UserAction};

/// Something that happens in a run. A number chooses among the objects, nodes or replicas that exist then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A fault begins; it ends after this time.
    Fault {
        /// Which.
        kind: FaultKind,
        /// How long.
        lasts: Duration,
        /// The replica whose requests it concerns, from 1 on; `None` for all.
        replica: Option<usize>,
    },
    /// A user does something.
    User(UserAction, u64),
    /// The workflow controller stops.
    StopArgo,
    /// The workflow controller starts.
    StartArgo,
    /// A node loses its connection.
    Vanish(u64),
    /// All nodes have their connection again.
    ComeBack,
    /// A node is destroyed.
    Destroy(u64),
    /// A kubelet restarts and checks its pods again.
    RestartKubelet(u64),
    /// An admin taints a node, and its kubelet restarts: it rejects the pods that run there. [`Event::ALL`] does not contain it.
    Taint(u64),
    /// The admin removes the taints. [`Event::ALL`] does not contain it either.
    Untaint,
    /// A replica of Belayer is killed.
    Kill(u64),
    /// A replica of Belayer is stopped gracefully.
    Stop(u64),
    /// The leader election of a replica gets no CPU time for 25 s. [`Event::ALL`] does not contain it.
    Freeze(u64),
    /// All replicas of Belayer are killed.
    KillAll,
    /// Replicas that are down start.
    Start,
    /// An admin switches controllers on and off, and restarts the replicas one after the other.
    Reconfigure(u64),
    /// A tenant changes or deletes something that it should not touch.
    Meddle(u64),
    /// An admin changes the configuration of the replicas while they run.
    Reload(u64),
    /// An admin drains Belayer.
    Drain,
    /// An admin ends the drain.
    Resume,
    /// Another process replaces each replica; for some seconds both run.
    Upgrade,
    /// The wall clock of the replicas jumps.
    JumpClock(u64),
    /// An admin has Belayer ignore a namespace, by its label. [`Event::ALL`] does not contain it.
    Ignore(u64),
    /// The admin removes that label from all namespaces. [`Event::ALL`] does not contain it either.
    IgnoreNone,
    /// The node agents stop.
    StopAgents,
    /// The node agents start.
    StartAgents,
}

/// A kubelet does not reject a pod that it has started less than this before. A second more than the limit of the proof, as times have
/// whole seconds.
const RESTART: SignedDuration = SignedDuration::from_secs(11);

/// The records of re-creations.
pub(crate) const RECORDS: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("podrecreations"),
};

/// The gate.
pub(crate) const GATES: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("gates"),
};

impl Event {
    /// All but the faults.
    pub(crate) const ALL: [Self; 32] = {
        let mut all = [Self::StopArgo; 32];
        let mut index = 0;
        while index < ACTIONS.len() {
            all[index] = Self::User(ACTIONS[index], 0);
            index += 1;
        }
        let others = [
            Self::StopArgo,
            Self::StartArgo,
            Self::Vanish(0),
            Self::ComeBack,
            Self::Destroy(0),
            Self::RestartKubelet(0),
            Self::Kill(0),
            Self::Stop(0),
            Self::KillAll,
            Self::Start,
            Self::Reconfigure(0),
            Self::Meddle(0),
            Self::Reload(0),
            Self::Drain,
            Self::Resume,
            Self::Upgrade,
            Self::JumpClock(0),
            Self::StopAgents,
            Self::StartAgents,
        ];
        let mut other = 0;
        while other < others.len() {
            all[index + other] = others[other];
            other += 1;
        }
        all
    };

    /// The same, with another choice.
    pub(crate) fn with(self, choice: u64) -> Self {
        match self {
            Self::User(action, _) => Self::User(action, choice),
            Self::Vanish(_) => Self::Vanish(choice),
            Self::Destroy(_) => Self::Destroy(choice),
            Self::RestartKubelet(_) => Self::RestartKubelet(choice),
            Self::Kill(_) => Self::Kill(choice),
            Self::Stop(_) => Self::Stop(choice),
            Self::Freeze(_) => Self::Freeze(choice),
            Self::Reconfigure(_) => Self::Reconfigure(choice),
            Self::Meddle(_) => Self::Meddle(choice),
            Self::Reload(_) => Self::Reload(choice),
            Self::JumpClock(_) => Self::JumpClock(choice),
            other => other,
        }
    }

    /// Its name in the coverage.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Fault { kind, .. } => kind.name(),
            Self::User(action, _) => format!("user {action:?}"),
            other => {
                let text = format!("{other:?}");
                let name = text.split('(').next().unwrap_or(&text);
                format!("event {name}")
            }
        }
    }
}

/// Everything that events act on.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) argo: Argo,
    pub(crate) replicas: Vec<Replica>,
    /// Where users create objects.
    pub(crate) namespaces: &'static [&'static str],
    /// The script of workflows that users create during the run.
    pub(crate) script: WorkflowScript,
    /// Gives each created object a name of its own.
    pub(crate) created: usize,
    /// The files of the nodes, if the agents are real.
    pub(crate) nodes: Option<Nodes>,
    /// How many bits of [`Controllers`] an admin changes.
    pub(crate) controller_bits: u32,
    /// Whether pods that request re-creation also require a wipe of their node.
    pub(crate) wipes: bool,
    /// How far Belayer's wall clock is ahead, in seconds.
    pub(crate) skew: Arc<AtomicI64>,
    /// The admin, and the node agents.
    pub(crate) admin: admin::Admin,
    /// Pods to create once their names are free.
    pub(crate) copies: Vec<Value>,
}

impl Stage {
    /// Carries out an event that is not a fault.
    pub(crate) async fn carry_out(&mut self, event: Event) {
        let kubelets = self.sandbox.controllers().kubelets().clone();
        match event {
            Event::Fault { .. } => {}
            Event::User(action, choice) => self.act(action, choice),
            Event::StopArgo => self.argo.stop(),
            Event::StartArgo => self.argo.start(),
            Event::Vanish(choice) => kubelets.vanish(node(choice)),
            Event::ComeBack => {
                for node in objects::nodes() {
                    kubelets.come_back(node.name);
                }
            }
            Event::Destroy(choice) => {
                let node = node(choice);
                kubelets.destroy(node.as_str());
                kubelets.add(NodeSpec::new(format!("{node}-new")));
            }
            Event::RestartKubelet(choice) => self.restart_kubelet(node(choice)),
            Event::Taint(choice) => {
                let node = node(choice);
                self.taint(
                    &node,
                    json!([{ "key": "maintenance", "effect": "NoExecute" }]),
                );
                self.restart_kubelet(node);
            }
            Event::Untaint => {
                for node in objects::nodes() {
                    self.taint(&node.name, Value::Null);
                }
            }
            Event::Kill(choice) => self.replica(choice).kill(),
            Event::Stop(choice) => self.replica(choice).stop().await,
            Event::Freeze(choice) => self.replica(choice).freeze(),
            Event::KillAll => self.replicas.iter_mut().for_each(Replica::kill),
            Event::Start => self.replicas.iter_mut().for_each(Replica::start),
            Event::Reconfigure(choice) => self.reconfigure(self.some_controllers(choice)).await,
            Event::Meddle(choice) => tenant::meddle(self, choice),
            Event::Reload(choice) => self.reload(self.some_controllers(choice)),
            Event::Drain => self.admin.drain(&self.sandbox),
            Event::Resume => self.admin.resume(&self.sandbox).await,
            Event::Upgrade => {
                for replica in &mut self.replicas {
                    replica.upgrade().await;
                }
            }
            Event::JumpClock(choice) => {
                let to = admin::CLOCKS[index(choice, admin::CLOCKS.len())];
                self.skew.store(to, Ordering::Relaxed);
            }
            Event::Ignore(choice) => {
                let namespace = self.namespaces[index(choice, self.namespaces.len())];
                self.ignore(namespace, json!("true"));
            }
            Event::IgnoreNone => {
                for namespace in self.namespaces {
                    self.ignore(namespace, Value::Null);
                }
            }
            Event::StopAgents => self.admin.stop_agents(),
            Event::StartAgents => self.admin.start_agents(&self.sandbox, self.nodes.as_ref()),
        }
    }

    fn some_controllers(&self, choice: u64) -> Controllers {
        Controllers::some(choice, self.controller_bits)
    }

    /// Restarts the replicas that run, one after the other, with these controllers.
    pub(crate) async fn reconfigure(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            replica.configure(controllers).await;
        }
    }

    /// Restarts only the replicas that have other controllers: a restart would hide that a replica has forgotten something.
    pub(crate) async fn give_controllers(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            if !replica.has(controllers) {
                replica.configure(controllers).await;
            }
        }
    }

    /// Changes the controllers of the replicas that run, without a restart.
    fn reload(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            replica.reload(controllers);
        }
    }

    /// Restarts a kubelet, unless a pod has just started there: a restart takes at least ten seconds (`RestartSec` of its service).
    fn restart_kubelet(&self, node: String) {
        let now = self.cluster().clock().now();
        let has_just_started = |pod: &Arc<Value>| {
            let started = pod["status"]["startTime"].as_str();
            let started = started.and_then(|time| time.parse::<Timestamp>().ok());
            pod["spec"]["nodeName"] == *node
                && started.is_some_and(|at| now.duration_since(at) < RESTART)
        };
        if !self.list(&Gvr::PODS, None).iter().any(has_just_started) {
            self.sandbox.controllers().kubelets().restart(node);
        }
    }

    fn taint(&self, node: &str, taints: Value) {
        self.configure(&Gvr::NODES, node, json!({ "spec": { "taints": taints } }));
    }

    fn ignore(&self, namespace: &str, label: Value) {
        let labels = json!({ "metadata": { "labels": { IGNORE_LABEL: label } } });
        self.configure(&Gvr::NAMESPACES, namespace, labels);
    }

    /// An admin patches an object of the cluster. If it was deleted, that changes nothing.
    fn configure(&self, gvr: &Gvr, name: &str, body: Value) {
        drop(self.cluster().patch(
            &Actor::new(USER),
            gvr,
            None,
            name,
            Patch::Merge(body),
            Subresource::None,
            &WriteOptions::default(),
        ));
    }

    fn replica(&mut self, choice: u64) -> &mut Replica {
        let index = index(choice, self.replicas.len());
        &mut self.replicas[index]
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.sandbox.cluster()
    }

    pub(crate) fn choose(&self, gvr: &Gvr, choice: u64) -> Option<Arc<Value>> {
        let mut all = self.list(gvr, None);
        all.retain(|object| {
            key(object).is_some_and(|(namespace, _)| namespace != DEFAULT_NAMESPACE)
        });
        match all.len() {
            0 => None,
            count => Some(all.swap_remove(index(choice, count))),
        }
    }

    /// Patches an object as this actor. A refusal changes nothing.
    fn patch(&self, actor: &str, gvr: &Gvr, object: &Value, body: Value) {
        if let Some((namespace, name)) = key(object) {
            drop(self.cluster().patch(
                &Actor::new(actor),
                gvr,
                Some(namespace),
                name,
                Patch::Merge(body),
                Subresource::None,
                &WriteOptions::default(),
            ));
        }
    }

    /// Deletes an object as this actor. A refusal changes nothing.
    fn delete(&self, actor: &str, gvr: &Gvr, object: &Value, options: &DeleteOptions) {
        if let Some((namespace, name)) = key(object) {
            let actor = Actor::new(actor);
            drop(
                self.cluster()
                    .delete(&actor, gvr, Some(namespace), name, options),
            );
        }
    }

    /// The objects of a kind. None if the kind does not exist yet.
    pub(crate) fn list(&self, gvr: &Gvr, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let page = self.cluster().list(gvr, namespace, &ListOptions::default());
        page.map(|page| page.items).unwrap_or_default()
    }
}

fn key(object: &Value) -> Option<(&str, &str)> {
    let meta = &object["metadata"];
    Some((meta["namespace"].as_str()?, meta["name"].as_str()?))
}

fn node(choice: u64) -> String {
    let mut nodes = objects::nodes();
    nodes.swap_remove(index(choice, nodes.len())).name
}

fn index(choice: u64, count: usize) -> usize {
    usize::try_from(choice % count.max(1) as u64).unwrap_or_default()
}
