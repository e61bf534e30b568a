//! Which controllers run: `--controllers`, as kube-controller-manager reads its own.

use std::collections::BTreeSet;
use std::fmt;

/// The controllers that Belayer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Holds pods until their result has been taken.
    PodFinalizer,
    /// Holds workflows until all their pods have been released.
    WorkflowFinalizer,
    /// Re-creates pods that their node rejected.
    PodRecreation,
    /// Holds claims while pods use them.
    PvcProtection,
}

impl Controller {
    /// All that exist, part of this build or not.
    pub const ALL: &[Self] = &[
        Self::PodFinalizer,
        Self::WorkflowFinalizer,
        Self::PodRecreation,
        Self::PvcProtection,
    ];

    /// Its name on the command line, in metrics and in Events.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodFinalizer => "pod-finalizer",
            Self::WorkflowFinalizer => "workflow-finalizer",
            Self::PodRecreation => "pod-recreation",
            Self::PvcProtection => "pvc-protection",
        }
    }

    /// Whether this build contains it: each has a Cargo feature of its name.
    pub fn is_built(self) -> bool {
        match self {
            Self::PodFinalizer => cfg!(feature = "pod-finalizer"),
            Self::WorkflowFinalizer => cfg!(feature = "workflow-finalizer"),
            Self::PodRecreation => cfg!(feature = "pod-recreation"),
            Self::PvcProtection => cfg!(feature = "pvc-protection"),
        }
    }

    /// Those that this build contains.
    pub fn built() -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(|controller| controller.is_built())
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The controllers that were switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

/// A list of controllers that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// Nothing is called so.
    #[error("there is no controller {name:?}: {}", way_out(name))]
    Unknown {
        /// What was given, without its `-`.
        name: String,
    },
    /// It was left out when this binary was built.
    #[error(
        "{0} is not part of this build; build it with the Cargo feature \
         {0}, or leave it out"
    )]
    NotBuilt(Controller),
}

fn way_out(name: &str) -> String {
    let known: Vec<_> = Controller::built()
        .map(Controller::name)
        .chain(["*"])
        .collect();
    crate::suggest::way_out(name, &known)
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
        let mut said: Vec<(Controller, State)> = Vec::new();
        for item in list.iter().filter(|item| **item != "*") {
            let (name, state) = match item.strip_prefix('-') {
                Some(name) => (name, State::Off),
                None => (*item, State::On),
            };
            let controller = Controller::ALL
                .iter()
                .copied()
                .find(|controller| controller.name() == name)
                .ok_or_else(|| ControllersError::Unknown {
                    name: name.to_owned(),
                })?;
            if state == State::On && !controller.is_built() {
                return Err(ControllersError::NotBuilt(controller));
            }
            said.push((controller, state));
        }
        let otherwise = if list.contains(&"*") {
            State::On
        } else {
            State::Off
        };
        let on = |controller: &Controller| {
            let first = said.iter().find(|(named, _)| named == controller);
            first.map_or(otherwise, |(_, state)| *state) == State::On
        };
        Ok(Self(Controller::built().filter(on).collect()))
    }

    /// Whether this one runs.
    pub fn contains(&self, controller: Controller) -> bool {
        self.0.contains(&controller)
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that run.
    pub fn iter(&self) -> impl Iterator<Item = Controller> {
        self.0.iter().copied()
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
        assert_eq!(controllers.contains(Controller::PodFinalizer), runs);
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
        assert!(error.contains("there is no controller"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = Controllers::parse(&["x-x-x"]).unwrap_err().to_string();
        let known = Controller::built().map(Controller::name).chain(["*"]);
        let known = known.collect::<Vec<_>>().join(", ");
        assert!(error.ends_with(&format!("known are {known}")), "{error}");
    }

    #[cfg(not(feature = "pod-finalizer"))]
    #[test]
    fn what_is_not_built_can_be_switched_off_but_not_on() {
        let error = Controllers::parse(&["pod-finalizer"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("not part of this build"), "{error}");
        let rest = Controllers::parse(&["*", "-pod-finalizer"]).unwrap();
        assert!(!rest.contains(Controller::PodFinalizer));
    }
}
