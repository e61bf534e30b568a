//! The live reads that a decision about a pod may require. A rule of [`row`](crate::row) asks for
//! it.

use std::fmt;

use belayer_holds::namespace::NamespaceQuery;
use belayer_holds::owner::OwnerQuery;

/// A live read that a decision about a pod requires. A rule of [`row`](crate::row) asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecreationQuery {
    /// Is its record or its owner gone, or being deleted?
    Owner(OwnerQuery),
    /// Is its namespace ignored?
    Namespace(NamespaceQuery),
}

impl fmt::Display for RecreationQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(query) => query.fmt(f),
            Self::Namespace(query) => query.fmt(f),
        }
    }
}
