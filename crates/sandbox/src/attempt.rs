//! A write as admission sees it.

use serde_json::Value;

use crate::address::Gvr;
use crate::kinds::ResourceInfo;

/// The group of policies, which no policy is about.
#[cfg(feature = "cel")]
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// The operation as in a request.
    #[cfg_attr(not(feature = "cel"), expect(dead_code, reason = "policies need CEL"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// A write as policies see it.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cel"), expect(dead_code, reason = "policies need CEL"))]
pub(crate) struct Attempt<'a> {
    pub(crate) info: &'a ResourceInfo,
    pub(crate) gvr: &'a Gvr,
    /// The type of the object: `apiVersion` and `kind`.
    pub(crate) kind: (&'a str, &'a str),
    pub(crate) namespace: &'a str,
    /// Empty if the request has none, as a create with `generateName`.
    pub(crate) name: &'a str,
    pub(crate) subresource: &'static str,
    pub(crate) operation: Operation,
    pub(crate) object: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}
