//! Tracks Belayer's own releases. A finalizer that disappears without one was removed by another controller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tokio::time::Instant;

use belayer_core::object::Uid;
use belayer_holds::runner::{By, Executed, Observer, What};

/// How long the response to a release may arrive after the watch event that it causes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a removal by another controller counts.
const COUNTS_FOR: Duration = Duration::from_secs(60 * 60);

/// Maximum number of tracked releases, and of tracked removals. A few suffice to detect another controller.
const REMEMBERED: usize = 65_536;

/// Which PVCs Belayer released itself.
#[derive(Debug, Default)]
pub struct ReleaseTracker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    released: HashSet<Uid>,
    gone: VecDeque<Gone>,
    /// When other controllers removed a finalizer.
    by_others: VecDeque<Instant>,
}

#[derive(Debug)]
struct Gone {
    uid: Uid,
    when: Instant,
    remover: Remover,
}

/// Who may remove the finalizer from a PVC that is being deleted. An argument of
/// [`ReleaseTracker::gone`](crate::release_tracker::ReleaseTracker::gone).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remover {
    /// Only Belayer.
    Belayer,
    /// Also Argo, which does so with the PVCs of a finished workflow.
    Argo,
}

impl ReleaseTracker {
    /// Records that Belayer released the PVC of this UID.
    pub fn released(&self, uid: &Uid) {
        let mut inner = self.0.lock();
        if inner.released.len() < REMEMBERED {
            inner.released.insert(uid.clone());
        }
    }

    /// Records that the finalizer is gone from the PVC of this UID, which was being deleted.
    pub fn gone(&self, uid: &Uid, remover: Remover) {
        let mut inner = self.0.lock();
        if inner.gone.len() < REMEMBERED {
            inner.gone.push_back(Gone {
                uid: uid.clone(),
                when: Instant::now(),
                remover,
            });
        }
    }

    /// Forgets everything: until now another replica led, and its releases were not recorded here.
    pub fn clear(&self) {
        *self.0.lock() = Inner::default();
    }

    /// How many finalizers another controller has removed in the last hour.
    pub fn by_others(&self) -> u64 {
        let mut inner = self.0.lock();
        let Inner {
            released,
            gone,
            by_others,
        } = &mut *inner;
        let is_over = |gone: &mut Gone| gone.when.elapsed() >= PATIENCE;
        while let Some(gone) = gone.pop_front_if(is_over) {
            let is_belayers = released.remove(&gone.uid);
            if !is_belayers && gone.remover == Remover::Belayer && by_others.len() < REMEMBERED {
                by_others.push_back(gone.when);
            }
        }
        while by_others
            .pop_front_if(|when| when.elapsed() >= COUNTS_FOR)
            .is_some()
        {}
        // Releases whose watch event was lost would accumulate.
        if gone.is_empty() && released.len() >= REMEMBERED {
            released.clear();
        }
        by_others.len() as u64
    }
}

/// Records releases in the tracker and forwards every call to `next`.
pub(crate) struct ReleaseObserver {
    /// The tracker.
    pub releases: Arc<ReleaseTracker>,
    /// The observer that every call is forwarded to.
    pub next: Arc<dyn Observer>,
}

impl Observer for ReleaseObserver {
    fn executed(&self, executed: &Executed<'_>) {
        if let What::Released { .. } = executed.what {
            self.releases.released(executed.uid);
        }
        self.next.executed(executed);
    }

    fn decided(&self, by: By) {
        self.next.decided(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_removal_without_a_release_is_foreign() {
        let releases = ReleaseTracker::default();
        let uid = |n: u32| Uid::new(n.to_string());
        releases.gone(&uid(1), Remover::Belayer);
        releases.gone(&uid(2), Remover::Belayer);
        releases.gone(&uid(3), Remover::Argo);
        // The response may arrive after the event.
        releases.released(&uid(1));
        assert_eq!(releases.by_others(), 0);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(releases.by_others(), 1);
        assert_eq!(releases.by_others(), 1);
        tokio::time::advance(COUNTS_FOR).await;
        assert_eq!(releases.by_others(), 0, "it is long ago");
    }
}
