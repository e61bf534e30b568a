//! What a decision about a pod may have to find out.

use std::fmt;

use belayer_core::object::Uid;
use belayer_holds::namespace::NamespaceQuery;
use belayer_holds::owner::OwnerQuery;

use crate::argo::NodeQuery;
use crate::status::StatusQuery;

/// A question about a pod's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodQuery {
    /// Is this owner gone, being deleted, or finished?
    Owner(OwnerQuery),
    /// Is this namespace being deleted, or left alone?
    Namespace(NamespaceQuery),
    /// Which nodes does the owner's status show fulfilled?
    Status(StatusQuery),
    /// Is its node lost?
    Node(NodeQuery),
    /// Has a delay run out?
    Delay(Delay),
}

/// What is delayed, for a pod of this UID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Delay {
    /// Its cleanup, as its annotation says.
    Cleanup(Uid),
    /// Its release after the loss of its node: `nodeLostDelay`.
    NodeLost(Uid),
}

impl fmt::Display for PodQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(question) => question.fmt(f),
            Self::Namespace(question) => question.fmt(f),
            Self::Status(question) => question.fmt(f),
            Self::Node(question) => question.fmt(f),
            Self::Delay(Delay::Cleanup(_)) => f.write_str("has the delay of its cleanup run out"),
            Self::Delay(Delay::NodeLost(_)) => f.write_str("has nodeLostDelay run out"),
        }
    }
}
