//! The reasons that permit the removal of a hold, derived from the record alone.

use std::time::Duration;

use belayer_holds::names::{RECREATION_UID_ANNOTATION, RELEASE_ANNOTATION};
use belayer_workload::names;
use jiff::Timestamp;
use serde_json::Value;

use super::history::History;
use super::objects::{
    Node, annotation, holds, is_completed, is_deleting, is_rejected, text, uid, workflow_of,
};
use super::recreation;
use crate::{POD_HOLD, PVC_HOLD, RECREATION_HOLD, WORKFLOW_HOLD};

/// The simulated workflow controller's message about a pod that was removed before its result was consumed.
const LOST: &str = "pod deleted";

/// The reason that permits the removal of a hold. [`Findings`](crate::Findings) counts releases by
/// it, which the [crate's example](crate) returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The pod's annotation requests its release.
    Requested,
    /// The pod's result is in its workflow's status.
    ResultConsumed,
    /// The workflow was deleted.
    WorkflowDeleted,
    /// The namespace was deleted.
    NamespaceDeleted,
    /// The pod's deletion ended it before it had a result.
    EndedByDeletion,
    /// The pod is being deleted, and a retry of its workflow removed its node.
    EarlierRun,
    /// The pod's node was removed before the pod had a result.
    NodeLost,
    /// The pod's outcome is recorded, and its consumer reads the record.
    OutcomeRecorded,
    /// The pod is being deleted, and `releaseAfter` is configured.
    ReleaseAfter,
    /// The namespace has the label with which Belayer ignores it, or had it shortly before.
    NamespaceIgnored,
    /// No workflow owns the pod.
    NoWorkflow,
    /// The pod has started.
    Started,
    /// The kubelet rejected the pod long after it had accepted it.
    MayHaveStarted,
    /// The pod is being deleted.
    PodDeleted,
    /// The owner of a pod that requests re-creation was deleted.
    OwnerDeleted,
    /// Its attempts are used up, or its record was deleted.
    NotRecreated,
    /// The PVC was deleted.
    PvcDeleted,
}

impl Why {
    /// The reason as a text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested by annotation",
            Self::ResultConsumed => "result consumed",
            Self::WorkflowDeleted => "workflow deleted",
            Self::NamespaceDeleted => "namespace deleted",
            Self::EndedByDeletion => "ended by its deletion",
            Self::EarlierRun => "its workflow was retried",
            Self::NodeLost => "its node was lost",
            Self::OutcomeRecorded => "outcome recorded",
            Self::ReleaseAfter => "releaseAfter is over",
            Self::NamespaceIgnored => "namespace ignored",
            Self::NoWorkflow => "no workflow",
            Self::Started => "pod started",
            Self::MayHaveStarted => "pod rejected long after it was accepted",
            Self::PodDeleted => "rejected pod deleted",
            Self::OwnerDeleted => "owner deleted",
            Self::NotRecreated => "rejected pod not re-created",
            Self::PvcDeleted => "PVC deleted",
        }
    }
}

impl History {
    /// The reason that permits the removal of this hold, if there is one. ORDER and IN-USE have further
    /// conditions, which are checked separately.
    pub(crate) fn release_reason(&self, object: &Value, hold: &str) -> Option<Why> {
        if [POD_HOLD, RECREATION_HOLD].contains(&hold)
            && annotation(object, RELEASE_ANNOTATION) == "true"
        {
            return Some(Why::Requested);
        }
        let why = match hold {
            POD_HOLD => self.result_not_needed(object),
            RECREATION_HOLD => self.recreation_not_needed(object),
            WORKFLOW_HOLD => self.is_deleted(uid(object)).then_some(Why::WorkflowDeleted),
            PVC_HOLD => return self.is_deleted(uid(object)).then_some(Why::PvcDeleted),
            _ => return None,
        };
        why.or_else(|| self.is_ignored(object).then_some(Why::NamespaceIgnored))
    }

