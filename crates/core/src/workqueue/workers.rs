//! Workers that process the keys of a queue.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use metrics::Counter;
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::metrics::panics;
use super::{Key, WorkQueue};

/// How often the workers publish their queue's metrics, as often as client-go does.
const REFRESH: Duration = Duration::from_millis(500);

/// How the work on a key ended. The work of [`Workers`](crate::workqueue::Workers) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With success; nothing is left to do.
    Done,
    /// With success, and the key is requeued after `after`.
    Again {
        /// From now on; zero means at once.
        after: Duration,
    },
    /// With a failure: the key is requeued after a delay drawn from this curve.
    Retry(Backoff),
    /// Not done: another component adds the key again. Its failures are neither counted nor reset.
    Waiting,
}

/// Tasks that take keys from a queue and pass them to a handler. Only the queue serialises them.
///
/// A handler that panics causes one [`Backoff::ERROR`] for its key and does not affect other keys;
/// the panic is counted. Dropping the workers aborts the running handlers;
/// [`shutdown`](Self::shutdown) and [`drain`](Self::drain) let them finish.
///
/// ```
/// use belayer_core::workqueue::{Priority, Outcome, WorkQueue, Workers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::new("pods");
/// let workers = Workers::spawn(4, queue.clone(), |key: &'static str| async move {
///     println!("working on {key}");
///     Outcome::Done
/// });
/// queue.add("default/web-0", Priority::Normal);
/// workers.drain().await;
/// # }
/// ```
#[must_use = "dropping the workers aborts them"]
#[derive(Debug)]
pub struct Workers<K: Key> {
    queue: WorkQueue<K>,
    tasks: JoinSet<()>,
    /// Publishes metrics while the workers exist.
    ticker: JoinSet<()>,
    panics: Arc<Panics>,
}

struct Panics {
    count: AtomicU64,
    counter: Counter,
}

impl Debug for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.count.fmt(f)
    }
}

impl<K: Key + Debug> Workers<K> {
    /// Starts `count` workers (at least one) on the current tokio runtime.
    pub fn spawn<H, F>(count: usize, queue: WorkQueue<K>, handler: H) -> Self
    where
        H: Fn(K) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let panics = Arc::new(Panics {
            count: AtomicU64::new(0),
            counter: panics(&queue.shared.name, queue.shared.metering),
        });
        let handler = Arc::new(handler);
        let mut tasks = JoinSet::new();
        for _ in 0..count.max(1) {
            let (queue, handler) = (queue.clone(), Arc::clone(&handler));
            tasks.spawn(work(queue, handler, Arc::clone(&panics)));
        }
        let mut ticker = JoinSet::new();
        ticker.spawn(refresh(queue.clone()));
        Self {
            queue,
            tasks,
            ticker,
            panics,
        }
    }

    /// The number of panics caught so far.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.count.load(Ordering::Relaxed)
    }

    /// Stops the queue, waits for the running handlers, and returns. Waiting keys are dropped.
    pub async fn shutdown(self) {
        self.queue.shutdown();
        self.join().await;
    }

    /// Stops the queue, processes the ready keys, and returns. Delayed keys are dropped.
    pub async fn drain(self) {
        self.queue.shutdown_with_drain().await;
        self.join().await;
    }

    /// Waits until the workers have ended because the queue was shut down.
    pub async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
        self.ticker.abort_all();
        self.queue.refresh_metrics();
    }
}

async fn work<K, H, F>(queue: WorkQueue<K>, handler: Arc<H>, panics: Arc<Panics>)
where
    K: Key + Debug,
    H: Fn(K) -> F,
    F: Future<Output = Outcome>,
{
    while let Some(item) = queue.next().await {
        let key = item.key().clone();
        // The block also catches a panic of the handler before it returns its future.
        let run = async { handler(key).await };
        // The unwinding touches no state of the queue; the handler is responsible for its own.
        match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Outcome::Done) => item.succeeded(),
            Ok(Outcome::Again { after }) => item.again(after),
            Ok(Outcome::Retry(backoff)) => {
                item.retry(backoff);
            }
            Ok(Outcome::Waiting) => item.done(),
            Err(panic) => {
                panics.count.fetch_add(1, Ordering::Relaxed);
                panics.counter.increment(1);
                tracing::error!(
                    queue = queue.name(),
                    key = ?item.key(),
                    panic = panic_message(&*panic),
                    "worker panicked"
                );
                item.retry(Backoff::ERROR);
            }
        }
    }
}

/// The message of a panic, if it is a text. [`Workers`](crate::workqueue::Workers) uses it for the
/// log line of a panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

async fn refresh<K: Key>(queue: WorkQueue<K>) {
    loop {
        queue.refresh_metrics();
        tokio::time::sleep(REFRESH).await;
    }
}
