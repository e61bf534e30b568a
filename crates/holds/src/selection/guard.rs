//! The guard against mass release: too many unselected held objects at once look like a mistyped selector, so
//! they are kept.
//!
//! The scope of a count depends on who can unselect the objects. A configuration change unselects objects of every
//! namespace, so these are counted over the cluster. The labels of an object are controlled by users who may
//! write in its namespace, so these are counted per namespace: a tenant's objects never keep another tenant's. Objects that a label of
//! their namespace unselects are counted over the cluster too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;

use super::MaxUnselected;

/// At most this many namespaces are reported at once.
const REPORTED: usize = 10;

/// Why a held object is unselected. [`Noted::unselected`](crate::held_objects::Noted::unselected)
/// returns it. See the [example](crate::selection).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnselectedBy {
    /// It was unselected when this process first saw it, in its initial list: the configuration may have
    /// changed. This also applies after a restart.
    Configuration,
    /// It was selected before, or it was created later: its own labels are the reason.
    Labels,
    /// A label of its namespace excludes it; tenants may not write that label.
    Namespace,
}

/// Whether unselected held objects may be released for that reason alone.
/// [`HeldObjects::mass_release`](crate::held_objects::HeldObjects::mass_release) returns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MassRelease {
    /// Few enough objects are unselected: they are released.
    #[default]
    Within,
    /// Too many are: they are kept until there is other evidence, or there are fewer of them, or an admin
    /// releases them.
    Exceeded {
        /// Unselected held objects.
        unselected: usize,
        /// All held objects in the scope.
        held: usize,
        /// The scope of the count.
        scope: Scope,
    },
}

/// Where unselected objects are counted. Part of [`MassRelease`](crate::selection::MassRelease),
/// which [`HeldObjects`](crate::held_objects::HeldObjects) computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces, except those that keep their own.
    Cluster,
    /// In the object's namespace.
    Namespace,
}

impl Scope {
    /// The text after "held pods".
    pub fn message(self) -> &'static str {
        match self {
            Self::Cluster => "in the cluster",
            Self::Namespace => "in this namespace",
        }
    }
}

/// Counts held objects by namespace and says which unselected ones are kept.
///
/// A namespace that has more unselected objects than [`MaxUnselected`] allows of its own held objects
/// keeps them. Of all other namespaces together, no more than it allows of theirs are released because
/// the configuration does not select them.
///
/// [`HeldObjects`](crate::held_objects::HeldObjects) contains one.
#[derive(Debug)]
pub struct Guard {
    max: MaxUnselected,
    held: usize,
    places: HashMap<Arc<str>, Place>,
    /// Namespaces with unselected objects: nearly always none.
    suspects: BTreeSet<Arc<str>>,
    /// The result of the counts; `None` if they have changed since.
    verdict: Option<GuardVerdict>,
    /// Whether an object was kept because of the whole cluster, since the last call of [`Guard::has_eased`].
    kept_in_cluster: bool,
    /// The namespaces because of which one was.
    kept_in: BTreeSet<Arc<str>>,
}

/// The counts of one namespace.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    held: usize,
    by_configuration: usize,
    by_labels: usize,
    by_namespace: usize,
}

impl Place {
    fn unselected(self) -> usize {
        self.by_configuration + self.by_labels + self.by_namespace
    }

    fn count(&mut self, by: UnselectedBy) -> &mut usize {
        match by {
            UnselectedBy::Configuration => &mut self.by_configuration,
            UnselectedBy::Labels => &mut self.by_labels,
            UnselectedBy::Namespace => &mut self.by_namespace,
        }
    }
}

/// Which unselected objects are kept.
/// [`HeldObjects::exceeded`](crate::held_objects::HeldObjects::exceeded) returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceeded {
    /// Over the cluster.
    pub cluster: MassRelease,
    /// In each namespace that keeps its own.
    pub namespaces: BTreeMap<Arc<str>, MassRelease>,
}

