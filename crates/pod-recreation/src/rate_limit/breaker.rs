//! Circuit breakers: many rejections by a node stop re-creations of the pods that it rejected.
//!
//! A breaker is for one namespace on one node: a user can have a node reject any number of pods, by binding them to it.
//! Rejections in several namespaces show that the node itself is the cause, and open the breaker of the whole node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

/// When circuit breakers open and close. The [module's example](crate::rate_limit) has the default
/// limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// Number of rejections within `within_seconds` that open it.
    pub rejections: u32,
    /// The period in which rejections are counted.
    pub within_seconds: u32,
    /// How long it stays open.
    pub open_seconds: u32,
    /// Namespaces whose rejections alone open the breaker of a whole node, in clusters with fewer than three namespaces.
    pub namespaces: Vec<String>,
}

/// The rejections of at least so many namespaces open the breaker of a whole node.
const NAMESPACES: usize = 3;

/// Above this number of nodes, those without recent rejections are removed.
const CLEANUP_ABOVE: usize = 10_000;

/// The breaker that opened. The [module's example](crate::rate_limit) has the default limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// For the pods of one namespace that the node rejected.
    Namespace,
    /// For all pods that the node rejected.
    Node,
}

/// All breakers.
#[derive(Debug)]
pub(super) struct Breakers {
    settings: CircuitBreaker,
    nodes: HashMap<Arc<str>, Node>,
}

/// The breakers of a node.
#[derive(Debug, Default)]
struct Node {
    open_until: Option<Instant>,
    namespaces: HashMap<Arc<str>, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    open_until: Option<Instant>,
    /// At most as many as open the breaker.
    rejections: VecDeque<Instant>,
}

impl Namespace {
    fn prune(&mut self, within: Duration, now: Instant) {
        while self
            .rejections
            .front()
            .is_some_and(|first| now.duration_since(*first) > within)
        {
            self.rejections.pop_front();
        }
    }
}

impl Breakers {
    pub(super) fn new(settings: CircuitBreaker) -> Self {
        Self {
            settings,
            nodes: HashMap::new(),
        }
    }

    /// Counts a rejection. Returns the breaker that opened just now.
    pub(super) fn count(&mut self, node: &str, namespace: &str) -> Option<Opened> {
        let now = Instant::now();
        let within = Duration::from_secs(self.settings.within_seconds.into());
        let until = now + Duration::from_secs(self.settings.open_seconds.into());
        let limit = self.settings.rejections as usize;
        self.clean_up(now);
        let state = self.nodes.entry(node.into()).or_default();
        for one in state.namespaces.values_mut() {
            one.prune(within, now);
        }
        state
            .namespaces
            .retain(|_, one| !one.rejections.is_empty() || is_open(one.open_until, now));
        let one = state.namespaces.entry(namespace.into()).or_default();
        one.rejections.push_back(now);
        if one.rejections.len() > limit {
            one.rejections.pop_front();
        }
        let opens_namespace = one.rejections.len() >= limit && !is_open(one.open_until, now);
        if opens_namespace {
            one.open_until = Some(until);
        }
        if !is_open(state.open_until, now) && self.settings.opens_node(state) {
            state.open_until = Some(until);
            state.namespaces.clear();
            return Some(Opened::Node);
        }
        opens_namespace.then_some(Opened::Namespace)
    }

