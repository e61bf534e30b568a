//! A key that is being worked on.

use std::fmt;
use std::time::Duration;

use super::backoff::Backoff;
use super::clock::Tick;
use super::priority::Priority;
use super::state::operation::Operation;
use super::state::{Completion, Finished, Taken, When};
use super::table::NONE;
use super::{Key, Shared};

/// A key handed out by [`WorkQueue::next`](super::WorkQueue::next). The key is not handed out again
/// while the item lives.
///
/// The item reports how the work ended: [`succeeded`](Self::succeeded), [`again`](Self::again),
/// [`retry`](Self::retry) or [`done`](Self::done). An item that is dropped, because of a panic or
/// because its future was cancelled, counts as done: the key is not stuck, its failures are kept,
/// and it runs again only if it was added in the meantime.
pub struct Item<'q, K: Key> {
    queue: &'q Shared<K>,
    key: K,
    /// `NONE` once the end of the work was reported.
    index: u32,
    priority: Priority,
    since: Tick,
    started: Tick,
    failures: u32,
}

impl<'q, K: Key> Item<'q, K> {
    pub(super) fn new(queue: &'q Shared<K>, taken: Taken<K>) -> Self {
        let Taken {
            key,
            index,
            priority,
            since,
            started,
            failures,
        } = taken;
        Self {
            queue,
            key,
            index,
            priority,
            since,
            started,
            failures,
        }
    }

    /// The key to work on.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority with which it was served.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How long the key waited from when it was ready (it was added, or its delay ended) until it
    /// was handed out.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.started.since(self.since))
    }

    /// Consecutive failures before this attempt.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Ends the work without success or failure: failures are neither counted nor reset. The key
    /// runs again if it was added in the meantime. The same as dropping the item.
    pub fn done(self) {
        drop(self);
    }

    /// Ends the work with success: failures are reset. The key runs again if it was added in the
    /// meantime.
    pub fn succeeded(mut self) {
        self.finish(Completion::Succeeded);
    }

    /// Ends the work with success, resets failures, and adds the key again after `delay` with the
    /// priority with which it was served; earlier if it was, or is, added for an earlier time.
    pub fn again(mut self, delay: Duration) {
        let when = if delay.is_zero() {
            When::Now
        } else {
            When::At(self.queue.clock.now().after(delay))
        };
        self.finish(Completion::Again(when));
    }

    /// Ends the work with a failure: the failure is counted and the key is added again after a
    /// delay drawn from `backoff`, with the priority with which it was served. Returns the delay.
    /// If the key was, or is, added for an earlier time, it runs then.
    pub fn retry(mut self, backoff: Backoff) -> Duration {
        self.finish(Completion::Failed {
            backoff,
            draw: crate::rng::unit(),
        })
    }

    /// Returns the delay of a failure.
    fn finish(&mut self, completion: Completion) -> Duration {
        let index = std::mem::replace(&mut self.index, NONE);
        if index == NONE {
            return Duration::ZERO;
        }
        let now = self.queue.clock.now();
        let inbox = &self.queue.inbox;
        if let Completion::Failed { .. } = completion {
            return inbox.with(|state| {
                let Finished { dropped, delay } = state.finish(index, completion, now);
                (delay, dropped)
            });
        }
        inbox.submit(Operation::Finish {
            index,
            completion,
            now,
        });
        Duration::ZERO
    }
}

impl<K: Key> Drop for Item<'_, K> {
    fn drop(&mut self) {
        self.finish(Completion::Done);
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Item<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .field("waited", &self.waited())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
