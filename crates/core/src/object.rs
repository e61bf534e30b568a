//! The identity of an object: key, UID, resourceVersion, kind, owner.
//!
//! ```
//! use belayer_core::{ObjectKey, Resource};
//!
//! let key = ObjectKey::new("shop", "web-0");
//! assert_eq!(key.to_string(), "shop/web-0");
//! let deployments = Resource::new("apps", "v1", "Deployment", "deployments");
//! assert_eq!(deployments.object_path(&key), "/apis/apps/v1/namespaces/shop/deployments/web-0");
//! assert_eq!(deployments.api_version(), "apps/v1");
//! ```

use std::fmt;
use std::sync::Arc;

pub mod path;

/// Namespace and name of an object of a known kind. Cluster-scoped objects have no namespace.
///
/// A key names a place, not an object: two successive objects with the same name share it. The
/// [`Uid`] is the identity.
///
/// The [module's example](self) makes the path of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for cluster-scoped kinds.
    namespace: Arc<str>,
    name: Arc<str>,
}

impl ObjectKey {
    /// A key in a namespace. An empty `namespace` means cluster-scoped.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A key of a cluster-scoped kind.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }

    /// The namespace; `None` for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(&*self.namespace)
    }

    /// The namespace as it is shared by all keys made from the same allocation; may be empty.
    pub fn shared_namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The server's identity of one object, never reused. Compared as text.
///
/// The server writes 36 characters. They are stored inline, without an allocation, because every
/// object of a store has a UID.
///
/// ```
/// use belayer_core::Uid;
///
/// let uid = Uid::new("4a2f7f0e-2c3b-4c56-9d0e-0b1f6c1d2e3f");
/// assert_eq!(uid.as_str().len(), 36);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Text);

/// Each text has only one representation, so that the derived equality is correct.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    /// At most `UID_LENGTH` bytes, padded with zeros.
    Short {
        length: u8,
        bytes: [u8; UID_LENGTH],
    },
    Long(Arc<str>),
}

/// The length of an RFC 4122 UUID in its usual form.
const UID_LENGTH: usize = 36;

impl Text {
    fn as_str(&self) -> &str {
        match self {
            Self::Short { length, bytes } => {
                let bytes = bytes.get(..usize::from(*length)).unwrap_or_default();
                // `bytes` was valid UTF-8 when it was stored.
                std::str::from_utf8(bytes).unwrap_or_default()
            }
            Self::Long(text) => text,
        }
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Uid {
    /// The UID as the server wrote it.
    pub fn new(uid: impl AsRef<str>) -> Self {
        let uid = uid.as_ref();
        let mut bytes = [0; UID_LENGTH];
        Self(match bytes.get_mut(..uid.len()) {
            Some(space) => {
                space.copy_from_slice(uid.as_bytes());
                Text::Short {
                    length: uid.len() as u8,
                    bytes,
                }
            }
            None => Text::Long(uid.into()),
        })
    }

    /// The UID as the server wrote it.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A version of one resource's collection.
///
/// Comparable within one resource since Kubernetes 1.35 (KEP-5504) and in practice on etcd
/// before. Versions of different resources are never compared.
///
/// ```
/// use belayer_core::ResourceVersion;
///
/// let version = ResourceVersion::new(8);
/// assert!(version > ResourceVersion::new(7));
/// assert_eq!(version.get(), 8);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// From the server's number.
    pub const fn new(version: u64) -> Self {
        Self(version)
    }

    /// Parses the server's text; `None` if it is not a number.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A kind as the API serves it: its names and its paths. The [module's example](self) names a kind
/// that this crate does not contain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Version within the group, such as `v1alpha1`.
    pub version: Arc<str>,
    /// Kind, such as `Workflow`.
    pub kind: Arc<str>,
    /// Lower-case plural, such as `workflows`: the path segment.
    pub plural: Arc<str>,
}

impl Resource {
    /// A kind of the API.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// Pods.
    pub fn pods() -> Self {
        Self::new("", "v1", "Pod", "pods")
    }

    /// Namespaces.
    pub fn namespaces() -> Self {
        Self::new("", "v1", "Namespace", "namespaces")
    }

    /// Nodes.
    pub fn nodes() -> Self {
        Self::new("", "v1", "Node", "nodes")
    }

    /// Persistent volume claims.
    pub fn pvcs() -> Self {
        Self::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    }

    /// Config maps.
    pub fn config_maps() -> Self {
        Self::new("", "v1", "ConfigMap", "configmaps")
    }

    /// Leases, which replicas use to elect a leader and nodes use as heartbeats.
    pub fn leases() -> Self {
        Self::new("coordination.k8s.io", "v1", "Lease", "leases")
    }

    /// Whether both are the same kind: the versions of one group and plural serve the same objects.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        self.group == other.group && self.plural == other.plural
    }

    /// The value of the label `kind` of its metrics: its Kind, followed by the group if another one of `all` has the same Kind.
    pub fn label_among<'a>(&self, all: impl IntoIterator<Item = &'a Self>) -> String {
        let is_like = |other: &Self| other.kind == self.kind && !self.is_same_kind(other);
        if all.into_iter().any(is_like) && !self.group.is_empty() {
            format!("{}.{}", self.kind, self.group)
        } else {
            self.kind.to_string()
        }
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection, in one namespace or over all of them.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let mut path = path::of_version(&self.group, &self.version);
        if let Some(namespace) = namespace {
            path::push(&mut path, "namespaces");
            path::push(&mut path, namespace);
        }
        path::push(&mut path, &self.plural);
        path
    }

