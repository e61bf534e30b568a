//! Why a workflow may go. No variant can be had without its proof (invariant EVIDENCE).

use belayer_core::facts::LiveAnswer;
use belayer_core::moment::LogicalTime;
use belayer_holds::decision;
use belayer_holds::namespace::IgnoredNamespace;

use crate::look::PodsState;

/// Why the hold is taken off a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Row 1: nothing selects the workflow at the version the patch names.
    Unselected(NotSelected),
    /// Rows 5 and 6: none of its pods carries the pod-status hold.
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
    /// The namespace is left alone, by a live look begun after the workflow was seen.
    ByNamespace(IgnoredNamespace),
}

/// A live list of pods, begun after the workflow's deletion was seen, found none of its UID that
/// carries the pod-status hold (invariant ORDER). A pod that only pod-recreation holds has no result.
///
/// The cache would not do: a pod that was created a moment ago may not be in it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPodHeld(LogicalTime);

impl NoPodHeld {
    /// The proof, if `fact` gives it for a workflow whose deletion was seen at `deletion_seen`.
    pub fn prove(fact: &LiveAnswer<PodsState>, deletion_seen: LogicalTime) -> Option<Self> {
        let fresh = fact.begun() > deletion_seen;
        (fresh && *fact.answer() == PodsState::NoneHeld).then(|| Self(fact.begun()))
    }

    /// When the look began.
    pub fn begun(self) -> LogicalTime {
        self.0
    }
}
