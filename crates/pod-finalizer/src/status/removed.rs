//! Pods that do not exist any more, of which a live read has yet to show whether their result was read.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use belayer_core::informer::Stored;
use belayer_core::logical_time::LogicalTime;
use belayer_core::slim::Pod;

use super::{NodeRef, StatusQuery};

/// Maximum number of pods that are stored.
const MAX: usize = 10_000;

/// One such pod.
#[derive(Debug, Clone)]
pub(crate) struct RemovedPod {
    /// Its last version.
    pub(crate) pod: Stored<Pod>,
    /// The profile that selected it.
    pub(crate) profile: Arc<str>,
    /// Its node in its owner's status.
    pub(crate) node: NodeRef,
    /// The query for that status.
    pub(crate) query: StatusQuery,
    /// When its deletion was seen: by the order of events, the wall clock, and the monotonic clock.
    pub(crate) gone: LogicalTime,
    pub(crate) at: Timestamp,
    pub(crate) since: Instant,
}

/// All of them. A live read for one of them keeps its node, although the store of pods does not have the pod any more.
/// Cheap to clone; the clones are one list. The [module's example](crate::status) is what a user can
/// configure in its place.
#[derive(Debug, Clone, Default)]
pub struct RemovedPods(Arc<Mutex<VecDeque<RemovedPod>>>);

impl RemovedPods {
    /// Stores a pod. If there are too many, returns the oldest, which is removed.
    pub(crate) fn add(&self, pod: RemovedPod) -> Option<RemovedPod> {
        let mut pods = self.0.lock();
        let oldest = (pods.len() >= MAX).then(|| pods.pop_front()).flatten();
        pods.push_back(pod);
        oldest
    }

    /// Removes those for which `waits` returns false.
    pub(crate) fn retain(&self, waits: impl FnMut(&RemovedPod) -> bool) {
        self.0.lock().retain(waits);
    }

    /// The nodes of those that wait for the answer to `query`.
    pub(super) fn nodes(&self, query: &StatusQuery) -> Vec<NodeRef> {
        let pods = self.0.lock();
        let waiting = pods.iter().filter(|pod| pod.query == *query);
        waiting.map(|pod| pod.node.clone()).collect()
    }
}