    /// Why the result of this pod is not needed any more.
    pub(crate) fn result_not_needed(&self, pod: &Value) -> Option<Why> {
        if self.is_in_deleted_namespace(pod) {
            return Some(Why::NamespaceDeleted);
        }
        let Some(owner) = workflow_of(pod) else {
            if self.is_read_by_record(pod) {
                return self.is_recorded(uid(pod)).then_some(Why::OutcomeRecorded);
            }
            return Some(Why::NoWorkflow);
        };
        if self.is_deleted(owner) || self.object(owner).is_none() {
            return Some(Why::WorkflowDeleted);
        }
        // A user may copy a pod whose result was consumed.
        let is_taken = self.node_of(pod) == Node::Taken || self.is_labelled(uid(pod));
        if is_taken || self.is_of_consumed_node(pod) {
            return Some(Why::ResultConsumed);
        }
        if !self.settings.holds_deleted && self.was_ended_by_deletion(pod) {
            return Some(Why::EndedByDeletion);
        }
        if is_deleting(pod) && self.is_of_earlier_run(pod) {
            return Some(Why::EarlierRun);
        }
        if self.was_node_lost(pod) {
            return Some(Why::NodeLost);
        }
        let is_limited = is_deleting(pod) && self.settings.release_after.is_some();
        is_limited.then_some(Why::ReleaseAfter)
    }

    /// Whether only a delay permits the release of the pod, that of its lost node or that of its deletion, and is not over.
    pub(crate) fn was_released_too_early(&self, pod: &Value, now: Timestamp) -> bool {
        match self.release_reason(pod, POD_HOLD) {
            _ if self.is_ignored(pod) => false,
            Some(Why::NodeLost) => {
                self.is_lost_too_recently(pod, now) && !self.is_release_after_over(pod, now)
            }
            Some(Why::ReleaseAfter) => !self.is_release_after_over(pod, now),
            _ => false,
        }
    }

    /// Whether `releaseAfter` has passed since the end of the pod's grace period.
    fn is_release_after_over(&self, pod: &Value, now: Timestamp) -> bool {
        let deleted = text(pod, "/metadata/deletionTimestamp").parse::<Timestamp>();
        let (Ok(deleted), Some(limit)) = (deleted, self.settings.release_after) else {
            return false;
        };
        let waited = now.duration_since(deleted);
        Duration::try_from(waited).is_ok_and(|waited| waited >= limit)
    }

