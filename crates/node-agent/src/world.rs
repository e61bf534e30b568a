//! What the agent knows: two stores, and what it has begun.

use std::sync::Arc;

use belayer_core::informer::{InformerState, Store, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Pod;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::decide::{Progress, Sight};
use crate::record::{Record, Wish};

/// The index of records by their pod's namespace and name.
pub(crate) const BY_POD: &str = "pod";

/// The index of pods by UID.
pub(crate) const BY_UID: &str = "uid";

/// The pods of this node, the records, and what was begun.
pub(crate) struct World {
    /// Name of this node.
    pub(crate) node: String,
    pub(crate) pods: Store<Pod>,
    pub(crate) records: Store<Record>,
    memory: Mutex<Memory>,
    /// Told whenever a store has said something that matters.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Pods whose wipe has begun, or is known to be wanted, and since when.
    wanted: HashMap<Uid, Since>,
    /// Pods that are not wiped although a record asks for it, by the name that it gives them: what one
    /// record may not have wiped, another may.
    refused: HashSet<(ObjectKey, Uid)>,
    /// Pods whose handlers have ended well.
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

    /// What the pods' store shows of a pod, looked up by its UID.
    pub(crate) fn sight(&self, key: &ObjectKey, uid: &Uid) -> Sight {
        match self.pods.by_index(BY_UID, uid.as_str()) {
            None => Sight::Unknown,
            Some(found) => {
                let pod = found.first().map(|pod| &**pod);
                Sight::of(pod, key, uid, &self.node)
            }
        }
    }

    /// The records of a pod's name; nothing while that is not known. Where the kind is not served there
    /// are none.
    pub(crate) fn records_of(&self, pod: &ObjectKey) -> Option<Vec<Stored<Record>>> {
        match self.records.by_index(BY_POD, &pod.to_string()) {
            Some(records) => Some(records),
            None if self.records.state() == InformerState::NotServed => Some(Vec::new()),
            None => None,
        }
    }

    /// What the records say about a pod, and which.
    pub(crate) fn wish(&self, pod: &ObjectKey, uid: &Uid) -> (Wish, Option<Arc<Record>>) {
        let records = self.records_of(pod).unwrap_or_default();
        let asking = records
            .into_iter()
            .map(|record| (record.wish_for(&self.node, uid), record))
            .find(|(wish, _)| *wish != Wish::None);
        match asking {
            Some((wish, record)) => (wish, Some(record.object)),
            None => (Wish::None, None),
        }
    }

    /// Follows what the stores say.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A store has said something.
    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// A wipe is wanted, as far as is known.
    pub(crate) fn want(&self, uid: &Uid) {
        let since = Since {
            wanted: Instant::now(),
            progress: Progress::None,
        };
        let mut memory = self.memory.lock();
        memory.wanted.entry(uid.clone()).or_insert(since);
        Self::publish(&memory);
    }

    /// A wipe begins.
    pub(crate) fn begin(&self, uid: &Uid) {
        self.want(uid);
        if let Some(since) = self.memory.lock().wanted.get_mut(uid) {
            since.progress = Progress::Begun;
        }
    }

    /// Whether a wipe has begun.
    pub(crate) fn progress(&self, uid: &Uid) -> Progress {
        let memory = self.memory.lock();
        let since = memory.wanted.get(uid);
        since.map_or(Progress::None, |since| since.progress)
    }

    /// A wipe has come to its end. When it was first wanted.
    pub(crate) fn end(&self, uid: &Uid) -> Option<Instant> {
        let mut memory = self.memory.lock();
        let since = memory.wanted.remove(uid);
        Self::publish(&memory);
        since.map(|since| since.wanted)
    }

    /// A pod is not wiped although a record asks for it.
    pub(crate) fn refuse(&self, key: &ObjectKey, uid: &Uid) {
        let refused = (key.clone(), uid.clone());
        self.memory.lock().refused.insert(refused);
    }

    /// Whether it was decided that a pod is not wiped.
    pub(crate) fn is_refused(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let refused = (key.clone(), uid.clone());
        self.memory.lock().refused.contains(&refused)
    }

    /// A pod's handlers have ended well.
    pub(crate) fn handled(&self, uid: &Uid) {
        self.memory.lock().handled.insert(uid.clone());
    }

    /// Whether they have.
    pub(crate) fn is_handled(&self, uid: &Uid) -> bool {
        self.memory.lock().handled.contains(uid)
    }

    /// A pod is gone from the API: nothing about it needs to be known any more.
    pub(crate) fn forget(&self, uid: &Uid) {
        let mut memory = self.memory.lock();
        memory.handled.remove(uid);
        memory.refused.retain(|(_, refused)| refused != uid);
    }

    fn publish(memory: &Memory) {
        let pending = u32::try_from(memory.wanted.len()).unwrap_or(u32::MAX);
        metrics::gauge!(belayer_metrics::WIPES_PENDING).set(f64::from(pending));
    }
}
