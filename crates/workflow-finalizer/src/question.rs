//! What a decision about a workflow may have to find out.

use std::fmt;

use belayer_holds::namespace::NamespaceQuestion;

use crate::look::PodsQuestion;

/// A question about a workflow's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkflowQuestion {
    /// Does any pod of it carry the pod-status hold?
    Pods(PodsQuestion),
    /// Is this namespace left alone?
    Namespace(NamespaceQuestion),
}

impl fmt::Display for WorkflowQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(question) => question.fmt(f),
            Self::Namespace(question) => question.fmt(f),
        }
    }
}
