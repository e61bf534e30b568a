//! The served kinds: built-in ones and those of installed CRDs.

mod builtin;
pub(crate) mod crd;
pub(crate) mod data;
pub(crate) mod event;
pub(crate) mod lease;
mod messages;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod protobuf;
pub(crate) mod scale;
pub(crate) mod schema;
pub(crate) mod types;
pub(crate) mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::address::{Gvr, Subresource};

pub(crate) use builtin::builtin;

/// The scope of a kind. Part of [`ResourceInfo`](crate::ResourceInfo), which
/// [`Cluster::resource`](crate::Cluster::resource) returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Namespaced.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
}

/// The fields that a write through `/status` can change. Part of
/// [`ResourceInfo`](crate::ResourceInfo), which [`Cluster::resource`](crate::Cluster::resource)
/// returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFace {
    /// There is no status subresource.
    None,
    /// `status` and metadata (labels, annotations, finalizers), as pods and nodes have it.
    WithMetadata,
    /// `status` alone, as custom resources have it.
    StatusOnly,
}

/// Behaviour in which kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traits(u16);

impl Traits {
    /// Maintains `metadata.generation`.
    pub(crate) const GENERATION: Traits = Traits(1);
    /// PUT without resourceVersion is accepted.
    pub(crate) const UNCONDITIONAL_UPDATE: Traits = Traits(2);
    /// PUT of an unknown name creates the object.
    pub(crate) const CREATE_ON_UPDATE: Traits = Traits(4);
    /// An immediate delete returns the object, not a Status.
    pub(crate) const RETURNS_DELETED: Traits = Traits(8);
    /// The status in a create request is kept.
    pub(crate) const STATUS_ON_CREATE: Traits = Traits(16);
    /// Deletes orphan the dependents by default.
    pub(crate) const ORPHANS_BY_DEFAULT: Traits = Traits(32);
    /// Deletes ignore dependents.
    pub(crate) const NO_GARBAGE_COLLECTION: Traits = Traits(64);
    /// Names are any path segment (RBAC), not DNS subdomains.
    pub(crate) const PATH_NAMES: Traits = Traits(128);

    pub(crate) const fn and(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Traits) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One column of a table. Part of [`ResourceInfo`](crate::ResourceInfo). See the [crate's
/// example](crate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `date`, and so on.
    pub kind: String,
    /// `name` for the first column, else mostly empty.
    pub format: String,
    /// For humans.
    pub description: String,
    /// Zero is always shown, more only with `-o wide`.
    pub priority: i32,
    /// Simple JSON path of a CRD's printer column; empty for built-in columns.
    pub path: String,
}

/// One served version of a kind. Part of [`ResourceInfo`](crate::ResourceInfo), which
/// [`Cluster::resource`](crate::Cluster::resource) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// `v1`.
    pub name: String,
    /// The fields that `/status` of this version can change.
    pub status: StatusFace,
    /// Printer columns of a CRD; empty for built-in kinds.
    pub columns: Vec<Column>,
    /// Fields, as dotted paths, that field selectors support besides those of metadata.
    pub selectable: Vec<String>,
    /// The OpenAPI schema of a CRD; built-in kinds have types instead.
    pub schema: Option<Arc<Value>>,
    /// The compiled checks of that schema.
    pub(crate) checks: Arc<schema::Checks>,
}

/// A served kind: its discovery data, and the behaviour of its objects.
/// [`Cluster::resource`](crate::Cluster::resource) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceInfo {
    /// API group, empty for core.
    pub group: String,
    /// Served versions, the preferred one first.
    pub versions: Vec<ServedVersion>,
    /// The storage version.
    pub storage_version: String,
    /// Plural name.
    pub resource: String,
    /// Singular name.
    pub singular: String,
    /// Kind.
    pub kind: String,
    /// Kind of a list.
    pub list_kind: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// True for kinds of a CRD.
    pub custom: bool,
    pub(crate) traits: Traits,
    pub(crate) schemas: Schemas,
}

/// The schemas of a CRD, also of versions that are not served. Built-in kinds have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schemas {
    by_version: BTreeMap<String, Arc<Value>>,
    /// Whether a stored object may differ from how a version shows it: versions with different schemas, now or before.
    varied: bool,
}

impl Schemas {
    pub(crate) fn new(by_version: BTreeMap<String, Arc<Value>>) -> Self {
        let mut all = by_version.values();
        let first = all.next();
        let varied = all.any(|schema| Some(schema) != first);
        Schemas { by_version, varied }
    }

    /// The schemas of a changed definition, whose objects may have been stored with these.
    pub(crate) fn replacing(mut self, before: &Schemas) -> Self {
        let mut schemas = self.by_version.values().chain(before.by_version.values());
        let first = schemas.next();
        let differ = schemas.any(|schema| Some(schema) != first);
        self.varied |= before.varied || differ;
        self
    }

    pub(crate) fn of(&self, version: &str) -> Option<&Value> {
        self.by_version.get(version).map(Arc::as_ref)
    }

