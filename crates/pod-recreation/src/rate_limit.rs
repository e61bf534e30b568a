//! Rate limits of re-creations (kubernetes#108152: endless re-creation): token buckets per owner, per node and for the
//! cluster, and a circuit breaker per node. A limited re-creation waits; none is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rate {
    /// Re-creations per second.
    pub per_second: f64,
    /// How many may happen at once after a pause.
    pub burst: u32,
}

/// A circuit breaker: it stops re-creations after many rejections by one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Number of rejections within `within_seconds` that open it.
    pub rejections: u32,
    /// The period in which rejections are counted.
    pub within_seconds: u32,
    /// How long it stays open.
    pub open_seconds: u32,
}

/// The configured limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimits {
    /// Re-creations of pods of one owner.
    pub per_owner: Rate,
    /// Re-creations of pods that one node rejected.
    pub per_node: Rate,
    /// Re-creations in the whole cluster.
    pub cluster: Rate,
    /// The circuit breaker of each node.
    pub breaker: CircuitBreaker,
}

impl Default for RateLimits {
    fn default() -> Self {
        let rate = |per_second, burst| Rate { per_second, burst };
        Self {
            per_owner: rate(5.0, 50),
            per_node: rate(5.0, 50),
            cluster: rate(50.0, 500),
            breaker: CircuitBreaker {
                rejections: 100,
                within_seconds: 60,
                open_seconds: 30,
            },
        }
    }
}

/// Above this number of entries, those that were not used recently are removed.
const CLEANUP_ABOVE: usize = 10_000;

/// Token buckets and circuit breakers. In memory: after a restart the buckets are full and the breakers closed.
#[derive(Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cluster: Bucket,
    owners: HashMap<Arc<str>, Bucket>,
    nodes: HashMap<Arc<str>, NodeState>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

#[derive(Debug)]
struct NodeState {
    bucket: Bucket,
    rejections: VecDeque<Instant>,
    open_until: Option<Instant>,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            tokens: rate.burst.into(),
            filled: now,
        }
    }

    /// The time until there is a token; zero if there is one.
    fn wait(&mut self, rate: Rate, now: Instant) -> Duration {
        let gained = now.duration_since(self.filled).as_secs_f64() * rate.per_second;
        self.tokens = (self.tokens + gained).min(rate.burst.into());
        self.filled = now;
        if self.tokens >= 1.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64((1.0 - self.tokens) / rate.per_second)
            .unwrap_or(Duration::from_secs(60))
            .max(Duration::from_millis(1))
    }
}

impl RateLimiter {
    /// All buckets are full, all breakers closed.
    pub fn new(limits: RateLimits) -> Self {
        let now = Instant::now();
        Self {
            limits,
            state: Mutex::new(State {
                cluster: Bucket::full(limits.cluster, now),
                owners: HashMap::new(),
                nodes: HashMap::new(),
            }),
        }
    }

    /// Counts a rejection by `node`. Returns whether its breaker opened just now.
    pub fn count_rejection(&self, node: &str) -> bool {
        let now = Instant::now();
        let CircuitBreaker {
            rejections,
            within_seconds,
            open_seconds,
        } = self.limits.breaker;
        let mut state = self.state.lock();
        let node = state.node(node, self.limits.per_node, now);
        node.rejections.push_back(now);
        let within = Duration::from_secs(within_seconds.into());
        while node
            .rejections
            .front()
            .is_some_and(|first| now.duration_since(*first) > within)
        {
            node.rejections.pop_front();
        }
        let opens = node.rejections.len() >= rejections as usize
            && node.open_until.is_none_or(|until| until <= now);
        if opens {
            node.open_until = Some(now + Duration::from_secs(open_seconds.into()));
            node.rejections.clear();
        }
        opens
    }

    /// Takes the tokens for one re-creation, of a pod of `owner` that `node` rejected.
    ///
    /// # Errors
    ///
    /// How long to wait before the next try. No token was taken then.
    pub fn acquire(&self, owner: Option<&str>, node: Option<&str>) -> Result<(), Duration> {
        let now = Instant::now();
        let limits = self.limits;
        let mut state = self.state.lock();
        let mut wait = state.cluster.wait(limits.cluster, now);
        if let Some(owner) = owner {
            wait = wait.max(
                state
                    .owner(owner, limits.per_owner, now)
                    .wait(limits.per_owner, now),
            );
        }
        if let Some(node) = node {
            let node = state.node(node, limits.per_node, now);
            let open = node
                .open_until
                .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            wait = wait.max(open).max(node.bucket.wait(limits.per_node, now));
        }
        if wait > Duration::ZERO {
            return Err(wait);
        }
        state.cluster.tokens -= 1.0;
        if let Some(owner) = owner {
            state.owner(owner, limits.per_owner, now).tokens -= 1.0;
        }
        if let Some(node) = node {
            state.node(node, limits.per_node, now).bucket.tokens -= 1.0;
        }
        Ok(())
    }

