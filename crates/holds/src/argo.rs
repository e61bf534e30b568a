//! What several controllers know about Argo Workflows: its kind, its labels, and when it goes on running a workflow
//! that is being deleted.
//!
//! ```
//! use belayer_core::{ObjectKey, ObjectMeta, ResourceVersion, Uid};
//! use belayer_holds::argo;
//!
//! assert!(argo::is_workflow(&argo::workflow()));
//! let key = ObjectKey::new("shop", "nightly");
//! let mut workflow = ObjectMeta::new(key, Uid::new("u"), ResourceVersion::new(1));
//! assert!(!argo::is_completed(&workflow));
//! workflow.labels = [(argo::COMPLETED_LABEL, "true")].into_iter().collect();
//! assert!(argo::is_completed(&workflow));
//! ```

use std::sync::Arc;

use belayer_core::object::{OwnerReference, Resource};
use belayer_core::slim::ObjectMeta;

use crate::names;

const GROUP: &str = "argoproj.io";
const KIND: &str = "Workflow";

/// Label on every pod of a workflow: the workflow's name.
pub const WORKFLOW_LABEL: &str = "workflows.argoproj.io/workflow";

/// Label on pods and workflows: `"true"` once the workflow controller has finished processing them. It is removed from
/// a workflow that is retried.
pub const COMPLETED_LABEL: &str = "workflows.argoproj.io/completed";

/// Label on completed workflows that the workflow controller archives: `Pending` until they are archived.
pub const ARCHIVING_LABEL: &str = "workflows.argoproj.io/workflow-archiving-status";

/// The kind `Workflow`. The [module's example](self) uses it.
pub fn workflow() -> Resource {
    Resource::new(GROUP, "v1alpha1", KIND, "workflows")
}

/// Whether a kind is Argo's `Workflow`, at whatever version. The [module's example](self) asks it.
pub fn is_workflow(kind: &Resource) -> bool {
    *kind.group == *GROUP && *kind.kind == *KIND
}

/// Whether an owner reference is to Argo's `Workflow`, at whatever version. [`is_workflow`] asks
/// the same of a kind. See the [example](self).
pub fn is_workflow_reference(owner: &OwnerReference) -> bool {
    *owner.group() == *GROUP && *owner.kind == *KIND
}

/// Whether this workflow has completed, by its label. Its decoder must keep the label. The
/// [module's example](self) has such a label.
pub fn is_completed(workflow: &ObjectMeta) -> bool {
    workflow.labels.get(COMPLETED_LABEL) == Some("true")
}

/// Whether this workflow is completed and waits to be archived, by its labels. Its decoder must
/// keep them. It is read as [`is_completed`] reads its label. See the [example](self).
pub fn is_to_be_archived(workflow: &ObjectMeta) -> bool {
    is_completed(workflow) && workflow.labels.get(ARCHIVING_LABEL) == Some("Pending")
}

/// The finalizer of another controller because of which Argo goes on running a workflow that is
/// being deleted, such as `workflows.argoproj.io/artifact-gc` (A16). `None` if the workflow is not
/// being deleted, has completed, or has only finalizers that do not keep it: Belayer's own, and
/// those of a foreground or orphaning deletion. [`is_completed`] tells whether it still runs. See
/// the [example](self).
pub fn kept_running_by(workflow: &ObjectMeta) -> Option<&Arc<str>> {
    if !workflow.is_deleting() || is_completed(workflow) {
        return None;
    }
    let passing = ["foregroundDeletion", "orphan"];
    workflow
        .finalizers
        .iter()
        .find(|name| !passing.contains(&&***name) && names::holds().all(|hold| *hold != ***name))
}

#[cfg(test)]
mod tests {
    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
    use rstest::rstest;

    use super::*;

    fn deleting(finalizers: &[&str], labels: &[(&str, &str)]) -> ObjectMeta {
        let key = ObjectKey::new("ci", "build");
        ObjectMeta {
            deletion_timestamp: Some(jiff::Timestamp::UNIX_EPOCH),
            finalizers: finalizers.iter().map(|name| Arc::from(*name)).collect(),
            labels: labels.iter().copied().collect(),
            ..ObjectMeta::new(key, Uid::new("wf-1"), ResourceVersion::new(1))
        }
    }

    const ARTIFACTS: &str = "workflows.argoproj.io/artifact-gc";

    #[rstest]
    #[case::for_its_artifacts(deleting(&[names::WORKFLOW_HOLD, ARTIFACTS], &[]), Some(ARTIFACTS))]
    #[case::in_the_foreground(deleting(&[names::WORKFLOW_HOLD, "foregroundDeletion"], &[]), None)]
    #[case::orphaning(deleting(&["orphan"], &[]), None)]
    #[case::completed(deleting(&[ARTIFACTS], &[(COMPLETED_LABEL, "true")]), None)]
    #[case::not_deleted(ObjectMeta { deletion_timestamp: None, ..deleting(&[ARTIFACTS], &[]) }, None)]
    fn a16_argo_goes_on_running_a_deleted_workflow(
        #[case] workflow: ObjectMeta,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(kept_running_by(&workflow).map(|name| &**name), expected);
    }

    #[rstest]
    #[case::pending(&[(COMPLETED_LABEL, "true"), (ARCHIVING_LABEL, "Pending")], true)]
    #[case::archived(&[(COMPLETED_LABEL, "true"), (ARCHIVING_LABEL, "Archived")], false)]
    #[case::without_an_archive(&[(COMPLETED_LABEL, "true")], false)]
    #[case::not_completed(&[(ARCHIVING_LABEL, "Pending")], false)]
    fn a20_a_completed_workflow_waits_for_its_archive(
        #[case] labels: &[(&str, &str)],
        #[case] expected: bool,
    ) {
        assert_eq!(is_to_be_archived(&deleting(&[], labels)), expected);
    }
}
