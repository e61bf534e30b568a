//! Whether the owner with a UID is gone.
//!
//! ```
//! use belayer_core::{ObjectKey, Resource, Uid};
//! use belayer_holds::owner::OwnerQuery;
//!
//! let jobs = Resource::new("batch", "v1", "Job", "jobs");
//! let query = OwnerQuery::at(jobs, ObjectKey::new("shop", "report"), Uid::new("u-1"));
//! // Another Job of this name is another object: the owner is gone.
//! assert_eq!(query.uid(), &Uid::new("u-1"));
//! ```

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{Answer, ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, Reading};
use belayer_core::object::{ObjectKey, OwnerReference, Resource, Uid, path};
use belayer_core::queries::{LiveReader, Query, ReadError};
use belayer_core::slim::{ObjectMeta, OwnerMeta};

use crate::argo;

/// Query whether the object with a UID still exists. Owners are matched by UID, never by name
/// alone. The [module's example](self) makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerQuery {
    resource: Resource,
    key: ObjectKey,
    uid: Uid,
}

impl OwnerQuery {
    /// A query about the owner that an object in `namespace` refers to, read as `resource`.
    pub fn new(resource: Resource, namespace: &Arc<str>, owner: &OwnerReference) -> Self {
        let key = ObjectKey::new(Arc::clone(namespace), Arc::clone(&owner.name));
        Self {
            resource,
            key,
            uid: owner.uid.clone(),
        }
    }

    /// A query about a known owner.
    pub fn about(resource: Resource, owner: &ObjectMeta) -> Self {
        Self::at(resource, owner.key.clone(), owner.uid.clone())
    }

    /// A query about the object with this UID under this key.
    pub fn at(resource: Resource, key: ObjectKey, uid: Uid) -> Self {
        Self { resource, key, uid }
    }

    /// The UID.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Whether the owner is a Workflow of Argo.
    pub fn is_about_a_workflow(&self) -> bool {
        argo::is_workflow(&self.resource)
    }

    /// The kind as which the owner is read.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The key of the owner.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl fmt::Display for OwnerQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "whether {} {} (uid {}) still exists",
            self.resource, self.key, self.uid
        )
    }
}

/// The result of a live read of an owner. The answer to an [`OwnerQuery`]. See the
/// [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerState {
    /// It exists.
    Present(ObjectMeta),
    /// It does not exist and never will: UIDs are not reused.
    Gone(GoneProof),
    /// Unknown: its kind is not served in the requested version, or reading it is not allowed.
    Unknown(String),
}

/// Proof that a UID is gone. Only a live read can create it. [`OwnerState`] contains it, the
/// answer to an [`OwnerQuery`]. See the [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneProof(How);

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    NotFound,
    /// The UID of the other object is not stored: a reader of this answer may not be allowed to see more than the
    /// name.
    OtherUid,
    ImpossibleName,
    KindDeleted,
}

impl fmt::Display for GoneProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            How::NotFound => f.write_str("the server answered NotFound"),
            How::OtherUid => f.write_str("its name belongs to another object"),
            How::ImpossibleName => f.write_str("no object can have its name, so it never existed"),
            How::KindDeleted => {
                f.write_str("its CustomResourceDefinition was deleted, and all its objects with it")
            }
        }
    }
}

impl GoneProof {
    /// A value for tests of decisions.
    #[cfg(any(test, feature = "test-util"))]
    pub fn scripted() -> Self {
        Self(How::NotFound)
    }
}

/// Proof that the owner has a deletion timestamp.
///
/// It is never removed, so a cache proves it as well as a live read.
///
/// An answer to an [`OwnerQuery`] proves it too.
///
/// See the [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerDeletion(Uid);

impl OwnerDeletion {
    /// The proof, if `owner` is the object of UID `expected` and is being deleted.
    pub fn prove(owner: &ObjectMeta, expected: &Uid) -> Option<Self> {
        (owner.uid == *expected && owner.is_deleting()).then(|| Self(owner.uid.clone()))
    }
}

impl Query for OwnerQuery {
    type Answer = OwnerState;

    const NAME: &'static str = "owner";

    fn outcome(answer: &OwnerState) -> &'static str {
        match answer {
            OwnerState::Present(_) => "present",
            OwnerState::Gone(_) => "gone",
            OwnerState::Unknown(_) => "unknown",
        }
    }

    fn weight(answer: &OwnerState) -> usize {
        match answer {
            OwnerState::Present(meta) => meta.weight(),
            OwnerState::Gone(_) => 0,
            OwnerState::Unknown(why) => why.len(),
        }
    }
}