    pub(crate) fn are_varied(&self) -> bool {
        self.varied
    }
}

impl ResourceInfo {
    /// The served version of that name.
    pub fn version(&self, name: &str) -> Option<&ServedVersion> {
        self.versions.iter().find(|v| v.name == name)
    }

    /// The resource at a version.
    pub fn gvr(&self, version: &str) -> Gvr {
        Gvr::new(self.group.clone(), version, self.resource.clone())
    }

    /// The resource at the storage version.
    pub fn storage_gvr(&self) -> Gvr {
        self.gvr(&self.storage_version)
    }

    /// `apiVersion` of objects at a version.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// Whether an object of this kind has the `apiVersion` of a version.
    pub(crate) fn is_at(&self, version: &str, object: &Value) -> bool {
        self.version_of(object) == version
    }

    /// The version of an object of this kind.
    pub(crate) fn version_of<'a>(&self, object: &'a Value) -> &'a str {
        let api_version = crate::meta::text(object, &["apiVersion"]);
        let version = api_version.rsplit_once('/').map(|(_, version)| version);
        version.unwrap_or(api_version)
    }

    /// Whether a version with this `apiVersion` is served.
    pub(crate) fn has_api_version(&self, api_version: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.group == group && self.version(version).is_some()
    }

    /// True when objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The name of a built-in kind's type.
    pub(crate) fn type_name(&self, version: &str) -> Option<&'static str> {
        if self.custom {
            return None;
        }
        types::of_kind(&self.group, version, &self.kind)
    }

    /// The type of the objects of a built-in kind.
    pub(crate) fn type_node(&self, version: &str) -> Option<&'static types::Node> {
        if self.custom {
            return None;
        }
        types::node_of_kind(&self.group, version, &self.kind)
    }

    pub(crate) fn has(&self, one: Traits) -> bool {
        self.traits.has(one)
    }

    pub(crate) fn serves(&self, version: &str, subresource: Subresource) -> bool {
        match subresource {
            Subresource::None => true,
            Subresource::Status => self.status_face(version) != StatusFace::None,
            Subresource::Scale if self.custom => self.scale(version).is_some(),
            Subresource::Scale => {
                self.group == "apps"
                    && matches!(
                        self.resource.as_str(),
                        "deployments" | "replicasets" | "statefulsets"
                    )
            }
            Subresource::Finalize => self.group.is_empty() && self.resource == "namespaces",
        }
    }

    /// The paths of a custom resource's `scale` subresource.
    pub(crate) fn scale(&self, version: &str) -> Option<&scale::Paths> {
        self.version(version)?.checks.scale()
    }

    pub(crate) fn status_face(&self, version: &str) -> StatusFace {
        self.version(version).map_or(StatusFace::None, |v| v.status)
    }

    pub(crate) fn is(&self, gvr: &Gvr) -> bool {
        self.group == gvr.group && self.resource == gvr.resource
    }

    pub(crate) fn key(&self) -> ResourceKey {
        (self.group.clone(), self.resource.clone())
    }

    /// etcd's path of an object, as in error messages.
    pub(crate) fn storage_path(&self, namespace: &str, name: &str) -> String {
        let resource = match self.resource.as_str() {
            "nodes" if !self.custom => "minions",
            resource => resource,
        };
        let mut path = "/registry/".to_owned();
        if self.custom || self.group == "apiextensions.k8s.io" {
            path.push_str(&self.group);
            path.push('/');
        }
        path.push_str(resource);
        if !namespace.is_empty() {
            path.push('/');
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(name);
        path
    }
}

/// Group and plural resource.
pub(crate) type ResourceKey = (String, String);

/// All served kinds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    /// By group, then resource.
    kinds: BTreeMap<String, BTreeMap<String, Arc<ResourceInfo>>>,
}

impl Registry {
    pub(crate) fn with_builtin() -> Self {
        let mut registry = Registry::default();
        builtin().into_iter().for_each(|info| registry.insert(info));
        registry
    }

    pub(crate) fn insert(&mut self, info: ResourceInfo) {
        let group = self.kinds.entry(info.group.clone()).or_default();
        group.insert(info.resource.clone(), Arc::new(info));
    }

    pub(crate) fn remove(&mut self, (group, resource): &ResourceKey) {
        if let Some(group) = self.kinds.get_mut(group) {
            group.remove(resource);
        }
    }

    /// The kind, when it is served at that version.
    pub(crate) fn find(&self, gvr: &Gvr) -> Option<&Arc<ResourceInfo>> {
        let info = self.kinds.get(&*gvr.group)?.get(&*gvr.resource)?;
        info.version(&gvr.version).map(|_| info)
    }

    pub(crate) fn get(&self, (group, resource): &ResourceKey) -> Option<&Arc<ResourceInfo>> {
        self.kinds.get(group)?.get(resource)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.kinds.values().flat_map(BTreeMap::values)
    }
}
