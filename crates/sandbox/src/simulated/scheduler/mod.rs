//! The scheduler: binds pods to nodes.
//!
//! It chooses the least loaded node that is ready, matches the pod's node selector and has room for
//! its requests. A pod whose PVC is missing or being deleted waits. Pods with another scheduler name
//! and pods with scheduling gates are ignored.
//!
//! It binds the pod of the [example](crate::simulated).

mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use self::place::{NodeView, PvcState, Refusal, Requirements, place};
use super::agenda::Agenda;
use super::driver::{Change, Controller, Interest, Progress};
use super::quantity::Amount;
use super::{object, pods};
use crate::address::{Actor, Gvr};
use crate::cluster::{Cluster, WriteOptions};
use crate::error::ApiError;

/// The actor name of the scheduler.
pub const ACTOR: &str = "scheduler";

const NAME: &str = "default-scheduler";

type Uid = Arc<str>;
/// Namespace and name.
type PvcKey = (String, String);

/// A pod without a node.
struct Pending {
    pod: Arc<Value>,
    wants: Requirements,
    /// Pods of one shape fit the same nodes: when one does not fit, the others need not be tried.
    shape: String,
    /// Order of arrival.
    arrival: u64,
}

pub(crate) struct Scheduler {
    cluster: Cluster,
    actor: Actor,
    nodes: BTreeMap<String, NodeView>,
    /// What the pods on each node use, also for nodes that do not exist (yet).
    used: BTreeMap<String, Amount>,
    bound: BTreeMap<Uid, (String, Amount)>,
    pvcs: BTreeMap<PvcKey, PvcState>,
    pending: BTreeMap<Uid, Pending>,
    arrivals: u64,
    /// Pods that wait for room, by shape, in order of arrival.
    waiting_for_room: BTreeMap<String, BTreeMap<u64, Uid>>,
    want_pvc: BTreeMap<PvcKey, BTreeSet<Uid>>,
    agenda: Agenda<Uid>,
}

