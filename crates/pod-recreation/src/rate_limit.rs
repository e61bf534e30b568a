//! Rate limits of re-creations (kubernetes#108152: endless re-creation): token buckets per owner, per namespace, per node
//! and for the cluster, and circuit breakers. A limited re-creation waits; none is lost. Those of owners and nodes are per
//! namespace as well: a user can name any owner's UID, and have any node reject any number of pods (T8).
//!
//! ```
//! use belayer_pod_recreation::rate_limit::{RateLimiter, RateLimits, Subject};
//!
//! let limiter = RateLimiter::new(RateLimits::default());
//! let subject = Subject { namespace: "shop", owner: None, node: Some("node-1") };
//! match limiter.acquire(subject) {
//!     Ok(permit) => permit.spend(),
//!     Err(pause) => println!("again in {pause:?}"),
//! }
//! ```

mod breaker;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use breaker::Breakers;
pub use breaker::{CircuitBreaker, Opened};

/// A token bucket. The [module's example](crate::rate_limit) has the default limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Re-creations per second.
    pub per_second: f64,
    /// How many may happen at once after a pause.
    pub burst: u32,
}

/// The configured limits. The [module's example](crate::rate_limit) has the default limits.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimits {
    /// Re-creations of pods of one owner.
    pub per_owner: Rate,
    /// Re-creations of pods in one namespace.
    pub per_namespace: Rate,
    /// Re-creations of pods of one namespace that one node rejected.
    pub per_node: Rate,
    /// Re-creations in the whole cluster.
    pub cluster: Rate,
    /// The circuit breakers.
    pub breaker: CircuitBreaker,
}

impl Default for RateLimits {
    fn default() -> Self {
        let rate = |per_second, burst| Rate { per_second, burst };
        Self {
            per_owner: rate(5.0, 50),
            per_namespace: rate(25.0, 250),
            per_node: rate(5.0, 50),
            cluster: rate(50.0, 500),
            breaker: CircuitBreaker {
                rejections: 100,
                within_seconds: 60,
                open_seconds: 30,
                namespaces: Vec::new(),
            },
        }
    }
}

/// Above this number of entries, those that were not used recently are removed.
const CLEANUP_ABOVE: usize = 10_000;

/// Those that wait for a bucket try again one after the other, each after this time at the latest.
const TRY_WITHIN: Duration = Duration::from_secs(5);

/// Token buckets and circuit breakers. In memory: after a restart the buckets are full and the
/// breakers closed. The [module's example](crate::rate_limit) has the default limits.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cluster: Buckets,
    owners: Buckets,
    namespaces: Buckets,
    nodes: Buckets,
    breakers: Breakers,
}

/// The buckets of one rate.
#[derive(Debug)]
struct Buckets {
    rate: Rate,
    all: HashMap<Arc<str>, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    /// When the last of those that wait tries again.
    last_try: Instant,
}

/// What a re-creation counts for. The [module's example](crate::rate_limit) has the default
/// limits.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// UID of the pod's controller.
    pub owner: Option<&'a str>,
    /// The node that rejected the pod.
    pub node: Option<&'a str>,
}

/// The tokens for one re-creation. They are returned unless they are spent. The [module's
/// example](crate::rate_limit) has the default limits.
#[derive(Debug)]
#[must_use = "dropping it returns the tokens"]
pub struct Permit<'a> {
    limiter: &'a RateLimiter,
    subject: Subject<'a>,
    spent: bool,
}

impl Permit<'_> {
    /// The re-creation begins.
    pub fn spend(mut self) {
        self.spent = true;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.spent {
            let mut state = self.limiter.state.lock();
            state.each_bucket(self.subject, |buckets, key| buckets.give(key));
        }
    }
}

