//! A question to the API server, and what a live read answers.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::http::RequestError;
use crate::moment::LogicalTime;

/// Something that can be asked of the API server.
pub trait Query: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static {
    /// What comes back.
    type Answer: Clone + Debug + Send + Sync + 'static;

    /// Kind of question: a metric label, such as `owner`.
    const NAME: &'static str;

    /// What to call `answer` in a metric: one of few words.
    fn outcome(answer: &Self::Answer) -> &'static str;

    /// About how many bytes `answer` takes beside its own size. See [`Budget`](super::Budget).
    fn weight(_answer: &Self::Answer) -> usize {
        0
    }
}

/// Who can answer questions: by live requests in production, by a script in tests.
pub trait LiveReader<Q: Query>: Send + Sync + 'static {
    /// Looks now. Must not answer from a cache.
    fn look<'a>(&'a self, question: &'a Q) -> BoxFuture<'a, Result<Q::Answer, LookError>>;
}

/// A look that gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct LookError {
    /// What went wrong.
    pub message: String,
    /// The server asked to wait at least this long.
    pub retry_after: Option<Duration>,
}

impl LookError {
    /// An answer that cannot be used, in words.
    pub fn unusable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry_after: None,
        }
    }
}

impl From<&RequestError> for LookError {
    fn from(error: &RequestError) -> Self {
        Self {
            message: error.to_string(),
            retry_after: error.retry_after().filter(|after| !after.is_zero()),
        }
    }
}

/// An answer and when its look began. Only a look makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAnswer<A> {
    pub(super) answer: A,
    pub(super) begun: LogicalTime,
}

impl<A> LiveAnswer<A> {
    /// The answer.
    pub fn answer(&self) -> &A {
        &self.answer
    }

    /// When the look that gave it was begun.
    pub fn begun(&self) -> LogicalTime {
        self.begun
    }

    /// A fact for tests of decisions.
    #[cfg(any(test, feature = "test-util"))]
    pub fn scripted(answer: A, begun: LogicalTime) -> Self {
        Self { answer, begun }
    }
}

/// Looks once, now, for whoever does not wait with others: commands that explain and end.
///
/// # Errors
///
/// When the look gave no answer.
pub async fn look<Q: Query>(
    oracle: &dyn LiveReader<Q>,
    question: &Q,
) -> Result<LiveAnswer<Q::Answer>, LookError> {
    let begun = LogicalTime::now();
    let answer = oracle.look(question).await?;
    Ok(LiveAnswer { answer, begun })
}
