//! Counts pods that were deleted before they could be held, or before their result was read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belayer_core::clock;
use belayer_core::informer::Stored;
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::queries::{LiveAnswer, Waiter};
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::runner;
use belayer_holds::view::View;
use hashbrown::HashSet;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::PodFinalizer;
use super::observe::held;
use crate::NAME;
use crate::argo::{self, Ending};
use crate::decide::{is_awaited, is_missed, unread};
use crate::evidence::Consumption;
use crate::profile::Mode;
use crate::snapshot::{CachedOwner, NodeView, Selection};
use crate::status::{RemovedPod, StatusState};

/// A pod of a profile in observe mode that was deleted before its result was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
    /// The profile that selected it.
    pub profile: Arc<str>,
    /// When its deletion was seen.
    pub at: Timestamp,
}

/// What pod-finalizer has counted since the start of the process. A reload of the configuration keeps it.
#[derive(Debug, Default)]
pub struct Counted {
    /// The pods that were counted as undecided.
    pub(super) undecided: Mutex<HashSet<Uid>>,
    /// Pods of profiles in observe mode that were deleted before their result was read.
    lost: AtomicU64,
    /// The latest of them.
    latest_lost: Mutex<VecDeque<Lost>>,
}

/// Maximum number of lost pods that are stored by name.
const LOST_REMEMBERED: usize = 1_000;

/// How long a live read of the status of a deleted pod's owner may take. Then the pod is undecided.
const READ_WITHIN: Duration = Duration::from_secs(600);

impl<V: View> PodFinalizer<V> {
    /// Counts, once, a held pod of which it is unknown whether its deletion ended it: the version that shows that was
    /// missed. The runner observes pods only in the leader, so that standbys count nothing.
    pub(super) fn count_undecided(&self, pod: &Stored<Pod>) {
        let meta = &pod.object.meta;
        let undecided = held(meta)
            && argo::is_of_workflow(meta)
            && Ending::of(&pod.object) == Ending::Held(argo::Held::Undecided);
        if undecided && self.parts.counted.undecided.lock().insert(meta.uid.clone()) {
            let mode = match self.selection(meta) {
                Selection::By { profile, .. } => profile.mode,
                Selection::None | Selection::Ignored => Mode::Enforce,
            };
            runner::count_unread(runner::UNDECIDED, mode.as_str(), &meta.key);
        }
    }
}

impl PodFinalizer {
    /// How many pods of profiles in observe mode were deleted before their result was read, since the start
    /// of the process. Such losses are the reason to switch a profile to enforce.
    pub fn observed_losses(&self) -> u64 {
        self.parts.counted.lost.load(Ordering::Relaxed)
    }

    /// The latest of them, the oldest first.
    pub fn latest_losses(&self) -> Vec<Lost> {
        let latest = self.parts.counted.latest_lost.lock();
        latest.iter().cloned().collect()
    }

    /// Counts a pod whose deletion began before it was held (rule 14). Only the leader counts: it alone adds holds.
    pub(super) fn count_missed(&self, pod: &Stored<Pod>) {
        let may_count = self.may_hold.load(Ordering::Acquire);
        let uid = &pod.object.meta.uid;
        if !may_count || self.maybe_released.lock().contains(uid) {
            return;
        }
        if is_missed(&self.view(pod), clock::now()) {
            tracing::debug!(pod = %pod.object.meta.key, "deleted before it could be held");
            metrics::counter!(belayer_metrics::MISSED_HOLDS, "controller" => NAME).increment(1);
        }
    }

    /// Observe mode: considers a pod that is gone although its result was still required. Whether it was read is known only
    /// after a live read of its owner's status: see [`Self::settle_losses`]. Only the leader counts.
    pub(super) fn count_lost(&self, pod: &Stored<Pod>) {
        if !self.may_hold.load(Ordering::Acquire) {
            return;
        }
        let view = self.view(pod);
        let Selection::By {
            profile,
            consumed: false,
        } = &view.selection
        else {
            return;
        };
        if profile.mode != Mode::Observe || !is_awaited(&view) {
            return;
        }
        let meta = &pod.object.meta;
        if let Some(evidence) = unread(&view) {
            tracing::info!(pod = %meta.key, uid = %meta.uid, evidence, "pod was deleted without a result");
            return runner::count_unread(evidence, "observe", &meta.key);
        }
        let (profile, at) = (profile.name.clone(), clock::now());
        let Some(NodeView { node, query, .. }) = view.node else {
            return self.lost(meta, profile, at);
        };
        let oldest = self.parts.removed.add(RemovedPod {
            pod: pod.clone(),
            profile,
            node,
            query,
            gone: LogicalTime::now(),
            at,
            since: Instant::now(),
        });
        if let Some(oldest) = oldest {
            undecided(&oldest, "too many pods were deleted at once");
        }
    }

