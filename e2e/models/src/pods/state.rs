//! What follows from a state of the cluster.

use super::{Broken, MOST, Pod, State, Truth, Workflow};

impl State {
    pub(super) fn owner_of(&self, pod: &Pod) -> Option<&Workflow> {
        self.workflow.as_ref().filter(|one| one.uid == pod.owner)
    }

    /// Whether a pod's evidence exists, and it is still there.
    pub(super) fn has_stuck_pod(&self) -> bool {
        self.pods.iter().flatten().any(|pod| {
            let owner = self.owner_of(pod);
            let has_evidence =
                pod.taken || owner.is_none_or(|owner| owner.deleting || owner.finished);
            pod.deleting && pod.ended && has_evidence
        })
    }

    /// The API server removes objects that nothing holds.
    pub(super) fn remove_what_is_done(&mut self) {
        for name in 0..MOST {
            let Some(pod) = self.pods[name] else { continue };
            if !pod.deleting || !pod.ended || pod.held {
                continue;
            }
            let truth = self.truth[name];
            let is_needed = self.owner_of(&pod).is_some_and(|owner| !owner.deleting);
            if truth.has_result && !truth.is_read && is_needed {
                self.broken.get_or_insert(Broken::Result);
            }
            self.pods[name] = None;
            self.truth[name] = Truth::default();
        }
        if let Some(owner) = self.workflow
            && owner.deleting
            && !self.pods.iter().flatten().any(|pod| pod.owner == owner.uid)
        {
            self.workflow = None;
        }
    }
}
