//! The live reads and delays that a decision about a pod may require. A rule of
//! [`row`](crate::row) asks for it.

use std::fmt;

use belayer_core::object::Uid;
use belayer_holds::namespace::NamespaceQuery;
use belayer_holds::owner::OwnerQuery;

use crate::argo::NodeQuery;
use crate::status::StatusQuery;

/// A live read, or a delay, that a decision about a pod requires. A rule of [`row`](crate::row)
/// asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodQuery {
    /// Is this owner gone, being deleted, or finished?
    Owner(OwnerQuery),
    /// Is this namespace being deleted, or ignored?
    Namespace(NamespaceQuery),
    /// Which nodes does the owner's status show fulfilled?
    Status(StatusQuery),
    /// Is its node lost?
    Node(NodeQuery),
    /// Has a delay expired?
    Delay(Delay),
}

/// A delay for the pod of this UID. A rule of [`row`](crate::row) asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Delay {
    /// Its cleanup, as its annotation says.
    Cleanup(Uid),
    /// Its release after the loss of its node: `nodeLostDelay`.
    NodeLost(Uid),
    /// Its release after its deletion: `releaseAfter`.
    ReleaseAfter(Uid),
}

impl fmt::Display for PodQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(query) => query.fmt(f),
            Self::Namespace(query) => query.fmt(f),
            Self::Status(query) => query.fmt(f),
            Self::Node(query) => query.fmt(f),
            Self::Delay(Delay::Cleanup(_)) => f.write_str("has the delay of its cleanup expired"),
            Self::Delay(Delay::NodeLost(_)) => f.write_str("has nodeLostDelay expired"),
            Self::Delay(Delay::ReleaseAfter(_)) => f.write_str("has releaseAfter expired"),
        }
    }
}
