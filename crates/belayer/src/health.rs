//! How the process is doing: what `/livez` and `/readyz` answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belayer_core::informer::{InformerState, Store};
use belayer_core::object::ObjectKey;
use belayer_core::slim::{Namespace, Pod};
use belayer_core::workqueue::WorkQueue;

use crate::server::Health;

/// A worker that has been on one key for so long is wedged: every request it may wait for has a
/// shorter deadline.
const WEDGED_AFTER: Duration = Duration::from_secs(600);

/// Looks at queues and stores.
#[derive(Debug)]
pub struct Vitals {
    queue: WorkQueue<ObjectKey>,
    namespaces: Store<Namespace>,
    pods: Store<Pod>,
    working: AtomicBool,
}

impl Vitals {
    /// Vitals of these.
    pub fn new(
        queue: WorkQueue<ObjectKey>,
        namespaces: Store<Namespace>,
        pods: Store<Pod>,
    ) -> Self {
        Self {
            queue,
            namespaces,
            pods,
            working: AtomicBool::new(false),
        }
    }

    /// The workers have started.
    pub fn work_has_begun(&self) {
        self.working.store(true, Ordering::Release);
    }
}

impl Health for Vitals {
    fn not_ready(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.namespaces.is_synced() {
            missing.push("informer namespaces".to_owned());
        }
        if !self.pods.is_synced() {
            missing.push("informer pods".to_owned());
        }
        if !self.working.load(Ordering::Acquire) {
            missing.push("workers of pods".to_owned());
        }
        missing
    }

    fn wedged(&self) -> Vec<String> {
        let mut wedged = Vec::new();
        if self.queue.snapshot().longest > WEDGED_AFTER {
            wedged.push("a worker of pods".to_owned());
        }
        // Informers end with the process; one that has ended before leaves everybody blind.
        if self.namespaces.state() == InformerState::Stopped {
            wedged.push("informer namespaces".to_owned());
        }
        if self.pods.state() == InformerState::Stopped {
            wedged.push("informer pods".to_owned());
        }
        wedged
    }
}
