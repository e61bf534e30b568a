//! Why a workflow may be released. No variant can be built without its proof (invariant EVIDENCE).

use belayer_core::logical_time::LogicalTime;
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision;
use belayer_holds::namespace::IgnoredNamespace;

use crate::pods_query::PodsState;

/// Why a workflow is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Rule 1: nothing selects the workflow at the version the patch names.
    Unselected(NotSelected),
    /// Rules 5 and 6: none of its pods is held by the pod-status finalizer.
    NoPodHeld(NoPodHeld),
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = &["Unselected", "NoPodHeld"];

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        match self {
            Self::Unselected(_) => "Unselected",
            Self::NoPodHeld(_) => "NoPodHeld",
        }
    }
}

/// Why nothing selects a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSelected {
    /// By its own labels, or by the names of namespaces in the configuration.
    ByRules,
    /// Its namespace is ignored, by a live read begun after the workflow was seen.
    ByNamespace(IgnoredNamespace),
}

/// A live list of pods, begun after the workflow's deletion was seen, found no pod of its UID with the pod-status
/// finalizer (invariant ORDER). A pod that only pod-recreation holds has no result.
///
/// The cache is not sufficient: it may lack a pod that was just created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPodHeld(LogicalTime);

impl NoPodHeld {
    /// Returns the proof if `answer` provides it for a workflow whose deletion was seen at `deletion_seen`.
    pub fn prove(answer: &LiveAnswer<PodsState>, deletion_seen: LogicalTime) -> Option<Self> {
        let fresh = answer.begun() > deletion_seen;
        (fresh && *answer.answer() == PodsState::NoneHeld).then(|| Self(answer.begun()))
    }

    /// When the live read began.
    pub fn begun(self) -> LogicalTime {
        self.0
    }
}