/// Answers [`OwnerQuery`]s by live GETs of metadata. The reader of a cache of [`OwnerQuery`]. See
/// the [example](self).
#[derive(Debug, Clone)]
pub struct OwnerReader {
    executor: Arc<Executor>,
    decoders: Decoders<OwnerMeta>,
    /// Kinds of owners, by `apiVersion` and `kind`.
    kinds: Arc<Mutex<HashMap<(String, String), ServedKind>>>,
}

/// The result of discovery for a kind. Returned by
/// [`OwnerReader::served`](crate::owner::OwnerReader::served), before an
/// [`OwnerQuery`] of an unknown kind is answered.
#[derive(Debug, Clone)]
pub struct ServedKind {
    /// The kind.
    pub resource: Resource,
    /// Whether it is namespaced.
    pub namespaced: bool,
}

impl OwnerReader {
    /// A reader that decodes owners with `decoders`.
    pub fn new(executor: Arc<Executor>, decoders: Decoders<OwnerMeta>) -> Self {
        Self {
            executor,
            decoders,
            kinds: Arc::default(),
        }
    }

    /// The same reader with another executor.
    #[must_use]
    pub fn with(&self, executor: &Arc<Executor>) -> Self {
        Self {
            executor: Arc::clone(executor),
            ..self.clone()
        }
    }

