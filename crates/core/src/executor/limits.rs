//! How much Belayer may ask of the API server, by priority.
//!
//! Releases are bounded by concurrency and by the server's 429 alone; everything else that goes by
//! an executor shares a token bucket. Informers do not: each has one list or one watch under way,
//! and backs off by itself. client-go leaves watches out of its rate as well, and a list is a watch
//! where the server streams it. The limits stand here and not in a tower layer because `kube::Client` puts a
//! first-in-first-out buffer in front of its service: a create that waits for a token there would
//! block the releases behind it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What a request is for. Earlier classes go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Takes a hold off.
    Release,
    /// Finds out whether a hold may be taken off.
    Evidence,
    /// Any other write, such as adding a hold.
    Write,
    /// Tells somebody: Kubernetes Events.
    Notice,
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

/// Hands out leave to send, in the order of [`Class`].
#[derive(Debug)]
pub struct Limits {
    releases: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
    qps: f64,
    burst: f64,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    /// How many of each class wait, so that a lower one steps back.
    waiting: [usize; 4],
}

impl Limits {
    /// Limits within `bounds`. A rate that is not positive means no limit.
    pub fn new(bounds: Bounds) -> Self {
        let burst = f64::from(bounds.burst.max(1));
        Self {
            releases: Arc::new(Semaphore::new(
                bounds.concurrent_releases.clamp(1, Semaphore::MAX_PERMITS),
            )),
            bucket: Mutex::new(Bucket {
                tokens: burst,
                filled: Instant::now(),
                waiting: [0; 4],
            }),
            qps: if bounds.qps > 0.0 {
                bounds.qps
            } else {
                f64::INFINITY
            },
            burst,
        }
    }

    /// Waits until a request of `class` may be sent. Cancel-safe.
    pub async fn leave(&self, class: Class) -> Leave {
        if class == Class::Release {
            // The semaphore is never closed, so an error cannot happen; without a permit the
            // release still goes, bounded by the number of workers.
            return Leave {
                _release: Arc::clone(&self.releases).acquire_owned().await.ok(),
            };
        }
        let waiting = Waiting::new(&self.bucket, class);
        while let Some(pause) = self.take(waiting.class) {
            tokio::time::sleep(pause).await;
        }
        Leave { _release: None }
    }

    /// Takes a token, or says how long to wait before trying again.
    fn take(&self, class: Class) -> Option<Duration> {
        let mut bucket = self.bucket.lock();
        let now = Instant::now();
        let gained = now.duration_since(bucket.filled).as_secs_f64() * self.qps;
        bucket.tokens =
            (bucket.tokens + if gained.is_nan() { 0.0 } else { gained }).min(self.burst);
        bucket.filled = now;
        if self.qps.is_infinite() {
            return None;
        }
        let ahead: usize = bucket.waiting[..class as usize].iter().sum();
        let needed = 1.0 + ahead as f64;
        if bucket.tokens >= needed {
            bucket.tokens -= 1.0;
            return None;
        }
        let pause = Duration::from_secs_f64((needed - bucket.tokens) / self.qps);
        Some(pause.max(Duration::from_millis(1)))
    }
}

/// Counts a waiter, also when its future is dropped.
struct Waiting<'a> {
    bucket: &'a Mutex<Bucket>,
    class: Class,
}

impl<'a> Waiting<'a> {
    fn new(bucket: &'a Mutex<Bucket>, class: Class) -> Self {
        bucket.lock().waiting[class as usize] += 1;
        Self { bucket, class }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.bucket.lock().waiting[self.class as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(qps: f64, burst: u32) -> Arc<Limits> {
        Arc::new(Limits::new(Bounds {
            qps,
            burst,
            concurrent_releases: 2,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn releases_are_never_held_behind_other_traffic() {
        let limits = limits(1.0, 1);
        let _ = limits.leave(Class::Write).await;
        let begun = Instant::now();
        for _ in 0..1000 {
            let _ = limits.leave(Class::Release).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn releases_are_bounded_by_concurrency() {
        let limits = limits(1.0, 1);
        let first = limits.leave(Class::Release).await;
        let _second = limits.leave(Class::Release).await;
        let third = tokio::time::timeout(Duration::from_secs(5), limits.leave(Class::Release));
        assert!(third.await.is_err());
        drop(first);
        let _ = limits.leave(Class::Release).await;
    }

    #[tokio::test(start_paused = true)]
    async fn other_traffic_goes_at_the_rate_after_the_burst() {
        let limits = limits(10.0, 5);
        let begun = Instant::now();
        for _ in 0..25 {
            let _ = limits.leave(Class::Write).await;
        }
        let took = begun.elapsed();
        assert!(
            (Duration::from_millis(1950)..Duration::from_millis(2100)).contains(&took),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn evidence_is_looked_for_before_anything_is_added() {
        let limits = limits(10.0, 1);
        let _ = limits.leave(Class::Write).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for class in [
            Class::Write,
            Class::Notice,
            Class::Evidence,
            Class::Evidence,
        ] {
            let (limits, order) = (Arc::clone(&limits), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _ = limits.leave(class).await;
                order.lock().push(class);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(
            *order.lock(),
            [
                Class::Evidence,
                Class::Evidence,
                Class::Write,
                Class::Notice
            ]
        );
    }
}
