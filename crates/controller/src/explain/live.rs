//! A controller's view for `explain`: single live reads in place of caches.
//!
//! What a snapshot misses is noted, answered with "unknown", and read before the next try. Nothing is read
//! twice, so that a snapshot is as good as that of a controller whose caches are as of now. What only a running
//! process knows, from the events that it has watched, stays unknown.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;

use belayer_core::ambient;
use belayer_core::executor::Executor;
use belayer_core::facts::{LiveAnswer, LiveReader, LookError, Query, Waiter, look};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, JsonDecoder, Lookup, Reading, Stored};
use belayer_core::moment::LogicalTime;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::{DecodeContext, Interner, Keep, Slim};
use belayer_holds::decision::{Decision, Missing};
use belayer_holds::runner::Component;
use belayer_holds::view::{Answers, Objects, View};
use belayer_inspect::reader::{Reader, explain};

/// How often a snapshot is taken: each time, what the one before missed has been read.
const ROUNDS: usize = 8;

/// What is read live about one object. Cheap to clone: all clones share what is due.
#[derive(Clone)]
pub struct Live {
    reader: Reader,
    due: Arc<Mutex<Vec<Read>>>,
}

type Read = BoxFuture<'static, Result<(), String>>;

impl View for Live {
    type Store<K: Slim> = LiveStore<K>;
    type Queries<Q: Query> = LiveQueries<Q>;
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
        Decoders::new(JsonDecoder::new(DecodeContext {
            keep,
            interner: Interner::default(),
        }))
    }

    /// The objects of a kind.
    pub fn store<K: SlimJson>(&self, kind: Resource, keep: Keep) -> LiveStore<K> {
        self.store_of(kind, keep, false)
    }

    /// The objects of a kind that may not be served, or that may not be read: those are unknown, as they are
    /// to a controller whose informer cannot list them.
    pub fn optional<K: SlimJson>(&self, kind: Resource, keep: Keep) -> LiveStore<K> {
        self.store_of(kind, keep, true)
    }

    fn store_of<K: SlimJson>(&self, kind: Resource, keep: Keep, is_optional: bool) -> LiveStore<K> {
        LiveStore {
            source: Arc::new(Source {
                reader: self.reader.clone(),
                decoders: self.decoders(keep),
                kind,
                is_optional,
            }),
            read: Memo::new(self),
        }
    }

    /// The answers of `reader`.
    pub fn queries<Q: Query>(&self, reader: impl LiveReader<Q>) -> LiveQueries<Q> {
        LiveQueries {
            reader: Arc::new(reader),
            answers: Memo::new(self),
        }
    }

    /// What `component` decides about `object`: the snapshot, the decision, and what they miss is read, until
    /// they miss nothing more. A query that is due later is not asked.
    ///
    /// # Errors
    /// In words, as soon as a read fails: nothing can be said then.
    pub async fn decide<K: Slim, C: Component<K>>(
        &self,
        component: &C,
        object: &Stored<K>,
    ) -> Result<Observed<K, C>, String>
    where
        C::Query: Clone,
    {
        let mut round = 1;
        loop {
            let snapshot = component.observe(object);
            let decision = C::decide(&snapshot, ambient::now());
            // A query that a snapshot with gaps leads to may not be one of the whole snapshot.
            if self.due.lock().is_empty() {
                for missing in &decision.missing {
                    if let Missing::Answer { question, after } = missing
                        && after.is_zero()
                    {
                        let waiter = Waiter {
                            key: object.object.key(),
                            observed: LogicalTime::now(),
                            after: *after,
                        };
                        component.ask(question.clone(), waiter);
                    }
                }
            }
            let due = std::mem::take(&mut *self.due.lock());
            if due.is_empty() || round == ROUNDS {
                return Ok((snapshot, decision));
            }
            try_join_all(due).await?;
            round += 1;
        }
    }
}

/// A component's snapshot and decision.
pub type Observed<K, C> = (
    <C as Component<K>>::Snapshot,
    Decision<<C as Component<K>>::Evidence, <C as Component<K>>::Query>,
);

/// What was read, and what is being read.
struct Memo<A, B> {
    live: Live,
    read: Arc<Mutex<HashMap<A, Option<B>>>>,
}

impl<A: Clone + Eq + Hash + Send + 'static, B: Clone + Send + 'static> Memo<A, B> {
    fn new(live: &Live) -> Self {
        Self {
            live: live.clone(),
            read: Arc::default(),
        }
    }

    fn get(&self, what: &A) -> Option<B> {
        self.read.lock().get(what).cloned().flatten()
    }

    /// Has `what` read before the next snapshot, unless it was read before.
    fn miss<F>(&self, what: &A, read: impl FnOnce() -> F)
    where
        F: Future<Output = Result<B, String>> + Send + 'static,
    {
        if self.read.lock().contains_key(what) {
            return;
        }
        self.read.lock().insert(what.clone(), None);
        let (memo, what, read) = (Arc::clone(&self.read), what.clone(), read());
        let read = async move {
            let read = read.await?;
            memo.lock().insert(what, Some(read));
            Ok(())
        };
        self.live.due.lock().push(read.boxed());
    }
}

