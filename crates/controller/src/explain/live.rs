//! A controller's view for `explain`: single live reads in place of caches.
//!
//! What a snapshot misses is noted, answered with "unknown", and read before the next try. Nothing is read
//! twice. In the end the snapshot is that of a controller whose caches are as of now, and which has an answer
//! to every query. What only a running process knows, from the events that it has watched, stays unknown.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;

use belayer_core::clock;
use belayer_core::executor::Executor;
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, JsonDecoder, Lookup, Reading, Stored};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::{LiveAnswer, LiveReader, Query, ReadError, Waiter, read};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::{Keep, Slim};
use belayer_holds::decision::Decision;
use belayer_holds::namespace::{NamespaceQuery, NamespaceReader};
use belayer_holds::owner::{OwnerQuery, OwnerReader};
use belayer_holds::runner::Component;
use belayer_holds::view::{Answers, Objects, View};
use belayer_inspect::explain::ExplainError;
use belayer_inspect::reader::Reader;

/// How often a snapshot is taken: each time, what the one before missed has been read.
const ROUNDS: usize = 8;

/// What is read live about one object. Cheap to clone: all clones share what is due. An explainer
/// of a [`Controller`](crate::Controller) makes one per object.
#[derive(Clone)]
pub struct Live {
    reader: Reader,
    due: Arc<Mutex<Due>>,
}

/// What is to be read. Answers come after the objects: one that is older than an object proves nothing about it.
#[derive(Default)]
struct Due {
    objects: Vec<Read>,
    answers: Vec<Read>,
}

type Read = BoxFuture<'static, Result<(), ExplainError>>;

impl View for Live {
    type Store<K: Slim> = LiveStore<K>;
    type Queries<Q: Query> = LiveQueries<Q>;

    const FOLLOWS: bool = false;
}

impl Live {
    /// Reads by `reader`. Nothing is read yet.
    pub fn new(reader: &Reader) -> Self {
        Self {
            reader: reader.clone(),
            due: Arc::default(),
        }
    }

    /// Sends the queries that have readers of their own.
    pub fn executor(&self) -> Arc<Executor> {
        Arc::clone(self.reader.executor())
    }

    /// Decoders of a kind whose rules read the labels and annotations in `keep`.
    pub fn decoders<K: SlimJson>(&self, keep: Keep) -> Decoders<K> {
        Decoders::new(JsonDecoder::new(keep.into()))
    }

    /// The objects of a kind.
    pub fn store<K: SlimJson>(&self, kind: Resource, keep: Keep) -> LiveStore<K> {
        self.store_of(kind, keep, false)
    }

    /// The objects of a kind that perhaps may not be read: they are unknown then, as they are to a controller
    /// whose informer cannot list them.
    pub fn optional<K: SlimJson>(&self, kind: Resource, keep: Keep) -> LiveStore<K> {
        self.store_of(kind, keep, true)
    }

    fn store_of<K: SlimJson>(&self, kind: Resource, keep: Keep, is_optional: bool) -> LiveStore<K> {
        LiveStore {
            live: self.clone(),
            source: Arc::new(Source {
                reader: self.reader.clone(),
                decoders: self.decoders(keep),
                kind,
                is_optional,
                is_not_served: AtomicBool::new(false),
            }),
            read: Memo(Arc::default()),
        }
    }

    /// The answers of `reader`.
    pub fn queries<Q: Query>(&self, reader: impl LiveReader<Q>) -> LiveQueries<Q> {
        LiveQueries {
            live: self.clone(),
            reader: Arc::new(reader),
            answers: Memo(Arc::default()),
        }
    }

    /// Answers about owners, with the labels in `keep`.
    pub fn owners(&self, keep: Keep) -> LiveQueries<OwnerQuery> {
        self.queries(OwnerReader::new(self.executor(), self.decoders(keep)))
    }

    /// Answers about namespaces, with the labels in `keep`.
    pub fn namespaces(&self, keep: Keep) -> LiveQueries<NamespaceQuery> {
        self.queries(NamespaceReader::new(self.executor(), self.decoders(keep)))
    }

    /// What `component` decides about `object`, once its snapshot misses nothing more.
    ///
    /// # Errors
    /// As [`Live::settled`].
    pub async fn decide<K: Slim, C: Component<K>>(
        &self,
        component: &C,
        object: &Stored<K>,
    ) -> Result<Observed<K, C>, ExplainError> {
        let snapshot = self.settled(|| component.observe(object)).await?;
        let decision = C::decide(&snapshot, clock::now());
        Ok((snapshot, decision))
    }

    /// The snapshot that `observe` takes once what the ones before missed has been read.
    ///
    /// # Errors
    /// The first read that fails.
    pub async fn settled<S>(&self, observe: impl Fn() -> S) -> Result<S, ExplainError> {
        let mut snapshot = observe();
        for _ in 1..ROUNDS {
            let Due { objects, answers } = std::mem::take(&mut *self.due.lock());
            if objects.is_empty() && answers.is_empty() {
                break;
            }
            try_join_all(objects).await?;
            try_join_all(answers).await?;
            snapshot = observe();
        }
        Ok(snapshot)
    }
}

/// A component's snapshot and decision. An explainer of a [`Controller`](crate::Controller)
/// returns it.
pub type Observed<K, C> = (
    <C as Component<K>>::Snapshot,
    Decision<<C as Component<K>>::Evidence, <C as Component<K>>::Query, <C as Component<K>>::Step>,
);

/// What was read, and what is to be read.
struct Memo<A, B>(Arc<Mutex<HashMap<A, Option<B>>>>);

