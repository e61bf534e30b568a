//! What a decision about a workflow may have to find out.

use std::fmt;

use belayer_holds::namespace::NamespaceQuery;

use crate::look::PodsQuery;

/// A question about a workflow's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkflowQuery {
    /// Does any pod of it carry the pod-status hold?
    Pods(PodsQuery),
    /// Is this namespace left alone?
    Namespace(NamespaceQuery),
}

impl fmt::Display for WorkflowQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(question) => question.fmt(f),
            Self::Namespace(question) => question.fmt(f),
        }
    }
}
