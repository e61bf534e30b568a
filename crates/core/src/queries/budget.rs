//! A memory limit for the answers of all query caches together (T3).

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Default limit in bytes, for the answers of all query caches together.
pub const BUDGET: usize = 32 << 20;

/// If the answers exceed the budget, those unused for the first of these times are dropped, then
/// those for the second, and so on. No answer is dropped before the last of them: the waiting keys
/// have to read it first.
const IDLE: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(10),
    Duration::from_secs(1),
];

/// Minimum interval between two checks.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// A cache that can drop answers.
pub(super) trait Evict: Send + Sync {
    /// Drops the answers that were last used before `before`.
    fn evict_before(&self, before: Instant);
}

/// A number of bytes that the answers to all queries share. Cheap to clone; the clones are one
/// budget. [`LiveReads`](crate::queries::LiveReads) has one; the [example](crate::queries) uses
/// the default.
#[derive(Clone)]
pub struct Budget(Arc<Mutex<Account>>);

struct Account {
    limit: usize,
    used: usize,
    last_check: Option<Instant>,
    caches: Vec<Weak<dyn Evict>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUDGET)
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Account {
            limit,
            used: 0,
            last_check: None,
            caches: Vec::new(),
        })))
    }

    /// The approximate size of all answers, in bytes.
    pub fn used(&self) -> usize {
        self.0.lock().used
    }

    /// Makes `cache` drop answers when the budget is exceeded.
    pub(super) fn register(&self, cache: Weak<dyn Evict>) {
        self.0.lock().caches.push(cache);
    }

    /// Records that an answer of `new` bytes replaces one of `old` bytes.
    pub(super) fn replace(&self, old: usize, new: usize) {
        let mut account = self.0.lock();
        account.used = (account.used + new).saturating_sub(old);
    }

    /// Drops the answers that are unused for longest if the budget is exceeded. Must not be called
    /// while a registered cache is locked.
    pub(super) fn keep_within(&self) {
        let now = Instant::now();
        let caches = {
            let mut account = self.0.lock();
            let recent = |at: Instant| now.duration_since(at) < MIN_INTERVAL;
            if account.used <= account.limit || account.last_check.is_some_and(recent) {
                return;
            }
            account.last_check = Some(now);
            account.caches.retain(|cache| cache.strong_count() > 0);
            account.caches.clone()
        };
        for idle in IDLE {
            let Some(before) = now.checked_sub(idle) else {
                continue;
            };
            for cache in caches.iter().filter_map(Weak::upgrade) {
                cache.evict_before(before);
            }
            let account = self.0.lock();
            if account.used <= account.limit {
                return;
            }
        }
    }
}
