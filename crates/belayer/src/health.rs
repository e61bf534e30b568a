//! Health of the process: the state behind `/livez` and `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belayer_controller::context::Seen;
use belayer_core::informer::InformerState;
use belayer_core::object::ObjectKey;
use belayer_core::workqueue::WorkQueue;

use crate::server::Health;

/// A worker that has processed one key for longer is stuck: every request it may wait for has a
/// shorter deadline.
const WEDGED_AFTER: Duration = Duration::from_secs(600);

/// A store whose watch has been down for this time is stale: the process is not ready (rules L3 and L5).
const DOWN_AFTER: Duration = Duration::from_secs(120);

/// Collects the health of queues and informers.
#[derive(Debug, Default)]
pub struct Vitals {
    informers: Vec<WatchedInformer>,
    workers: Vec<WatchedWorkers>,
}

#[derive(Debug)]
struct WatchedInformer {
    seen: Seen,
    needed: Needed,
}

impl WatchedInformer {
    /// Whether its store, which was complete, has been stale for too long. A kind that has never been listed may
    /// not be installed, or this process may not read it.
    fn is_down(&self) -> bool {
        let down = match *self.seen.state.borrow() {
            InformerState::Failing { since, .. } => since.elapsed() >= DOWN_AFTER,
            InformerState::Starting
            | InformerState::Synced
            | InformerState::NotServed
            | InformerState::Stopped => false,
        };
        down && (self.seen.is_synced)()
    }
}

#[derive(Debug)]
struct WatchedWorkers {
    name: &'static str,
    queue: WorkQueue<ObjectKey>,
    /// Their caches are synced.
    ready: Arc<AtomicBool>,
}

/// Whether the process needs an informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// The process is not ready before its first list.
    Yes,
    /// The API server may not serve the kind, for example if its CRD is not installed.
    No,
}

/// Reports when the workers of one queue can start.
#[derive(Debug)]
pub struct Started(Arc<AtomicBool>);

impl Started {
    /// Reports that their caches are synced. A standby stays in this state, and is ready.
    pub fn are_ready(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Vitals {
    /// Adds an informer.
    pub fn informer(&mut self, seen: Seen, needed: Needed) {
        self.informers.push(WatchedInformer { seen, needed });
    }

    /// Adds the workers of a queue.
    pub fn workers(&mut self, name: &'static str, queue: WorkQueue<ObjectKey>) -> Started {
        let ready = Arc::new(AtomicBool::default());
        self.workers.push(WatchedWorkers {
            name,
            queue,
            ready: Arc::clone(&ready),
        });
        Started(ready)
    }
}

impl Health for Vitals {
    fn not_ready(&self) -> Vec<String> {
        let informers = self
            .informers
            .iter()
            .filter(|informer| informer.needed == Needed::Yes && !(informer.seen.is_synced)())
            .map(|informer| format!("informer {}", informer.seen.name));
        let down = self
            .informers
            .iter()
            .filter(|informer| informer.is_down())
            .map(|informer| format!("watch of {}, down for 2 minutes", informer.seen.name));
        let workers = self
            .workers
            .iter()
            .filter(|workers| !workers.ready.load(Ordering::Acquire))
            .map(|workers| format!("workers of {}", workers.name));
        informers.chain(down).chain(workers).collect()
    }

    fn wedged(&self) -> Vec<String> {
        let workers = self
            .workers
            .iter()
            .filter(|workers| workers.queue.snapshot().longest > WEDGED_AFTER)
            .map(|workers| format!("a worker of {}", workers.name));
        // An informer stops only with the process; if it stopped earlier its caches are stale.
        let informers = self
            .informers
            .iter()
            .filter(|informer| *informer.seen.state.borrow() == InformerState::Stopped)
            .map(|informer| format!("informer {}", informer.seen.name));
        workers.chain(informers).collect()
    }
}