    /// The number of open breakers.
    pub fn open_breakers(&self) -> usize {
        let now = Instant::now();
        let state = self.state.lock();
        let open = |node: &&NodeState| node.open_until.is_some_and(|until| until > now);
        state.nodes.values().filter(open).count()
    }
}

impl State {
    fn owner(&mut self, owner: &str, rate: Rate, now: Instant) -> &mut Bucket {
        if self.owners.len() > CLEANUP_ABOVE {
            // A bucket that was not used for this time is full, as a new one is.
            self.owners
                .retain(|_, bucket| now.duration_since(bucket.filled) < time_to_fill(rate));
        }
        self.owners
            .entry(owner.into())
            .or_insert_with(|| Bucket::full(rate, now))
    }

    fn node(&mut self, node: &str, rate: Rate, now: Instant) -> &mut NodeState {
        if self.nodes.len() > CLEANUP_ABOVE {
            self.nodes.retain(|_, node| {
                now.duration_since(node.bucket.filled) < time_to_fill(rate)
                    || node.open_until.is_some_and(|until| until > now)
            });
        }
        self.nodes.entry(node.into()).or_insert_with(|| NodeState {
            bucket: Bucket::full(rate, now),
            rejections: VecDeque::new(),
            open_until: None,
        })
    }
}

fn time_to_fill(rate: Rate) -> Duration {
    Duration::try_from_secs_f64(f64::from(rate.burst) / rate.per_second)
        .unwrap_or(Duration::from_secs(3_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RateLimits {
        let rate = |per_second, burst| Rate { per_second, burst };
        RateLimits {
            per_owner: rate(1.0, 2),
            per_node: rate(1.0, 3),
            cluster: rate(1.0, 4),
            breaker: CircuitBreaker {
                rejections: 3,
                within_seconds: 60,
                open_seconds: 30,
            },
        }
    }

    fn acquired(limiter: &RateLimiter, owner: Option<&str>, node: Option<&str>) -> usize {
        (0..20)
            .take_while(|_| limiter.acquire(owner, node).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_scope_has_its_own_bucket() {
        assert_eq!(acquired(&RateLimiter::new(limits()), None, None), 4);
        assert_eq!(acquired(&RateLimiter::new(limits()), Some("o"), None), 2);
        assert_eq!(acquired(&RateLimiter::new(limits()), None, Some("n")), 3);
        let limiter = RateLimiter::new(limits());
        assert_eq!(acquired(&limiter, Some("o"), Some("n")), 2);
        assert_eq!(acquired(&limiter, Some("p"), Some("n")), 1);
        assert_eq!(acquired(&limiter, None, Some("m")), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_recreation_succeeds_after_the_returned_time() {
        let limiter = RateLimiter::new(limits());
        acquired(&limiter, Some("o"), None);
        let wait = limiter.acquire(Some("o"), None).unwrap_err();
        tokio::time::sleep(wait).await;
        assert_eq!(limiter.acquire(Some("o"), None), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn many_rejections_by_one_node_open_its_circuit_breaker() {
        let limiter = RateLimiter::new(limits());
        assert!(!limiter.count_rejection("n"));
        assert!(!limiter.count_rejection("n"));
        assert!(limiter.count_rejection("n"), "the third opens the breaker");
        assert!(!limiter.count_rejection("n"), "it is open already");
        assert_eq!(limiter.open_breakers(), 1);
        let wait = limiter.acquire(None, Some("n")).unwrap_err();
        assert_eq!(wait, Duration::from_secs(30));
        assert_eq!(
            limiter.acquire(None, Some("m")),
            Ok(()),
            "other nodes are not limited"
        );
        tokio::time::sleep(wait).await;
        assert_eq!(limiter.open_breakers(), 0);
        assert_eq!(limiter.acquire(None, Some("n")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_far_apart_open_nothing() {
        let limiter = RateLimiter::new(limits());
        for _ in 0..10 {
            assert!(!limiter.count_rejection("n"));
            tokio::time::sleep(Duration::from_secs(31)).await;
        }
    }
}
