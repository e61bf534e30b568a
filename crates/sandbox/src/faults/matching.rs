//! Which requests a fault applies to.

use serde::Deserialize;

use crate::address::program_of;
use crate::recorder::Verb;

/// The properties of a request before it is handled. [`Match`](crate::Match) is compared with it,
/// as with the patch in the [crate's example](crate).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// `None` for discovery and the like.
    pub verb: Option<Verb>,
    /// API group, empty for core.
    pub group: String,
    /// Plural resource; empty for discovery and the like.
    pub resource: String,
    /// Kind of the objects, such as `Pod`; empty for kinds that are not served.
    pub kind: String,
    /// `status`, `binding`, ...; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-scoped objects and for all namespaces.
    pub namespace: String,
    /// Empty for lists, watches and creates.
    pub name: String,
    /// The client's name.
    pub client: String,
    /// The path of the URL.
    pub path: String,
}

/// A set of requests: every property that is set narrows it.
///
/// A plan in a file uses the same names.
///
/// The [crate's example](crate) matches patches of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Match {
    verbs: Vec<Verb>,
    group: Option<String>,
    resource: Option<String>,
    kind: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    client: Option<String>,
    path: Option<String>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Match::default()
    }

    /// Requests of one verb.
    pub fn verb(verb: Verb) -> Self {
        Match {
            verbs: vec![verb],
            ..Match::default()
        }
    }

    /// Requests of any of these verbs.
    pub fn verbs(verbs: impl IntoIterator<Item = Verb>) -> Self {
        Match {
            verbs: verbs.into_iter().collect(),
            ..Match::default()
        }
    }

    /// The five verbs that write.
    pub fn writes() -> Self {
        use Verb::{Create, Delete, DeleteCollection, Patch, Update};
        Match::verbs([Create, Update, Patch, Delete, DeleteCollection])
    }

    /// Watches.
    pub fn watches() -> Self {
        Match::verb(Verb::Watch)
    }

    /// Of this API group; core is empty.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Of this plural resource: `pods`, or with its group `workflows.argoproj.io`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Of this kind, such as `Pod`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Of this subresource; empty is the object itself.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// In this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// For this object.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// By this client. The name of a [program](crate::Actor::program) means all its instances.
    pub fn client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// With a path that has this prefix; for discovery and the like.
    pub fn path_prefix(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn matches(&self, target: &Target) -> bool {
        let fits = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let names_client =
            |wanted: &String| [&*target.client, program_of(&target.client)].contains(&&**wanted);
        let names_resource = |wanted: &String| {
            let group = wanted.strip_prefix(&target.resource);
            group.is_some_and(|group| {
                group.is_empty() || group.strip_prefix('.') == Some(&target.group)
            })
        };
        (self.verbs.is_empty() || target.verb.is_some_and(|v| self.verbs.contains(&v)))
            && fits(&self.group, &target.group)
            && self.resource.as_ref().is_none_or(names_resource)
            && fits(&self.kind, &target.kind)
            && fits(&self.subresource, &target.subresource)
            && self.client.as_ref().is_none_or(names_client)
            && self.matches_object(&target.namespace, &target.name)
            && self
                .path
                .as_ref()
                .is_none_or(|p| target.path.starts_with(p.as_str()))
    }

    /// Compares namespace and name only: for the objects of a watch.
    pub(crate) fn matches_object(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_ref().is_none_or(|n| n == namespace)
            && self.name.as_ref().is_none_or(|n| n == name)
    }
}
