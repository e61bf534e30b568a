//! How many requests Belayer sends to the API server, by class.
//!
//! Releases are bounded by concurrency and by the server's 429 alone; everything else that goes by
//! an executor shares a token bucket. Informers do not: each has one list or one watch under way,
//! and backs off by itself. client-go leaves watches out of its rate as well, and a list is a watch
//! where the server streams it. The limits stand here and not in a tower layer because `kube::Client` puts a
//! first-in-first-out buffer in front of its service: a create that waits for a token there would
//! block the releases behind it.
//!
//! While the bucket is empty, requests queue by [`Class`], and within a class the namespaces take turns
//! ([`FairQueue`]). Each class gets its share of the tokens (rule L1), and the others what it leaves. One
//! timer serves all queues: each time it fires it hands out the tokens that there are. With
//! [`Tickets`](super::Tickets) a key waits without a worker.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belayer_metrics::waiting;
use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::fair_queue::FairQueue;
use crate::object::ObjectKey;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Removes a hold, or reads an object again after a conflict. Takes no token.
    Release,
    /// Finds out whether a hold may be removed: at least 50 % of the bucket.
    Evidence,
    /// Any other write, such as adding a hold: at least 20 % of the bucket.
    Write,
    /// Kubernetes Events.
    Notice,
}

/// The classes that share the bucket: their shares while all of them wait, and their names in metrics.
const SHARES: [(f64, &str); 3] = [
    (0.5, waiting::EVIDENCE),
    (0.3, waiting::WRITE),
    (0.2, waiting::NOTICE),
];

impl Class {
    /// Its place in [`SHARES`]; `None` if it takes no tokens.
    fn line(self) -> Option<usize> {
        match self {
            Self::Release => None,
            Self::Evidence => Some(0),
            Self::Write => Some(1),
            Self::Notice => Some(2),
        }
    }
}

/// The bounds, as the flags give them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// `--kube-api-qps`: requests a second, releases and informers apart.
    pub qps: f64,
    /// `--kube-api-burst`: how many of them may go at once after a pause.
    pub burst: u32,
    /// `--concurrent-releases`: releases under way at once.
    pub concurrent_releases: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            qps: 100.0,
            burst: 200,
            concurrent_releases: 32,
        }
    }
}

/// Leave to send one request; for a release it counts until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Leave {
    _release: Option<OwnedSemaphorePermit>,
}

/// A token that was taken out of the bucket for a request that waited. It goes back if it is dropped before
/// it is spent.
#[derive(Debug)]
#[must_use]
pub(super) struct Token {
    limits: Weak<Limits>,
    line: usize,
}

impl Token {
    fn spend(mut self) {
        self.limits = Weak::new();
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(limits) = self.limits.upgrade() {
            limits.take_back(self.line);
        }
    }
}

/// Waits for tokens for keys, without a task.
pub(super) trait Waiter: Send + Sync {
    /// There is a token for `key`.
    fn served(&self, key: ObjectKey, token: Token);
}

/// A place in a queue.
enum Ticket {
    /// Of a task that sleeps until it is served.
    Task(oneshot::Sender<Token>),
    /// Of a key.
    Key(ObjectKey, Weak<dyn Waiter>),
}

/// Hands out permits to send, in shares by [`Class`].
#[derive(Debug)]
pub struct Limits {
    releases: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
    qps: f64,
    burst: f64,
}

struct Bucket {
    /// Negative if work that had begun sent more requests than there were tokens.
    tokens: f64,
    filled: Instant,
    lines: [Line; SHARES.len()],
    /// The position of the queue that was served last.
    position: f64,
    /// Whether a request waits, so that the timer runs. No other request overtakes those that wait.
    feeding: bool,
    /// How often the timer fired.
    #[cfg(test)]
    wake_ups: u64,
}

