//! Counts pods that were deleted before they could be held, or before their result was read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use belayer_core::clock;
use belayer_core::informer::Stored;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Pod;
use belayer_holds::runner;
use belayer_holds::view::View;
use jiff::Timestamp;

use super::PodFinalizer;
use super::observe::held;
use crate::NAME;
use crate::argo::{self, Ending};
use crate::decide::{is_awaited, is_missed, unread};
use crate::profile::Mode;
use crate::snapshot::Selection;

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

/// Maximum number of lost pods that are stored by name.
const LOST_REMEMBERED: usize = 1_000;

impl<V: View> PodFinalizer<V> {
    /// Counts, once, a held pod of which it is unknown whether its deletion ended it: the version that shows that was
    /// missed. The runner observes pods only in the leader, so that standbys count nothing.
    pub(super) fn count_undecided(&self, pod: &Stored<Pod>) {
        let meta = &pod.object.meta;
        let undecided = held(meta)
            && argo::is_of_workflow(meta)
            && Ending::of(&pod.object) == Ending::Held(argo::Held::Undecided);
        if undecided && self.undecided.lock().insert(meta.uid.clone()) {
            runner::count_unread(runner::UNDECIDED, "enforce", &meta.key);
        }
    }
}

impl PodFinalizer {
    /// How many pods of profiles in observe mode were deleted before their result was read, since the start. Such
    /// losses are the reason to switch a profile to enforce.
    pub fn observed_losses(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The latest of them, the oldest first.
    pub fn latest_losses(&self) -> Vec<Lost> {
        self.latest_lost.lock().iter().cloned().collect()
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

    /// Observe mode: counts a pod that was deleted while its result was still required. Pods and owners are watched
    /// independently, so a pod that is garbage-collected right after its owner may be counted before the owner's
    /// deletion is seen: the count is an upper bound.
    pub(super) fn count_lost(&self, pod: &Stored<Pod>) {
        let view = self.view(pod);
        let Selection::By {
            profile,
            consumed: false,
        } = &view.selection
        else {
            return;
        };
        if profile.mode == Mode::Observe && is_awaited(&view) {
            let meta = &pod.object.meta;
            if let Some(evidence) = unread(&view) {
                tracing::info!(pod = %meta.key, uid = %meta.uid, evidence, "pod was deleted without a result");
                return runner::count_unread(evidence, "observe", &meta.key);
            }
            tracing::info!(
                pod = %meta.key,
                uid = %meta.uid,
                profile = %profile.name,
                "the pod was deleted before its result was read"
            );
            metrics::counter!(belayer_metrics::OBSERVED_LOSSES, "controller" => NAME).increment(1);
            self.lost.fetch_add(1, Ordering::Relaxed);
            let mut latest = self.latest_lost.lock();
            if latest.len() == LOST_REMEMBERED {
                latest.pop_front();
            }
            latest.push_back(Lost {
                key: meta.key.clone(),
                uid: meta.uid.clone(),
                profile: profile.name.clone(),
                at: clock::now(),
            });
        }
    }
}
