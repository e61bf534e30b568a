//! What a configuration selects: labels, namespaces, kinds, and how many unselected objects may be released at
//! once. Shared by all components.
//!
//! ```
//! use belayer_holds::selection::{MatchLabels, Operator, Requirement, Selector};
//!
//! let value = Operator::In(["web".into()].into());
//! let selector = Selector::new([Requirement::new("app", value)?]);
//! let labels = [("app", "web")].into_iter().collect();
//! assert!(selector.matches(&labels));
//!
//! let labels = [("app", "db")].into_iter().collect();
//! assert!(!MatchLabels::new([("app", "web")])?.found_in(&labels));
//!
//! let selector: Selector = "app in (web, db), !test".parse()?;
//! assert!(selector.matches(&labels));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod config;

mod guard;
mod labels;
mod parse;
mod selector;
mod unselected;

use crate::namespace::IgnoredNamespace;

pub use guard::{Exceeded, Guard, MassRelease, Scope, UnselectedBy};
pub use labels::{InvalidLabel, MatchLabels, is_dns_label, is_dns_subdomain, is_label_value};
pub use parse::ParseSelectorError;
pub use selector::{Namespaces, Operator, Requirement, Selector};
pub use unselected::{MaxUnselected, ParseMaxUnselectedError};

/// Whether the configuration selects an object. A [`Selector`] decides it. See the
/// [example](crate::selection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Unknown, for this reason.
    Unknown(String),
}

/// Whether a component selects an object, as far as the caches show. A [`Selector`] and the object's namespace decide it.
/// See the [example](crate::selection).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// It does.
    Yes,
    /// The configuration does not, or the object itself: by labels, annotations, its owner or the name of its namespace.
    No,
    /// It would, but the namespace has the label `belayer.dev/ignore`.
    Ignored,
}

/// Why an object is not selected. A release by a [`Selection`] needs it. See the
/// [example](crate::selection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSelected {
    /// By the configuration or the object itself, at the version that the patch names.
    ByConfiguration,
    /// Its namespace is ignored, by a live read begun after the object was first seen.
    ByNamespace(IgnoredNamespace),
}

impl From<bool> for Selected {
    fn from(selected: bool) -> Self {
        if selected { Self::Yes } else { Self::No }
    }
}