/// The queue of one class.
struct Line {
    waiting: FairQueue<Ticket>,
    /// The tokens that it got, divided by its share: the queue with the lowest position is served next.
    position: f64,
    gauge: Gauge,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lines.each_ref().map(|line| line.waiting.len());
        f.debug_struct("Bucket")
            .field("tokens", &self.tokens)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl Limits {
    /// Limits within `bounds`. A rate that is not positive means no limit.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let burst = f64::from(bounds.burst.max(1));
        Arc::new(Self {
            releases: Arc::new(Semaphore::new(
                bounds.concurrent_releases.clamp(1, Semaphore::MAX_PERMITS),
            )),
            bucket: Mutex::new(Bucket {
                tokens: burst,
                filled: Instant::now(),
                lines: SHARES.map(|(_, name)| Line {
                    waiting: FairQueue::default(),
                    position: 0.0,
                    gauge: metrics::gauge!(belayer_metrics::API_WAITING, "queue" => name),
                }),
                position: 0.0,
                feeding: false,
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

    /// Waits until a request of `class` may be sent; if it has to wait, in the turn of the `namespace`. Cancel-safe.
    /// Not for workers: the key of a worker takes a [ticket](super::Tickets) instead.
    pub async fn leave(
        self: &Arc<Self>,
        class: Class,
        namespace: impl FnOnce() -> Arc<str>,
    ) -> Leave {
        let Some(line) = class.line() else {
            return self.release().await;
        };
        let served = {
            let mut bucket = self.bucket.lock();
            if self.is_free(&mut bucket) {
                bucket.tokens -= 1.0;
                return Leave { _release: None };
            }
            let (ticket, served) = oneshot::channel();
            self.line_up(&mut bucket, line, &namespace(), Ticket::Task(ticket));
            served
        };
        // The limits are borrowed while this waits, so that the ticket lives until it is served.
        if let Ok(token) = served.await {
            token.spend();
        }
        Leave { _release: None }
    }

    /// A permit for work that has begun: a release waits for a slot, anything else is sent at once and the
    /// bucket is charged, so that later requests wait instead.
    pub(super) async fn charge(&self, class: Class) -> Leave {
        let Some(line) = class.line() else {
            return self.release().await;
        };
        let mut bucket = self.bucket.lock();
        if self.qps.is_finite() {
            self.fill(&mut bucket);
            bucket.tokens -= 1.0;
            if bucket.feeding {
                bucket.lines[line].position += 1.0 / SHARES[line].0;
            }
        }
        Leave { _release: None }
    }

    async fn release(&self) -> Leave {
        // The semaphore is never closed, so an error cannot happen; without a permit the
        // release still goes, bounded by the number of workers.
        Leave {
            _release: Arc::clone(&self.releases).acquire_owned().await.ok(),
        }
    }

    /// Whether work may begin to send now. What it sends is [charged](Self::charge).
    pub(super) fn may_begin(&self) -> bool {
        self.is_free(&mut self.bucket.lock())
    }

    /// Calls `waiter` as soon as there is a token for `key`.
    pub(super) fn line_up_key(
        self: &Arc<Self>,
        class: Class,
        key: ObjectKey,
        waiter: Weak<dyn Waiter>,
    ) {
        // A class that takes no token never comes here; it would wait among the writes.
        let line = class.line().unwrap_or(1);
        let namespace = Arc::clone(key.shared_namespace());
        let mut bucket = self.bucket.lock();
        self.line_up(&mut bucket, line, &namespace, Ticket::Key(key, waiter));
    }

    fn line_up(
        self: &Arc<Self>,
        bucket: &mut Bucket,
        line: usize,
        namespace: &Arc<str>,
        ticket: Ticket,
    ) {
        let position = bucket.position;
        let line = &mut bucket.lines[line];
        if line.waiting.is_empty() {
            // A queue that was empty does not save up tokens for later.
            line.position = line.position.max(position);
        }
        line.waiting.push(namespace, ticket);
        line.gauge.set(line.waiting.len() as f64);
        if !bucket.feeding {
            bucket.feeding = true;
            tokio::spawn(feed(Arc::downgrade(self)));
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
        !bucket.feeding && bucket.tokens >= 1.0
    }

    /// A token that was not needed.
    fn take_back(&self, line: usize) {
        let mut bucket = self.bucket.lock();
        bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        if bucket.feeding {
            bucket.lines[line].position -= 1.0 / SHARES[line].0;
        }
    }

    /// Hands out the tokens that there are; returns when to continue, if a request still waits.
    fn serve(self: &Arc<Self>) -> Option<Duration> {
        #[cfg(test)]
        {
            self.bucket.lock().wake_ups += 1;
        }
        loop {
            let (ticket, token) = {
                let mut bucket = self.bucket.lock();
                self.fill(&mut bucket);
                let Some(line) = bucket.next_line() else {
                    bucket.idle();
                    return None;
                };
                if bucket.tokens < 1.0 {
                    let pause = Duration::from_secs_f64((1.0 - bucket.tokens) / self.qps);
                    return Some(pause.max(Duration::from_millis(1)));
                }
                let Some(ticket) = bucket.take(line) else {
                    continue;
                };
                let limits = Arc::downgrade(self);
                (ticket, Token { limits, line })
            };
            match ticket {
                // If a request was cancelled in the meantime, the next one gets its token.
                Ticket::Task(task) => drop(task.send(token)),
                Ticket::Key(key, waiter) => match waiter.upgrade() {
                    Some(waiter) => waiter.served(key, token),
                    None => drop(token),
                },
            }
        }
    }
}

impl Bucket {
    /// The queue with the lowest position in which a request waits.
    fn next_line(&self) -> Option<usize> {
        let position = |line: &usize| self.lines[*line].position;
        (0..self.lines.len())
            .filter(|line| !self.lines[*line].waiting.is_empty())
            .min_by(|one, other| position(one).total_cmp(&position(other)))
    }

    fn take(&mut self, line: usize) -> Option<Ticket> {
        let share = SHARES[line].0;
        let line = &mut self.lines[line];
        let ticket = line.waiting.pop()?;
        self.tokens -= 1.0;
        self.position = line.position;
        line.position += 1.0 / share;
        line.gauge.set(line.waiting.len() as f64);
        Some(ticket)
    }

    /// No request waits: all queues start again at the same position.
    fn idle(&mut self) {
        self.feeding = false;
        self.position = 0.0;
        for line in &mut self.lines {
            line.position = 0.0;
        }
    }
}

/// The timer that serves all queues.
async fn feed(limits: Weak<Limits>) {
    loop {
        let Some(pause) = limits.upgrade().and_then(|limits| limits.serve()) else {
            return;
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests;
