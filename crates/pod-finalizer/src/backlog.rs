//! The backlog: held pods that are being deleted. While there are too many of them Belayer adds no finalizers, so that
//! the backlog does not grow.
//!
//! It is limited per namespace and over the cluster. A namespace counts for no more than its own limit, so that a user
//! of one namespace can close the gate of that namespace only.
//!
//! Pods that ended and are not being deleted do not count. A pod whose owner's status cannot be read
//! counts like any other.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::snapshot::BacklogLimit;

/// At most this many namespaces are closed one by one; with more of them all are closed. This limits the
/// size of the gate.
pub(crate) const MAX_CLOSED: usize = 1_000;

/// The limit of a namespace is a quarter of the cluster's limit.
const PARTS: usize = 4;

/// The lowest limit of a namespace, unless the cluster's limit is lower.
const LEAST: usize = 50;

/// Above these numbers of pods Belayer adds no finalizers, until there are fewer than half as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all namespaces together.
    pub cluster: usize,
    /// In one namespace.
    pub namespace: usize,
}

impl Limits {
    /// The limits that follow from the cluster's limit.
    ///
    /// The limit of a namespace is never higher than that of the cluster: the pods of one namespace alone
    /// never close the others.
    pub fn of(cluster: usize) -> Self {
        Self {
            cluster,
            namespace: (cluster / PARTS).max(LEAST).min(cluster),
        }
    }

    /// The gate that closed above `limit` opens below this number.
    pub fn opens_below(limit: usize) -> usize {
        limit.div_ceil(2)
    }
}

/// The gates that have opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Whether that of all namespaces has.
    pub(crate) all: bool,
    /// Those of single namespaces.
    pub(crate) namespaces: Vec<Arc<str>>,
}

/// The counted backlog.
#[derive(Debug)]
pub(crate) struct Backlog {
    limits: Limits,
    pods: HashMap<Arc<str>, usize>,
    /// The pods of all namespaces, at most the limit for each.
    sum: usize,
    closed: BTreeSet<Arc<str>>,
    /// Whether all namespaces are closed.
    all_closed: bool,
}

