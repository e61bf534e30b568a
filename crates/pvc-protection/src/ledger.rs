//! The ledger of our own releases: what goes that is not in it, somebody else has taken off.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tokio::time::Instant;

use belayer_core::object::Uid;
use belayer_holds::runner::{Executed, Observer, What};

/// How long the answer to a release may come after the event that it causes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Releases whose event was not seen yet, and holds that went without one. More than this are not
/// remembered: it takes few to see that somebody else is at work.
const REMEMBERED: usize = 65_536;

/// Which holds we released ourselves.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    released: HashSet<Uid>,
    gone: VecDeque<(Uid, Instant)>,
    foreign: u64,
}

impl Ledger {
    /// We released the claim of this UID.
    pub fn released(&self, uid: &Uid) {
        let mut inner = self.0.lock();
        if inner.released.len() < REMEMBERED {
            inner.released.insert(uid.clone());
        }
    }

    /// The hold is gone from the claim of this UID, which was being deleted.
    pub fn gone(&self, uid: &Uid) {
        let mut inner = self.0.lock();
        if inner.gone.len() < REMEMBERED {
            inner.gone.push_back((uid.clone(), Instant::now()));
        }
    }

    /// How many holds somebody else has taken off so far.
    pub fn foreign(&self) -> u64 {
        let mut inner = self.0.lock();
        let Inner {
            released,
            gone,
            foreign,
        } = &mut *inner;
        while gone
            .front()
            .is_some_and(|(_, when)| when.elapsed() >= PATIENCE)
        {
            let Some((uid, _)) = gone.pop_front() else {
                break;
            };
            if !released.remove(&uid) {
                *foreign += 1;
            }
        }
        // A release whose event never came, because the watch was interrupted.
        if gone.is_empty() && released.len() >= REMEMBERED {
            released.clear();
        }
        *foreign
    }
}

/// Keeps the ledger, and passes on what it is told.
pub struct Keeper {
    /// The ledger.
    pub ledger: Arc<Ledger>,
    /// Who else wants to know.
    pub next: Arc<dyn Observer>,
}

impl Observer for Keeper {
    fn executed(&self, executed: &Executed<'_>) {
        if let What::Released { .. } = executed.what {
            self.ledger.released(executed.uid);
        }
        self.next.executed(executed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_we_did_not_release_somebody_else_did() {
        let ledger = Ledger::default();
        let uid = |n: u32| Uid::new(n.to_string());
        ledger.gone(&uid(1));
        ledger.gone(&uid(2));
        // The answer may come after the event.
        ledger.released(&uid(1));
        assert_eq!(ledger.foreign(), 0);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(ledger.foreign(), 1);
        assert_eq!(ledger.foreign(), 1);
    }
}
