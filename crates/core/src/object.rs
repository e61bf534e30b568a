//! What identifies an object: key, UID, resourceVersion, kind, owner.

use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object of a known kind. Cluster-scoped objects have no namespace.
///
/// A key names a place, not an object: two objects of one name in a row share it. What decides
/// identity is the [`Uid`].
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

/// The server's identity of one object, never used twice. Compared as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl Uid {
    /// The UID as the server wrote it.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self(uid.into())
    }

    /// The UID as the server wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A version of one resource's collection.
///
/// Comparable within one resource since Kubernetes 1.35 (KEP-5504) and in practice on etcd
/// before. Versions of different resources are never compared.
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

/// A kind as the API serves it: what to call it and where to find it.
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
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// The path of one object.
    pub fn object_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.path(key.namespace()), key.name())
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

/// The owner reference with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// `group/version` of the owner, as written by whoever made the reference.
    pub api_version: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner, in the namespace of the object that is owned.
    pub name: Arc<str>,
    /// UID of the owner: what identifies it.
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
    fn paths_follow_the_group() {
        let pods = Resource::new("", "v1", "Pod", "pods");
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