impl Buckets {
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            all: HashMap::new(),
        }
    }

    fn bucket(&mut self, key: &str) -> &mut Bucket {
        let now = Instant::now();
        if self.all.len() > CLEANUP_ABOVE {
            // A bucket that was not used for this time is full, as a new one is.
            let time_to_fill = self.rate.time_for(self.rate.burst.into());
            self.all
                .retain(|_, bucket| now.duration_since(bucket.filled) < time_to_fill);
        }
        self.all.entry(key.into()).or_insert_with(|| Bucket {
            tokens: self.rate.burst.into(),
            filled: now,
            last_try: now,
        })
    }

    /// The time until the next try; zero if there is a token.
    fn wait(&mut self, key: &str) -> Duration {
        let (rate, now) = (self.rate, Instant::now());
        let bucket = self.bucket(key);
        let gained = now.duration_since(bucket.filled).as_secs_f64() * rate.per_second;
        bucket.tokens = (bucket.tokens + gained).min(rate.burst.into());
        bucket.filled = now;
        if bucket.tokens >= 1.0 {
            return Duration::ZERO;
        }
        let missing = 1.0 - bucket.tokens;
        let filled = now + rate.time_for(missing).max(Duration::from_millis(1));
        // All at once, one would succeed, and thousands would decide again for each token.
        let in_turn = bucket.last_try + rate.time_for(1.0);
        bucket.last_try = filled.max(in_turn.min(now + TRY_WITHIN));
        bucket.last_try - now
    }

    fn take(&mut self, key: &str) {
        self.bucket(key).tokens -= 1.0;
    }

    fn give(&mut self, key: &str) {
        let burst = self.rate.burst.into();
        let bucket = self.bucket(key);
        bucket.tokens = (bucket.tokens + 1.0).min(burst);
    }
}

impl Rate {
    /// How long this many tokens take.
    fn time_for(self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.per_second).unwrap_or(Duration::from_secs(3_600))
    }
}

impl RateLimiter {
    /// All buckets are full, all breakers closed.
    pub fn new(limits: RateLimits) -> Self {
        Self {
            state: Mutex::new(State {
                cluster: Buckets::new(limits.cluster),
                owners: Buckets::new(limits.per_owner),
                namespaces: Buckets::new(limits.per_namespace),
                nodes: Buckets::new(limits.per_node),
                breakers: Breakers::new(limits.breaker),
            }),
        }
    }

    /// Counts the rejection of a pod in `namespace` by `node`. Returns the breaker that opened just now.
    pub fn count_rejection(&self, node: &str, namespace: &str) -> Option<Opened> {
        self.state.lock().breakers.count(node, namespace)
    }

    /// Takes the tokens for one re-creation.
    ///
    /// # Errors
    ///
    /// How long to wait before the next try. No token was taken then.
    pub fn acquire<'a>(&'a self, subject: Subject<'a>) -> Result<Permit<'a>, Duration> {
        let mut state = self.state.lock();
        let mut wait = match subject.node {
            Some(node) => state.breakers.wait(node, subject.namespace),
            None => Duration::ZERO,
        };
        state.each_bucket(subject, |buckets, key| wait = wait.max(buckets.wait(key)));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        state.each_bucket(subject, Buckets::take);
        Ok(Permit {
            limiter: self,
            subject,
            spent: false,
        })
    }

    /// The number of open breakers, of whole nodes and of single namespaces on nodes.
    pub fn open_breakers(&self) -> (usize, usize) {
        self.state.lock().breakers.open()
    }
}

impl State {
    fn each_bucket(&mut self, subject: Subject<'_>, mut act: impl FnMut(&mut Buckets, &str)) {
        act(&mut self.cluster, "");
        act(&mut self.namespaces, subject.namespace);
        let here = |name: &str| format!("{}/{name}", subject.namespace);
        if let Some(owner) = subject.owner {
            act(&mut self.owners, &here(owner));
        }
        if let Some(node) = subject.node {
            act(&mut self.nodes, &here(node));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    fn limits() -> RateLimits {
        let rate = |per_second, burst| Rate { per_second, burst };
        RateLimits {
            per_owner: rate(1.0, 2),
            per_namespace: rate(1.0, 4),
            per_node: rate(1.0, 3),
            cluster: rate(1.0, 5),
            ..RateLimits::default()
        }
    }

    fn subject<'a>(
        namespace: &'a str,
        owner: Option<&'a str>,
        node: Option<&'a str>,
    ) -> Subject<'a> {
        Subject {
            namespace,
            owner,
            node,
        }
    }

