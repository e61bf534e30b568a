//! Limits the requests to the API server, by class.
//!
//! Releases are limited only by concurrency and by the server's 429 ([lanes](super::lanes)); all
//! other requests of an executor share a token bucket. Informers do not use it: each has one list or one watch under way
//! and its own backoff. client-go excludes watches from its rate limit too, and a list is a watch
//! if the server supports streaming lists. The limits are implemented here and not in a tower layer
//! because `kube::Client` puts a FIFO buffer in front of its service: a create that waits for a
//! token there would block the releases behind it.
//!
//! While the bucket is empty, requests wait in one queue per [`Class`], and within a class the
//! namespaces take turns ([`FairQueue`]). Each class gets its share of the tokens (rule L1); the
//! other classes get what it does not use. One timer serves all queues and distributes the
//! available tokens each time it fires. With [`Tickets`](super::Tickets) a key waits without
//! occupying a worker.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belayer_metrics::waiting;
use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::Urgency;
use crate::fair_queue::FairQueue;
use crate::object::ObjectKey;

/// The purpose of a request. Requests of a release come before all others. The [module's
/// example](crate::executor) sends a [`Write`](crate::executor::Class::Write).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Removes a finalizer of the controller's (releases a hold), or reads the object again after a
    /// conflict. Takes no token.
    Release,
    /// Reads whether a hold may be released: at least 50 % of the tokens.
    Evidence,
    /// Any other write, such as adding a finalizer: at least 30 % of the tokens.
    Write,
    /// Kubernetes Events.
    Notice,
}

/// The classes that share the bucket: their shares while all of them wait, and their names in
/// metrics.
const SHARES: [(f64, &str); 3] = [
    (0.5, waiting::EVIDENCE),
    (0.3, waiting::WRITE),
    (0.2, waiting::NOTICE),
];

impl Class {
    /// The index in [`SHARES`]; `None` if the class takes no tokens.
    fn queue(self) -> Option<usize> {
        match self {
            Self::Release => None,
            Self::Evidence => Some(0),
            Self::Write => Some(1),
            Self::Notice => Some(2),
        }
    }

    /// How its requests get a connection.
    pub(super) fn urgency(self) -> Urgency {
        match self {
            Self::Release => Urgency::Release,
            Self::Evidence | Self::Write | Self::Notice => Urgency::Other,
        }
    }
}

/// The limits, as given by the flags. The defaults are right for one controller, as in the
/// [example](crate::executor).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// `--kube-api-qps`: requests per second, without releases and informers.
    pub qps: f64,
    /// `--kube-api-burst`: how many requests may be sent at once after a pause.
    pub burst: u32,
    /// `--concurrent-releases`: maximum number of releases of one resource under way.
    pub concurrent_releases: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            qps: 100.0,
            burst: 200,
            concurrent_releases: 64,
        }
    }
}

/// A token that was taken out of the bucket for a waiting request. If it is dropped before it is
/// spent, it goes back into the bucket.
#[derive(Debug)]
#[must_use]
pub(super) struct Token {
    limits: Weak<Limits>,
    queue: usize,
}

impl Token {
    fn spend(mut self) {
        self.limits = Weak::new();
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(limits) = self.limits.upgrade() {
            limits.return_token(self.queue);
        }
    }
}

/// Receives tokens or slots for keys that wait without a task.
pub(super) trait Waiter<T>: Send + Sync {
    /// One is reserved for `key`.
    fn served(&self, key: ObjectKey, reserved: T);
}

/// A place in a queue.
pub(super) enum Ticket<T> {
    /// For a task that sleeps until it is served.
    Task(oneshot::Sender<T>),
    /// For a key of a workqueue.
    Key(ObjectKey, Weak<dyn Waiter<T>>),
}

