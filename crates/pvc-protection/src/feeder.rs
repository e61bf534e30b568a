//! Feeds the work queue fairly by namespace, so that a namespace with ten thousand PVCs to release does not
//! delay the PVCs of other namespaces.
//!
//! All keys that wait for one live read become ready at once. They are added to a [`FairQueue`] first and moved
//! to the work queue one namespace after the other, never many more than the workers can process. Keys of other
//! priorities do not count: PVCs that get a hold, or are only checked again, do not delay a release (rule L7).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use belayer_core::fair_queue::FairQueue;
use belayer_core::object::ObjectKey;
use belayer_core::workqueue::{Priority, WorkQueue};

/// Pause before the depth of the work queue is checked again. A worker needs about that long for one release.
const PAUSE: Duration = Duration::from_millis(2);

/// Feeds a work queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FairQueueFeeder {
    shared: Arc<Shared>,
}

struct Shared {
    queue: WorkQueue<ObjectKey>,
    /// Maximum number of releases in the work queue.
    depth: usize,
    cancel: CancellationToken,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    keys: FairQueue<ObjectKey>,
    feeding: bool,
}

impl FairQueueFeeder {
    /// Feeds `queue` for that many workers, until `cancel` is cancelled.
    pub(crate) fn new(
        queue: WorkQueue<ObjectKey>,
        workers: usize,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue,
                depth: workers.saturating_mul(2),
                cancel,
                waiting: Mutex::default(),
            }),
        }
    }

    /// Appends a key to the queue of its namespace.
    pub(crate) fn add(&self, key: ObjectKey) {
        let mut waiting = self.shared.waiting.lock();
        waiting.keys.push(key.shared_namespace(), key.clone());
        if waiting.feeding {
            return;
        }
        waiting.feeding = true;
        drop(waiting);
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
            while self.queue.snapshot().depth(Priority::Release) >= self.depth {
                tokio::time::sleep(PAUSE).await;
            }
            let mut waiting = self.waiting.lock();
            let Some(key) = waiting.keys.pop() else {
                waiting.feeding = false;
                return;
            };
            drop(waiting);
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
        let feeder = FairQueueFeeder::new(queue.clone(), 2, CancellationToken::new());
        for n in 0..10_000 {
            feeder.add(ObjectKey::new("hot", format!("claim-{n}")));
        }
        feeder.add(ObjectKey::new("quiet", "claim"));
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
    async fn l7_a_backlog_of_holds_does_not_delay_releases() {
        let queue = WorkQueue::new("claims");
        let feeder = FairQueueFeeder::new(queue.clone(), 2, CancellationToken::new());
        let holds = |n| ObjectKey::new("hot", format!("claim-{n}"));
        queue.add_all((0..25_000).map(holds), Priority::Normal);
        queue.add_all((25_000..50_000).map(holds), Priority::Resync);
        let releases: Vec<_> = (0..100)
            .map(|n| ObjectKey::new("shop", format!("claim-{n}")))
            .collect();
        releases.iter().for_each(|key| feeder.add(key.clone()));
        for released in &releases {
            tokio::time::sleep(2 * PAUSE).await;
            let next = queue.try_next().unwrap();
            assert_eq!(next.key(), released);
            next.done();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_key_is_fed_once() {
        let queue = WorkQueue::new("claims");
        let feeder = FairQueueFeeder::new(queue.clone(), 4, CancellationToken::new());
        for n in 0..1_000 {
            feeder.add(ObjectKey::new(
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
        feeder.add(ObjectKey::new("ns-1", "late"));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(queue.try_next().is_some(), "the feeder starts again");
    }
}
