//! Why a workflow may be released. No variant can be built without its proof (invariant EVIDENCE).
//! A release by a rule of [`row`](crate::row) needs it.

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::argo;
use belayer_holds::decision;
use belayer_holds::selection::NotSelected;

use crate::pods_query::PodsState;

/// Why a workflow is released. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Evidence {
    /// Rule 1: nothing selects the workflow at the version the patch names.
    Unselected(NotSelected),
    /// Rules 5 and 6: none of its pods is held by the pod-status finalizer.
    NoPodHeld(NoPodHeld),
    /// Rule 8: another controller keeps the workflow, and Argo goes on running it.
    KeptRunning(KeptRunning),
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = <Evidence as strum::VariantNames>::VARIANTS;

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        self.into()
    }
}

/// A live list of pods, begun after the workflow's deletion was seen, found no pod of its UID with the pod-status
/// finalizer (invariant ORDER). A pod that only pod-recreation holds has no result.
///
/// The cache is not sufficient: it may lack a pod that was just created.
///
/// A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPodHeld(());

impl NoPodHeld {
    /// Returns the proof if `answer` provides it for a workflow whose deletion was seen at
    /// `deletion_seen`. `indexed` is the number of its held pods in the index, read after the answer.
    pub fn prove(
        answer: &LiveAnswer<PodsState>,
        deletion_seen: LogicalTime,
        workflow: &Uid,
        indexed: Option<usize>,
    ) -> Option<Self> {
        let fresh = answer.begun() > deletion_seen;
        let none = answer.answer().shows_none_of(workflow, indexed);
        (fresh && none).then_some(Self(()))
    }
}

/// The workflow, at the version that the patch names, is being deleted, unfinished and kept by a
/// finalizer of another controller: Argo goes on running it, and its pods are held until their
/// results are read (A16). Belayer's finalizer on the workflow would protect nothing. A release by
/// a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptRunning(());

impl KeptRunning {
    /// Returns the proof if `workflow` is such a workflow.
    pub fn prove(workflow: &ObjectMeta) -> Option<Self> {
        argo::kept_running_by(workflow).map(|_| Self(()))
    }

    /// A proof for tests of decisions.
    #[cfg(test)]
    pub(crate) fn scripted() -> Self {
        Self(())
    }
}
