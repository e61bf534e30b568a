//! What a decision about a PVC may have to find out.

use std::fmt;

use belayer_holds::owner::OwnerQuestion;

use crate::look::PodsQuestion;

/// A question that a decision about a PVC needs answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimQuestion {
    /// Which PVCs do the pods of its namespace use?
    Pods(PodsQuestion),
    /// Has the Workflow that owns it finished?
    Owner(OwnerQuestion),
}

impl fmt::Display for ClaimQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(question) => question.fmt(f),
            Self::Owner(question) => question.fmt(f),
        }
    }
}