impl<A, B> Clone for Memo<A, B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Clone + Eq + Hash + Send + 'static, B: Clone + Send + 'static> Memo<A, B> {
    /// What was read; if nothing was, `due` takes what reads it.
    fn get<F>(&self, what: &A, read: impl FnOnce(A) -> F, due: impl FnOnce(Read)) -> Option<B>
    where
        F: Future<Output = Result<B, ExplainError>> + Send + 'static,
    {
        let mut memo = self.0.lock();
        if let Some(read) = memo.get(what) {
            return read.clone();
        }
        memo.insert(what.clone(), None);
        let (memo, what, read) = (self.clone(), what.clone(), read(what.clone()));
        let read = async move {
            memo.insert(what, read.await?);
            Ok(())
        };
        due(read.boxed());
        None
    }

    fn insert(&self, what: A, read: B) {
        self.0.lock().insert(what, Some(read));
    }
}

/// Objects of one kind, each read when it is first missed. Part of [`Live`](crate::explain::Live),
/// which an explainer of a [`Controller`](crate::Controller) makes.
pub struct LiveStore<K> {
    live: Live,
    source: Arc<Source<K>>,
    read: Memo<ObjectKey, Lookup<K>>,
}

struct Source<K> {
    reader: Reader,
    decoders: Decoders<K>,
    kind: Resource,
    is_optional: bool,
    is_not_served: AtomicBool,
}

impl<K: Slim> LiveStore<K> {
    /// The object that is to be explained. What is read after it is evidence about this very object.
    ///
    /// # Errors
    /// If it does not exist or cannot be read.
    pub async fn subject(&self, key: &ObjectKey) -> Result<Stored<K>, ExplainError> {
        let read = self.source.read(key).await?;
        self.read.insert(key.clone(), read.clone());
        read.found().ok_or_else(|| ExplainError::Absent {
            kind: self.source.kind.clone(),
            key: key.clone(),
        })
    }

    /// All objects, which are then known without a further read. A kind that is not served has none.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn list(&self) -> Result<Vec<Stored<K>>, ExplainError> {
        let Source {
            reader,
            decoders,
            kind,
            ..
        } = &*self.source;
        let path = kind.path(None);
        let mut all = Vec::new();
        let listed = reader.decoded_pages(&path, decoders, |page| {
            let now = LogicalTime::now();
            let items = page.items.into_iter().flatten();
            all.extend(items.map(|item| Stored::fresh(Arc::new(item), now)));
            Ok(())
        });
        match listed.await {
            Err(error) if error.class() != ErrorClass::NotServed => {
                let object = kind.to_string();
                return Err(ExplainError::Read { object, error });
            }
            Ok(()) | Err(_) => {}
        }
        for object in &all {
            let key = object.object.key().clone();
            self.read.insert(key, Lookup::Found(object.clone()));
        }
        Ok(all)
    }
}

impl<K: Slim> Source<K> {
    async fn read(&self, key: &ObjectKey) -> Result<Lookup<K>, ExplainError> {
        let kind = &self.kind;
        let request =
            Request::get(kind.object_path(key)).accept(self.decoders.accept(Reading::Object));
        let read = self.reader.read(&request).await.and_then(|answer| {
            let object = self.decoders.read(&answer);
            object.map_err(|error| RequestError::Decode(error.to_string()))
        });
        let error = match read {
            Ok(object) => {
                let seen = LogicalTime::now();
                return Ok(Lookup::Found(Stored::fresh(Arc::new(object), seen)));
            }
            Err(error) => error,
        };
        match error.class() {
            _ if error.is_gone(kind, key) => Ok(Lookup::Absent),
            ErrorClass::NotServed => {
                self.is_not_served.store(true, Ordering::Relaxed);
                Ok(Lookup::Unknown)
            }
            ErrorClass::Forbidden if self.is_optional => Ok(Lookup::Unknown),
            _ => Err(ExplainError::Read {
                object: format!("{kind} {key}"),
                error,
            }),
        }
    }
}

impl<K: Slim> Objects<K> for LiveStore<K> {
    fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        let source = Arc::clone(&self.source);
        let read = |key: ObjectKey| async move { source.read(&key).await };
        let due = |read| self.live.due.lock().objects.push(read);
        self.read.get(key, read, due).unwrap_or(Lookup::Unknown)
    }

    /// That takes a list of all objects.
    fn count_by_index(&self, _: &str, _: &str) -> Option<usize> {
        None
    }

    fn is_not_served(&self) -> bool {
        self.source.is_not_served.load(Ordering::Relaxed)
    }
}

/// Answers to one kind of query, each asked once. Cheap to clone: all clones share the answers.
/// Part of [`Live`](crate::explain::Live), which an explainer of a
/// [`Controller`](crate::Controller) makes.
pub struct LiveQueries<Q: Query> {
    live: Live,
    reader: Arc<dyn LiveReader<Q>>,
    answers: Memo<Q, LiveAnswer<Q::Answer>>,
}

impl<Q: Query> Clone for LiveQueries<Q> {
    fn clone(&self) -> Self {
        Self {
            live: self.live.clone(),
            reader: Arc::clone(&self.reader),
            answers: self.answers.clone(),
        }
    }
}

impl<Q: Query> Answers<Q> for LiveQueries<Q> {
    fn get(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>> {
        let reader = Arc::clone(&self.reader);
        let read = |query: Q| async move { Ok(read(&*reader, &query).await?) };
        let due = |read| self.live.due.lock().answers.push(read);
        self.answers.get(query, read, due)
    }

    /// A read that fails ends the explanation.
    fn last_error(&self, _: &Q) -> Option<ReadError> {
        None
    }

    fn ask(&self, query: Q, _: Waiter<'_>) {
        self.get(&query);
    }
}
