//! What holds back storms (kubernetes#108152: re-creation without end): token buckets per owner, per
//! node and for the cluster, and a breaker per node. Everything waits, nothing is lost.

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
    /// How many may go at once after a pause.
    pub burst: u32,
}

/// When a node that rejects again and again is given a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Breaker {
    /// So many rejections ...
    pub rejections: u32,
    /// ... within this time open it, in seconds ...
    pub within_seconds: u32,
    /// ... for this time, in seconds.
    pub open_seconds: u32,
}

/// All bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StormLimits {
    /// Re-creations of one owner's pods.
    pub per_owner: Rate,
    /// Re-creations after one node's rejections.
    pub per_node: Rate,
    /// Re-creations in the cluster.
    pub cluster: Rate,
    /// The breaker of each node.
    pub breaker: Breaker,
}

impl Default for StormLimits {
    fn default() -> Self {
        let rate = |per_second, burst| Rate { per_second, burst };
        Self {
            per_owner: rate(5.0, 50),
            per_node: rate(5.0, 50),
            cluster: rate(50.0, 500),
            breaker: Breaker {
                rejections: 100,
                within_seconds: 60,
                open_seconds: 30,
            },
        }
    }
}

/// Entries that nobody used lately are swept when there are more than this.
const REMEMBERED: usize = 10_000;

/// Buckets and breakers. In memory: after a restart they are full and closed.
#[derive(Debug)]
pub struct Storm {
    limits: StormLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cluster: Bucket,
    owners: HashMap<Arc<str>, Bucket>,
    nodes: HashMap<Arc<str>, Node>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

#[derive(Debug)]
struct Node {
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

    /// How long until there is a token; zero if there is one.
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

impl Storm {
    /// Full buckets, closed breakers.
    pub fn new(limits: StormLimits) -> Self {
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

    /// A node rejected a pod. Whether its breaker opened just now.
    pub fn rejected_by(&self, node: &str) -> bool {
        let now = Instant::now();
        let Breaker {
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

    /// Lets one re-creation go, after a rejection by `node` of a pod of `owner`.
    ///
    /// # Errors
    ///
    /// How long to wait before asking again. Nothing was taken then.
    pub fn admit(&self, owner: Option<&str>, node: Option<&str>) -> Result<(), Duration> {
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

    /// How many breakers are open.
    pub fn open_breakers(&self) -> usize {
        let now = Instant::now();
        let state = self.state.lock();
        let open = |node: &&Node| node.open_until.is_some_and(|until| until > now);
        state.nodes.values().filter(open).count()
    }
}

impl State {
    fn owner(&mut self, owner: &str, rate: Rate, now: Instant) -> &mut Bucket {
        if self.owners.len() > REMEMBERED {
            // A bucket that has been left alone for long enough is full: it says nothing any more.
            self.owners
                .retain(|_, bucket| now.duration_since(bucket.filled) < refill(rate));
        }
        self.owners
            .entry(owner.into())
            .or_insert_with(|| Bucket::full(rate, now))
    }

    fn node(&mut self, node: &str, rate: Rate, now: Instant) -> &mut Node {
        if self.nodes.len() > REMEMBERED {
            self.nodes.retain(|_, node| {
                now.duration_since(node.bucket.filled) < refill(rate)
                    || node.open_until.is_some_and(|until| until > now)
            });
        }
        self.nodes.entry(node.into()).or_insert_with(|| Node {
            bucket: Bucket::full(rate, now),
            rejections: VecDeque::new(),
            open_until: None,
        })
    }
}

fn refill(rate: Rate) -> Duration {
    Duration::try_from_secs_f64(f64::from(rate.burst) / rate.per_second)
        .unwrap_or(Duration::from_secs(3_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> StormLimits {
        let rate = |per_second, burst| Rate { per_second, burst };
        StormLimits {
            per_owner: rate(1.0, 2),
            per_node: rate(1.0, 3),
            cluster: rate(1.0, 4),
            breaker: Breaker {
                rejections: 3,
                within_seconds: 60,
                open_seconds: 30,
            },
        }
    }

    fn admitted(storm: &Storm, owner: Option<&str>, node: Option<&str>) -> usize {
        (0..20)
            .take_while(|_| storm.admit(owner, node).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_scope_has_a_bucket_of_its_own() {
        assert_eq!(admitted(&Storm::new(limits()), None, None), 4);
        assert_eq!(admitted(&Storm::new(limits()), Some("o"), None), 2);
        assert_eq!(admitted(&Storm::new(limits()), None, Some("n")), 3);
        let storm = Storm::new(limits());
        assert_eq!(admitted(&storm, Some("o"), Some("n")), 2);
        assert_eq!(admitted(&storm, Some("p"), Some("n")), 1);
        assert_eq!(admitted(&storm, None, Some("m")), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_to_wait_gets_through_after_the_time_told() {
        let storm = Storm::new(limits());
        admitted(&storm, Some("o"), None);
        let wait = storm.admit(Some("o"), None).unwrap_err();
        tokio::time::sleep(wait).await;
        assert_eq!(storm.admit(Some("o"), None), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_rejects_again_and_again_is_given_a_rest() {
        let storm = Storm::new(limits());
        assert!(!storm.rejected_by("n"));
        assert!(!storm.rejected_by("n"));
        assert!(storm.rejected_by("n"), "the third opens the breaker");
        assert!(!storm.rejected_by("n"), "it is open already");
        assert_eq!(storm.open_breakers(), 1);
        let wait = storm.admit(None, Some("n")).unwrap_err();
        assert_eq!(wait, Duration::from_secs(30));
        assert_eq!(storm.admit(None, Some("m")), Ok(()), "others go on");
        tokio::time::sleep(wait).await;
        assert_eq!(storm.open_breakers(), 0);
        assert_eq!(storm.admit(None, Some("n")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_far_apart_open_nothing() {
        let storm = Storm::new(limits());
        for _ in 0..10 {
            assert!(!storm.rejected_by("n"));
            tokio::time::sleep(Duration::from_secs(31)).await;
        }
    }
}
