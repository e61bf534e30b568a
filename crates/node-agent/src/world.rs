//! The state of the agent: its stores, and the wipes and handlers of this process.

use belayer_core::informer::{InformerState, Lookup, Store, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Pod;
use belayer_holds::node_wipe::{NodeWipe, Report};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::decide::{State, WipeRequest, asks, state};

/// The list of wipes of this node, the pods of this node if there are handlers, and what this process has done.
pub(crate) struct World {
    /// Name of this node.
    pub(crate) node: String,
    /// Only if handlers are configured: wiping needs no pod.
    pub(crate) pods: Option<Store<Pod>>,
    pub(crate) wipes: Store<NodeWipe>,
    memory: Mutex<Memory>,
    /// Notified after each change of a store that can change a decision.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Pods with a requested wipe, and when this process first saw the request.
    wanted: HashMap<Uid, Instant>,
    /// Pods whose handlers succeeded.
    handled: HashSet<Uid>,
}

impl World {
    pub(crate) fn new(node: String, pods: Option<Store<Pod>>, wipes: Store<NodeWipe>) -> Self {
        Self {
            node,
            pods,
            wipes,
            memory: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// The pod of a name; absent if pods are not watched.
    pub(crate) fn pod(&self, key: &ObjectKey) -> Lookup<Pod> {
        match &self.pods {
            Some(pods) => pods.lookup(key),
            None => Lookup::Absent,
        }
    }

    /// Whether the store has this pod, rejected and asking for a wipe.
    pub(crate) fn request_follows(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let pod = self.pod(key).found();
        pod.is_some_and(|pod| pod.meta.uid == *uid && asks(&pod) && state(&pod) == State::Rejected)
    }

    fn list(&self) -> Lookup<NodeWipe> {
        // A kind that was served before may be served again, with the same list.
        if self.wipes.state() == InformerState::NotServed && self.wipes.is_empty() {
            return Lookup::Absent;
        }
        self.wipes.lookup(&ObjectKey::cluster(self.node.as_str()))
    }

    /// The list of this node, if there is one.
    pub(crate) fn stored_list(&self) -> Option<Stored<NodeWipe>> {
        self.list().found()
    }

    /// The entries of a pod name; `None` if the store is not synced.
    pub(crate) fn requests_of(&self, pod: &ObjectKey) -> Option<Vec<(Uid, WipeRequest)>> {
        match self.list() {
            Lookup::Unknown => None,
            Lookup::Absent => Some(Vec::new()),
            Lookup::Found(list) => {
                let of_pod = list.wipes.iter().filter(|(_, wipe)| wipe.pod == *pod);
                Some(
                    of_pod
                        .map(|(uid, _)| (uid.clone(), request(&list, uid)))
                        .collect(),
                )
            }
        }
    }

    /// What is requested for a pod.
    pub(crate) fn wipe_request(&self, uid: &Uid) -> WipeRequest {
        match self.list() {
            Lookup::Unknown => WipeRequest::Unknown,
            Lookup::Absent => WipeRequest::None,
            Lookup::Found(list) => request(&list, uid),
        }
    }

    /// The last report about a pod that the store has.
    pub(crate) fn last_report(&self, uid: &Uid) -> Option<Report> {
        self.stored_list()?.wipes.get(uid)?.report.clone()
    }

    /// Subscribes to changes of the stores.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Notifies the subscribers of a change.
    pub(crate) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// Notes that a wipe is requested.
    pub(crate) fn request_wipe(&self, uid: &Uid) {
        let mut memory = self.memory.lock();
        memory
            .wanted
            .entry(uid.clone())
            .or_insert_with(Instant::now);
    }

    /// Removes a wipe; returns when it was first requested.
    pub(crate) fn end(&self, uid: &Uid) -> Option<Instant> {
        self.memory.lock().wanted.remove(uid)
    }

    /// Notes that the handlers of a pod succeeded.
    pub(crate) fn handled(&self, uid: &Uid) {
        self.memory.lock().handled.insert(uid.clone());
    }

    /// Whether the handlers of a pod succeeded.
    pub(crate) fn is_handled(&self, uid: &Uid) -> bool {
        self.memory.lock().handled.contains(uid)
    }

    /// Drops everything about a pod that is deleted.
    pub(crate) fn drop_pod(&self, uid: &Uid) {
        self.memory.lock().handled.remove(uid);
    }
}

/// What a list requests for a pod.
pub(crate) fn request(list: &NodeWipe, uid: &Uid) -> WipeRequest {
    match list.wipes.get(uid) {
        None => WipeRequest::None,
        Some(wipe) if wipe.is_done() => WipeRequest::Done,
        Some(_) => WipeRequest::Wanted,
    }
}