    /// The finalizer of another controller that may be removed from this pod, as its result was read or never will be.
    pub(crate) fn adopted(&self, pod: &Value, now: Timestamp) -> Option<&'static str> {
        let is_read = match self.release_reason(pod, POD_HOLD) {
            None | Some(Why::EndedByDeletion | Why::EarlierRun | Why::NodeLost) => {
                self.is_of_completed_workflow(pod)
                    || self.was_read_before_retry(pod)
                    || self.is_by_hand(pod)
                    || is_deleting(pod) && self.is_release_after_over(pod, now)
            }
            Some(_) => true,
        };
        self.settings.adopts.filter(|_| is_read)
    }

    /// Whether the workflow of this pod has completed, and has not been retried since: it reads no more results.
    fn is_of_completed_workflow(&self, pod: &Value) -> bool {
        let workflow = workflow_of(pod).and_then(|owner| self.object(owner));
        workflow.is_some_and(is_completed)
    }

    /// Whether Belayer may delete this pod, as the pod garbage collection of its workflow would.
    pub(crate) fn may_be_cleaned_up(&self, pod: &Value) -> bool {
        let has_succeeded = match text(pod, "/status/phase") {
            "Succeeded" => true,
            "Failed" => false,
            _ => return false,
        };
        let owner = workflow_of(pod).filter(|owner| self.live(owner).is_some());
        let is_read = owner.is_none()
            || self.is_of_completed_workflow(pod)
            || self.result_not_needed(pod) == Some(Why::ResultConsumed);
        let strategy = annotation(pod, names::POD_GC_STRATEGY);
        let is_due = match (strategy.split('/').next().unwrap_or_default(), owner) {
            ("OnPodCompletion", _) => true,
            ("OnPodSuccess", _) | ("OnWorkflowSuccess", None) => has_succeeded,
            ("OnWorkflowCompletion", Some(owner)) => self.has_completed(owner),
            ("OnWorkflowCompletion", None) => true,
            ("OnWorkflowSuccess", Some(owner)) => self.has_succeeded(owner),
            _ => false,
        };
        // A late cache shows a pod that was released in an ignored namespace without the hold that it has got again.
        let is_held =
            holds(pod).any(|hold| hold == POD_HOLD) && !self.was_released_without_result(pod);
        self.settings.cleans_up && is_read && is_due && !is_held
    }

    fn recreation_not_needed(&self, pod: &Value) -> Option<Why> {
        if self.has_run(uid(pod)) {
            return Some(Why::Started);
        }
        if self.was_rejected_late(uid(pod)) {
            return Some(Why::MayHaveStarted);
        }
        // NO-LOSS checks that a rejected pod is not lost.
        if is_deleting(pod) {
            return Some(Why::PodDeleted);
        }
        if self.is_owner_deleted(pod) {
            return Some(Why::OwnerDeleted);
        }
        let is_cancelled = recreation::is_cancelled(self, pod);
        let has_ended = is_cancelled
            || recreation::is_used_up(self, pod)
            || recreation::is_wipe_overdue(self, pod)
            || recreation::is_denied(self, pod);
        // Without its record a re-created pod is an ordinary one, even before its node rejects it.
        let is_recreated = !annotation(pod, RECREATION_UID_ANNOTATION).is_empty();
        let is_over = (is_recreated && is_cancelled) || (is_rejected(pod) && has_ended);
        if is_over {
            return Some(Why::NotRecreated);
        }
        // After a restart Belayer does not know whether the deleted record named it, and leaves it to its user.
        if self.is_created_late(pod) && recreation::record_of(self, uid(pod)).is_none() {
            return Some(Why::NotRecreated);
        }
        // Its record may have ended while the namespace was ignored.
        (is_rejected(pod) && self.was_ever_ignored(pod)).then_some(Why::NamespaceIgnored)
    }

    /// The state of the pod in its workflow's status; the workflow is matched by UID.
    pub(crate) fn node_of(&self, pod: &Value) -> Node {
        let id = annotation(pod, names::NODE_ID);
        let Some(workflow) = workflow_of(pod).and_then(|owner| self.object(owner)) else {
            return Node::Open;
        };
        let node = workflow
            .pointer("/status/nodes")
            .and_then(|nodes| nodes.get(id));
        match node {
            // A pod that Argo creates anew after that can still succeed; the message then stays.
            Some(node) if text(node, "/message") == LOST && text(node, "/phase") == "Error" => {
                Node::Lost
            }
            Some(node) if is_final(node) && node["taskResultSynced"] == false => Node::Unsynced,
            Some(node) if is_final(node) => Node::Taken,
            _ => Node::Open,
        }
    }

    /// Whether Argo itself waits for ever for the outputs of a pod of this workflow: that of an attempt whose pod was
    /// deleted, and made anew by Argo, and then did not run.
    pub(crate) fn waits_for_outputs(&self, workflow: &Value) -> bool {
        let nodes = workflow.pointer("/status/nodes").and_then(Value::as_object);
        let mut nodes = nodes.into_iter().flat_map(|nodes| nodes.values());
        nodes.any(|node| is_final(node) && node["taskResultSynced"] == false)
    }
}

fn is_final(node: &Value) -> bool {
    matches!(text(node, "/phase"), "Succeeded" | "Failed" | "Error")
}