    /// The path of one object. A name cannot lead the path to another object: see [`path`].
    pub fn object_path(&self, key: &ObjectKey) -> String {
        let mut path = self.path(key.namespace());
        path::push(&mut path, key.name());
        path
    }

    /// The path of a subresource of one object, such as `status`.
    pub fn subresource_path(&self, key: &ObjectKey, subresource: &str) -> String {
        let mut path = self.object_path(key);
        path::push(&mut path, subresource);
        path
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// The owner reference with `controller: true`. [`ObjectMeta`](crate::slim::ObjectMeta) contains
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// `group/version` of the owner, as written in the reference.
    pub api_version: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner, in the namespace of the owned object.
    pub name: Arc<str>,
    /// UID of the owner, its identity.
    pub uid: Uid,
}

impl OwnerReference {
    /// API group of the owner; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_prints_like_kubectl() {
        assert_eq!(ObjectKey::new("shop", "web-0").to_string(), "shop/web-0");
        assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
    }

    #[test]
    fn uids_of_any_length_compare_as_text() {
        let long = format!("{}-and-more", "0a1b2c3d-0000-4000-8000-00000000002a");
        let uids = ["", "a", "b", &long[..36], &*long, "é"];
        for one in uids {
            assert_eq!(Uid::new(one).as_str(), one);
            for other in uids {
                let (have, wanted) = (Uid::new(one), Uid::new(other));
                assert_eq!(have == wanted, one == other, "{one} {other}");
                assert_eq!(have.cmp(&wanted), one.cmp(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn paths_follow_the_group() {
        let pods = Resource::pods();
        assert_eq!(pods.path(None), "/api/v1/pods");
        assert_eq!(
            pods.object_path(&ObjectKey::new("a", "b")),
            "/api/v1/namespaces/a/pods/b"
        );
        let workflows = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
        assert_eq!(
            workflows.path(Some("a")),
            "/apis/argoproj.io/v1alpha1/namespaces/a/workflows"
        );
        assert_eq!(workflows.to_string(), "workflows.argoproj.io");
    }

    #[test]
    fn versions_that_are_not_numbers_are_refused() {
        assert_eq!(ResourceVersion::parse("12"), Some(ResourceVersion::new(12)));
        assert_eq!(ResourceVersion::parse("1-2"), None);
    }
}
