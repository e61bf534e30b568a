//! The promise for every recorded workflow: until when each of its pods is held.

use super::recording::Side;

/// What ends the hold of a pod. The time limits are in `judge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Its workflow has read the result, and not before.
    Consumed,
    /// The pod ended because it was deleted: it has no result of its own, and Argo must find the pod deleted at its next
    /// read, as without Belayer. A pod that never started is released at its deletion.
    EndedByDeletion,
    /// Its node is lost with its containers.
    NodeLost,
    /// Its workflow is deleted.
    OwnerDeleting,
    /// It is never held; a hold of an older version is released at once.
    NeverHeld,
    /// The pod is not created: in the replay its predecessor still exists, as it would have for Argo.
    NotMade,
}

use Until::{Consumed, EndedByDeletion, NeverHeld, NodeLost, NotMade, OwnerDeleting};

/// Until when the pods of a step are held, in the order of their creation.
type Step = (&'static str, &'static [Until]);

/// The promise for one workflow.
pub(super) struct Promise {
    pub(super) trace: &'static str,
    held: &'static [Step],
    free: &'static [Step],
}

impl Promise {
    /// Steps that are not listed are held until their result was read.
    pub(super) fn of(&self, side: Side, step: &str) -> &'static [Until] {
        let steps = match side {
            Side::Held => self.held,
            Side::Free => self.free,
        };
        let named = steps.iter().find(|(name, _)| *name == step || *name == ALL);
        named.map_or(&[Consumed], |(_, until)| until)
    }

    /// Every listed step.
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

/// Every pod is held until its result was read, in both recordings.
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

/// Different promises for the recordings with and without Belayer.
const fn each(trace: &'static str, held: &'static [Step], free: &'static [Step]) -> Promise {
    Promise { trace, held, free }
}

/// The table. A step that is not listed: `Consumed`.
pub(super) const PROMISES: &[Promise] = &[
    consumed("compressed"),
    consumed("container-set"),
    consumed("daemon"),
    both("deleted-foreground", &[(ALL, &[OwnerDeleting])]),
    // Argo reports "pod deleted", with and without Belayer.
    both("deleted-running-later", &[("s0", &[EndedByDeletion])]),
    // The main promise. Without Belayer the steps were run twice; with the first pods still in the API, Argo would not
    // have created the second ones.
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
    // With a hold, the failed agent was mistaken for the working one, and the second request failed.
    each(
        "http-agent-deleted",
        &[("agent", &[NeverHeld])],
        &[("agent", &[NeverHeld, NeverHeld])],
    ),
    // It failed by itself: that is a result.
    consumed("init-failing"),
    // With holds, both nodes of the workflow were Failed, never synced, and the workflow did not progress. Created again,
    // the pods find no node and wait until the workflow is deleted.
    each(
        "node-lost",
        &[(ALL, &[NodeLost])],
        &[(ALL, &[NodeLost, OwnerDeleting])],
    ),
    // Created again, it succeeds.
    each(
        "pod-deleted-running",
        &[("s1", &[EndedByDeletion])],
        &[("s1", &[EndedByDeletion, Consumed])],
    ),
    // Without Belayer the forced deletion removed the pod at once: no version shows how it ended, so the replay of that
    // recording has no evidence to release it by. The recording with Belayer shows it.
    each(
        "pod-force-deleted",
        &[("s1", &[EndedByDeletion])],
        &[("s1", &[Consumed, NotMade])],
    ),
    // One attempt less than with the holds of 9e06281.
    each(
        "retry-always",
        &[("retry-always(0)", &[EndedByDeletion])],
        &[("retry-always(0)", &[EndedByDeletion, Consumed])],
    ),
    consumed("retry-exit-1"),
    // Argo's own recipe for preemptible nodes: with the holds of 9e06281 it failed.
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
    // It never started. Created again, it waits until the workflow is deleted.
    each(
        "unscheduled-deleted",
        &[("s0", &[EndedByDeletion])],
        &[("s0", &[EndedByDeletion, OwnerDeleting])],
    ),
];