    /// The kind that an owner reference names, from discovery; `None` if it is not served or not visible.
    /// The result is cached.
    ///
    /// # Errors
    ///
    /// When discovery fails with a transient error.
    pub async fn served(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ServedKind>, ReadError> {
        let named = (api_version.to_owned(), kind.to_owned());
        if let Some(served) = self.kinds.lock().get(&named) {
            return Ok(Some(served.clone()));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        // A tenant wrote the reference (T7). No API has this name.
        if !path::is_possible_name(version) || !(group.is_empty() || path::is_possible_name(group))
        {
            return Ok(None);
        }
        let found = match self.resources(group, version).await {
            Ok(served) => served,
            Err(error) => {
                return match error.class() {
                    ErrorClass::NotFound | ErrorClass::NotServed | ErrorClass::Forbidden => {
                        Ok(None)
                    }
                    _ => Err(ReadError::from(error)),
                };
            }
        };
        let mut found = found.into_iter();
        let served = found.find(|one| one.kind == kind && !one.name.contains('/'));
        let served = served.map(|one| ServedKind {
            resource: Resource::new(group, version, kind, &one.name),
            namespaced: one.namespaced,
        });
        if let Some(served) = &served {
            self.kinds.lock().insert(named, served.clone());
        }
        Ok(served)
    }

    /// The resources of a group and version, by discovery.
    async fn resources(
        &self,
        group: &str,
        version: &str,
    ) -> Result<Vec<ApiResource>, RequestError> {
        let request = Request::get(path::of_version(group, version));
        let answer = self.executor.read(&request, Class::Evidence).await?;
        Ok(answer.json::<ApiResources>()?.resources)
    }

    async fn get(&self, path: String) -> Result<Answer, RequestError> {
        let request = Request::get(path).accept(self.decoders.accept(Reading::Object));
        self.executor.read(&request, Class::Evidence).await
    }

    /// The owner under the key of the query. An owner reference does not show whether its kind is cluster-scoped: if the
    /// server does not know the kind in a namespace, and discovery shows that it is cluster-scoped, the owner is read without.
    async fn owner(&self, query: &OwnerQuery) -> Result<OwnerState, ReadError> {
        let OwnerQuery { resource, key, uid } = query;
        if let Some(state) = self.owner_at(resource, key, uid).await? {
            return Ok(state);
        }
        if key.namespace().is_some() {
            let served = self.served(&resource.api_version(), &resource.kind).await?;
            if served.is_some_and(|kind| !kind.namespaced && kind.resource == *resource) {
                let cluster = ObjectKey::cluster(key.name());
                if let Some(state) = self.owner_at(resource, &cluster, uid).await? {
                    return Ok(state);
                }
            }
        }
        self.kind(resource).await
    }

    /// The owner under a key; `None` if its kind is not served there.
    async fn owner_at(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        uid: &Uid,
    ) -> Result<Option<OwnerState>, ReadError> {
        // The reference is invalid: no object can have this name.
        if !path::is_possible_name(key.name()) {
            return Ok(Some(OwnerState::Gone(GoneProof(How::ImpossibleName))));
        }
        let error = match self.get(resource.object_path(key)).await {
            Ok(answer) => {
                return Ok(Some(match self.decoders.read(&answer) {
                    Ok(OwnerMeta { meta }) if meta.uid == *uid => OwnerState::Present(meta),
                    Ok(OwnerMeta { .. }) => OwnerState::Gone(GoneProof(How::OtherUid)),
                    Err(error) => {
                        OwnerState::Unknown(format!("the answer cannot be decoded: {error}"))
                    }
                }));
            }
            Err(error) => error,
        };
        // Only a NotFound that names this very object is evidence: a 404 without that may come
        // from a version that is not served or from an aggregated API that is down.
        if error.is_gone(resource, key) {
            return Ok(Some(OwnerState::Gone(GoneProof(How::NotFound))));
        }
        match error.class() {
            ErrorClass::NotServed => Ok(None),
            _ => unknown_or_retry(error).map(Some),
        }
    }

    /// The kind is not served in the requested version: checks whether it was deleted, or only that version is no
    /// longer served.
    async fn kind(&self, resource: &Resource) -> Result<OwnerState, ReadError> {
        if !may_be_custom(&resource.group) {
            return Ok(OwnerState::Unknown(format!(
                "{resource} is not served at {}",
                resource.version
            )));
        }
        let definitions = Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let definition = ObjectKey::cluster(resource.to_string());
        match self.get(definitions.object_path(&definition)).await {
            Ok(_) => {
                return Ok(OwnerState::Unknown(format!(
                    "{resource} exists but is not served at {}",
                    resource.version
                )));
            }
            Err(error) if error.is_gone(&definitions, &definition) => {}
            Err(error) => return unknown_or_retry(error),
        }
        // Not a custom resource (any more). An aggregated API may still serve it, or serve another version.
        let group = match self
            .executor
            .read(
                &Request::get(path::of_group(&resource.group)),
                Class::Evidence,
            )
            .await
        {
            Ok(answer) => answer.json::<ApiGroup>()?,
            Err(error) if error.class() == ErrorClass::NotServed => return Ok(KIND_DELETED),
            Err(error) => return unknown_or_retry(error),
        };
        for version in group.versions {
            let served = match self.resources(&resource.group, &version.version).await {
                Ok(served) => served,
                Err(error) => return unknown_or_retry(error),
            };
            if served.iter().any(|served| served.name == *resource.plural) {
                return Ok(OwnerState::Unknown(format!(
                    "{resource} is served at {} but not at {}",
                    version.version, resource.version
                )));
            }
            // A wrong plural in the configuration, or the kind was created anew with another one.
            let of_kind =
                |one: &&ApiResource| one.kind == *resource.kind && !one.name.contains('/');
            if let Some(other) = served.iter().find(of_kind) {
                let named = (resource.api_version(), resource.kind.to_string());
                self.kinds.lock().remove(&named);
                return Ok(OwnerState::Unknown(format!(
                    "{} of {} is served as {}, not as {}",
                    resource.kind, resource.group, other.name, resource.plural
                )));
            }
        }
        Ok(KIND_DELETED)
    }
}

const KIND_DELETED: OwnerState = OwnerState::Gone(GoneProof(How::KindDeleted));

impl LiveReader<OwnerQuery> for OwnerReader {
    fn read<'a>(&'a self, query: &'a OwnerQuery) -> BoxFuture<'a, Result<OwnerState, ReadError>> {
        Box::pin(self.owner(query))
    }
}

/// Whether a group can have custom resources. The absence of one of Kubernetes' own groups does not prove its
/// deletion, so they never count as deleted.
fn may_be_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// A transient error is retried; a permanent one is the answer [`OwnerState::Unknown`].
fn unknown_or_retry(error: RequestError) -> Result<OwnerState, ReadError> {
    match error.class() {
        ErrorClass::Forbidden
        | ErrorClass::NotFound
        | ErrorClass::NotServed
        | ErrorClass::Invalid => Ok(OwnerState::Unknown(error.to_string())),
        _ => Err(ReadError::from(error)),
    }
}

#[derive(Deserialize)]
struct ApiGroup {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct ApiResources {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

#[cfg(test)]
mod tests;
