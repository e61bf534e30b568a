//! The decision table of workflow-finalizer: a pure function, one arm per rule, in the table's
//! order. It matches the rules of [`row`].

use std::time::Duration;

use jiff::Timestamp;

use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{Decision, Missing, Notice, Rule, Write};
use belayer_holds::selection::{MassRelease, NotSelected, Selection};

use crate::evidence::{Evidence, NoPodHeld};
use crate::pods_query::PodsState;
use crate::query::WorkflowQuery;
use crate::row;
use crate::snapshot::{Deletion, Snapshot, WorkflowView};

/// A decision about a workflow. It matches the rules of [`row`].
pub type WorkflowDecision = Decision<Evidence, WorkflowQuery>;

/// Delay before a live list is repeated that found held pods which the index does not show. Events of the pods
/// usually trigger a decision earlier.
pub const RECHECK: Duration = Duration::from_secs(5);

/// Decides about one workflow. It matches the rules of [`row`].
pub fn decide(snapshot: &Snapshot, _: Timestamp) -> WorkflowDecision {
    let Some(workflow) = &snapshot.workflow else {
        return Decision::nothing(row::NOTHING);
    };
    match (workflow.deletion, workflow.held) {
        // Selected or not: only its pods decide, so that the invariant ORDER holds.
        (Some(deletion), true) => waiting(workflow, deletion).with_requeue_after(snapshot.resync),
        (Some(_), false) => Decision::nothing(row::NOT_HELD),
        (None, true) => match workflow.selection {
            Selection::Yes => Decision::nothing(row::NOTHING),
            Selection::No | Selection::Ignored => unselected(workflow, snapshot.mass_release),
        },
        (None, false) => match workflow.selection {
            Selection::Yes => Decision::write(row::ADD_HOLD, Write::AddHold),
            Selection::No | Selection::Ignored => Decision::nothing(row::NOTHING),
        },
    }
}

/// Rule 1.
fn unselected(workflow: &WorkflowView, mass_release: MassRelease) -> WorkflowDecision {
    let evidence = match workflow.selection {
        Selection::Ignored => {
            let namespace = &workflow.namespace;
            match namespace.ignored(workflow.first_seen) {
                Some(proof) => NotSelected::ByNamespace(proof),
                None => return ask_namespace(row::UNSELECTED, workflow),
            }
        }
        Selection::Yes | Selection::No => NotSelected::ByConfiguration,
    };
    match mass_release {
        MassRelease::Within => Decision::write(
            row::UNSELECTED,
            Write::Release(Evidence::Unselected(evidence)),
        ),
        MassRelease::Exceeded {
            unselected,
            held,
            scope,
        } => {
            let message = format!(
                "nothing selects this workflow any more, and the same is true of {unselected} of {held} held \
                 workflows {}: kept, because that many at once look like a mistyped selector",
                scope.message()
            );
            Decision::missing(row::UNSELECTED, Missing::Event(message.into()))
        }
    }
}

fn ask_namespace(row: &'static Rule, workflow: &WorkflowView) -> WorkflowDecision {
    let namespace = &workflow.namespace;
    let query = WorkflowQuery::Namespace(namespace.query.clone());
    let after = namespace.next_read(workflow.first_seen, RECHECK);
    Decision::missing(row, Missing::Answer { query, after })
}

/// Rules 4, 5, 6, 8 and 9.
fn waiting(workflow: &WorkflowView, deletion: Deletion) -> WorkflowDecision {
    if let Some(proof) = workflow.kept_running {
        let evidence = Evidence::KeptRunning(proof);
        return Decision::write(row::KEPT_RUNNING, Write::Release(evidence));
    }
    let ends = workflow
        .namespace
        .cached
        .as_ref()
        .is_some_and(|namespace| namespace.is_deleting());
    let in_row = |row: &'static Rule| {
        if ends {
            row::NAMESPACE_TERMINATING
        } else {
            row
        }
    };
    let pods = &workflow.pods;
    if let Some(held @ 1..) = pods.held {
        let waiting = Decision::missing(in_row(row::PODS_HELD), pods_remain(held));
        return if ends {
            waiting
        } else {
            waiting.with_notice(deletion_waits(held))
        };
    }
    let Some(answer) = pods
        .answer
        .as_ref()
        .filter(|answer| answer.begun() > deletion.seen)
    else {
        let query = WorkflowQuery::Pods(pods.query.clone());
        return Decision::ask(in_row(row::CONFIRM), query);
    };
    // A namespace that is being deleted does not wait for an archive. The cache may have a deleted one of that name.
    if workflow.is_to_be_archived && ends {
        if workflow.namespace.deletion(workflow.first_seen).is_none() {
            return ask_namespace(row::NAMESPACE_TERMINATING, workflow);
        }
    } else if workflow.is_to_be_archived {
        let text = "the workflow controller has not archived it yet";
        return Decision::missing(row::ARCHIVING, Missing::Event(text.into())).with_notice(
            Notice::normal(
                "DeletionWaits",
                "deletion of this workflow waits until it is archived",
            ),
        );
    }
    release_or_recheck(workflow, deletion, answer, in_row)
}

fn release_or_recheck(
    workflow: &WorkflowView,
    deletion: Deletion,
    answer: &LiveAnswer<PodsState>,
    in_row: impl Fn(&'static Rule) -> &'static Rule,
) -> WorkflowDecision {
    let pods = &workflow.pods;
    let proof = NoPodHeld::prove(answer, deletion.seen, &workflow.uid, pods.held);
    if let Some(proof) = proof {
        let evidence = Evidence::NoPodHeld(proof);
        return Decision::write(in_row(row::CONFIRM), Write::Release(evidence));
    }
    // The pods are not in the index yet; their events will release them.
    let mut decision = Decision::missing(
        in_row(row::PODS_HELD),
        Missing::Answer {
            query: WorkflowQuery::Pods(workflow.pods.query.clone()),
            after: RECHECK,
        },
    );
    decision
        .missing
        .push(Missing::Event("some of its pods are still held".into()));
    decision
}

fn pods_remain(held: usize) -> Missing<WorkflowQuery> {
    Missing::Event(format!("{held} of its pods are still held").into())
}

fn deletion_waits(held: usize) -> Notice {
    let are = if held == 1 { "is" } else { "are" };
    Notice::normal(
        "DeletionWaits",
        format!("deletion of this workflow waits until {held} of its pods {are} released"),
    )
}

#[cfg(test)]
mod tests;
