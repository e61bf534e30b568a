//! Tickets: a key of a workqueue waits for a token or for a slot while its worker works on other
//! keys.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::Executor;
use super::lanes::{Lanes, Slot};
use super::limits::{Class, Limits, Token, Waiter};
use crate::object::{ObjectKey, Resource};
use crate::workqueue::{Priority, WorkQueue};

/// Lets the keys of one workqueue wait without occupying a worker: for tokens (rule L1), and for
/// slots of releases (rule L2).
///
/// Before a worker sends a request that takes a token, it calls [`Work::may_send`], and before a
/// release [`Work::may_release`]. If there is no token or slot, the key takes a ticket, the worker
/// ends with [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting), and the key is added to the
/// queue again as soon as a token or slot is reserved for it. Namespaces take turns. Work that has
/// begun does not wait: its further requests are sent at once and charged to the bucket, so that
/// other requests wait instead.
///
/// [`Executor`](crate::executor::Executor) has them. Most callers do not need them: see the
/// [example](crate::executor).
#[derive(Clone)]
pub struct Tickets {
    executor: Arc<Executor>,
    shared: Arc<Shared>,
}

struct Shared {
    limits: Arc<Limits>,
    lanes: Arc<Lanes>,
    queue: WorkQueue<ObjectKey>,
    tokens: Reserved<Token>,
    slots: Reserved<Slot>,
}

/// Keys that wait with a ticket, and keys with something reserved until they are worked on.
struct Reserved<T>(Mutex<HashMap<ObjectKey, State<T>>>);

enum State<T> {
    Waiting,
    Served(T),
}

impl<T> Default for Reserved<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Reserved<T> {
    /// Takes what is reserved for `key`.
    fn take(&self, key: &ObjectKey) -> Option<T> {
        let mut keys = self.0.lock();
        let Some(State::Served(_)) = keys.get(key) else {
            return None;
        };
        match keys.remove(key) {
            Some(State::Served(reserved)) => Some(reserved),
            Some(State::Waiting) | None => None,
        }
    }

    /// Calls `take` unless `key` has a ticket already; if that returns nothing, the key gets one by
    /// `enqueue`.
    fn or_wait<R>(
        &self,
        key: &ObjectKey,
        take: impl FnOnce() -> Option<R>,
        enqueue: impl FnOnce(),
    ) -> Option<R> {
        let mut keys = self.0.lock();
        if keys.contains_key(key) {
            return None;
        }
        let taken = take();
        if taken.is_none() {
            keys.insert(key.clone(), State::Waiting);
            drop(keys);
            enqueue();
        }
        taken
    }

    fn served(&self, key: ObjectKey, reserved: T) {
        let before = self.0.lock().insert(key, State::Served(reserved));
        // Dropping what was reserved takes a lock.
        drop(before);
    }
}

impl Tickets {
    /// Creates tickets for the keys of `queue`, with the limits of `executor`.
    pub fn new(executor: &Executor, queue: WorkQueue<ObjectKey>) -> Self {
        Self {
            executor: Arc::new(executor.for_work_that_has_begun()),
            shared: Arc::new(Shared {
                limits: Arc::clone(&executor.limits),
                lanes: Arc::clone(&executor.lanes),
                queue,
                tokens: Reserved::default(),
                slots: Reserved::default(),
            }),
        }
    }

    /// The executor for workers whose work [may send](Work::may_send): it never waits for a token
    /// or a slot.
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Begins the work on a key that a worker has taken.
    pub fn begin<'a>(&'a self, key: &'a ObjectKey) -> Work<'a> {
        let token = self.shared.tokens.take(key);
        Work {
            shared: &self.shared,
            key,
            permission: token.map_or(Permission::Unknown, Permission::Reserved),
            slot: self.shared.slots.take(key),
        }
    }
}

/// Work on one key. When it ends, a reserved token goes back, whether it was used or not: each
/// request is charged when it is sent. The slot of a release goes back as well.
/// [`Executor`](crate::executor::Executor) charges its requests to it. Most callers do not need
/// one: see the [example](crate::executor).
#[must_use]
pub struct Work<'a> {
    shared: &'a Arc<Shared>,
    key: &'a ObjectKey,
    permission: Permission,
    slot: Option<Slot>,
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

    /// Whether the work may release its object, which is of this kind: the requests for it are not
    /// paused, and not too many are in flight. If not, its key has a ticket, and the work must end
    /// with [`Outcome::Waiting`](crate::workqueue::Outcome::Waiting).
    pub fn may_release(&mut self, kind: &Resource) -> bool {
        let lane = self
            .shared
            .lanes
            .of(Class::Release, &kind.group, &kind.plural);
        if self.slot.is_some() && lane.is_paused() {
            self.slot = None;
        }
        if self.slot.is_none() {
            let waiter: Weak<Shared> = Arc::downgrade(self.shared);
            self.slot = self.shared.slots.or_wait(
                self.key,
                || lane.free_slot(),
                || lane.enqueue_key(self.key.clone(), waiter),
            );
        }
        self.slot.is_some()
    }
}

impl Shared {
    fn may_begin(self: &Arc<Self>, key: &ObjectKey) -> bool {
        let waiter: Weak<Self> = Arc::downgrade(self);
        let begun = self.tokens.or_wait(
            key,
            || self.limits.may_begin().then_some(()),
            || self.limits.enqueue_key(Class::Write, key.clone(), waiter),
        );
        begun.is_some()
    }
}

impl Waiter<Token> for Shared {
    fn served(&self, key: ObjectKey, token: Token) {
        self.tokens.served(key.clone(), token);
        self.queue.add(key, Priority::Normal);
    }
}

impl Waiter<Slot> for Shared {
    fn served(&self, key: ObjectKey, slot: Slot) {
        self.slots.served(key.clone(), slot);
        self.queue.add(key, Priority::Release);
    }
}

#[cfg(test)]
mod tests;
