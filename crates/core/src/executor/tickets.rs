//! Tickets: how a key of a workqueue waits for a token while its worker works on others.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::Executor;
use super::limits::{Class, Limits, Token, Waiter};
use crate::object::ObjectKey;
use crate::workqueue::{Priority, WorkQueue};

/// Lets the keys of one workqueue wait for tokens without a worker (rule L1).
///
/// A worker asks before it sends a request that takes a token. If there is none, the key takes a ticket,
/// the worker ends with [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting), and the key is added to
/// the queue again as soon as a token is reserved for it. Namespaces take turns. Work that has begun does
/// not wait: its further requests are sent at once and the bucket is charged, so that others wait instead.
#[derive(Clone)]
pub struct Tickets {
    executor: Arc<Executor>,
    shared: Arc<Shared>,
}

struct Shared {
    limits: Arc<Limits>,
    queue: WorkQueue<ObjectKey>,
    /// Keys with a ticket, and keys that have a token, until they are worked on.
    keys: Mutex<HashMap<ObjectKey, State>>,
}

enum State {
    Waits,
    Served(Token),
}

impl Tickets {
    /// Tickets for the keys of `queue`, with the limits of `executor`.
    pub fn new(executor: &Executor, queue: WorkQueue<ObjectKey>) -> Self {
        Self {
            executor: Arc::new(executor.for_work_that_has_begun()),
            shared: Arc::new(Shared {
                limits: Arc::clone(&executor.limits),
                queue,
                keys: Mutex::default(),
            }),
        }
    }

    /// The executor of workers whose work [may begin](Work::may_send): it never waits for a token.
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// A worker has taken `key`.
    pub fn begin<'a>(&'a self, key: &'a ObjectKey) -> Work<'a> {
        let mut keys = self.shared.keys.lock();
        let served = match keys.get(key) {
            Some(State::Served(_)) => keys.remove(key),
            Some(State::Waits) | None => None,
        };
        drop(keys);
        Work {
            shared: &self.shared,
            key,
            leave: match served {
                Some(State::Served(token)) => WorkLeave::Kept(token),
                Some(State::Waits) | None => WorkLeave::NotAsked,
            },
        }
    }
}

/// Work on one key. A token that was reserved for it goes back at its end, whether it was needed or not: each
/// request is charged when it is sent.
#[must_use]
pub struct Work<'a> {
    shared: &'a Arc<Shared>,
    key: &'a ObjectKey,
    leave: WorkLeave,
}

enum WorkLeave {
    NotAsked,
    /// A token is reserved for this key.
    Kept(#[expect(dead_code, reason = "goes back when it is dropped")] Token),
    Given,
}

impl Work<'_> {
    /// Whether the work may send requests that take a token. If not, its key has a ticket, and the work must
    /// end with [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting).
    pub fn may_send(&mut self) -> bool {
        if matches!(self.leave, WorkLeave::NotAsked) && !self.shared.may_begin(self.key) {
            return false;
        }
        self.leave = WorkLeave::Given;
        true
    }
}

impl Shared {
    fn may_begin(self: &Arc<Self>, key: &ObjectKey) -> bool {
        let mut keys = self.keys.lock();
        if keys.contains_key(key) {
            return false;
        }
        if self.limits.may_begin() {
            return true;
        }
        keys.insert(key.clone(), State::Waits);
        drop(keys);
        let waiter: Weak<Self> = Arc::downgrade(self);
        self.limits.line_up_key(Class::Write, key.clone(), waiter);
        false
    }
}

impl Waiter for Shared {
    fn served(&self, key: ObjectKey, token: Token) {
        let before = self.keys.lock().insert(key.clone(), State::Served(token));
        // A token that goes back takes a lock.
        drop(before);
        self.queue.add(key, Priority::Normal);
    }
}

#[cfg(test)]
mod tests;
