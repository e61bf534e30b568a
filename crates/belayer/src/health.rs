//! How the process is doing: what `/livez` and `/readyz` answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belayer_controller::context::Seen;
use belayer_core::informer::InformerState;
use belayer_core::object::ObjectKey;
use belayer_core::workqueue::WorkQueue;

use crate::server::Health;

/// A worker that has been on one key for so long is wedged: every request it may wait for has a
/// shorter deadline.
const WEDGED_AFTER: Duration = Duration::from_secs(600);

/// Looks at queues and informers.
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

#[derive(Debug)]
struct WatchedWorkers {
    name: &'static str,
    queue: WorkQueue<ObjectKey>,
    progress: Arc<Progress>,
}

/// How far the workers of one queue are.
#[derive(Debug, Default)]
struct Progress {
    /// Their caches are full.
    ready: AtomicBool,
    /// They work.
    working: AtomicBool,
}

/// Whether the process can do its work without an informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// Not ready before its first list.
    Yes,
    /// Its kind may not be served at all, such as that of a CRD that is not installed.
    No,
}

/// Tells that the workers of one queue have started.
#[derive(Debug)]
pub struct Started(Arc<Progress>);

impl Started {
    /// They could: all they need is there. A standby gets no further, and is ready.
    pub fn are_ready(&self) {
        self.0.ready.store(true, Ordering::Release);
    }

    /// They have.
    pub fn tell(&self) {
        self.0.working.store(true, Ordering::Release);
    }
}

impl Vitals {
    /// Looks at an informer.
    pub fn informer(&mut self, seen: Seen, needed: Needed) {
        self.informers.push(WatchedInformer { seen, needed });
    }

    /// Looks at the workers of a queue.
    pub fn workers(&mut self, name: &'static str, queue: WorkQueue<ObjectKey>) -> Started {
        let progress = Arc::new(Progress::default());
        self.workers.push(WatchedWorkers {
            name,
            queue,
            progress: Arc::clone(&progress),
        });
        Started(progress)
    }
}

impl Vitals {
    /// Whether workers have started, as those of a leader have.
    pub fn is_working(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|workers| workers.progress.working.load(Ordering::Acquire))
    }
}

impl Health for Vitals {
    fn not_ready(&self) -> Vec<String> {
        let informers = self
            .informers
            .iter()
            .filter(|informer| informer.needed == Needed::Yes && !(informer.seen.is_synced)())
            .map(|informer| format!("informer {}", informer.seen.name));
        let workers = self
            .workers
            .iter()
            .filter(|workers| !workers.progress.ready.load(Ordering::Acquire))
            .map(|workers| format!("workers of {}", workers.name));
        informers.chain(workers).collect()
    }

    fn wedged(&self) -> Vec<String> {
        let workers = self
            .workers
            .iter()
            .filter(|workers| workers.queue.snapshot().longest > WEDGED_AFTER)
            .map(|workers| format!("a worker of {}", workers.name));
        // Informers end with the process; one that has ended before leaves everybody blind.
        let informers = self
            .informers
            .iter()
            .filter(|informer| *informer.seen.state.borrow() == InformerState::Stopped)
            .map(|informer| format!("informer {}", informer.seen.name));
        workers.chain(informers).collect()
    }
}
