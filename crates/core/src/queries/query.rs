//! Queries to the API server and the answers of live reads.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::http::RequestError;
use crate::informer::BadObject;
use crate::logical_time::LogicalTime;
use crate::object::ObjectKey;

/// A query that live reads answer. The [module's example](crate::queries) implements one.
pub trait Query: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static {
    /// The type of the answer.
    type Answer: Clone + Debug + Send + Sync + 'static;

    /// The type of query as a metric label, such as `owner`.
    const NAME: &'static str;

    /// The `answer` as a metric label: one of few values.
    fn outcome(answer: &Self::Answer) -> &'static str;

    /// The approximate size of `answer` in bytes, without its own `size_of`. See
    /// [`Budget`](super::Budget).
    fn weight(_answer: &Self::Answer) -> usize {
        0
    }
}

/// Answers queries: by requests in production, from a script in tests. The [module's
/// example](crate::queries) implements one with a GET.
pub trait LiveReader<Q: Query>: Send + Sync + 'static {
    /// Reads now. Must not answer from a cache.
    fn read<'a>(&'a self, query: &'a Q) -> BoxFuture<'a, Result<Q::Answer, ReadError>>;

    /// The keys, in addition to those that wait, that an answer concerns: they are woken too.
    fn affected(&self, _query: &Q, _old: Option<&Q::Answer>, _new: &Q::Answer) -> Vec<ObjectKey> {
        Vec::new()
    }
}

/// A closure is a reader that takes the query.
impl<Q, R> LiveReader<Q> for R
where
    Q: Query,
    R: Fn(Q) -> BoxFuture<'static, Result<Q::Answer, ReadError>> + Send + Sync + 'static,
{
    fn read<'a>(&'a self, query: &'a Q) -> BoxFuture<'a, Result<Q::Answer, ReadError>> {
        self(query.clone())
    }
}

/// A live read that gave no answer. Returned by a [`LiveReader`](crate::queries::LiveReader); the
/// [example](crate::queries) makes one of a failed request.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// What went wrong.
    pub message: String,
    /// The minimum delay that the server asked for.
    pub retry_after: Option<Duration>,
}

impl ReadError {
    /// An error for an answer that cannot be used.
    pub fn unusable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry_after: None,
        }
    }
}

/// An answer with an object that cannot be read is not complete.
impl From<BadObject> for ReadError {
    fn from(bad: BadObject) -> Self {
        let key = bad.key.as_ref().map(ToString::to_string);
        let whose = key.as_deref().unwrap_or("of unknown name");
        Self::unusable(format!("the object {whose} cannot be read: {}", bad.why))
    }
}

impl From<RequestError> for ReadError {
    fn from(error: RequestError) -> Self {
        Self {
            message: error.to_string(),
            retry_after: error.retry_after().filter(|after| !after.is_zero()),
        }
    }
}

/// An answer and the time at which its live read began. Only a live read creates one.
/// [`QueryCache::get`](crate::queries::QueryCache::get) returns it, as in the
/// [example](crate::queries).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAnswer<A> {
    pub(super) answer: A,
    pub(super) begun: LogicalTime,
    pub(super) sent: Instant,
}

impl<A> LiveAnswer<A> {
    /// The answer.
    pub fn answer(&self) -> &A {
        &self.answer
    }

    /// When the live read began.
    pub fn begun(&self) -> LogicalTime {
        self.begun
    }

    /// The time since the live read began.
    pub fn age(&self) -> Duration {
        self.sent.elapsed()
    }

    /// An answer for tests of decisions.
    #[cfg(any(test, feature = "test-util"))]
    pub fn scripted(answer: A, begun: LogicalTime) -> Self {
        Self {
            answer,
            begun,
            sent: Instant::now(),
        }
    }
}

/// Reads once, now, without sharing the answer: for commands that explain one object. With
/// [`QueryCache`](crate::queries::QueryCache) it is shared, as in the [example](crate::queries).
///
/// # Errors
///
/// If the read gave no answer.
pub async fn read<Q: Query>(
    reader: &dyn LiveReader<Q>,
    query: &Q,
) -> Result<LiveAnswer<Q::Answer>, ReadError> {
    let (begun, sent) = (LogicalTime::now(), Instant::now());
    let answer = reader.read(query).await?;
    Ok(LiveAnswer {
        answer,
        begun,
        sent,
    })
}
