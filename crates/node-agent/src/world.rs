//! The state of the agent: two stores, and the wipes and handlers of this process.

use std::sync::Arc;

use belayer_core::informer::{InformerState, Store, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Pod;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::decide::{PodState, Progress};
use crate::record::{Record, WipeRequest};

/// The index of records by namespace and name of their pod.
pub(crate) const BY_POD: &str = "pod";

/// The index of pods by UID.
pub(crate) const BY_UID: &str = "uid";

/// The pods of this node, the records, and the wipes that this process began.
pub(crate) struct World {
    /// Name of this node.
    pub(crate) node: String,
    pub(crate) pods: Store<Pod>,
    pub(crate) records: Store<Record>,
    memory: Mutex<Memory>,
    /// Notified after each change of a store that can change a decision.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Pods with a requested or started wipe, and the time of the request.
    wanted: HashMap<Uid, Since>,
    /// Refused wipes, by the pod name in the record: another record may still have the same pod wiped.
    refused: HashSet<(ObjectKey, Uid)>,
    /// Pods whose handlers succeeded.
    handled: HashSet<Uid>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    wanted: Instant,
    progress: Progress,
}

impl World {
    pub(crate) fn new(node: String, pods: Store<Pod>, records: Store<Record>) -> Self {
        Self {
            node,
            pods,
            records,
            memory: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// State of the pod with this UID according to the pods' store.
    pub(crate) fn pod_state(&self, key: &ObjectKey, uid: &Uid) -> PodState {
        match self.pods.by_index(BY_UID, uid.as_str()) {
            None => PodState::Unknown,
            Some(found) => {
                let pod = found.first().map(|pod| &**pod);
                PodState::of(pod, key, uid, &self.node)
            }
        }
    }

    /// The records of a pod name; `None` if the store is not synced. Empty if the API server does not serve
    /// the kind.
    pub(crate) fn records_of(&self, pod: &ObjectKey) -> Option<Vec<Stored<Record>>> {
        match self.records.by_index(BY_POD, &pod.to_string()) {
            Some(records) => Some(records),
            None if self.records.state() == InformerState::NotServed => Some(Vec::new()),
            None => None,
        }
    }

    /// What the records request for a pod, and the requesting record.
    pub(crate) fn wipe_request(
        &self,
        pod: &ObjectKey,
        uid: &Uid,
    ) -> (WipeRequest, Option<Arc<Record>>) {
        let records = self.records_of(pod).unwrap_or_default();
        let asking = records
            .into_iter()
            .map(|record| (record.wipe_request_for(&self.node, uid), record))
            .find(|(request, _)| *request != WipeRequest::None);
        match asking {
            Some((request, record)) => (request, Some(record.object)),
            None => (WipeRequest::None, None),
        }
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
        let since = Since {
            wanted: Instant::now(),
            progress: Progress::None,
        };
        let mut memory = self.memory.lock();
        memory.wanted.entry(uid.clone()).or_insert(since);
        Self::publish(&memory);
    }

    /// Notes that a wipe begins.
    pub(crate) fn begin(&self, uid: &Uid) {
        self.request_wipe(uid);
        if let Some(since) = self.memory.lock().wanted.get_mut(uid) {
            since.progress = Progress::Begun;
        }
    }

    /// Whether this process began the wipe of the pod.
    pub(crate) fn progress(&self, uid: &Uid) -> Progress {
        let memory = self.memory.lock();
        let since = memory.wanted.get(uid);
        since.map_or(Progress::None, |since| since.progress)
    }

    /// Removes a wipe; returns when it was first requested.
    pub(crate) fn end(&self, uid: &Uid) -> Option<Instant> {
        let mut memory = self.memory.lock();
        let since = memory.wanted.remove(uid);
        Self::publish(&memory);
        since.map(|since| since.wanted)
    }

    /// Notes that the wipe of a pod was refused.
    pub(crate) fn refuse(&self, key: &ObjectKey, uid: &Uid) {
        let refused = (key.clone(), uid.clone());
        self.memory.lock().refused.insert(refused);
    }

    /// Whether the wipe of a pod was refused.
    pub(crate) fn is_refused(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let refused = (key.clone(), uid.clone());
        self.memory.lock().refused.contains(&refused)
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
        let mut memory = self.memory.lock();
        memory.handled.remove(uid);
        memory.refused.retain(|(_, refused)| refused != uid);
    }

    fn publish(memory: &Memory) {
        let pending = u32::try_from(memory.wanted.len()).unwrap_or(u32::MAX);
        metrics::gauge!(belayer_metrics::WIPES_PENDING).set(f64::from(pending));
    }
}
