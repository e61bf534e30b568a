//! The controllers that run: `--controllers`, with the syntax of kube-controller-manager.

use std::sync::Arc;

use belayer_controller::{Configured, Controller};
use belayer_holds::names;
use serde_json::Value;

/// The controllers of this build; each has a Cargo feature of its name. Their statements about one object are
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

/// The controllers that are switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers(Vec<&'static Controller>);

/// An invalid list of controllers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// No controller has this name.
    #[error("unknown controller {name:?}: {}", suggestion(name))]
    Unknown {
        /// The item, without its `-`.
        name: String,
    },
    /// The list contains an empty item.
    #[error("an item of the list is empty (example: *,-pvc-protection)")]
    Empty,
    /// `*` cannot be taken back.
    #[error("`-*` is not supported: list the controllers to run")]
    NotAll,
    /// The controller is not part of this build.
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

fn suggestion(name: &str) -> String {
    let known: Vec<_> = built().collect();
    belayer_controller::config::suggest::suggestion(name, &known)
}

impl Controllers {
    /// Parses a list: `*` switches those on that are on by default, `name` switches one on, `-name` switches it off.
    /// The first item about a controller takes precedence; a controller without an item is off, unless the list
    /// contains `*` and it is on by default.
    ///
    /// # Errors
    /// If an item names no controller of this build.
    pub fn parse<S: AsRef<str>>(list: &[S]) -> Result<Self, ControllersError> {
        let list: Vec<&str> = list.iter().map(|item| item.as_ref().trim()).collect();
        let mut items: Vec<(&str, State)> = Vec::new();
        for item in list.iter().filter(|item| **item != "*") {
            let (name, state) = match item.strip_prefix('-') {
                Some("*") => return Err(ControllersError::NotAll),
                Some(name) => (name, State::Off),
                None if item.is_empty() => return Err(ControllersError::Empty),
                None => (*item, State::On),
            };
            let known = names::CONTROLLERS
                .iter()
                .find(|known| known.name == name)
                .map(|known| known.name)
                .ok_or_else(|| ControllersError::Unknown {
                    name: name.to_owned(),
                })?;
            if state == State::On && built().all(|built| built != known) {
                return Err(ControllersError::NotBuilt(known));
            }
            items.push((known, state));
        }
        let has_star = list.contains(&"*");
        let on = |controller: &&'static Controller| {
            let first = items.iter().find(|(named, _)| *named == controller.name);
            first.map_or(has_star && controller.default_on, |(_, state)| {
                *state == State::On
            })
        };
        Ok(Self(CONTROLLERS.iter().copied().filter(on).collect()))
    }

    /// Whether the controller of this name runs.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|controller| controller.name == name)
    }

    /// Controllers that are off by default, and that have settings in this configuration file but do not run.
    pub fn configured_but_off(&self, file: &Value) -> impl Iterator<Item = &'static Controller> {
        let is_idle = |controller: &&'static Controller| {
            !controller.default_on
                && !self.contains(controller.name)
                && file.get(controller.key).is_some()
        };
        CONTROLLERS.iter().copied().filter(is_idle)
    }

    /// Whether no controller runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The configured controllers.
#[derive(Debug, Clone, Default)]
pub struct Components {
    /// Controllers that run, in the order of [`CONTROLLERS`].
    pub running: Vec<Arc<dyn Configured>>,
    /// Controllers that add no finalizers, and whose finalizers are removed.
    pub switched_off: Vec<Arc<dyn Configured>>,
}

impl Components {
    /// Adds a controller that runs.
    #[must_use]
    pub fn with(mut self, controller: impl Configured + 'static) -> Self {
        self.run(Arc::new(controller));
        self
    }

    /// Adds a controller that runs, in the order of [`CONTROLLERS`].
    pub fn run(&mut self, controller: Arc<dyn Configured>) {
        let place = |one: &Arc<dyn Configured>| {
            let mut all = CONTROLLERS.iter();
            all.position(|known| *known == one.controller())
        };
        self.running.push(controller);
        self.running.sort_by_key(place);
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

    /// The statement of pod-finalizer about a pod comes before that of workflow-finalizer, independent of the
    /// order in which they are added.
    #[cfg(all(feature = "pod-finalizer", feature = "workflow-finalizer"))]
    #[test]
    fn controllers_are_sorted_in_merge_order() {
        let components = Components::default()
            .with(belayer_workflow_finalizer::Settings::default())
            .with(belayer_pod_finalizer::Settings::default());
        let names = components.running.iter().map(|one| one.controller().name);
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["pod-finalizer", "workflow-finalizer"]
        );
        for one in CONTROLLERS {
            let known = names::Known {
                name: one.name,
                finalizer: one.finalizer,
                switch: one.switch,
            };
            assert!(names::CONTROLLERS.contains(&known), "{known:?}");
        }
    }

