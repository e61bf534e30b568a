//! The live reads that a decision about a workflow may require. A rule of [`row`](crate::row) asks
//! for it.

use std::fmt;

use belayer_holds::namespace::NamespaceQuery;

use crate::pods_query::PodsQuery;

/// A live read that a decision about a workflow requires. A rule of [`row`](crate::row) asks for
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkflowQuery {
    /// Is any of its pods still held by the pod-status finalizer?
    Pods(PodsQuery),
    /// Is this namespace ignored?
    Namespace(NamespaceQuery),
}

impl fmt::Display for WorkflowQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(query) => query.fmt(f),
            Self::Namespace(query) => query.fmt(f),
        }
    }
}
