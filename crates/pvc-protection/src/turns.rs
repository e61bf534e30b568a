//! Turns: namespaces take turns at the queue, so that a namespace with ten thousand claims to
//! release does not hold up another's one.
//!
//! What waited for a look is woken all at once. Instead of lining up in the queue, the keys line up
//! in a [`FairQueue`] and are fed to the queue one namespace after the other, never many more than
//! the workers can take.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use belayer_core::fair_queue::FairQueue;
use belayer_core::object::ObjectKey;
use belayer_core::workqueue::{Priority, WorkQueue};

/// How long to wait for the workers while the queue is full enough. A worker needs about that long
/// for one release.
const PAUSE: Duration = Duration::from_millis(2);

/// Feeds a queue. Cheap to clone.
#[derive(Clone)]
pub struct Turns {
    shared: Arc<Shared>,
}

struct Shared {
    queue: WorkQueue<ObjectKey>,
    /// Keys that may stand in the queue.
    depth: usize,
    cancel: CancellationToken,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    keys: FairQueue<ObjectKey>,
    feeding: bool,
}

impl Turns {
    /// Feeds `queue` for that many workers, until `cancel` is cancelled.
    pub fn new(queue: WorkQueue<ObjectKey>, workers: usize, cancel: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue,
                depth: workers.saturating_mul(2),
                cancel,
                lanes: Mutex::default(),
            }),
        }
    }

    /// Puts a key in its namespace's line.
    pub fn add(&self, key: ObjectKey) {
        let mut lanes = self.shared.lanes.lock();
        lanes.keys.push(key.shared_namespace(), key.clone());
        if lanes.feeding {
            return;
        }
        lanes.feeding = true;
        drop(lanes);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let cancel = shared.cancel.clone();
            cancel.run_until_cancelled(shared.feed()).await
        });
    }
}

impl Shared {
    async fn feed(&self) {
        loop {
            while self.queue.snapshot().depth.iter().sum::<usize>() >= self.depth {
                tokio::time::sleep(PAUSE).await;
            }
            let mut lanes = self.lanes.lock();
            let Some(key) = lanes.keys.pop() else {
                lanes.feeding = false;
                return;
            };
            drop(lanes);
            self.queue.add(key, Priority::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hot_namespace_does_not_starve_another() {
        let queue = WorkQueue::new("claims");
        let turns = Turns::new(queue.clone(), 2, CancellationToken::new());
        for n in 0..10_000 {
            turns.add(ObjectKey::new("hot", format!("claim-{n}")));
        }
        turns.add(ObjectKey::new("quiet", "claim"));
        let mut before = 0;
        let quiet = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let Some(item) = queue.try_next() else {
                continue;
            };
            if item.key().namespace() == Some("quiet") {
                break before;
            }
            before += 1;
            item.done();
        };
        assert!(quiet < 10, "{quiet} of the hot namespace went first");
    }

    #[tokio::test(start_paused = true)]
    async fn every_key_gets_its_turn() {
        let queue = WorkQueue::new("claims");
        let turns = Turns::new(queue.clone(), 4, CancellationToken::new());
        for n in 0..1_000 {
            turns.add(ObjectKey::new(
                format!("ns-{}", n % 7),
                format!("claim-{n}"),
            ));
        }
        let mut taken = 0;
        while taken < 1_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while let Some(item) = queue.try_next() {
                item.done();
                taken += 1;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(queue.try_next().is_none());
        turns.add(ObjectKey::new("ns-1", "late"));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(queue.try_next().is_some(), "the feeder starts again");
    }
}
