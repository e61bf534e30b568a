//! Questions to webhooks.
//!
//! A write runs under one lock, so it cannot wait for a webhook. It stops at the first question without an answer, as if
//! it had not been tried; the HTTP service asks, and runs the request again with the answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// What a webhook is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// Where it listens.
    pub(crate) url: String,
    /// The certificates that it is trusted by, in PEM; those of the system if empty.
    pub(crate) authorities: Vec<u8>,
    pub(crate) seconds: u64,
    /// `request` of the review, in JSON, without its UID.
    pub(crate) request: String,
}

/// `response` of a review, or why there is none.
pub(crate) type Reply = Result<Value, String>;

/// The questions of one request, and their answers.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    replies: HashMap<Question, Reply>,
    waiting: Vec<Question>,
    /// Name, UID and creation time of a new object, the same each time that the request runs.
    identity: Option<Value>,
}

tokio::task_local! {
    /// The conversation of the request that is handled. Writes that are no requests ask no webhooks.
    static CURRENT: Arc<Mutex<Conversation>>;
}

impl Conversation {
    /// Runs a request, or a part of it; returns what is to be asked before it runs again.
    pub(crate) fn run<T>(
        shared: &Arc<Mutex<Self>>,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<Question>) {
        let result = CURRENT.sync_scope(Arc::clone(shared), work);
        (result, std::mem::take(&mut shared.lock().waiting))
    }

    pub(crate) fn answer(&mut self, question: Question, reply: Reply) {
        self.replies.insert(question, reply);
    }
}

fn with_current<T>(work: impl FnOnce(&mut Conversation) -> T) -> Option<T> {
    CURRENT.try_with(|current| work(&mut current.lock())).ok()
}

/// Whether webhooks can be asked.
pub(crate) fn is_open() -> bool {
    with_current(|_| ()).is_some()
}

/// Whether the write stopped for a question.
pub(crate) fn is_waiting() -> bool {
    with_current(|current| !current.waiting.is_empty()).unwrap_or_default()
}

/// The answer to a question; `None` if it has to be asked first.
pub(super) fn ask(question: Question) -> Option<Reply> {
    with_current(|current| match current.replies.get(&question) {
        Some(reply) => Some(reply.clone()),
        None => {
            current.waiting.push(question);
            None
        }
    })?
}

/// The identity that the request gave its new object when it ran for the first time, else this one.
pub(crate) fn identity(new: Value) -> Value {
    let kept = with_current(|current| current.identity.get_or_insert_with(|| new.clone()).clone());
    kept.unwrap_or(new)
}
