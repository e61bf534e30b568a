//! RBAC permissions as data. Each component lists its own once; the manifests, the pre-flight check and its
//! test are all compared with that list.
//!
//! ```
//! use belayer_holds::permissions::Permission;
//!
//! let read = Permission::new("batch", "jobs", "get", "no pod of a Job is released");
//! assert!(!read.is_write_anywhere());
//! ```

use std::fmt;
use std::sync::Arc;

use crate::names;
use belayer_core::object::Resource;

/// Where a permission is required. Part of a [`Permission`]. See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In every namespace, or for a cluster-scoped kind: a ClusterRole.
    Cluster,
    /// In Belayer's own namespace: a Role.
    OwnNamespace,
}

/// One verb on one resource. The [module's example](self) has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    /// Cluster-wide or in Belayer's own namespace.
    pub place: Place,
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural of the resource, such as `pods`.
    pub resource: Arc<str>,
    /// `status`, or empty for the resource itself.
    pub subresource: &'static str,
    /// The only object it covers; `None` for all.
    pub name: Option<Arc<str>>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The consequence if it is missing; printed after "without it: ".
    pub without: &'static str,
}

impl Permission {
    /// `verb` on a resource in every namespace.
    pub fn new(group: &str, resource: &str, verb: &'static str, without: &'static str) -> Self {
        Self {
            place: Place::Cluster,
            group: group.into(),
            resource: resource.into(),
            subresource: "",
            name: None,
            verb,
            without,
        }
    }

    /// Several verbs on one kind with the same purpose.
    pub fn on(
        kind: &Resource,
        verbs: &'static [&'static str],
        without: &'static str,
    ) -> impl Iterator<Item = Self> {
        verbs
            .iter()
            .map(move |verb| Self::new(&kind.group, &kind.plural, verb, without))
    }

    /// Restricts it to Belayer's own namespace, and to one object if `name` is given.
    #[must_use]
    pub fn own(self, name: Option<&str>) -> Self {
        Self {
            place: Place::OwnNamespace,
            name: name.map(Arc::from),
            ..self
        }
    }

    /// Whether it changes objects of any namespace, so that bindings of single namespaces could grant it.
    pub fn is_write_anywhere(&self) -> bool {
        self.place == Place::Cluster && !FOLLOW.contains(&self.verb)
    }

    /// The same permission on a subresource.
    #[must_use]
    pub fn subresource(self, subresource: &'static str) -> Self {
        Self {
            subresource,
            ..self
        }
    }
}

/// `patch pods`, `patch gates.belayer.dev belayer-gate`, as `kubectl auth can-i` accepts it.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

/// The verbs to read and watch a kind.
pub const FOLLOW: &[&str] = &["get", "list", "watch"];

/// Permissions that every controller requires. Each is a [`Permission`]. See the [example](self).
pub fn common() -> Vec<Permission> {
    const BLIND: &str =
        "no controller starts: it is unknown which namespaces are being deleted or ignored";
    const MUTE: &str = "no Events are recorded that explain why objects wait";
    const SWITCH: &str =
        "the gate does not close if too many deletions wait, and draining is not detected";
    const CLOSED: &str = "the admission policies add no hold: the gate opens only if a policy limits what Belayer's account \
                          writes";
    let kind = crate::gate::resource();
    let gate = |verb| Permission::new(&kind.group, &kind.plural, verb, SWITCH);
    let limits = |name: &str, plural| Permission {
        name: Some(Arc::from(name)),
        ..Permission::new("admissionregistration.k8s.io", plural, "get", CLOSED)
    };
    let namespaces = Resource::namespaces();
    let mut permissions: Vec<Permission> = Permission::on(&namespaces, FOLLOW, BLIND).collect();
    permissions.extend([
        Permission::new("", "events", "create", MUTE),
        Permission::new(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "get",
            "objects of owners whose kind was deleted stay held until the kind is served again",
        ),
    ]);
    permissions
        .extend(["get", "list", "watch", "patch"].map(|verb| gate(verb).own(Some(names::GATE))));
    permissions.push(gate("create").own(None));
    for name in names::WRITE_POLICIES {
        permissions.push(limits(name, "validatingadmissionpolicies"));
        permissions.push(limits(name, "validatingadmissionpolicybindings"));
    }
    permissions
}

/// Permissions for leader election by this Lease, which ensures that only one of several replicas
/// writes. Each is a [`Permission`]. See the [example](self).
pub fn election(lease: &str) -> Vec<Permission> {
    const NO_LEADER: &str = "no leader is elected: no hold is added and none is released";
    const LATER: &str =
        "after a leader has stopped, another replica takes over seconds later instead of at once";
    let leases = Resource::leases();
    let permission = |verb, without| Permission::new(&leases.group, &leases.plural, verb, without);
    vec![
        permission("get", NO_LEADER).own(Some(lease)),
        permission("watch", LATER).own(Some(lease)),
        permission("patch", NO_LEADER).own(Some(lease)),
        permission("create", NO_LEADER).own(None),
    ]
}

/// Permissions to find out who may read the metrics. Each is a [`Permission`]. See the
/// [example](self).
pub fn metrics_authorization() -> Vec<Permission> {
    const CLOSED: &str = "no metrics are served: it is unknown who may read them";
    vec![
        Permission::new("authentication.k8s.io", "tokenreviews", "create", CLOSED),
        Permission::new(
            "authorization.k8s.io",
            "subjectaccessreviews",
            "create",
            CLOSED,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_displayed_as_kubectl_accepts_it() {
        let pods = Permission::new("", "pods", "patch", "x");
        assert_eq!(pods.to_string(), "patch pods");
        assert_eq!(pods.subresource("status").to_string(), "patch pods/status");
        let gate = Permission::new("belayer.dev", "gates", "get", "x").own(Some("belayer-gate"));
        assert_eq!(gate.to_string(), "get gates.belayer.dev belayer-gate");
        let workflows = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
        let follow: Vec<String> = Permission::on(&workflows, FOLLOW, "x")
            .map(|r| r.to_string())
            .collect();
        assert_eq!(
            follow,
            [
                "get workflows.argoproj.io",
                "list workflows.argoproj.io",
                "watch workflows.argoproj.io"
            ]
        );
    }
}