impl Exceeded {
    /// Where objects are kept that were not `before`, such as "in namespace a", with the numbers of unselected and
    /// of held objects. Names at most ten namespaces.
    pub fn new_since(&self, before: &Self) -> Vec<(String, usize, usize)> {
        let cluster = (before.cluster == MassRelease::Within).then_some(self.cluster);
        let cluster = cluster.map(|kept| ("in the cluster".to_owned(), kept));
        let new = self.namespaces.iter();
        let new = new.filter(|(name, _)| !before.namespaces.contains_key(*name));
        let new = new.map(|(name, kept)| (format!("in namespace {name}"), *kept));
        let numbers = |(place, kept)| match kept {
            MassRelease::Within => None,
            MassRelease::Exceeded {
                unselected, held, ..
            } => Some((place, unselected, held)),
        };
        let all = cluster.into_iter().chain(new.take(REPORTED));
        all.filter_map(numbers).collect()
    }
}

/// What is kept, and how many objects that are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GuardVerdict {
    exceeded: Exceeded,
    kept: usize,
}

impl Guard {
    /// No objects yet.
    pub fn new(max: MaxUnselected) -> Self {
        Self {
            max,
            held: 0,
            places: HashMap::new(),
            suspects: BTreeSet::new(),
            verdict: None,
            kept_in_cluster: false,
            kept_in: BTreeSet::new(),
        }
    }

    /// Adds a held object in `namespace`; `by` is why, if nothing selects it.
    pub fn add(&mut self, namespace: &Arc<str>, unselected: Option<UnselectedBy>) {
        self.held += 1;
        let place = self.places.entry(Arc::clone(namespace)).or_default();
        place.held += 1;
        if let Some(by) = unselected {
            *place.count(by) += 1;
            self.suspects.insert(Arc::clone(namespace));
        }
        self.verdict = None;
    }

    /// Removes a held object, with the same reason.
    pub fn remove(&mut self, namespace: &Arc<str>, unselected: Option<UnselectedBy>) {
        let Some(place) = self.places.get_mut(namespace) else {
            return;
        };
        self.held = self.held.saturating_sub(1);
        place.held = place.held.saturating_sub(1);
        if let Some(by) = unselected {
            let count = place.count(by);
            *count = count.saturating_sub(1);
        }
        if place.unselected() == 0 {
            self.suspects.remove(namespace);
        }
        if place.held == 0 {
            self.places.remove(namespace);
        }
        self.verdict = None;
    }

    /// Whether an object of `namespace` may be released because it is unselected.
    pub fn of(&mut self, namespace: &str, by: UnselectedBy) -> MassRelease {
        let exceeded = &self.verdict().exceeded;
        let answer = match (exceeded.namespaces.get(namespace), by) {
            (Some(kept), UnselectedBy::Configuration | UnselectedBy::Labels) => *kept,
            (None, UnselectedBy::Labels) => MassRelease::Within,
            (_, UnselectedBy::Namespace) | (None, UnselectedBy::Configuration) => exceeded.cluster,
        };
        if let MassRelease::Exceeded { scope, .. } = answer {
            match scope {
                Scope::Cluster => self.kept_in_cluster = true,
                Scope::Namespace => {
                    self.kept_in.insert(namespace.into());
                }
            }
        }
        answer
    }

    /// Whether objects that [`Guard::of`] has kept may be released now, also if the limit was exceeded only for an instant.
    /// Once it has returned true, only what is kept afterwards counts.
    pub fn has_eased(&mut self) -> bool {
        let now = self.exceeded();
        let in_cluster = self.kept_in_cluster && now.cluster == MassRelease::Within;
        if in_cluster {
            self.kept_in_cluster = false;
        }
        let before = self.kept_in.len();
        self.kept_in
            .retain(|name| now.namespaces.contains_key(name));
        in_cluster || self.kept_in.len() < before
    }

    /// How many objects are kept.
    pub fn kept(&mut self) -> usize {
        self.verdict().kept
    }

    /// What is kept.
    pub fn exceeded(&mut self) -> Exceeded {
        self.verdict().exceeded.clone()
    }

    fn verdict(&mut self) -> &GuardVerdict {
        let Self {
            max,
            held,
            places,
            suspects,
            verdict,
            ..
        } = self;
        verdict.get_or_insert_with(|| {
            let suspects = suspects.iter();
            let suspects = suspects.filter_map(|name| places.get(name).map(|place| (name, *place)));
            judge(*max, *held, suspects)
        })
    }
}