/// Objects of one kind, each read when it is first missed.
pub struct LiveStore<K> {
    source: Arc<Source<K>>,
    read: Memo<ObjectKey, Lookup<K>>,
}

struct Source<K> {
    reader: Reader,
    decoders: Decoders<K>,
    kind: Resource,
    is_optional: bool,
}

impl<K: Slim> LiveStore<K> {
    /// The object that is to be explained. What is read after it is evidence about this very object.
    ///
    /// # Errors
    /// In words, when it is not there or cannot be read.
    pub async fn subject(&self, key: &ObjectKey) -> Result<Stored<K>, String> {
        let read = self.source.read(key).await?;
        self.read
            .read
            .lock()
            .insert(key.clone(), Some(read.clone()));
        read.found()
            .ok_or_else(|| format!("{} {key} is gone", self.source.kind))
    }

    /// All objects, which are then known without a further read. A kind that is not served has none.
    ///
    /// # Errors
    /// In words, when they cannot be read.
    pub async fn list(&self) -> Result<Vec<Stored<K>>, String> {
        let Source {
            reader,
            decoders,
            kind,
            ..
        } = &*self.source;
        let mut all = Vec::new();
        let listed = reader
            .pages(
                &kind.path(None),
                &decoders.accept(Reading::List),
                |answer| {
                    let page = decoders.read_page(&answer).map(|page| {
                        let now = LogicalTime::now();
                        let items = page.items.into_iter().flatten();
                        all.extend(items.map(|item| Stored::fresh(Arc::new(item), now)));
                        page.continue_token
                    });
                    async move { page.map_err(|error| RequestError::Decode(error.to_string())) }
                },
            )
            .await;
        match listed {
            Err(error) if error.class() != ErrorClass::NotServed => {
                return Err(format!("{kind}: {}", explain(&error)));
            }
            Ok(()) | Err(_) => {}
        }
        let mut read = self.read.read.lock();
        for object in &all {
            let key = object.object.key().clone();
            read.insert(key, Some(Lookup::Found(object.clone())));
        }
        Ok(all)
    }
}

impl<K: Slim> Source<K> {
    async fn read(&self, key: &ObjectKey) -> Result<Lookup<K>, String> {
        let kind = &self.kind;
        let request =
            Request::get(kind.object_path(key)).accept(self.decoders.accept(Reading::Object));
        let error = match self.reader.read(&request).await {
            Ok(answer) => {
                let object = self.decoders.read(&answer);
                let object = object.map_err(|error| format!("{kind} {key}: {error}"))?;
                let seen = LogicalTime::now();
                return Ok(Lookup::Found(Stored::fresh(Arc::new(object), seen)));
            }
            Err(error) => error,
        };
        if error
            .api()
            .is_some_and(|api| api.is_not_found_naming(kind, key))
        {
            return Ok(Lookup::Absent);
        }
        match error.class() {
            ErrorClass::NotServed | ErrorClass::Forbidden if self.is_optional => {
                Ok(Lookup::Unknown)
            }
            _ => Err(format!("{kind} {key}: {}", explain(&error))),
        }
    }
}

impl<K: Slim> Objects<K> for LiveStore<K> {
    fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        self.read.get(key).unwrap_or_else(|| {
            let (source, missed) = (Arc::clone(&self.source), key.clone());
            self.read
                .miss(key, || async move { source.read(&missed).await });
            Lookup::Unknown
        })
    }

    /// That takes a list of all objects.
    fn count_by_index(&self, _: &str, _: &str) -> Option<usize> {
        None
    }
}

/// Answers to one kind of query, each asked at most once. Cheap to clone: all clones share the answers.
pub struct LiveQueries<Q: Query> {
    reader: Arc<dyn LiveReader<Q>>,
    answers: Memo<Q, LiveAnswer<Q::Answer>>,
}

impl<Q: Query> Clone for LiveQueries<Q> {
    fn clone(&self) -> Self {
        Self {
            reader: Arc::clone(&self.reader),
            answers: Memo {
                live: self.answers.live.clone(),
                read: Arc::clone(&self.answers.read),
            },
        }
    }
}

impl<Q: Query> LiveQueries<Q> {
    /// The answer; what has none yet is asked.
    pub fn read(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>> {
        let answer = self.answers.get(query);
        if answer.is_none() {
            let (reader, asked) = (Arc::clone(&self.reader), query.clone());
            self.answers.miss(query, || async move {
                let answer = look(&*reader, &asked).await;
                answer.map_err(|error| error.to_string())
            });
        }
        answer
    }
}

impl<Q: Query> Answers<Q> for LiveQueries<Q> {
    fn get(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>> {
        self.answers.get(query)
    }

    /// A read that fails ends the explanation.
    fn last_error(&self, _: &Q) -> Option<LookError> {
        None
    }

    fn ask(&self, query: Q, _: Waiter<'_>) {
        self.read(&query);
    }
}
