//! How much memory answers may take, of all kinds together (T3).

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that answers may take, all kinds together, unless told otherwise.
pub const BUDGET: usize = 32 << 20;

/// When answers exceed the budget, those that were not used for the first of these times are dropped first.
/// No answer is dropped before the last of them: the keys that waited for it have to read it.
const IDLE: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(10),
    Duration::from_secs(1),
];

/// The answers are checked no more often than this.
const EVERY: Duration = Duration::from_millis(250);

/// A cache that can drop answers.
pub(super) trait Forgets: Send + Sync {
    /// Drops the answers that were last used before `before`.
    fn forget_before(&self, before: Instant);
}

/// Bytes that the answers to all questions share. Cheap to clone; the clones are one budget.
#[derive(Clone)]
pub struct Budget(Arc<Mutex<Account>>);

struct Account {
    limit: usize,
    used: usize,
    looked_through: Option<Instant>,
    holders: Vec<Weak<dyn Forgets>>,
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
            looked_through: None,
            holders: Vec::new(),
        })))
    }

    /// About how many bytes the answers take.
    pub fn used(&self) -> usize {
        self.0.lock().used
    }

    /// Makes `holder` drop answers when there are too many.
    pub(super) fn register(&self, holder: Weak<dyn Forgets>) {
        self.0.lock().holders.push(holder);
    }

    /// An answer of `new` bytes replaces one of `old` bytes.
    pub(super) fn replace(&self, old: usize, new: usize) {
        let mut account = self.0.lock();
        account.used = (account.used + new).saturating_sub(old);
    }

    /// Drops answers if there are too many, the longest unused first. Must not be called while one of the
    /// holders is locked.
    pub(super) fn keep_within(&self) {
        let now = Instant::now();
        let holders = {
            let mut account = self.0.lock();
            let lately = |at: Instant| now.duration_since(at) < EVERY;
            if account.used <= account.limit || account.looked_through.is_some_and(lately) {
                return;
            }
            account.looked_through = Some(now);
            account.holders.retain(|holder| holder.strong_count() > 0);
            account.holders.clone()
        };
        for idle in IDLE {
            let Some(before) = now.checked_sub(idle) else {
                continue;
            };
            for holder in holders.iter().filter_map(Weak::upgrade) {
                holder.forget_before(before);
            }
            let account = self.0.lock();
            if account.used <= account.limit {
                return;
            }
        }
    }
}
