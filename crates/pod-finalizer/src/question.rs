//! What a decision about a pod may have to find out.

use std::fmt;

use belayer_core::facts::{NamespaceQuestion, OwnerQuestion};
use belayer_core::object::Uid;

use crate::status::StatusQuestion;

/// A question about a pod's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodQuestion {
    /// Is this owner gone, being deleted, or finished?
    Owner(OwnerQuestion),
    /// Is this namespace being deleted, or left alone?
    Namespace(NamespaceQuestion),
    /// Which nodes does the owner's status show fulfilled?
    Status(StatusQuestion),
    /// Has the delay of the pod's cleanup run out?
    Delay(Uid),
}

impl fmt::Display for PodQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(question) => question.fmt(f),
            Self::Namespace(question) => question.fmt(f),
            Self::Status(question) => question.fmt(f),
            Self::Delay(_) => f.write_str("has the delay of its cleanup run out"),
        }
    }
}
