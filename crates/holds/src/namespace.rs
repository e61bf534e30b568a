//! Whether a namespace is being deleted or ignored.
//!
//! ```no_run
//! use belayer_core::QueryCache;
//! use belayer_holds::namespace::{NamespaceQuery, NamespaceState};
//!
//! /// Whether the last live read found that the namespace is being deleted.
//! fn is_terminating(cache: &QueryCache<NamespaceQuery>, name: &str) -> Option<bool> {
//!     let live = cache.get(&NamespaceQuery::new(name))?;
//!     match live.answer() {
//!         NamespaceState::Present(namespace) => Some(namespace.is_deleting()),
//!         NamespaceState::Gone => Some(true),
//!     }
//! }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::names;
use crate::view::{Answers, Objects};
use belayer_core::executor::Executor;
use belayer_core::informer::{Decoders, Lookup, Reading};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid};
use belayer_core::queries::{LiveAnswer, LiveReader, Query, ReadError};
use belayer_core::slim::{Labels, Namespace, ObjectMeta};

/// Query for the state of a namespace. The [module's example](self) reads its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamespaceQuery(Arc<str>);

impl NamespaceQuery {
    /// A query about the namespace `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NamespaceQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state of namespace {}", self.0)
    }
}

/// The result of a live read of a namespace. The answer to a [`NamespaceQuery`]. See the
/// [example](self).
#[allow(
    clippy::large_enum_variant,
    reason = "few are kept, and hardly any of them is Gone"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceState {
    /// It exists.
    Present(ObjectMeta),
    /// It does not exist.
    Gone,
}

/// A live read older than this is repeated: the label of a namespace may have been removed since then.
const FRESH: Duration = Duration::from_secs(60);

/// A snapshot of an object's namespace. It contains the answer to a [`NamespaceQuery`], if one was
/// read. See the [example](self).
#[derive(Debug, Clone)]
pub struct NamespaceView {
    /// The query about it.
    pub query: NamespaceQuery,
    /// Its state in the informer.
    pub cached: Option<ObjectMeta>,
    /// The last live read.
    pub answer: Option<LiveAnswer<NamespaceState>>,
}

impl NamespaceView {
    /// The namespace of `object`, from these sources.
    pub fn of(
        object: &ObjectMeta,
        namespaces: &impl Objects<Namespace>,
        queries: &impl Answers<NamespaceQuery>,
    ) -> Self {
        let query = NamespaceQuery::new(object.key.shared_namespace().clone());
        Self {
            cached: cached(object, namespaces),
            answer: queries.get(&query).filter(|answer| answer.age() < FRESH),
            query,
        }
    }

    /// Its version in the informer.
    pub fn cached_version(&self) -> ResourceVersion {
        let cached = self.cached.as_ref();
        cached.map(|meta| meta.resource_version).unwrap_or_default()
    }

    /// When to read it for an object first seen at `seen`: after `recheck` if the last live read began after that and is
    /// not older than the cache, otherwise at once.
    pub fn next_read(&self, seen: LogicalTime, recheck: Duration) -> Duration {
        let is_current = self.answer.as_ref().is_some_and(|answer| {
            let meta = present(answer.answer());
            answer.begun() > seen
                && meta.is_none_or(|meta| meta.resource_version >= self.cached_version())
        });
        if is_current { recheck } else { Duration::ZERO }
    }

    /// The proof that it is being deleted, for an object first seen at `seen`.
    pub fn deletion(&self, seen: LogicalTime) -> Option<NamespaceDeletion> {
        NamespaceDeletion::prove(self.answer.as_ref()?, seen)
    }

    /// The proof that it is ignored, for an object first seen at `seen`.
    pub fn ignored(&self, seen: LogicalTime) -> Option<IgnoredNamespace> {
        IgnoredNamespace::prove(self.answer.as_ref()?, seen, self.cached_version())
    }
}

/// The namespace of `object` in the informer. What the cache does not contain is asked by a
/// [`NamespaceQuery`]. See the [example](self).
pub fn cached(object: &ObjectMeta, namespaces: &impl Objects<Namespace>) -> Option<ObjectMeta> {
    let key = ObjectKey::cluster(object.key.shared_namespace().clone());
    match namespaces.lookup(&key) {
        Lookup::Found(namespace) => Some(namespace.object.meta.clone()),
        Lookup::Absent | Lookup::Unknown => None,
    }
}

/// Whether the namespace of `object` is ignored, as far as the informer shows. A [`NamespaceQuery`] proves it. See the
/// [example](self).
pub fn is_cached_as_ignored(object: &ObjectMeta, namespaces: &impl Objects<Namespace>) -> bool {
    let key = ObjectKey::cluster(object.key.shared_namespace().clone());
    let namespace = namespaces.lookup(&key).found();
    namespace.is_some_and(|namespace| is_ignored(&namespace.object.meta.labels))
}

impl Query for NamespaceQuery {
    type Answer = NamespaceState;

    const NAME: &'static str = "namespace";

    fn outcome(answer: &NamespaceState) -> &'static str {
        match answer {
            NamespaceState::Present(_) => "present",
            NamespaceState::Gone => "gone",
        }
    }
}