    fn acquired(limiter: &RateLimiter, subject: Subject<'_>) -> usize {
        (0..20)
            .take_while(|_| limiter.acquire(subject).map(Permit::spend).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn t8_each_scope_has_its_own_bucket() {
        let limiter = || RateLimiter::new(limits());
        assert_eq!(acquired(&limiter(), subject("a", None, None)), 4);
        assert_eq!(acquired(&limiter(), subject("a", Some("o"), None)), 2);
        assert_eq!(acquired(&limiter(), subject("a", None, Some("n"))), 3);
        let limiter = limiter();
        assert_eq!(
            acquired(&limiter, subject("a", None, None)),
            4,
            "bare pods share one"
        );
        assert_eq!(
            acquired(&limiter, subject("b", None, None)),
            1,
            "what the cluster has left"
        );
    }

    #[rstest]
    #[case::of_a_node(subject("a", None, Some("n")), subject("b", None, Some("n")))]
    #[case::of_an_owner_with_the_same_uid(
        subject("a", Some("o"), None),
        subject("b", Some("o"), None)
    )]
    #[tokio::test(start_paused = true)]
    async fn t8_one_namespace_does_not_use_up_what_others_have(
        #[case] tenant: Subject<'static>,
        #[case] other: Subject<'static>,
    ) {
        let limiter = RateLimiter::new(RateLimits {
            cluster: RateLimits::default().cluster,
            ..limits()
        });
        let all = acquired(&limiter, tenant);
        assert_eq!(acquired(&limiter, other), all);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_recreation_succeeds_after_the_returned_time() {
        let limiter = RateLimiter::new(limits());
        let of_owner = subject("a", Some("o"), None);
        acquired(&limiter, of_owner);
        let wait = limiter.acquire(of_owner).unwrap_err();
        tokio::time::sleep(wait).await;
        limiter.acquire(of_owner).unwrap().spend();
    }

    #[tokio::test(start_paused = true)]
    async fn l8_those_that_wait_do_not_all_try_for_each_token() {
        const RECORDS: usize = 3_000;
        let limiter = RateLimiter::new(RateLimits::default());
        let begun = Instant::now();
        let mut waiting: BTreeSet<_> = (0..RECORDS).map(|record| (begun, record)).collect();
        let mut tries = 0;
        while let Some((time, record)) = waiting.pop_first() {
            tokio::time::sleep_until(time).await;
            tries += 1;
            match limiter.acquire(subject("a", None, None)) {
                Ok(permit) => permit.spend(),
                Err(wait) => drop(waiting.insert((Instant::now() + wait, record))),
            }
        }
        assert!(tries < 15 * RECORDS, "{tries} tries");
        let expected = Duration::from_secs((RECORDS as u64 - 250) / 25);
        let taken = begun.elapsed();
        assert!(taken < expected + TRY_WITHIN, "{taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn l8_those_that_wait_delay_others_for_seconds_at_most() {
        let limiter = RateLimiter::new(RateLimits::default());
        for (namespace, owner) in [("a", Some("o")), ("b", None), ("c", None)] {
            for _ in 0..3_000 {
                let tried = limiter.acquire(subject(namespace, owner, None));
                let _ = tried.map(Permit::spend);
            }
        }
        let tried = limiter.acquire(subject("d", None, None));
        assert!(tried.unwrap_err() <= TRY_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn l8_tokens_that_are_not_spent_are_returned() {
        let limiter = RateLimiter::new(limits());
        let all = subject("a", Some("o"), Some("n"));
        for _ in 0..20 {
            drop(limiter.acquire(all).unwrap());
        }
        assert_eq!(acquired(&limiter, all), 2);
    }
}