fn judge<'a>(
    max: MaxUnselected,
    mut held: usize,
    suspects: impl Iterator<Item = (&'a Arc<str>, Place)>,
) -> GuardVerdict {
    let mut namespaces = BTreeMap::new();
    let (mut counted, mut kept) = (0, 0);
    for (namespace, place) in suspects {
        let unselected = place.by_configuration + place.by_labels;
        if max.allows(unselected, place.held) {
            counted += place.by_configuration + place.by_namespace;
            continue;
        }
        counted += place.by_namespace;
        kept += unselected;
        held = held.saturating_sub(place.held - place.by_namespace);
        let exceeded = MassRelease::Exceeded {
            unselected,
            held: place.held,
            scope: Scope::Namespace,
        };
        namespaces.insert(Arc::clone(namespace), exceeded);
    }
    let cluster = if max.allows(counted, held) {
        MassRelease::Within
    } else {
        kept += counted;
        MassRelease::Exceeded {
            unselected: counted,
            held,
            scope: Scope::Cluster,
        }
    };
    let exceeded = Exceeded {
        cluster,
        namespaces,
    };
    GuardVerdict { exceeded, kept }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const CONFIGURATION: Option<UnselectedBy> = Some(UnselectedBy::Configuration);
    const LABELS: Option<UnselectedBy> = Some(UnselectedBy::Labels);
    const NAMESPACE: Option<UnselectedBy> = Some(UnselectedBy::Namespace);

    fn guard(objects: &[(&str, Option<UnselectedBy>, usize)]) -> Guard {
        let mut guard = Guard::new(MaxUnselected::default());
        for (namespace, unselected, number) in objects {
            for _ in 0..*number {
                guard.add(&Arc::from(*namespace), *unselected);
            }
        }
        guard
    }

    fn kept(guard: &mut Guard, namespace: &str, by: UnselectedBy) -> Option<Scope> {
        match guard.of(namespace, by) {
            MassRelease::Within => None,
            MassRelease::Exceeded { scope, .. } => Some(scope),
        }
    }

    #[rstest]
    #[case::few(&[("a", LABELS, 20)], None)]
    #[case::too_many_in_its_namespace(&[("a", LABELS, 21)], Some(Scope::Namespace))]
    #[case::a_small_share_of_its_namespace(&[("a", LABELS, 21), ("a", None, 200)], None)]
    #[case::a_small_share_of_the_cluster_is_not_enough(&[("a", LABELS, 21), ("b", None, 1000)], Some(Scope::Namespace))]
    #[case::those_of_others_do_not_count(&[("a", LABELS, 1), ("b", LABELS, 3000)], None)]
    #[case::nor_over_many_namespaces(&[("a", LABELS, 1), ("b", LABELS, 20), ("c", LABELS, 20)], None)]
    fn t4_what_labels_unselect_is_counted_in_its_namespace(
        #[case] objects: &[(&str, Option<UnselectedBy>, usize)],
        #[case] expected: Option<Scope>,
    ) {
        assert_eq!(
            kept(&mut guard(objects), "a", UnselectedBy::Labels),
            expected
        );
    }

    #[rstest]
    #[case::few(&[("a", CONFIGURATION, 20)], None)]
    #[case::too_many_of_one_namespace(&[("a", CONFIGURATION, 21)], Some(Scope::Namespace))]
    #[case::too_many_over_namespaces(&[("a", CONFIGURATION, 15), ("b", CONFIGURATION, 15)], Some(Scope::Cluster))]
    #[case::a_small_share_of_the_cluster(&[("a", CONFIGURATION, 15), ("b", CONFIGURATION, 15), ("c", None, 300)], None)]
    #[case::what_another_namespace_keeps_is_not_counted(&[("a", CONFIGURATION, 1), ("b", CONFIGURATION, 3000)], None)]
    #[case::nor_what_it_holds(&[("a", CONFIGURATION, 15), ("c", CONFIGURATION, 15), ("b", CONFIGURATION, 3000)], Some(Scope::Cluster))]
    #[case::nor_what_labels_unselect(&[("a", CONFIGURATION, 1), ("b", LABELS, 20)], None)]
    fn a4_what_a_configuration_unselects_is_counted_over_the_cluster(
        #[case] objects: &[(&str, Option<UnselectedBy>, usize)],
        #[case] expected: Option<Scope>,
    ) {
        let mut guard = guard(objects);
        assert_eq!(kept(&mut guard, "a", UnselectedBy::Configuration), expected);
    }

    /// The limit is exceeded only between two calls of `has_eased`: what was kept meanwhile may be released.
    #[rstest]
    #[case::in_one_namespace(&[("a", LABELS, 30), ("b", None, 300)], LABELS)]
    #[case::in_the_cluster(&[("a", CONFIGURATION, 15), ("b", CONFIGURATION, 15)], CONFIGURATION)]
    fn what_was_kept_for_an_instant_is_released(
        #[case] objects: &[(&str, Option<UnselectedBy>, usize)],
        #[case] by: Option<UnselectedBy>,
    ) {
        let mut guard = guard(objects);
        assert!(!guard.has_eased(), "nothing was kept");
        assert_ne!(guard.of("a", by.unwrap()), MassRelease::Within);
        assert!(!guard.has_eased(), "it is exceeded");
        for _ in 0..12 {
            guard.remove(&"a".into(), by);
        }
        assert!(guard.has_eased());
        assert!(!guard.has_eased(), "it is reported once");
    }

    #[rstest]
    #[case::a_share_of_the_cluster_may_go_as_a_whole(&[("a", NAMESPACE, 30), ("b", None, 300)], None)]
    #[case::many_namespaces_at_once(&[("a", NAMESPACE, 15), ("b", NAMESPACE, 15)], Some(Scope::Cluster))]
    fn what_the_label_of_a_namespace_unselects_is_counted_over_the_cluster(
        #[case] objects: &[(&str, Option<UnselectedBy>, usize)],
        #[case] expected: Option<Scope>,
    ) {
        assert_eq!(
            kept(&mut guard(objects), "a", UnselectedBy::Namespace),
            expected
        );
    }

    #[test]
    fn a4_it_recovers_when_the_share_falls() {
        let mut guard = guard(&[("a", CONFIGURATION, 15), ("b", CONFIGURATION, 15)]);
        assert_eq!(guard.kept(), 30);
        for _ in 0..10 {
            guard.remove(&"b".into(), CONFIGURATION);
        }
        assert_eq!(guard.kept(), 0);
        assert_eq!(guard.exceeded(), Exceeded::default());
    }

    fn object() -> impl Strategy<Value = (u8, Option<UnselectedBy>)> {
        let by = prop_oneof![
            Just(None),
            Just(CONFIGURATION),
            Just(LABELS),
            Just(NAMESPACE)
        ];
        (0..6_u8, by)
    }

    proptest! {
        /// What one tenant does in a namespace, without a change of the configuration, does not affect
        /// the objects of another tenant.
        #[test]
        fn t4_labels_of_one_namespace_keep_nothing_elsewhere(
            objects in prop::collection::vec(object(), 0..120),
            hostile in 1..200_usize,
        ) {
            let mut before = Guard::new(MaxUnselected::default());
            for (namespace, by) in &objects {
                before.add(&Arc::from(format!("n{namespace}")), *by);
            }
            let mut after = Guard::new(MaxUnselected::default());
            for (namespace, by) in &objects {
                after.add(&Arc::from(format!("n{namespace}")), *by);
            }
            for _ in 0..hostile {
                after.add(&Arc::from("hostile"), LABELS);
            }
            for namespace in 0..6 {
                let name = format!("n{namespace}");
                for by in [UnselectedBy::Configuration, UnselectedBy::Labels, UnselectedBy::Namespace] {
                    if before.of(&name, by) == MassRelease::Within {
                        prop_assert_eq!(after.of(&name, by), MassRelease::Within);
                    }
                }
            }
        }

        /// However a configuration unselects objects, no more of them are released for that reason
        /// alone than the limit allows.
        #[test]
        fn a4_a_configuration_releases_no_more_than_the_limit(
            objects in prop::collection::vec((0..12_u8, prop::bool::ANY), 0..400),
        ) {
            let max = MaxUnselected::default();
            let mut guard = Guard::new(max);
            let by = |unselected: bool| unselected.then_some(UnselectedBy::Configuration);
            for (namespace, unselected) in &objects {
                guard.add(&Arc::from(format!("n{namespace}")), by(*unselected));
            }
            let released = objects.iter().filter(|(namespace, unselected)| {
                *unselected
                    && guard.of(&format!("n{namespace}"), UnselectedBy::Configuration)
                        == MassRelease::Within
            });
            prop_assert!(released.count() <= max.limit(objects.len()));
        }
    }
}
