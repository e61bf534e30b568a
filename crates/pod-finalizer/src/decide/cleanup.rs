//! Rule 15: a released pod is deleted when its annotation requires it.

use std::time::Duration;

use belayer_holds::decision::{Decision, Missing, Write};

use super::PodDecision;
use crate::cleanup::WorkflowEnd;
use crate::evidence::Evidence;
use crate::query::{Delay, PodQuery};
use crate::row;
use crate::snapshot::{CleanupView, PodView};

/// The decision about a pod that is not held and that `evidence` would release.
pub(super) fn decide(pod: &PodView, evidence: Evidence) -> PodDecision {
    let Some(view) = due(pod, &evidence) else {
        return Decision::nothing(row::ADD_HOLD);
    };
    let left = view
        .gc
        .delay
        .saturating_sub(view.due_for.unwrap_or_default());
    if left.is_zero() {
        return Decision::write(row::CLEANUP, Write::Delete(evidence));
    }
    // A smaller delay would requeue the pod in a busy loop.
    let after = left.max(Duration::from_millis(10));
    let query = PodQuery::Delay(Delay::Cleanup(pod.uid.clone()));
    Decision::missing(row::CLEANUP, Missing::Answer { query, after })
}

/// Whether the deletion of the pod waits for the end of its workflow, which runs: it was retried if a delay has begun.
pub(crate) fn waits_for_workflow(pod: &PodView) -> bool {
    pod.cleanup.is_some_and(|view| {
        view.workflow == WorkflowEnd::NotYet && !view.gc.is_due(view.pod, view.workflow)
    })
}

fn due(pod: &PodView, evidence: &Evidence) -> Option<CleanupView> {
    let view = pod.cleanup?;
    if pod.held {
        return None;
    }
    let workflow = match evidence {
        // A pod that is being deleted needs no cleanup, and `belayer.dev/release` requires only a release. A PodOutcome
        // does not show that the pod itself is no longer read.
        Evidence::AdminAsked { .. }
        | Evidence::NamespaceTerminating(_)
        | Evidence::Unselected(_)
        | Evidence::OwnerDeleting(_)
        | Evidence::Captured(_)
        | Evidence::NeverHeld(_)
        | Evidence::EndedByDeletion(_)
        | Evidence::NodeLost(_)
        | Evidence::EarlierRun(_)
        | Evidence::ReleaseAfter => return None,
        Evidence::OwnerGone(_) => WorkflowEnd::Gone,
        Evidence::NoOwner | Evidence::Consumed(_) => view.workflow,
    };
    view.gc.is_due(view.pod, workflow).then_some(view)
}
