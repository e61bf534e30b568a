//! Counts pods that were deleted before they could be held, or before their result was taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use belayer_core::informer::Stored;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Pod;
use belayer_holds::runner;

use super::PodFinalizer;
use crate::NAME;
use crate::argo::{self, Ending};
use crate::decide::{is_awaited, is_missed, unread};
use crate::observe::held;
use crate::profile::Mode;
use crate::snapshot::{ConsumedLabel, Held, Selection};

/// A pod of an observing profile that vanished before its result was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Where it was.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
    /// The profile that selected it.
    pub profile: Arc<str>,
    /// When its end was seen.
    pub at: Timestamp,
}

/// How many lost pods are remembered by name.
const LOST_REMEMBERED: usize = 1_000;

impl PodFinalizer {
    /// How many pods of observing profiles vanished before their result was taken, since the
    /// start: the reason to switch such a profile to enforce.
    pub fn observed_losses(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The latest of them, the oldest first.
    pub fn latest_losses(&self) -> Vec<Lost> {
        self.latest_lost.lock().iter().cloned().collect()
    }

    /// Row 14: a pod whose deletion began before our hold was on it.
    pub(super) fn count_missed(&self, pod: &Stored<Pod>) {
        if is_missed(&self.world.view(pod), Timestamp::now()) {
            tracing::debug!(pod = %pod.object.meta.key, "deleted before it could be held");
            metrics::counter!(belayer_metrics::MISSED_HOLDS, "controller" => NAME).increment(1);
        }
    }

    /// A held pod whose deletion was not watched, after a start or a new list: whether that ended it is not known.
    pub(super) fn count_undecided(&self, pod: &Stored<Pod>) {
        let meta = &pod.object.meta;
        let undecided = held(meta) == Held::Yes
            && argo::is_of_workflow(meta)
            && Ending::of(&pod.object) == Ending::Held(argo::Held::Undecided);
        if undecided {
            runner::count_unread(runner::UNDECIDED, "enforce", &meta.key);
        }
    }

    /// Observe mode: a pod that vanished while somebody still wanted its result. Pods and owners
    /// are watched side by side, so a pod that is collected right after its owner can be counted
    /// before the owner's end is seen: the count is an upper bound.
    pub(super) fn count_lost(&self, pod: &Stored<Pod>) {
        let view = self.world.view(pod);
        let Selection::By {
            profile,
            consumed: ConsumedLabel::No,
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
                "vanished before its result was taken"
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
                at: Timestamp::now(),
            });
        }
    }
}
