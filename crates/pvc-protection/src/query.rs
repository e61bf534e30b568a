//! The live reads that a decision about a PVC may require. A rule of [`row`](crate::row) asks for
//! it; which pods count is decided by [`uses`](crate::uses::uses), as in the [crate's
//! example](crate).

use std::fmt;

use belayer_holds::owner::OwnerQuery;

use crate::pods_query::PodsQuery;

/// A live read that a decision about a PVC requires. A rule of [`row`](crate::row) asks for it;
/// which pods count is decided by [`uses`](crate::uses::uses), as in the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PvcQuery {
    /// Which PVCs do the pods of its namespace use?
    Pods(PodsQuery),
    /// Has the Workflow that owns it finished?
    Owner(OwnerQuery),
}

impl fmt::Display for PvcQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(query) => query.fmt(f),
            Self::Owner(query) => query.fmt(f),
        }
    }
}
