//! Pod GC: ends pods that no kubelet can end.
//!
//! Pods bound to a node that no longer exists get phase `Failed`, whatever their container statuses
//! say, and are deleted; so are terminating pods that were never bound. Above a threshold, ended pods
//! are deleted, the oldest first.
//!
//! It runs in the [example](crate::simulated).

mod decide;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use self::decide::{Binding, PodGcStep, decide};
use super::agenda::Agenda;
use super::driver::{Change, Controller, Interest, Progress};
use super::{object, pods};
use crate::address::{Actor, Gvr};
use crate::cluster::Cluster;
use crate::error::ApiError;

/// The actor name of pod GC.
pub const ACTOR: &str = "pod-gc";

/// Settings of pod GC. An argument of
/// [`SimulatedControllers::pod_gc`](crate::simulated::SimulatedControllers::pod_gc); the
/// [example](crate::simulated) keeps the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodGcConfig {
    /// How long a node has to be missing before its pods are failed and deleted.
    pub quarantine: Duration,
    /// How many ended pods may stay; `None` for no limit.
    pub terminated_threshold: Option<usize>,
}

impl Default for PodGcConfig {
    /// The defaults of kube-controller-manager: 40 seconds, 12,500 pods.
    fn default() -> Self {
        Self {
            quarantine: Duration::from_secs(40),
            terminated_threshold: Some(12_500),
        }
    }
}

type Uid = Arc<str>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(Uid),
    Node(String),
    Threshold,
}

pub(crate) struct PodGc {
    cluster: Cluster,
    actor: Actor,
    config: PodGcConfig,
    nodes: BTreeSet<String>,
    missing: BTreeMap<String, Instant>,
    pods: BTreeMap<Uid, Arc<Value>>,
    bound: BTreeMap<String, BTreeSet<Uid>>,
    /// Ended and not being deleted, the oldest first.
    ended: BTreeSet<(String, Uid)>,
    agenda: Agenda<Key>,
}

impl PodGc {
    pub(crate) fn new(cluster: Cluster, config: PodGcConfig) -> Self {
        Self {
            cluster,
            actor: Actor::new(ACTOR),
            config,
            nodes: BTreeSet::new(),
            missing: BTreeMap::new(),
            pods: BTreeMap::new(),
            bound: BTreeMap::new(),
            ended: BTreeSet::new(),
            agenda: Agenda::default(),
        }
    }

    fn observe_node(&mut self, change: &Change, now: Instant) {
        match change {
            Change::Upserted(node) => {
                let name = object::name(node).to_owned();
                self.missing.remove(&name);
                self.nodes.insert(name);
            }
            Change::Removed(node) => {
                let name = object::name(node);
                self.nodes.remove(name);
                if self.bound.contains_key(name) {
                    self.miss(name, now);
                }
            }
        }
    }

    fn miss(&mut self, node: &str, now: Instant) {
        if !self.missing.contains_key(node) {
            self.missing.insert(node.to_owned(), now);
            self.agenda
                .add_at(Key::Node(node.to_owned()), now + self.config.quarantine);
        }
    }

    fn observe_pod(&mut self, pod: &Arc<Value>, now: Instant) {
        let uid: Uid = object::uid(pod).into();
        self.remove_pod(&uid);
        if let Some(node) = object::text(pod, "/spec/nodeName") {
            self.bound
                .entry(node.to_owned())
                .or_default()
                .insert(Arc::clone(&uid));
            if !self.nodes.contains(node) {
                self.miss(node, now);
            }
        }
        if object::is_ended(pod) && !object::is_deleting(pod) {
            self.ended.insert((created(pod), Arc::clone(&uid)));
            if self
                .config
                .terminated_threshold
                .is_some_and(|most| self.ended.len() > most)
            {
                self.agenda.add(Key::Threshold);
            }
        }
        self.pods.insert(Arc::clone(&uid), Arc::clone(pod));
        if self.decide(&uid, now) != PodGcStep::Nothing {
            self.agenda.add(Key::Pod(uid));
        }
    }

    fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else {
            return;
        };
        self.ended.remove(&(created(&pod), uid.into()));
        let Some(node) = object::text(&pod, "/spec/nodeName") else {
            return;
        };
        if let Some(uids) = self.bound.get_mut(node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.bound.remove(node);
            }
        }
    }

    fn decide(&self, uid: &str, now: Instant) -> PodGcStep {
        let Some(pod) = self.pods.get(uid) else {
            return PodGcStep::Nothing;
        };
        let binding = match object::text(pod, "/spec/nodeName") {
            None => Binding::Unbound,
            Some(node) => match self.missing.get(node) {
                Some(since) if *since + self.config.quarantine <= now => Binding::NodeGone,
                _ => Binding::Node,
            },
        };
        decide(pod, binding)
    }

    fn process_node(&mut self, node: &str, now: Instant) {
        let Some(since) = self.missing.get(node) else {
            return;
        };
        let due = *since + self.config.quarantine;
        if due > now {
            self.agenda.add_at(Key::Node(node.to_owned()), due);
            return;
        }
        match self.bound.get(node) {
            Some(uids) => uids
                .iter()
                .for_each(|uid| self.agenda.add(Key::Pod(Arc::clone(uid)))),
            None => {
                self.missing.remove(node);
            }
        }
    }

    fn process_pod(&self, uid: &str, now: Instant) -> Result<(), ApiError> {
        let Some(pod) = self.pods.get(uid) else {
            return Ok(());
        };
        match self.decide(uid, now) {
            PodGcStep::Nothing => Ok(()),
            PodGcStep::Fail(condition) => {
                let mut status = json!({"phase": "Failed"});
                if let Some(mut condition) = condition {
                    condition["lastTransitionTime"] = json!(self.cluster.clock().now_rfc3339());
                    status["conditions"] = json!([condition]);
                }
                pods::patch_status(&self.cluster, &self.actor, pod, &status)
            }
            PodGcStep::Remove => pods::remove(&self.cluster, &self.actor, pod),
        }
    }

    /// Deletes the oldest ended pod above the threshold.
    fn delete_oldest(&mut self) -> Result<(), ApiError> {
        let most = self.config.terminated_threshold.unwrap_or(usize::MAX);
        if self.ended.len() <= most {
            return Ok(());
        }
        let oldest = self.ended.first().and_then(|(_, uid)| self.pods.get(uid));
        if let Some(pod) = oldest.map(Arc::clone) {
            pods::remove(&self.cluster, &self.actor, &pod)?;
            self.agenda.add(Key::Threshold);
        }
        Ok(())
    }
}

fn created(pod: &Value) -> String {
    object::text(pod, "/metadata/creationTimestamp")
        .unwrap_or_default()
        .to_owned()
}

impl Controller for PodGc {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::NODES, Gvr::PODS])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, now: Instant) {
        match change {
            change if *gvr == Gvr::NODES => self.observe_node(change, now),
            Change::Upserted(pod) => self.observe_pod(pod, now),
            Change::Removed(pod) => self.remove_pod(object::uid(pod)),
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        let Some(key) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        let done = match &key {
            Key::Pod(uid) => self.process_pod(uid, now),
            Key::Node(node) => {
                self.process_node(node, now);
                Ok(())
            }
            Key::Threshold => self.delete_oldest(),
        };
        match done {
            Ok(()) => self.agenda.succeeded(&key),
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, ?key, "pod GC will retry");
                self.agenda.retry(key, now);
            }
        }
        Progress::Worked
    }
}
