//! Looks that fail again and again, told to whoever reads the log.

use hashbrown::HashMap;

use super::{LookError, Query};
use crate::duration;
use crate::failure_log::{FailureLog, News, Over};

/// A look that has failed so often in a row is told of: what waits for its answer is kept, and
/// nobody else would say why.
const TOLD_AT: u32 = 3;

/// Questions that are told of at a time. Where a right is missing thousands may ask in vain, each for
/// an object of its own, and a few of them say it all.
const QUESTIONS: usize = 8;

/// The questions whose looks have been told to fail, each with its own beginning, causes and end:
/// that another one is answered says nothing of them.
pub(super) struct Failing<Q>(HashMap<Q, FailureLog>);

impl<Q: Query> Failing<Q> {
    pub(super) fn none() -> Self {
        Self(HashMap::new())
    }

    /// A look at `question` failed, after so many others in a row.
    pub(super) fn fails(&mut self, question: &Q, error: &LookError, before: u32) {
        match self.news(question, &error.message, before) {
            News::Begins => tracing::warn!(
                about = Q::NAME, %question, %error,
                "live looks fail: what waits for their answers is kept meanwhile"
            ),
            News::OtherCause => tracing::warn!(
                about = Q::NAME, %question, %error,
                "live looks fail for another reason"
            ),
            News::None => tracing::debug!(%question, %error, "a look failed, will look again"),
        }
    }

    fn news(&mut self, question: &Q, cause: &str, before: u32) -> News {
        if let Some(failure_log) = self.0.get_mut(question) {
            return failure_log.fails(cause);
        }
        // What fails for the same reason is news to nobody either.
        let known = self
            .0
            .values()
            .any(|failure_log| failure_log.has_told(cause));
        if before + 1 < TOLD_AT || known || self.0.len() >= QUESTIONS {
            return News::None;
        }
        self.0.entry(question.clone()).or_default().fails(cause)
    }

    /// A look at `question` was answered.
    pub(super) fn answered(&mut self, question: &Q) {
        let failure_log = self.0.remove(question);
        if let Some(Over { lasted, .. }) =
            failure_log.and_then(|mut failure_log| failure_log.ends())
        {
            let lasted = duration::format(lasted);
            tracing::info!(about = Q::NAME, %question, lasted, "live looks are answered again");
        }
    }

    /// Nobody wants to know any more.
    pub(super) fn forget(&mut self, question: &Q) {
        self.0.remove(question);
    }

    /// Forgets the questions of which nothing is known any more.
    pub(super) fn keep(&mut self, is_known: impl Fn(&Q) -> bool) {
        self.0.retain(|question, _| is_known(question));
    }
}
