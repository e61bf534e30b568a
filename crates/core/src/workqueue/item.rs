//! A key that is being worked on.

use std::fmt;
use std::time::Duration;

use super::backoff::Backoff;
use super::clock::Tick;
use super::operation::Operation;
use super::priority::Priority;
use super::state::{Finished, Taken, Verdict, When};
use super::table::NONE;
use super::{Key, Shared};

/// A key handed out by [`WorkQueue::next`](super::WorkQueue::next). Nobody else gets the key while
/// the item lives.
///
/// The item says how the work ended: [`succeeded`](Self::succeeded), [`again`](Self::again),
/// [`retry`](Self::retry) or plain [`done`](Self::done). An item that is dropped, be it by a panic
/// or because the future holding it was cancelled, counts as done: the key is not stuck, its
/// failures are kept, and it runs again only if it was added meanwhile.
pub struct Item<'q, K: Key> {
    queue: &'q Shared<K>,
    key: K,
    /// `NONE` once the verdict is in.
    index: u32,
    band: Priority,
    since: Tick,
    started: Tick,
    failures: u32,
}

impl<'q, K: Key> Item<'q, K> {
    pub(super) fn new(queue: &'q Shared<K>, taken: Taken<K>) -> Self {
        let Taken {
            key,
            index,
            band,
            since,
            started,
            failures,
        } = taken;
        Self {
            queue,
            key,
            index,
            band,
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

    /// The band it was served from.
    #[must_use]
    pub fn band(&self) -> Priority {
        self.band
    }

    /// How long the key waited from when it was ready (added, or its delay was over) until it was
    /// handed out.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.started.since(self.since))
    }

    /// Failures in a row before this attempt.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The work is over, with no word about success: failures are neither counted nor forgotten.
    /// The key runs again if it was added meanwhile. The same as dropping the item.
    pub fn done(self) {
        drop(self);
    }

    /// The work is over and went well: failures are forgotten. The key runs again if it was added
    /// meanwhile.
    pub fn succeeded(mut self) {
        self.finish(Verdict::Succeeded);
    }

    /// The work went well, failures are forgotten, and the key comes back after `delay` in the band
    /// it was served from: earlier if it was, or is, added for an earlier time.
    pub fn again(mut self, delay: Duration) {
        let when = if delay.is_zero() {
            When::Now
        } else {
            When::At(self.queue.clock.now().after(delay))
        };
        self.finish(Verdict::Again(when));
    }

    /// The work failed: the failure is counted and the key comes back after a delay drawn from
    /// `backoff`, in the band it was served from. Returns the delay. If the key was, or is, added
    /// for an earlier time, it comes back then.
    pub fn retry(mut self, backoff: Backoff) -> Duration {
        self.finish(Verdict::Failed {
            backoff,
            draw: crate::ambient::unit(),
        })
    }

    /// Returns the delay of a failure.
    fn finish(&mut self, verdict: Verdict) -> Duration {
        let index = std::mem::replace(&mut self.index, NONE);
        if index == NONE {
            return Duration::ZERO;
        }
        let now = self.queue.clock.now();
        let inbox = &self.queue.inbox;
        if let Verdict::Failed { .. } = verdict {
            return inbox.with(|state| {
                let Finished { dropped, delay } = state.finish(index, verdict, now);
                (delay, dropped)
            });
        }
        inbox.submit(Operation::Finish {
            index,
            verdict,
            now,
        });
        Duration::ZERO
    }
}

impl<K: Key> Drop for Item<'_, K> {
    fn drop(&mut self) {
        self.finish(Verdict::Done);
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Item<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key)
            .field("band", &self.band)
            .field("waited", &self.waited())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