    /// The hold of a controller that is off leaves a pod with the others.
    #[test]
    fn every_hold_on_pods_is_in_the_list() {
        for one in CONTROLLERS {
            let section = belayer_controller::config::Section::new("", one.key);
            let configured = (one.configure)(&section).unwrap();
            let holds = configured.holds().into_iter();
            let of_pods = holds.filter(|hold| hold.kind == belayer_core::object::Resource::pods());
            for finalizer in of_pods.flat_map(|hold| hold.finalizers) {
                assert!(names::POD_HOLDS.contains(&finalizer), "{finalizer}");
            }
        }
    }

    #[rstest]
    #[case::all(&["*"], true)]
    #[case::by_name(&["pod-finalizer"], true)]
    #[case::all_but_one(&["*", "-pod-finalizer"], false)]
    #[case::the_position_of_the_star_does_not_matter(&["-pod-finalizer", "*"], false)]
    #[case::off_alone(&["-pod-finalizer"], false)]
    #[case::the_first_item_takes_precedence(&["pod-finalizer", "-pod-finalizer"], true)]
    #[case::the_first_item_takes_precedence_with_a_star(&["-pod-finalizer", "pod-finalizer", "*"], false)]
    #[case::spaces_are_trimmed(&["*", " -pod-finalizer "], false)]
    #[case::nothing(&[], false)]
    #[case::another(&["workflow-finalizer"], false)]
    #[cfg(feature = "pod-finalizer")]
    fn lists_are_parsed_as_in_kube_controller_manager(#[case] list: &[&str], #[case] runs: bool) {
        let controllers = Controllers::parse(list).unwrap();
        assert_eq!(controllers.contains("pod-finalizer"), runs);
    }

    #[rstest]
    #[case::a_star_is_not_enough(&["*"], false)]
    #[case::named(&["*", "pod-recreation"], true)]
    #[case::named_alone(&["pod-recreation"], true)]
    #[cfg(feature = "pod-recreation")]
    fn pod_recreation_must_be_named(#[case] list: &[&str], #[case] runs: bool) {
        let controllers = Controllers::parse(list).unwrap();
        assert_eq!(controllers.contains("pod-recreation"), runs);
    }

    #[rstest]
    #[case::configured_and_not_named(&["*"], 1)]
    #[case::named(&["*", "pod-recreation"], 0)]
    #[cfg(feature = "pod-recreation")]
    fn settings_of_a_controller_that_does_not_run_are_reported(
        #[case] list: &[&str],
        #[case] reported: usize,
    ) {
        let file = serde_json::json!({ "podRecreation": {}, "podFinalizer": {} });
        let controllers = Controllers::parse(list).unwrap();
        assert_eq!(controllers.configured_but_off(&file).count(), reported);
    }

    #[rstest]
    #[case("pod-finaliser")]
    #[case("-pod-finaliser")]
    #[case("Pod-Finalizer")]
    #[case("-")]
    #[case("--pod-finalizer")]
    fn an_unknown_name_is_rejected(#[case] item: &str) {
        let error = Controllers::parse(&["*", item]).unwrap_err().to_string();
        assert!(error.contains("unknown controller"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[rstest]
    #[case(&["-*"], "`-*` is not supported: list the controllers to run")]
    #[case(&[""], "an item of the list is empty (example: *,-pvc-protection)")]
    #[case(&["*", " "], "an item of the list is empty (example: *,-pvc-protection)")]
    fn a_list_without_names_is_rejected(#[case] list: &[&str], #[case] says: &str) {
        assert_eq!(Controllers::parse(list).unwrap_err().to_string(), says);
    }

    #[test]
    fn the_error_lists_the_known_names() {
        let error = Controllers::parse(&["x-x-x"]).unwrap_err().to_string();
        let known = built().collect::<Vec<_>>().join(", ");
        assert!(error.ends_with(&format!("use one of {known}")), "{error}");
    }

    #[cfg(not(feature = "pod-finalizer"))]
    #[test]
    fn a_controller_that_is_not_built_can_only_be_switched_off() {
        let error = Controllers::parse(&["pod-finalizer"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("not part of this build"), "{error}");
        let rest = Controllers::parse(&["*", "-pod-finalizer"]).unwrap();
        assert!(!rest.contains("pod-finalizer"));
    }
}
