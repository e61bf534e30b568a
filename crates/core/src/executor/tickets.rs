//! Tickets: a key of a workqueue waits for a token while its worker works on other keys.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::Executor;
use super::limits::{Class, Limits, Token, Waiter};
use crate::object::ObjectKey;
use crate::workqueue::{Priority, WorkQueue};

/// Lets the keys of one workqueue wait for tokens without occupying a worker (rule L1).
///
/// Before a worker sends a request that takes a token, it calls [`Work::may_send`]. If there is no
/// token, the key takes a ticket, the worker ends with
/// [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting), and the key is added to the queue
/// again as soon as a token is reserved for it. Namespaces take turns. Work that has begun does not
/// wait: its further requests are sent at once and charged to the bucket, so that other requests
/// wait instead.
#[derive(Clone)]
pub struct Tickets {
    executor: Arc<Executor>,
    shared: Arc<Shared>,
}

struct Shared {
    limits: Arc<Limits>,
    queue: WorkQueue<ObjectKey>,
    /// Keys that wait with a ticket, and keys with a reserved token until they are worked on.
    keys: Mutex<HashMap<ObjectKey, State>>,
}

enum State {
    Waiting,
    Served(Token),
}

impl Tickets {
    /// Creates tickets for the keys of `queue`, with the limits of `executor`.
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

    /// The executor for workers whose work [may send](Work::may_send): it never waits for a token.
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Begins the work on a key that a worker has taken.
    pub fn begin<'a>(&'a self, key: &'a ObjectKey) -> Work<'a> {
        let mut keys = self.shared.keys.lock();
        let served = match keys.get(key) {
            Some(State::Served(_)) => keys.remove(key),
            Some(State::Waiting) | None => None,
        };
        drop(keys);
        Work {
            shared: &self.shared,
            key,
            permission: match served {
                Some(State::Served(token)) => Permission::Reserved(token),
                Some(State::Waiting) | None => Permission::Unknown,
            },
        }
    }
}

/// Work on one key. When it ends, a reserved token goes back, whether it was used or not: each
/// request is charged when it is sent.
#[must_use]
pub struct Work<'a> {
    shared: &'a Arc<Shared>,
    key: &'a ObjectKey,
    permission: Permission,
}

enum Permission {
    Unknown,
    /// A token is reserved for this key.
    Reserved(#[expect(dead_code, reason = "goes back when it is dropped")] Token),
    Granted,
}

impl Work<'_> {
    /// Whether the work may send requests that take a token. If not, its key has a ticket, and the
    /// work must end with [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting).
    pub fn may_send(&mut self) -> bool {
        if matches!(self.permission, Permission::Unknown) && !self.shared.may_begin(self.key) {
            return false;
        }
        self.permission = Permission::Granted;
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
        keys.insert(key.clone(), State::Waiting);
        drop(keys);
        let waiter: Weak<Self> = Arc::downgrade(self);
        self.limits.enqueue_key(Class::Write, key.clone(), waiter);
        false
    }
}

impl Waiter for Shared {
    fn served(&self, key: ObjectKey, token: Token) {
        let before = self.keys.lock().insert(key.clone(), State::Served(token));
        // Dropping a token takes a lock.
        drop(before);
        self.queue.add(key, Priority::Normal);
    }
}

#[cfg(test)]
mod tests;