/// Proof that the object's namespace is being deleted, by a live read that began after the object was first seen
/// and is not older than the cache.
///
/// The cache alone is no proof: it may still have a deleted namespace of the same name, while the object is in its
/// successor.
///
/// [`NamespaceDeletion::prove`](crate::namespace::NamespaceDeletion::prove) makes it of an answer
/// to a [`NamespaceQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceDeletion(Uid);

impl NamespaceDeletion {
    /// The proof, if `answer` gives it for an object first seen at `seen`.
    pub fn prove(answer: &LiveAnswer<NamespaceState>, seen: LogicalTime) -> Option<Self> {
        let meta = present(answer.answer())?;
        (answer.begun() > seen && meta.is_deleting()).then(|| Self(meta.uid.clone()))
    }
}

/// Proof that the object's namespace has the ignore label, by a live read that began after the
/// object was first seen and is not older than the cache.
/// [`NamespaceView::ignored`](crate::namespace::NamespaceView::ignored) makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredNamespace(Uid);

impl IgnoredNamespace {
    /// The proof, if `answer` gives it for an object first seen at `seen` in a namespace that the
    /// cache has at version `cached`.
    pub fn prove(
        answer: &LiveAnswer<NamespaceState>,
        seen: LogicalTime,
        cached: ResourceVersion,
    ) -> Option<Self> {
        let meta = present(answer.answer())?;
        let fresh = answer.begun() > seen && meta.resource_version >= cached;
        (fresh && is_ignored(&meta.labels)).then(|| Self(meta.uid.clone()))
    }
}

/// Whether a namespace with these labels is ignored. The labels are those of a namespace that a
/// [`NamespaceQuery`] read. See the [example](self).
pub fn is_ignored(labels: &Labels) -> bool {
    labels.get(names::IGNORE_LABEL) == Some("true")
}

fn present(state: &NamespaceState) -> Option<&ObjectMeta> {
    match state {
        NamespaceState::Present(meta) => Some(meta),
        NamespaceState::Gone => None,
    }
}

/// Answers [`NamespaceQuery`]s by live GETs of metadata. The reader of a cache of
/// [`NamespaceQuery`]. See the [example](self).
#[derive(Debug)]
pub struct NamespaceReader {
    executor: Arc<Executor>,
    decoders: Decoders<Namespace>,
}

impl NamespaceReader {
    /// A live reader that decodes namespaces with `decoders`.
    pub fn new(executor: Arc<Executor>, decoders: Decoders<Namespace>) -> Self {
        Self { executor, decoders }
    }

    async fn namespace(&self, query: &NamespaceQuery) -> Result<NamespaceState, ReadError> {
        let key = ObjectKey::cluster(Arc::clone(&query.0));
        let accept = self.decoders.accept(Reading::Object);
        let kind = Resource::namespaces();
        let Some(answer) = self.executor.find(&kind, &key, accept).await? else {
            return Ok(NamespaceState::Gone);
        };
        let read = self.decoders.read(&answer);
        read.map(|namespace| NamespaceState::Present(namespace.meta))
            .map_err(|error| ReadError::unusable(error.to_string()))
    }
}

impl LiveReader<NamespaceQuery> for NamespaceReader {
    fn read<'a>(
        &'a self,
        query: &'a NamespaceQuery,
    ) -> BoxFuture<'a, Result<NamespaceState, ReadError>> {
        Box::pin(self.namespace(query))
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::queries::Waiter;

    use super::*;

    /// No namespace, and one answer.
    struct Known(LiveAnswer<NamespaceState>);

    impl Objects<Namespace> for Known {
        fn lookup(&self, _: &ObjectKey) -> Lookup<Namespace> {
            Lookup::Unknown
        }

        fn count_by_index(&self, _: &str, _: &str) -> Option<usize> {
            None
        }

        fn is_not_served(&self) -> bool {
            false
        }
    }

    impl Answers<NamespaceQuery> for Known {
        fn get(&self, _: &NamespaceQuery) -> Option<LiveAnswer<NamespaceState>> {
            Some(self.0.clone())
        }

        fn last_error(&self, _: &NamespaceQuery) -> Option<ReadError> {
            None
        }

        fn ask(&self, _: NamespaceQuery, _: Waiter<'_>) {}
    }

    /// Its label may have been removed since then.
    #[tokio::test(start_paused = true)]
    async fn an_old_answer_proves_nothing() {
        let meta = |key| ObjectMeta::new(key, Uid::new("u-1"), ResourceVersion::new(1));
        let namespace = ObjectMeta {
            labels: [(names::IGNORE_LABEL, "true")].into_iter().collect(),
            ..meta(ObjectKey::cluster("shop"))
        };
        let pod = meta(ObjectKey::new("shop", "web"));
        let seen = LogicalTime::now();
        let answer = NamespaceState::Present(namespace);
        let known = Known(LiveAnswer::scripted(answer, LogicalTime::now()));
        let recheck = Duration::from_secs(5);
        let view = || NamespaceView::of(&pod, &known, &known);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(view().ignored(seen).is_some());
        assert_eq!(view().next_read(seen, recheck), recheck);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(view().ignored(seen).is_none());
        assert_eq!(view().next_read(seen, recheck), Duration::ZERO);
    }
}
