//! The live reads that a decision about a PVC may require.

use std::fmt;

use belayer_holds::owner::OwnerQuery;

use crate::look::PodsQuery;

/// A live read that a decision about a PVC requires.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimQuery {
    /// Which PVCs do the pods of its namespace use?
    Pods(PodsQuery),
    /// Has the Workflow that owns it finished?
    Owner(OwnerQuery),
}

impl fmt::Display for ClaimQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(question) => question.fmt(f),
            Self::Owner(question) => question.fmt(f),
        }
    }
}
