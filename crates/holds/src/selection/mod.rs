//! What a configuration selects: labels, namespaces, kinds, and how many unselected objects may be released at
//! once. Shared by all components.

pub mod config;

mod guard;
mod labels;
mod selector;
mod unselected;

pub use guard::{Exceeded, Guard, MassRelease, Scope, UnselectedBy};
pub use labels::{InvalidLabel, MatchLabels, is_dns_label, is_dns_subdomain, is_label_value};
pub use selector::{Namespaces, Operator, Requirement, Selector};
pub use unselected::{MaxUnselected, ParseMaxUnselectedError};

/// Whether the configuration selects an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Unknown, for this reason.
    Unknown(String),
}

impl From<bool> for Selected {
    fn from(selected: bool) -> Self {
        if selected { Self::Yes } else { Self::No }
    }
}