    /// Counts the pods that are gone as lost or undecided, once a live read of their owner's status that began after
    /// their deletion shows that. Argo deletes pods without a label once its status has their result.
    ///
    /// The consumer may read the result of a deleted pod from its cache: the count is an upper bound.
    pub(crate) fn settle_losses(&self) {
        self.parts
            .removed
            .retain(|removed| !self.is_settled(removed));
    }

    fn is_settled(&self, removed: &RemovedPod) -> bool {
        let RemovedPod {
            pod, node, query, ..
        } = removed;
        let meta = &pod.object.meta;
        let answer = self.parts.status_queries.get(query);
        // Without the time of its creation: of a node that was given up because its pod was gone, nothing was read.
        let is_read = |answer: &LiveAnswer<StatusState>| {
            let pod_seen = pod.first_seen;
            Consumption::prove_node_fulfilled(answer, node, (&meta.uid, None), pod_seen).is_some()
        };
        if answer.as_ref().is_some_and(is_read) {
            return true;
        }
        // Reading it takes a second of CPU time, and a status rarely becomes smaller: an earlier answer is enough.
        if let Some(StatusState::TooLarge(why)) = answer.as_ref().map(LiveAnswer::answer) {
            undecided(removed, why);
            return true;
        }
        let current = answer.filter(|answer| answer.begun() > removed.gone);
        match current.as_ref().map(LiveAnswer::answer) {
            Some(StatusState::Read(nodes)) if nodes.covers(node) => {
                self.lost(meta, removed.profile.clone(), removed.at);
            }
            // It was deleted with its owner.
            Some(StatusState::Offloaded(_) | StatusState::Unreadable(_))
                if self.is_owner_leaving(removed) => {}
            Some(StatusState::Offloaded(why) | StatusState::Unreadable(why)) => {
                undecided(removed, why);
            }
            _ if removed.since.elapsed() >= READ_WITHIN => {
                undecided(removed, "the status of its owner could not be read in time");
            }
            _ => {
                let waiter = Waiter::now(&meta.key);
                self.parts.status_queries.ask(query.clone(), waiter);
                return false;
            }
        }
        true
    }

    /// Whether the cache shows that the owner of the pod is gone or being deleted.
    fn is_owner_leaving(&self, removed: &RemovedPod) -> bool {
        let meta = &removed.pod.object.meta;
        let Some(owner) = &meta.controller else {
            return true;
        };
        match self
            .owner_view(meta, owner, removed.query.resource())
            .cached
        {
            CachedOwner::Present(owner) => owner.is_deleting(),
            CachedOwner::Absent => true,
            CachedOwner::Unknown => false,
        }
    }

    fn lost(&self, pod: &ObjectMeta, profile: Arc<str>, at: Timestamp) {
        tracing::info!(
            pod = %pod.key,
            uid = %pod.uid,
            profile = %profile,
            "the pod was deleted before its result was read"
        );
        metrics::counter!(belayer_metrics::OBSERVED_LOSSES, "controller" => NAME).increment(1);
        let counted = &self.parts.counted;
        counted.lost.fetch_add(1, Ordering::Relaxed);
        let mut latest = counted.latest_lost.lock();
        if latest.len() == LOST_REMEMBERED {
            latest.pop_front();
        }
        latest.push_back(Lost {
            key: pod.key.clone(),
            uid: pod.uid.clone(),
            profile,
            at,
        });
    }
}

/// Counts a pod of which it is unknown whether its result was read.
fn undecided(removed: &RemovedPod, why: &str) {
    let meta = &removed.pod.object.meta;
    tracing::info!(pod = %meta.key, uid = %meta.uid, why, "could not check whether the result of a deleted pod was read");
    runner::count_unread(runner::UNDECIDED, "observe", &meta.key);
}