    /// How long the breakers for a pod of `namespace` on `node` stay open.
    pub(super) fn wait(&self, node: &str, namespace: &str) -> Duration {
        let now = Instant::now();
        let Some(node) = self.nodes.get(node) else {
            return Duration::ZERO;
        };
        let one = node
            .namespaces
            .get(namespace)
            .and_then(|one| one.open_until);
        let until = node.open_until.max(one);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The number of open breakers of whole nodes, and of single namespaces.
    pub(super) fn open(&self) -> (usize, usize) {
        let now = Instant::now();
        let nodes = self.nodes.values();
        let whole = nodes.clone().filter(|node| is_open(node.open_until, now));
        let single = nodes
            .flat_map(|node| node.namespaces.values())
            .filter(|one| is_open(one.open_until, now));
        (whole.count(), single.count())
    }

    fn clean_up(&mut self, now: Instant) {
        if self.nodes.len() <= CLEANUP_ABOVE {
            return;
        }
        let within = Duration::from_secs(self.settings.within_seconds.into());
        self.nodes.retain(|_, node| {
            node.namespaces.retain(|_, one| {
                one.prune(within, now);
                !one.rejections.is_empty() || is_open(one.open_until, now)
            });
            !node.namespaces.is_empty() || is_open(node.open_until, now)
        });
    }
}

impl CircuitBreaker {
    /// Whether the rejections of a node open the breaker of the whole node. No namespace counts for more than a third,
    /// unless it is listed.
    fn opens_node(&self, node: &Node) -> bool {
        let limit = self.rejections as usize;
        let is_listed = |name: &str| self.namespaces.iter().any(|listed| listed == name);
        let counted = node.namespaces.iter().map(|(name, one)| {
            let most = if is_listed(name) {
                limit
            } else {
                limit.div_ceil(NAMESPACES)
            };
            one.rejections.len().min(most)
        });
        let all_listed = node.namespaces.keys().all(|name| is_listed(name));
        counted.sum::<usize>() >= limit && (node.namespaces.len() >= NAMESPACES || all_listed)
    }
}

fn is_open(until: Option<Instant>, now: Instant) -> bool {
    until.is_some_and(|until| until > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breakers(listed: &[&str]) -> Breakers {
        Breakers::new(CircuitBreaker {
            rejections: 9,
            within_seconds: 60,
            open_seconds: 30,
            namespaces: listed.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    /// The last answer to so many rejections by the node `n`.
    fn reject(breakers: &mut Breakers, namespace: &str, times: usize) -> Option<Opened> {
        let answers = (0..times).map(|_| breakers.count("n", namespace));
        answers.last().flatten()
    }

    const OPEN: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn t8_one_namespace_opens_the_breaker_of_that_namespace_alone() {
        let mut breakers = breakers(&[]);
        assert_eq!(reject(&mut breakers, "a", 8), None);
        assert_eq!(reject(&mut breakers, "a", 1), Some(Opened::Namespace));
        assert_eq!(reject(&mut breakers, "a", 100), None, "it is open already");
        assert_eq!(breakers.open(), (0, 1));
        assert_eq!(breakers.wait("n", "a"), OPEN);
        assert_eq!(breakers.wait("n", "b"), Duration::ZERO);
        assert_eq!(breakers.wait("m", "a"), Duration::ZERO);
        tokio::time::sleep(OPEN).await;
        assert_eq!(breakers.open(), (0, 0));
        assert_eq!(breakers.wait("n", "a"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn t8_three_namespaces_open_the_breaker_of_the_node() {
        let mut breakers = breakers(&[]);
        reject(&mut breakers, "a", 100);
        reject(&mut breakers, "b", 100);
        assert_eq!(breakers.wait("n", "c"), Duration::ZERO, "two namespaces");
        assert_eq!(reject(&mut breakers, "c", 2), None);
        assert_eq!(reject(&mut breakers, "c", 1), Some(Opened::Node));
        assert_eq!(breakers.wait("n", "d"), OPEN);
    }

    #[tokio::test(start_paused = true)]
    async fn t8_many_namespaces_with_few_rejections_open_the_breaker_of_the_node() {
        let mut breakers = breakers(&[]);
        let opened: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
            .iter()
            .filter_map(|namespace| reject(&mut breakers, namespace, 1))
            .collect();
        assert_eq!(opened, [Opened::Node]);
    }

    #[tokio::test(start_paused = true)]
    async fn t8_a_listed_namespace_opens_the_breaker_of_the_node() {
        let mut one = breakers(&["a"]);
        assert_eq!(reject(&mut one, "a", 9), Some(Opened::Node));
        assert_eq!(one.wait("n", "z"), OPEN);
        let mut beside_another = breakers(&["a"]);
        reject(&mut beside_another, "b", 1);
        assert_eq!(
            reject(&mut beside_another, "a", 9),
            Some(Opened::Namespace),
            "the node has pods of a namespace that is not listed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_far_apart_open_nothing() {
        let mut breakers = breakers(&[]);
        for _ in 0..100 {
            assert_eq!(reject(&mut breakers, "a", 1), None);
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
    }
}
