//! What is promised for every recorded workflow: until when each of its pods is held.

use super::recording::Side;

/// What ends the hold of a pod. The time limits stand in `judge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Its workflow has taken the result, and not before.
    Consumed,
    /// The pod ended because it was deleted: no result of its own exists, and Argo is to find the pod gone at its
    /// next look, as it would without Belayer. A pod that never started goes at its deletion.
    EndedByDeletion,
    /// Its node is gone with its containers.
    NodeLost,
    /// Its workflow is deleted.
    OwnerDeleting,
    /// It is never held; if an older version holds it, that ends at once.
    NeverHeld,
    /// The pod is not even made: in the replay its predecessor is there still, as it would have been for Argo.
    NotMade,
}

use Until::{Consumed, EndedByDeletion, NeverHeld, NodeLost, NotMade, OwnerDeleting};

/// Of one step: until when its pods are held, in the order in which they were made.
type Step = (&'static str, &'static [Until]);

/// What is promised for one workflow.
pub(super) struct Promise {
    pub(super) trace: &'static str,
    held: &'static [Step],
    free: &'static [Step],
}

impl Promise {
    /// Steps that are not named are held until their result was taken.
    pub(super) fn of(&self, side: Side, step: &str) -> &'static [Until] {
        let steps = match side {
            Side::Held => self.held,
            Side::Free => self.free,
        };
        let named = steps.iter().find(|(name, _)| *name == step || *name == ALL);
        named.map_or(&[Consumed], |(_, until)| until)
    }

    /// Every step that it names.
    pub(super) fn names(&self, side: Side) -> impl Iterator<Item = &'static str> {
        let steps = match side {
            Side::Held => self.held,
            Side::Free => self.free,
        };
        steps
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| *name != ALL)
    }
}

const ALL: &str = "every step";

/// Every pod is held until its result was taken, whichever way it was recorded.
const fn consumed(trace: &'static str) -> Promise {
    both(trace, &[])
}

/// The same for both recordings.
const fn both(trace: &'static str, steps: &'static [Step]) -> Promise {
    Promise {
        trace,
        held: steps,
        free: steps,
    }
}

/// One promise for the recording with Belayer, one for that without.
const fn each(trace: &'static str, held: &'static [Step], free: &'static [Step]) -> Promise {
    Promise { trace, held, free }
}

/// The table. A step that is not named: `Consumed`.
pub(super) const PROMISES: &[Promise] = &[
    consumed("compressed"),
    consumed("container-set"),
    consumed("daemon"),
    both("deleted-foreground", &[(ALL, &[OwnerDeleting])]),
    // Argo says "pod deleted", with and without Belayer.
    both("deleted-running-later", &[("s0", &[EndedByDeletion])]),
    // The main promise. Without Belayer the steps were run twice; with the first pods there still, Argo would not
    // have made the second ones.
    each(
        "ended-deleted-while-down",
        &[],
        &[("s0", &[Consumed, NotMade]), ("s1", &[Consumed, NotMade])],
    ),
    both("evicted-running", &[("s0", &[EndedByDeletion])]),
    both("exit-handler-deleted", &[(ALL, &[OwnerDeleting])]),
    consumed("gc-none"),
    consumed("gc-none-failing"),
    consumed("gc-on-pod-completion"),
    consumed("gc-on-pod-completion-failing"),
    consumed("gc-on-pod-success"),
    consumed("gc-on-pod-success-failing"),
    consumed("gc-on-workflow-completion"),
    consumed("gc-on-workflow-completion-failing"),
    consumed("gc-on-workflow-success"),
    consumed("gc-on-workflow-success-failing"),
    both("http-agent", &[("agent", &[NeverHeld])]),
    // Held, the failed agent was taken for the one that works, and the second request failed.
    each(
        "http-agent-deleted",
        &[("agent", &[NeverHeld])],
        &[("agent", &[NeverHeld, NeverHeld])],
    ),
    // It failed by itself: that is a result.
    consumed("init-failing"),
    // Held, both nodes of the workflow were Failed, never synced, and nothing moved any more. Made anew, the pods
    // find no node and wait until somebody deletes the workflow.
    each(
        "node-lost",
        &[(ALL, &[NodeLost])],
        &[(ALL, &[NodeLost, OwnerDeleting])],
    ),
    // Made anew, it succeeds.
    each(
        "pod-deleted-running",
        &[("s1", &[EndedByDeletion])],
        &[("s1", &[EndedByDeletion, Consumed])],
    ),
    // Without Belayer the forced deletion took the pod out of sight at once: no version shows how it ended, so
    // that the replay of that recording has nothing to release it by. The one with Belayer shows it.
    each(
        "pod-force-deleted",
        &[("s1", &[EndedByDeletion])],
        &[("s1", &[Consumed, NotMade])],
    ),
    // An attempt less than with the holds of 9e06281.
    each(
        "retry-always",
        &[("retry-always(0)", &[EndedByDeletion])],
        &[("retry-always(0)", &[EndedByDeletion, Consumed])],
    ),
    consumed("retry-exit-1"),
    // Argo's own recipe for machines that come and go: with the holds of 9e06281 it failed.
    each(
        "retry-onerror",
        &[("retry-onerror(0)", &[EndedByDeletion])],
        &[("retry-onerror(0)", &[EndedByDeletion, Consumed])],
    ),
    each(
        "retry-onfailure",
        &[("retry-onfailure(0)", &[EndedByDeletion])],
        &[("retry-onfailure(0)", &[EndedByDeletion, Consumed])],
    ),
    // Main and wait had ended well before the deletion, which killed the sidecar: a result that was lost without
    // Belayer.
    consumed("sidecar-deleted-late"),
    consumed("stopped"),
    consumed("suspended"),
    consumed("terminated"),
    consumed("ttl"),
    consumed("two-steps-gc"),
    consumed("two-steps-none"),
    // It never started. Made anew, it waits until somebody deletes the workflow.
    each(
        "unscheduled-deleted",
        &[("s0", &[EndedByDeletion])],
        &[("s0", &[EndedByDeletion, OwnerDeleting])],
    ),
];
