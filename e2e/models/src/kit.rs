//! Explores a model, and reports what it found.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model};

/// A model of this crate: any [`Model`] with states that can be shared between threads.
pub(crate) trait Explored:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        Action: Clone + Debug + PartialEq,
    > + Send
    + Sync
    + 'static
{
}

impl<M> Explored for M where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
            Action: Clone + Debug + PartialEq,
        > + Send
        + Sync
        + 'static
{
}

/// The property that no state is broken in this way.
macro_rules! never {
    ($name:literal, $broken:path) => {
        Property::always($name, |_, state: &State| state.broken != Some($broken))
    };
}
pub(crate) use never;

/// Whether one of the actions leads to another state.
pub(crate) fn can_go_on<M: Model>(model: &M, state: &M::State, actions: Vec<M::Action>) -> bool {
    let mut actions = actions.into_iter();
    actions.any(|action| model.next_state(state, action).is_some())
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Exploration {
    /// Different states.
    pub(crate) states: usize,
    /// Steps between them.
    pub(crate) steps: usize,
    /// The longest of the shortest paths to a state.
    pub(crate) depth: usize,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Each violated property, and the steps that violate it.
    pub(crate) violations: Vec<(&'static str, Vec<String>)>,
}

/// Visits every state, or those before the first violation of the property `until`.
pub(crate) fn explore<M: Explored>(
    model: M,
    threads: usize,
    until: Option<&'static str>,
) -> Exploration {
    let begun = Instant::now();
    let mut checker = model.checker().threads(threads);
    if let Some(property) = until {
        checker = checker.finish_when(HasDiscoveries::AllOf(BTreeSet::from([property])));
    }
    let checker = checker.spawn_bfs().join();
    let mut violations: Vec<_> = checker
        .discoveries()
        .into_iter()
        .map(|(property, path)| {
            let actions = path.into_actions();
            (
                property,
                actions.iter().map(|action| format!("{action:?}")).collect(),
            )
        })
        .collect();
    violations.sort();
    Exploration {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        seconds: begun.elapsed().as_secs_f64(),
        violations,
    }
}

/// Whether some behaviour never ends. If there is none, what holds whenever Belayer has nothing left to do holds
/// eventually.
pub(crate) fn has_cycle<M: Explored>(model: &M) -> bool {
    #[derive(PartialEq)]
    enum Visit {
        Open,
        Closed,
    }
    let mut visited: HashMap<u64, Visit> = HashMap::new();
    let mut stack: Vec<(u64, Vec<M::State>)> = Vec::new();
    for start in model.init_states() {
        let key = key(&start);
        if visited.contains_key(&key) {
            continue;
        }
        visited.insert(key, Visit::Open);
        stack.push((key, model.next_states(&start)));
        while let Some((state, next)) = stack.last_mut() {
            let Some(next) = next.pop() else {
                visited.insert(*state, Visit::Closed);
                stack.pop();
                continue;
            };
            let key = self::key(&next);
            match visited.get(&key) {
                Some(Visit::Open) => return true,
                Some(Visit::Closed) => {}
                None => {
                    visited.insert(key, Visit::Open);
                    stack.push((key, model.next_states(&next)));
                }
            }
        }
    }
    false
}

fn key(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
