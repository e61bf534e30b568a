//! Actors, resources and object names.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::user::User;

/// The author of a write: a simulated controller, a user, or a client's user agent. The recorder
/// stores it with every write. The [crate's example](crate) filters the record by one.
#[derive(Debug, Clone)]
pub struct Actor {
    name: Arc<str>,
    /// In whose name it acts, if not in its own.
    user: Option<Arc<User>>,
    is_late: bool,
}

impl Actor {
    /// An actor of that name.
    pub fn new(name: impl AsRef<str>) -> Self {
        Actor {
            name: Arc::from(name.as_ref()),
            user: None,
            is_late: false,
        }
    }

    /// The client with this token's user: `system:serviceaccount:NAMESPACE:NAME@NODE` is an account in a pod of a node.
    pub(crate) fn of_token(user: &str) -> Self {
        match User::on_node(user) {
            Some(user) => Actor::new(&user.name).acting_as(&user),
            None => Actor::new(user),
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The program that acts: its name up to a slash. Replicas and kubelets append their number or node, as in `kubelet/node-1`.
    pub fn program(&self) -> &str {
        program_of(&self.name)
    }

    /// The same actor in the name of another user.
    pub(crate) fn acting_as(mut self, user: &User) -> Self {
        self.user = Some(Arc::new(user.clone()));
        self
    }

    /// Whether it had given up this request when the server handled it: see [`Fault::handle_late`](crate::Fault::handle_late).
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// The same actor, which has given up its request: see [`Actor::is_late`].
    #[must_use]
    pub fn late(self) -> Self {
        Self {
            is_late: true,
            ..self
        }
    }

    /// The user as permissions and admission policies see it.
    pub(crate) fn user(&self) -> User {
        match &self.user {
            Some(user) => User::clone(user),
            None => User::named(&self.name),
        }
    }
}

/// See [`Actor::program`].
pub(crate) fn program_of(actor: &str) -> &str {
    actor.split_once('/').map_or(actor, |(program, _)| program)
}

impl PartialEq for Actor {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Actor {}

impl Hash for Actor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for Actor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Actor {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl From<&str> for Actor {
    fn from(name: &str) -> Self {
        Actor::new(name)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Group, version and plural resource. The example of [`Cluster`](crate::Cluster) names
/// ConfigMaps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    /// API group, empty for core.
    pub group: Cow<'static, str>,
    /// API version.
    pub version: Cow<'static, str>,
    /// Plural resource name.
    pub resource: Cow<'static, str>,
}

macro_rules! known {
    ($($(#[$doc:meta])* $name:ident = $group:literal / $version:literal / $resource:literal;)*) => {
        impl Gvr {
            $($(#[$doc])* pub const $name: Gvr = Gvr {
                group: Cow::Borrowed($group),
                version: Cow::Borrowed($version),
                resource: Cow::Borrowed($resource),
            };)*
        }
    };
}

known! {
    /// `v1` pods.
    PODS = ""/"v1"/"pods";
    /// `v1` nodes.
    NODES = ""/"v1"/"nodes";
    /// `v1` namespaces.
    NAMESPACES = ""/"v1"/"namespaces";
    /// `v1` events.
    EVENTS = ""/"v1"/"events";
    /// `v1` configmaps.
    CONFIGMAPS = ""/"v1"/"configmaps";
    /// `v1` secrets.
    SECRETS = ""/"v1"/"secrets";
    /// `v1` serviceaccounts.
    SERVICEACCOUNTS = ""/"v1"/"serviceaccounts";
    /// `v1` persistentvolumeclaims.
    PERSISTENTVOLUMECLAIMS = ""/"v1"/"persistentvolumeclaims";
    /// `v1` persistentvolumes.
    PERSISTENTVOLUMES = ""/"v1"/"persistentvolumes";
    /// `coordination.k8s.io/v1` leases.
    LEASES = "coordination.k8s.io"/"v1"/"leases";
    /// `apiextensions.k8s.io/v1` customresourcedefinitions.
    CUSTOMRESOURCEDEFINITIONS = "apiextensions.k8s.io"/"v1"/"customresourcedefinitions";
    /// `apps/v1` replicasets.
    REPLICASETS = "apps"/"v1"/"replicasets";
    /// `apps/v1` deployments.
    DEPLOYMENTS = "apps"/"v1"/"deployments";
    /// `batch/v1` jobs.
    JOBS = "batch"/"v1"/"jobs";
}

impl Gvr {
    /// Any resource; an unknown one answers "not served".
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Gvr {
            group: Cow::Owned(group.into()),
            version: Cow::Owned(version.into()),
            resource: Cow::Owned(resource.into()),
        }
    }

    /// `group/version`, or only the version for core: the wire's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.to_string();
        }
        format!("{}/{}", self.group, self.version)
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.resource)
    }
}

/// The subresource that a write goes to. Part of a [`Write`](crate::Write). See the [crate's
/// example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Subresource {
    /// The object itself.
    #[default]
    None,
    /// `/status`.
    Status,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/scale` of a kind with replicas; the write changes the object's `spec.replicas`.
    Scale,
}

impl Subresource {
    /// The last path segment; empty for the object itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Subresource::None => "",
            Subresource::Status => "status",
            Subresource::Finalize => "finalize",
            Subresource::Scale => "scale",
        }
    }
}

/// Name of one object inside its resource. The example of [`Cluster`](crate::Cluster) names an
/// object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key; `None` for cluster-scoped objects.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        ObjectKey {
            namespace: Arc::from(namespace.unwrap_or_default()),
            name: Arc::from(name),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