impl<T> Ticket<T> {
    /// Passes on what is reserved, or returns it if the request was cancelled in the meantime.
    pub(super) fn serve(self, reserved: T) -> Result<(), T> {
        match self {
            Self::Task(task) => task.send(reserved),
            Self::Key(key, waiter) => match waiter.upgrade() {
                Some(waiter) => {
                    waiter.served(key, reserved);
                    Ok(())
                }
                None => Err(reserved),
            },
        }
    }
}

/// Grants permits to send requests, in shares by [`Class`]. An
/// [`Executor`](crate::executor::Executor) contains them; its [example](crate::executor) uses the
/// default [`Bounds`](crate::executor::Bounds).
#[derive(Debug)]
pub struct Limits {
    bucket: Mutex<Bucket>,
    qps: f64,
    burst: f64,
}

struct Bucket {
    /// Negative if work that had begun sent more requests than there were tokens.
    tokens: f64,
    filled: Instant,
    queues: [ClassQueue; SHARES.len()],
    /// The position of the queue that was served last.
    position: f64,
    /// Whether a request waits and the timer runs. No other request overtakes the waiting ones.
    timer_runs: bool,
    /// How often the timer fired.
    #[cfg(test)]
    wake_ups: u64,
}

/// The queue of one class.
struct ClassQueue {
    waiting: FairQueue<Ticket<Token>>,
    /// The tokens it got, divided by its share: the queue with the lowest position is served next.
    position: f64,
    gauge: Gauge,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queues.each_ref().map(|queue| queue.waiting.len());
        f.debug_struct("Bucket")
            .field("tokens", &self.tokens)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl Limits {
    /// Creates limits from `bounds`. A rate that is not positive means no limit.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let burst = f64::from(bounds.burst.max(1));
        Arc::new(Self {
            bucket: Mutex::new(Bucket {
                tokens: burst,
                filled: Instant::now(),
                queues: SHARES.map(|(_, name)| ClassQueue {
                    waiting: FairQueue::default(),
                    position: 0.0,
                    gauge: metrics::gauge!(crate::metric_names::API_WAITING, "queue" => name),
                }),
                position: 0.0,
                timer_runs: false,
                #[cfg(test)]
                wake_ups: 0,
            }),
            qps: if bounds.qps > 0.0 {
                bounds.qps
            } else {
                f64::INFINITY
            },
            burst,
        })
    }

    /// Waits until a request of `class` may be sent, in the turn of its `namespace`. Cancel-safe.
    /// Not for workers: the key of a worker takes a [ticket](super::Tickets) instead.
    pub async fn acquire(self: &Arc<Self>, class: Class, namespace: impl FnOnce() -> Arc<str>) {
        let Some(queue) = class.queue() else {
            return;
        };
        let served = {
            let mut bucket = self.bucket.lock();
            if self.is_free(&mut bucket) {
                bucket.tokens -= 1.0;
                return;
            }
            let (ticket, served) = oneshot::channel();
            self.enqueue(&mut bucket, queue, &namespace(), Ticket::Task(ticket));
            served
        };
        // `self` is borrowed while this waits, so the ticket lives until it is served.
        if let Ok(token) = served.await {
            token.spend();
        }
    }

    /// For work that has begun: its request is sent at once and charged to the bucket, so that later
    /// requests wait instead.
    pub(super) fn charge(&self, class: Class) {
        let Some(queue) = class.queue() else {
            return;
        };
        let mut bucket = self.bucket.lock();
        if self.qps.is_finite() {
            self.fill(&mut bucket);
            bucket.tokens -= 1.0;
            if bucket.timer_runs {
                bucket.queues[queue].position += 1.0 / SHARES[queue].0;
            }
        }
    }

    /// Whether work may begin to send now. Its requests are [charged](Self::charge).
    pub(super) fn may_begin(&self) -> bool {
        self.is_free(&mut self.bucket.lock())
    }

