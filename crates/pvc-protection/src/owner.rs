//! The Argo Workflow that owns a PVC: when it has finished, Argo deletes the PVC and removes
//! `kubernetes.io/pvc-protection` from it, to free the disk before the completed pods are deleted
//! (A18). The rules of [`row`](crate::row) depend on it.

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Resource;
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::argo;
use belayer_holds::owner::{OwnerQuery, OwnerState};

pub use belayer_holds::argo::COMPLETED_LABEL;

/// The Workflow that is the controller owner of a PVC, and what the last live read of it showed.
/// The rules of [`row`](crate::row) depend on it.
#[derive(Debug, Clone)]
pub struct OwnerView {
    /// The query for the Workflow.
    pub query: OwnerQuery,
    /// The last answer.
    pub answer: Option<LiveAnswer<OwnerState>>,
}

impl OwnerView {
    /// Whether a live read begun after `seen` shows that the workflow has finished; `None` without such a read. A workflow that is gone
    /// proves nothing here: its pods and PVCs are deleted with it.
    pub fn finished(&self, seen: Option<LogicalTime>) -> Option<bool> {
        let answer = self.answer.as_ref()?;
        if seen.is_none_or(|seen| seen >= answer.begun()) {
            return None;
        }
        Some(match answer.answer() {
            OwnerState::Present(meta) => argo::is_completed(meta),
            OwnerState::Gone(_) | OwnerState::Unknown(_) => false,
        })
    }
}

/// The query for the controller owner of a PVC, if that is an Argo Workflow. The rules of
/// [`row`](crate::row) depend on it.
pub fn query(pvc: &ObjectMeta) -> Option<OwnerQuery> {
    let owner = pvc.controller.as_ref()?;
    if !argo::is_workflow_reference(owner) {
        return None;
    }
    let (group, version) = owner.api_version.split_once('/')?;
    let workflows = Resource::new(group, version, &owner.kind, "workflows");
    Some(OwnerQuery::new(
        workflows,
        pvc.key.shared_namespace(),
        owner,
    ))
}