impl Scheduler {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            actor: Actor::new(ACTOR),
            nodes: BTreeMap::new(),
            used: BTreeMap::new(),
            bound: BTreeMap::new(),
            pvcs: BTreeMap::new(),
            pending: BTreeMap::new(),
            arrivals: 0,
            waiting_for_room: BTreeMap::new(),
            want_pvc: BTreeMap::new(),
            agenda: Agenda::default(),
        }
    }

    fn observe_node(&mut self, change: &Change) {
        match change {
            Change::Upserted(node) => {
                let name = object::name(node).to_owned();
                let used = self.used.get(&name).copied().unwrap_or_default();
                let view = NodeView::read(node, used);
                if self.nodes.get(&name) != Some(&view) {
                    self.nodes.insert(name, view);
                    self.room_changed();
                }
            }
            Change::Removed(node) => {
                self.nodes.remove(object::name(node));
            }
        }
    }

    fn observe_pvc(&mut self, change: &Change) {
        let (Change::Upserted(pvc) | Change::Removed(pvc)) = change;
        let key = pvc_key(pvc, object::name(pvc));
        match change {
            Change::Removed(_) => self.pvcs.remove(&key),
            Change::Upserted(pvc) if object::is_deleting(pvc) => {
                self.pvcs.insert(key.clone(), PvcState::BeingDeleted)
            }
            Change::Upserted(_) => self.pvcs.insert(key.clone(), PvcState::Usable),
        };
        for uid in self.want_pvc.remove(&key).unwrap_or_default() {
            self.agenda.add(uid);
        }
    }

    fn observe_pod(&mut self, pod: &Arc<Value>) {
        let uid: Uid = object::uid(pod).into();
        if let Some(node) = object::text(pod, "/spec/nodeName") {
            self.remove_pending(&uid);
            if object::is_ended(pod) {
                self.give_back(&uid);
            } else if !self.bound.contains_key(&uid) {
                self.charge(uid, node.to_owned(), Amount::requested_by(pod));
            }
            return;
        }
        let gated = !object::items(pod, "/spec/schedulingGates").is_empty();
        let is_for_this = object::text(pod, "/spec/schedulerName").is_none_or(|name| name == NAME);
        if gated || !is_for_this || object::is_deleting(pod) || object::is_ended(pod) {
            self.remove_pending(&uid);
            return;
        }
        if let Some(pending) = self.pending.get_mut(&uid) {
            pending.pod = Arc::clone(pod);
            return;
        }
        let wants = Requirements::read(pod);
        self.arrivals += 1;
        let shape = format!("{:?} {:?}", wants.need, wants.selector);
        let pending = Pending {
            pod: Arc::clone(pod),
            wants,
            shape,
            arrival: self.arrivals,
        };
        self.pending.insert(Arc::clone(&uid), pending);
        self.agenda.add(uid);
    }

    fn remove_pod(&mut self, uid: &Uid) {
        self.remove_pending(uid);
        self.give_back(uid);
        self.agenda.succeeded(uid);
    }

    fn remove_pending(&mut self, uid: &Uid) {
        let Some(pending) = self.pending.remove(uid) else {
            return;
        };
        if let Some(waiting) = self.waiting_for_room.get_mut(&pending.shape) {
            waiting.remove(&pending.arrival);
            if waiting.is_empty() {
                self.waiting_for_room.remove(&pending.shape);
            }
        }
        for pvc in &pending.wants.pvcs {
            let key = pvc_key(&pending.pod, pvc);
            if let Some(waiting) = self.want_pvc.get_mut(&key) {
                waiting.remove(uid);
                if waiting.is_empty() {
                    self.want_pvc.remove(&key);
                }
            }
        }
        // The pod may have been queued without being bound: queue the next of its shape.
        self.queue_next(&pending.shape);
    }

    fn charge(&mut self, uid: Uid, node: String, need: Amount) {
        let used = self.used.entry(node.clone()).or_default();
        *used += need;
        if let Some(view) = self.nodes.get_mut(&node) {
            view.used = *used;
        }
        self.bound.insert(uid, (node, need));
    }

    fn give_back(&mut self, uid: &Uid) {
        let Some((node, need)) = self.bound.remove(uid) else {
            return;
        };
        let Some(used) = self.used.get_mut(&node) else {
            return;
        };
        *used = *used - need;
        let left = *used;
        if left.pods == 0 {
            self.used.remove(&node);
        }
        if let Some(view) = self.nodes.get_mut(&node) {
            view.used = left;
            self.room_changed();
        }
    }

    /// Tries the first pod of every shape; if it fits, the next one is tried.
    fn room_changed(&mut self) {
        for waiting in self.waiting_for_room.values() {
            if let Some(uid) = waiting.values().next() {
                self.agenda.add(Arc::clone(uid));
            }
        }
    }

    fn queue_next(&mut self, shape: &str) {
        if let Some(uid) = self
            .waiting_for_room
            .get(shape)
            .and_then(|waiting| waiting.values().next())
        {
            self.agenda.add(Arc::clone(uid));
        }
    }

    fn process(&mut self, uid: &Uid) -> Result<(), ApiError> {
        let Some(pending) = self.pending.get(uid) else {
            return Ok(());
        };
        let pvc = |name: &str| {
            let state = self.pvcs.get(&pvc_key(&pending.pod, name));
            state.copied().unwrap_or(PvcState::Absent)
        };
        let refusal = match place(&pending.wants, &self.nodes, pvc) {
            Ok(node) => return self.bind(&pending.pod, node),
            Err(refusal) => refusal,
        };
        self.write_condition(&pending.pod, &refusal)?;
        match refusal {
            Refusal::Pvc { name, .. } => {
                let key = pvc_key(&pending.pod, &name);
                self.want_pvc
                    .entry(key)
                    .or_default()
                    .insert(Arc::clone(uid));
            }
            Refusal::Nodes { .. } => {
                let waiting = self
                    .waiting_for_room
                    .entry(pending.shape.clone())
                    .or_default();
                waiting.insert(pending.arrival, Arc::clone(uid));
            }
        }
        Ok(())
    }

    fn bind(&self, pod: &Value, node: &str) -> Result<(), ApiError> {
        let namespace = object::namespace(pod).unwrap_or_default();
        let options = WriteOptions::default();
        self.cluster
            .bind(&self.actor, namespace, object::name(pod), node, &options)
            .map(drop)
    }

    /// Writes the reason to the `PodScheduled` condition, unless it is there already.
    fn write_condition(&self, pod: &Value, refusal: &Refusal) -> Result<(), ApiError> {
        let reported = object::items(pod, "/status/conditions")
            .iter()
            .any(|condition| {
                object::text(condition, "/type") == Some("PodScheduled")
                    && object::text(condition, "/message") == Some(refusal.message())
            });
        if reported {
            return Ok(());
        }
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": refusal.message(),
            "lastTransitionTime": self.cluster.clock().now_rfc3339(),
        });
        let status = json!({"conditions": [condition]});
        pods::patch_status(&self.cluster, &self.actor, pod, &status)
    }
}

fn pvc_key(neighbour: &Value, pvc: &str) -> PvcKey {
    (
        object::namespace(neighbour).unwrap_or_default().to_owned(),
        pvc.to_owned(),
    )
}

impl Controller for Scheduler {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::NODES, Gvr::PODS, Gvr::PERSISTENTVOLUMECLAIMS])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, _: Instant) {
        match change {
            change if *gvr == Gvr::NODES => self.observe_node(change),
            change if *gvr == Gvr::PERSISTENTVOLUMECLAIMS => self.observe_pvc(change),
            Change::Upserted(pod) => self.observe_pod(pod),
            Change::Removed(pod) => self.remove_pod(&object::uid(pod).into()),
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        let Some(uid) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        match self.process(&uid) {
            Ok(()) => self.agenda.succeeded(&uid),
            // Gone, being deleted, or bound by another client: the log has an event for it.
            Err(error) if matches!(error.code, 404 | 409) => {}
            Err(error) => {
                tracing::debug!(%error, uid = %uid, "scheduling will be retried");
                self.agenda.retry(uid, now);
            }
        }
        Progress::Worked
    }
}