impl Backlog {
    /// No pods, and everything open.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            pods: HashMap::new(),
            sum: 0,
            closed: BTreeSet::new(),
            all_closed: false,
        }
    }

    /// The limits.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The pods of all namespaces, at most the limit for each: what counts towards the limit of the cluster.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Adds a pod. A gate whose limit is exceeded closes at once.
    pub(crate) fn add(&mut self, namespace: &Arc<str>) {
        let Limits {
            cluster,
            namespace: limit,
        } = self.limits;
        let pods = self.pods.entry(Arc::clone(namespace)).or_default();
        *pods += 1;
        if *pods <= limit {
            self.sum += 1;
        } else if !self.closed.contains(namespace) {
            self.closed.insert(Arc::clone(namespace));
        }
        if self.sum > cluster || self.closed.len() > MAX_CLOSED {
            self.all_closed = true;
        }
    }

    /// Removes a pod. Only [`Backlog::settle`] opens gates.
    pub(crate) fn remove(&mut self, namespace: &Arc<str>) {
        let Some(pods) = self.pods.get_mut(namespace) else {
            return;
        };
        *pods -= 1;
        if *pods < self.limits.namespace {
            self.sum -= 1;
        }
        if *pods == 0 {
            self.pods.remove(namespace);
        }
    }

    /// Takes over the gates that an earlier leader closed: of these namespaces, and whether of `all`. They open by the same rules as those that this process closed.
    pub(crate) fn adopt(&mut self, closed: impl IntoIterator<Item = Arc<str>>, all: bool) {
        self.closed.extend(closed);
        self.all_closed |= all;
    }

    /// Opens the gates with fewer pods than half of their limit, and returns those, also of gates that closed since the last
    /// call. Call it only once all pods are known.
    pub(crate) fn settle(&mut self) -> Opened {
        let mut opened = Opened::default();
        let Self {
            limits,
            pods,
            closed,
            ..
        } = self;
        let few = |pods: usize, limit: usize| pods == 0 || pods < Limits::opens_below(limit);
        closed.retain(|name| {
            let opens = few(pods.get(name).copied().unwrap_or(0), limits.namespace);
            if opens {
                opened.namespaces.push(Arc::clone(name));
            }
            !opens
        });
        if few(self.sum, self.limits.cluster) && self.closed.len() <= MAX_CLOSED {
            opened.all = std::mem::take(&mut self.all_closed);
        }
        opened
    }

    /// Whether holds are added in a namespace.
    pub(crate) fn limit(&self, namespace: &str) -> BacklogLimit {
        match self.cluster_limit() {
            BacklogLimit::NotReached if self.closed.contains(namespace) => {
                BacklogLimit::ReachedInNamespace
            }
            limit => limit,
        }
    }

    /// Whether holds are added in namespaces that are not closed by themselves.
    pub(crate) fn cluster_limit(&self) -> BacklogLimit {
        if self.all_closed {
            BacklogLimit::Reached
        } else {
            BacklogLimit::NotReached
        }
    }

    /// The closed namespaces with their numbers of pods, sorted: [`MAX_CLOSED`] at most, because with more of
    /// them all are closed.
    pub(crate) fn closed(&self) -> Vec<(Arc<str>, usize)> {
        let named = self.closed.iter().take(MAX_CLOSED);
        named
            .map(|name| {
                (
                    Arc::clone(name),
                    self.pods.get(name).copied().unwrap_or_default(),
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::by_default(4_000, 1_000)]
    #[case::a_quarter(1_000, 250)]
    #[case::at_least_fifty(100, 50)]
    #[case::rounded_down(203, 50)]
    #[case::never_more_than_the_cluster(6, 6)]
    #[case::the_least_there_is(1, 1)]
    fn t4_the_limit_of_a_namespace_is_a_part_of_the_clusters(
        #[case] cluster: usize,
        #[case] namespace: usize,
    ) {
        assert_eq!(Limits::of(cluster), Limits { cluster, namespace });
    }

    fn backlog(cluster: usize, pods: &[(&str, usize)]) -> Backlog {
        let mut backlog = Backlog::new(Limits::of(cluster));
        for (namespace, number) in pods {
            for _ in 0..*number {
                backlog.add(&Arc::from(*namespace));
            }
        }
        backlog
    }

    /// The limit for the namespaces `a` and `other`.
    #[rstest]
    #[case::nothing(&[], BacklogLimit::NotReached, BacklogLimit::NotReached)]
    #[case::as_many_as_a_namespace_may_have(&[("a", 50)], BacklogLimit::NotReached, BacklogLimit::NotReached)]
    #[case::one_more_closes_it_alone(&[("a", 51)], BacklogLimit::ReachedInNamespace, BacklogLimit::NotReached)]
    #[case::ever_so_many_close_it_alone(&[("a", 5_000)], BacklogLimit::ReachedInNamespace, BacklogLimit::NotReached)]
    #[case::two_of_them(&[("a", 5_000), ("b", 5_000)], BacklogLimit::ReachedInNamespace, BacklogLimit::NotReached)]
    #[case::pods_of_other_namespaces_count(&[("a", 5_000), ("b", 50), ("c", 1)], BacklogLimit::Reached, BacklogLimit::Reached)]
    #[case::many_namespaces_with_few_each(&[("a", 40), ("b", 40), ("c", 21)], BacklogLimit::Reached, BacklogLimit::Reached)]
    fn t4_a_namespace_closes_alone_and_the_cluster_by_the_sum_of_shares(
        #[case] pods: &[(&str, usize)],
        #[case] a: BacklogLimit,
        #[case] other: BacklogLimit,
    ) {
        let backlog = backlog(100, pods);
        assert_eq!((backlog.limit("a"), backlog.limit("other")), (a, other));
    }

    #[test]
    fn t4_it_opens_below_half_of_what_closed_it() {
        let mut backlog = backlog(100, &[("a", 51)]);
        let a: Arc<str> = "a".into();
        for _ in 0..26 {
            backlog.remove(&a);
            backlog.settle();
        }
        assert_eq!(
            backlog.limit("a"),
            BacklogLimit::ReachedInNamespace,
            "25 are half"
        );
        backlog.remove(&a);
        assert_eq!(
            backlog.limit("a"),
            BacklogLimit::ReachedInNamespace,
            "not by itself"
        );
        backlog.settle();
        assert_eq!(backlog.limit("a"), BacklogLimit::NotReached);
    }

    #[test]
    fn t4_gates_closed_before_a_restart_open_by_the_same_rule() {
        for (pods, expected) in [
            (25, BacklogLimit::ReachedInNamespace),
            (24, BacklogLimit::NotReached),
        ] {
            let mut backlog = backlog(100, &[("a", pods)]);
            backlog.adopt(["a".into(), "gone".into()], false);
            backlog.settle();
            assert_eq!(backlog.limit("a"), expected, "{pods}");
            assert_eq!(
                backlog.limit("gone"),
                BacklogLimit::NotReached,
                "nothing is left there"
            );
        }
        for (pods, expected) in [(50, BacklogLimit::Reached), (49, BacklogLimit::NotReached)] {
            let mut backlog = backlog(100, &[("a", pods)]);
            backlog.adopt([], true);
            backlog.settle();
            assert_eq!(backlog.cluster_limit(), expected, "{pods}");
        }
    }

    /// Pods that were refused a hold meanwhile wait for it.
    #[test]
    fn a_gate_that_closes_and_opens_between_two_looks_is_reported_as_opened() {
        let mut backlog = backlog(4, &[("a", 5)]);
        assert_eq!(backlog.limit("a"), BacklogLimit::ReachedInNamespace);
        let name: Arc<str> = "a".into();
        for _ in 0..5 {
            backlog.remove(&name);
        }
        let namespaces = vec![name];
        let all = false;
        assert_eq!(backlog.settle(), Opened { all, namespaces });
        assert_eq!(backlog.settle(), Opened::default());
    }

    #[test]
    fn t4_more_closed_namespaces_than_can_be_named_close_the_cluster() {
        let mut backlog = Backlog::new(Limits::of(4_000));
        let mut names = (0..=MAX_CLOSED).map(|n| Arc::from(format!("n{n:04}")));
        backlog.adopt(names.clone().take(MAX_CLOSED), false);
        assert_eq!(backlog.limit("other"), BacklogLimit::NotReached);
        let last = names.next_back().unwrap();
        for _ in 0..=backlog.limits().namespace {
            backlog.add(&last);
        }
        assert_eq!(backlog.limit("other"), BacklogLimit::Reached);
        assert_eq!(backlog.closed().len(), MAX_CLOSED);
    }

    proptest! {
        /// For any sequence of pods, the sum is that of the namespaces' shares, a gate above its limit is closed, and a
        /// single namespace never closes the cluster.
        #[test]
        fn t4_the_sum_counts_no_namespace_beyond_its_limit(
            cluster in 1..300_usize,
            steps in prop::collection::vec((0..5_u8, prop::bool::weighted(0.7)), 0..600),
        ) {
            let limits = Limits::of(cluster);
            let mut backlog = Backlog::new(limits);
            let mut model = std::collections::BTreeMap::<Arc<str>, usize>::new();
            for (namespace, comes) in steps {
                let name: Arc<str> = format!("n{namespace}").into();
                let pods = model.entry(Arc::clone(&name)).or_default();
                if comes {
                    *pods += 1;
                    backlog.add(&name);
                } else if *pods > 0 {
                    *pods -= 1;
                    backlog.remove(&name);
                    backlog.settle();
                }
                let sum: usize = model.values().map(|pods| (*pods).min(limits.namespace)).sum();
                prop_assert_eq!(backlog.sum, sum);
                if sum > cluster {
                    prop_assert_eq!(backlog.cluster_limit(), BacklogLimit::Reached);
                }
                for (name, pods) in &model {
                    if *pods > limits.namespace {
                        prop_assert_ne!(backlog.limit(name), BacklogLimit::NotReached);
                    }
                }
                if model.values().filter(|pods| **pods > 0).count() == 1 && sum * 2 < cluster {
                    backlog.settle();
                    prop_assert_eq!(backlog.cluster_limit(), BacklogLimit::NotReached);
                }
            }
        }

        #[test]
        fn t4_one_namespace_alone_never_closes_the_cluster(
            cluster in 1..300_usize,
            pods in 0..2_000_usize,
        ) {
            let alone = backlog(cluster, &[("a", pods)]);
            prop_assert_eq!(alone.limit("other"), BacklogLimit::NotReached);
        }
    }
}
