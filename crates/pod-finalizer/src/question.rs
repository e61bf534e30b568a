//! What a decision about a pod may have to find out.

use std::fmt;

use belayer_core::facts::{NamespaceQuestion, OwnerQuestion};

/// A question about a pod's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodQuestion {
    /// Is this owner gone, being deleted, or finished?
    Owner(OwnerQuestion),
    /// Is this namespace being deleted, or left alone?
    Namespace(NamespaceQuestion),
}

impl fmt::Display for PodQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(question) => question.fmt(f),
            Self::Namespace(question) => question.fmt(f),
        }
    }
}
