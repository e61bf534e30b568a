//! Which controllers run: `--controllers`, as kube-controller-manager reads its own.

use std::sync::Arc;

use belayer_controller::{Configured, Controller};
use belayer_holds::names;

/// The controllers of this build: each has a Cargo feature of its name. What they say about one object is
/// merged in this order.
pub const CONTROLLERS: &[&Controller] = &[
    #[cfg(feature = "pod-finalizer")]
    &belayer_pod_finalizer::CONTROLLER,
    #[cfg(feature = "workflow-finalizer")]
    &belayer_workflow_finalizer::CONTROLLER,
    #[cfg(feature = "pod-recreation")]
    &belayer_pod_recreation::CONTROLLER,
    #[cfg(feature = "pvc-protection")]
    &belayer_pvc_protection::CONTROLLER,
];

/// All controllers that exist, part of this build or not, and their finalizers.
pub const KNOWN: &[(&str, &str)] = &[
    ("pod-finalizer", names::POD_STATUS_HOLD),
    ("workflow-finalizer", names::WORKFLOW_HOLD),
    ("pod-recreation", names::POD_RECREATION_HOLD),
    ("pvc-protection", names::PVC_PROTECTION_HOLD),
];

/// The controllers that were switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers(Vec<&'static Controller>);

/// A list of controllers that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// Nothing is called so.
    #[error("unknown controller {name:?}: {}", way_out(name))]
    Unknown {
        /// What was given, without its `-`.
        name: String,
    },
    /// It was left out when this binary was built.
    #[error(
        "{0} is not part of this build; build it with the Cargo feature \
         {0}, or leave it out"
    )]
    NotBuilt(&'static str),
}

/// The names of the controllers of this build.
pub fn built() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.name)
}

fn way_out(name: &str) -> String {
    let known: Vec<_> = built().chain(["*"]).collect();
    belayer_controller::config::suggest::way_out(name, &known)
}

impl Controllers {
    /// Reads a list: `*` is all of them, `name` switches one on, `-name` switches it off. What is
    /// said first about a controller counts; one that nothing is said about is off, unless `*` is
    /// in the list.
    ///
    /// # Errors
    /// If an item names nothing that is part of this build.
    pub fn parse<S: AsRef<str>>(list: &[S]) -> Result<Self, ControllersError> {
        let list: Vec<&str> = list.iter().map(|item| item.as_ref().trim()).collect();
        let mut said: Vec<(&str, State)> = Vec::new();
        for item in list.iter().filter(|item| **item != "*") {
            let (name, state) = match item.strip_prefix('-') {
                Some(name) => (name, State::Off),
                None => (*item, State::On),
            };
            let (known, _) = KNOWN
                .iter()
                .find(|(known, _)| *known == name)
                .ok_or_else(|| ControllersError::Unknown {
                    name: name.to_owned(),
                })?;
            if state == State::On && built().all(|built| built != *known) {
                return Err(ControllersError::NotBuilt(known));
            }
            said.push((known, state));
        }
        let otherwise = if list.contains(&"*") {
            State::On
        } else {
            State::Off
        };
        let on = |controller: &&'static Controller| {
            let first = said.iter().find(|(named, _)| *named == controller.name);
            first.map_or(otherwise, |(_, state)| *state) == State::On
        };
        Ok(Self(CONTROLLERS.iter().copied().filter(on).collect()))
    }

    /// Whether the one of this name runs.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|controller| controller.name == name)
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What each controller does.
#[derive(Debug, Clone, Default)]
pub struct Components {
    /// Those that run, in the order of [`CONTROLLERS`].
    pub running: Vec<Arc<dyn Configured>>,
    /// Those that add no finalizers and whose finalizers are removed.
    pub switched_off: Vec<Arc<dyn Configured>>,
}

impl Components {
    /// The same with another controller that runs.
    #[must_use]
    pub fn with(mut self, controller: impl Configured + 'static) -> Self {
        self.run(Arc::new(controller));
        self
    }

    /// Has a controller run, in its place among the others.
    pub fn run(&mut self, controller: Arc<dyn Configured>) {
        let place = |one: &Arc<dyn Configured>| {
            let mut all = CONTROLLERS.iter();
            all.position(|known| *known == one.controller())
        };
        self.running.push(controller);
        self.running.sort_by_key(place);
    }

    /// Whether the controller of this name runs and adds finalizers. One that only reports counts as switched
    /// off for its admission policy and for the finalizers of an earlier configuration.
    pub(crate) fn holds(&self, name: &str) -> bool {
        let mut running = self.running.iter();
        running.any(|one| one.controller().name == name && one.adds_holds())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    On,
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// What pod-finalizer says of a pod comes before what workflow-finalizer says of it, whoever is added
    /// first.
    #[cfg(all(feature = "pod-finalizer", feature = "workflow-finalizer"))]
    #[test]
    fn controllers_stand_in_the_order_in_which_they_are_merged() {
        let components = Components::default()
            .with(belayer_workflow_finalizer::Settings::default())
            .with(belayer_pod_finalizer::Settings::default());
        let names = components.running.iter().map(|one| one.controller().name);
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["pod-finalizer", "workflow-finalizer"]
        );
        let known: Vec<_> = KNOWN.iter().map(|(name, _)| *name).collect();
        assert!(built().all(|name| known.contains(&name)));
    }

    #[rstest]
    #[case::all(&["*"], true)]
    #[case::by_name(&["pod-finalizer"], true)]
    #[case::all_but_one(&["*", "-pod-finalizer"], false)]
    #[case::order_does_not_matter_for_the_star(&["-pod-finalizer", "*"], false)]
    #[case::off_alone(&["-pod-finalizer"], false)]
    #[case::the_first_word_counts(&["pod-finalizer", "-pod-finalizer"], true)]
    #[case::the_first_word_counts_with_a_star(&["-pod-finalizer", "pod-finalizer", "*"], false)]
    #[case::blanks_are_no_part_of_a_name(&["*", " -pod-finalizer "], false)]
    #[case::nothing(&[], false)]
    #[case::another(&["workflow-finalizer"], false)]
    #[cfg(feature = "pod-finalizer")]
    fn as_kube_controller_manager_reads_it(#[case] list: &[&str], #[case] runs: bool) {
        let controllers = Controllers::parse(list).unwrap();
        assert_eq!(controllers.contains("pod-finalizer"), runs);
    }

    #[rstest]
    #[case("pod-finaliser")]
    #[case("-pod-finaliser")]
    #[case("Pod-Finalizer")]
    #[case("")]
    #[case("-")]
    #[case("-*")]
    #[case("--pod-finalizer")]
    fn an_unknown_name_is_refused(#[case] item: &str) {
        let error = Controllers::parse(&["*", item]).unwrap_err().to_string();
        assert!(error.contains("unknown controller"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = Controllers::parse(&["x-x-x"]).unwrap_err().to_string();
        let known = built().chain(["*"]);
        let known = known.collect::<Vec<_>>().join(", ");
        assert!(error.ends_with(&format!("use one of {known}")), "{error}");
    }

    #[cfg(not(feature = "pod-finalizer"))]
    #[test]
    fn what_is_not_built_can_be_switched_off_but_not_on() {
        let error = Controllers::parse(&["pod-finalizer"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("not part of this build"), "{error}");
        let rest = Controllers::parse(&["*", "-pod-finalizer"]).unwrap();
        assert!(!rest.contains("pod-finalizer"));
    }
}