    /// Calls `waiter` as soon as there is a token for `key`.
    pub(super) fn enqueue_key(
        self: &Arc<Self>,
        class: Class,
        key: ObjectKey,
        waiter: Weak<dyn Waiter<Token>>,
    ) {
        // Not reached for a class that takes no token; such a key would wait among the writes.
        let queue = class.queue().unwrap_or(1);
        let namespace = Arc::clone(key.shared_namespace());
        let mut bucket = self.bucket.lock();
        self.enqueue(&mut bucket, queue, &namespace, Ticket::Key(key, waiter));
    }

    fn enqueue(
        self: &Arc<Self>,
        bucket: &mut Bucket,
        queue: usize,
        namespace: &Arc<str>,
        ticket: Ticket<Token>,
    ) {
        let position = bucket.position;
        let queue = &mut bucket.queues[queue];
        if queue.waiting.is_empty() {
            // A queue that was empty does not save up tokens.
            queue.position = queue.position.max(position);
        }
        queue.waiting.push(namespace, ticket);
        queue.gauge.set(queue.waiting.len() as f64);
        if !bucket.timer_runs {
            bucket.timer_runs = true;
            tokio::spawn(run_timer(Arc::downgrade(self)));
        }
    }

    fn fill(&self, bucket: &mut Bucket) {
        let now = Instant::now();
        let gained = now.duration_since(bucket.filled).as_secs_f64() * self.qps;
        bucket.tokens = (bucket.tokens + gained).min(self.burst);
        bucket.filled = now;
    }

    fn is_free(&self, bucket: &mut Bucket) -> bool {
        if self.qps.is_infinite() {
            return true;
        }
        self.fill(bucket);
        !bucket.timer_runs && bucket.tokens >= 1.0
    }

    /// Returns an unused token to the bucket.
    fn return_token(&self, queue: usize) {
        let mut bucket = self.bucket.lock();
        bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        if bucket.timer_runs {
            bucket.queues[queue].position -= 1.0 / SHARES[queue].0;
        }
    }

    /// Distributes the available tokens; returns when to continue if a request still waits.
    fn serve(self: &Arc<Self>) -> Option<Duration> {
        #[cfg(test)]
        {
            self.bucket.lock().wake_ups += 1;
        }
        loop {
            let (ticket, token) = {
                let mut bucket = self.bucket.lock();
                self.fill(&mut bucket);
                let Some(queue) = bucket.next_queue() else {
                    bucket.reset();
                    return None;
                };
                if bucket.tokens < 1.0 {
                    let pause = Duration::from_secs_f64((1.0 - bucket.tokens) / self.qps);
                    return Some(pause.max(Duration::from_millis(1)));
                }
                let Some(ticket) = bucket.take(queue) else {
                    continue;
                };
                let limits = Arc::downgrade(self);
                (ticket, Token { limits, queue })
            };
            // If the request was cancelled in the meantime, the next one gets its token.
            drop(ticket.serve(token));
        }
    }
}

impl Bucket {
    /// The queue with the lowest position in which a request waits.
    fn next_queue(&self) -> Option<usize> {
        let position = |queue: &usize| self.queues[*queue].position;
        (0..self.queues.len())
            .filter(|queue| !self.queues[*queue].waiting.is_empty())
            .min_by(|one, other| position(one).total_cmp(&position(other)))
    }

    fn take(&mut self, queue: usize) -> Option<Ticket<Token>> {
        let share = SHARES[queue].0;
        let queue = &mut self.queues[queue];
        let ticket = queue.waiting.pop()?;
        self.tokens -= 1.0;
        self.position = queue.position;
        queue.position += 1.0 / share;
        queue.gauge.set(queue.waiting.len() as f64);
        Some(ticket)
    }

    /// No request waits: resets the positions of all queues.
    fn reset(&mut self) {
        self.timer_runs = false;
        self.position = 0.0;
        for queue in &mut self.queues {
            queue.position = 0.0;
        }
    }
}

/// The timer that serves all queues.
async fn run_timer(limits: Weak<Limits>) {
    loop {
        let Some(pause) = limits.upgrade().and_then(|limits| limits.serve()) else {
            return;
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests;
