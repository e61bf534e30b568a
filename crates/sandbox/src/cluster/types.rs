//! Types shared by all calls of a [`Cluster`](super::Cluster).

use std::sync::Arc;

use serde_json::Value;

use crate::address::Actor;
use crate::error::ApiError;

/// A change to an object. An argument of [`Cluster::patch`](crate::Cluster::patch).
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// RFC 6902: the array of operations.
    Json(Value),
    /// Kubernetes' strategic merge patch; built-in kinds only.
    Strategic(Value),
    /// Server-side apply: the configuration.
    Apply(Value),
}

impl Patch {
    /// The patch's document.
    pub fn body(&self) -> &Value {
        match self {
            Patch::Merge(body)
            | Patch::Json(body)
            | Patch::Strategic(body)
            | Patch::Apply(body) => body,
        }
    }
}

/// Options of create, update and patch. An argument of
/// [`Cluster::create`](crate::Cluster::create).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `dryRun=All`: everything is checked, nothing is stored.
    pub dry_run: bool,
    /// How unknown fields are handled.
    pub field_validation: FieldValidation,
    /// The manager in `metadata.managedFields`; default: the actor.
    pub manager: Option<Arc<str>>,
    /// Server-side apply takes fields over from other managers.
    pub force: bool,
    /// The refusal of a request that may change the object, but not create it. By default it may.
    pub create_forbidden: Option<ApiError>,
}

/// `fieldValidation` of a write. Part of [`WriteOptions`](crate::WriteOptions), which
/// [`Cluster::create`](crate::Cluster::create) takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped.
    Ignore,
    /// Unknown fields are dropped, and the client gets a warning.
    #[default]
    Warn,
    /// Unknown fields are refused.
    Strict,
}

impl WriteOptions {
    /// Sets the manager's name, as in `metadata.managedFields`.
    pub(crate) fn managed_by(&self, actor: &Actor) -> Self {
        let mut options = self.clone();
        let name = actor.as_str().split('/').next().unwrap_or_default();
        options.manager.get_or_insert_with(|| Arc::from(name));
        options
    }
}

/// Preconditions of a delete. Part of [`DeleteOptions`](crate::DeleteOptions), which
/// [`Cluster::delete`](crate::Cluster::delete) takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// 409 unless the UID is this one.
    pub uid: Option<String>,
    /// 409 unless the version is this one.
    pub resource_version: Option<String>,
}

/// What happens to the dependents. Part of [`DeleteOptions`](crate::DeleteOptions), which
/// [`Cluster::delete`](crate::Cluster::delete) takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They lose the owner reference and stay.
    Orphan,
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
}

impl Propagation {
    /// The policy as in the request.
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        }
    }
}

/// `metav1.DeleteOptions`. An argument of [`Cluster::delete`](crate::Cluster::delete).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds; `None` is the kind's default.
    pub grace_period_seconds: Option<i64>,
    /// `None` is the kind's default.
    pub propagation_policy: Option<Propagation>,
    /// Checked before anything else.
    pub preconditions: Preconditions,
    /// `dryRun=All`.
    pub dry_run: bool,
}

/// The result of a delete. Returned by [`Cluster::delete`](crate::Cluster::delete).
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object is gone; this is its last state.
    Gone(Arc<Value>),
    /// The object waits for its finalizers or its grace period.
    Terminating(Arc<Value>),
}

impl Deleted {
    /// The object, in either case.
    pub fn object(&self) -> &Arc<Value> {
        match self {
            Deleted::Gone(object) | Deleted::Terminating(object) => object,
        }
    }
}

/// `resourceVersionMatch` of a list. Part of [`ListOptions`](crate::ListOptions), which
/// [`Cluster::list`](crate::Cluster::list) takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// The list as it was at that version.
    Exact,
    /// The list at that version or any later one.
    NotOlderThan,
}

/// Options of list and delete-collection. An argument of [`Cluster::list`](crate::Cluster::list).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// In the wire syntax; empty for all.
    pub label_selector: String,
    /// In the wire syntax; empty for all.
    pub field_selector: String,
    /// Page size; zero for everything.
    pub limit: usize,
    /// From the previous page.
    pub continue_token: String,
    /// In the wire syntax; empty for the newest.
    pub resource_version: String,
    /// How `resource_version` is matched.
    pub version_match: Option<VersionMatch>,
}

impl ListOptions {
    /// Objects with these labels.
    pub fn labels(selector: impl Into<String>) -> Self {
        ListOptions {
            label_selector: selector.into(),
            ..ListOptions::default()
        }
    }

    /// Objects with these fields.
    pub fn fields(selector: impl Into<String>) -> Self {
        ListOptions {
            field_selector: selector.into(),
            ..ListOptions::default()
        }
    }
}

/// One page of a list. Returned by [`Cluster::list`](crate::Cluster::list).
#[derive(Debug, Clone)]
pub struct ListPage {
    /// Ordered by namespace, then name.
    pub items: Vec<Arc<Value>>,
    /// The version of the whole list, from which a watch continues.
    pub resource_version: u64,
    /// For the next page; empty on the last.
    pub continue_token: String,
    /// How many objects follow this page; `None` with selectors, as the server does not count them then.
    pub remaining: Option<u64>,
}
