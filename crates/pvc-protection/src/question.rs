//! What a decision about a claim may have to find out.

use std::fmt;

use belayer_core::facts::OwnerQuestion;

use crate::look::PodsQuestion;

/// A question about a claim's surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimQuestion {
    /// Which claims do the pods of its namespace use?
    Pods(PodsQuestion),
    /// What has become of the Workflow that owns it?
    Owner(OwnerQuestion),
}

impl fmt::Display for ClaimQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(question) => question.fmt(f),
            Self::Owner(question) => question.fmt(f),
        }
    }
}
