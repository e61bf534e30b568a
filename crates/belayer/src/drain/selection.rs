//! The objects that the controllers of this build select with the given configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use belayer_controller::Configured;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta};
use belayer_drain::selection::{Selected, Selection};
use belayer_holds::names;

use crate::config::{ConfigError, Source};

/// The selection rules of the configured controllers.
pub(super) struct Profiles(Vec<Arc<dyn Configured>>);

impl Profiles {
    /// Reads the rules from the configuration.
    pub(super) fn of(source: &Source) -> Result<Self, ConfigError> {
        source.configured().map(Self)
    }
}

impl Selection for Profiles {
    fn keep(&self) -> Keep {
        let keep = Keep::nothing().annotations([names::MIRROR_ANNOTATION]);
        self.0.iter().fold(keep, |keep, one| {
            let needs = one.needs();
            keep.and(&needs.pods).and(&needs.keep_of_owners)
        })
    }

    fn selects(
        &self,
        hold: &'static str,
        kind: &Resource,
        object: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected {
        let mut built = self.0.iter();
        if let Some(one) = built.find(|one| one.controller().finalizer == hold) {
            // No controller removes its finalizer from another kind, where a user may have set it.
            if !one.holds().iter().any(|held| held.kind.is_same_kind(kind)) {
                return Selected::No;
            }
            let namespace = object.key.namespace().unwrap_or_default();
            return one.selects(kind, object, ignored.contains(namespace));
        }
        let mut known = names::CONTROLLERS.iter();
        Selected::Unknown(match known.find(|known| known.finalizer == hold) {
            Some(known) => format!("{} is not part of this build", known.name),
            None => format!("the selection of {hold} is unknown"),
        })
    }
}

#[cfg(test)]
#[cfg(all(feature = "pod-finalizer", feature = "workflow-finalizer"))]
mod tests {
    use rstest::rstest;

    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};

    use super::*;

    const LABEL: &str = "workflows.argoproj.io/workflow";

    fn workflow() -> Resource {
        Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows")
    }

    fn object(
        namespace: &str,
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
    ) -> ObjectMeta {
        ObjectMeta {
            labels: labels.iter().copied().collect(),
            annotations: annotations.iter().copied().collect(),
            ..ObjectMeta::new(
                ObjectKey::new(namespace, "o"),
                Uid::new("u"),
                ResourceVersion::new(1),
            )
        }
    }

    fn selects(hold: &'static str, kind: &Resource, object: &ObjectMeta) -> Selected {
        let profiles = Profiles::of(&Source::default()).unwrap();
        let ignored = BTreeSet::from(["quiet".to_owned()]);
        profiles.selects(hold, kind, object, &ignored)
    }

    #[rstest]
    #[case::selected(object("shop", &[(LABEL, "w")], &[]), Selected::Yes)]
    #[case::by_no_label(object("shop", &[], &[]), Selected::No)]
    #[case::in_an_ignored_namespace(object("quiet", &[(LABEL, "w")], &[]), Selected::No)]
    #[case::in_kube_system(object("kube-system", &[(LABEL, "w")], &[]), Selected::No)]
    #[case::a_mirror(object("shop", &[(LABEL, "w")], &[(names::MIRROR_ANNOTATION, "x")]), Selected::No)]
    fn pods(#[case] pod: ObjectMeta, #[case] expected: Selected) {
        let kind = Resource::pods();
        assert_eq!(selects(names::POD_STATUS_HOLD, &kind, &pod), expected);
    }

    #[rstest]
    #[case::selected("argoproj.io", "workflows", "shop", Selected::Yes)]
    #[case::another_kind("batch", "jobs", "shop", Selected::No)]
    #[case::in_an_ignored_namespace("argoproj.io", "workflows", "quiet", Selected::No)]
    fn owners(
        #[case] group: &str,
        #[case] plural: &str,
        #[case] namespace: &str,
        #[case] expected: Selected,
    ) {
        let kind = Resource::new(group, "v1alpha1", "X", plural);
        let workflow = object(namespace, &[], &[]);
        assert_eq!(selects(names::WORKFLOW_HOLD, &kind, &workflow), expected);
    }

    /// T10: a finalizer on a kind that its controller does not hold is selected by nothing, whatever the object says.
    #[rstest]
    #[case::of_pods_on_a_workflow(names::POD_STATUS_HOLD, workflow())]
    #[case::of_re_creations_on_a_workflow(names::POD_RECREATION_HOLD, workflow())]
    #[case::of_pvcs_on_a_workflow(names::PVC_PROTECTION_HOLD, workflow())]
    #[case::of_pvcs_on_a_pod(names::PVC_PROTECTION_HOLD, Resource::pods())]
    #[case::of_workflows_on_a_pod(names::WORKFLOW_HOLD, Resource::pods())]
    #[case::of_workflows_on_a_pvc(names::WORKFLOW_HOLD, Resource::pvcs())]
    fn nothing_selects_another_kind(#[case] hold: &'static str, #[case] kind: Resource) {
        let object = object(
            "shop",
            &[(LABEL, "w")],
            &[(names::RECREATE_ANNOTATION, "true")],
        );
        assert_eq!(selects(hold, &kind, &object), Selected::No);
    }

    #[rstest]
    #[case::selected("shop", Selected::Yes)]
    #[case::in_an_ignored_namespace("quiet", Selected::No)]
    fn pods_that_request_re_creation(#[case] namespace: &str, #[case] expected: Selected) {
        let pod = object(namespace, &[], &[(names::RECREATE_ANNOTATION, "true")]);
        let kind = Resource::pods();
        assert_eq!(selects(names::POD_RECREATION_HOLD, &kind, &pod), expected);
    }

    #[test]
    fn every_pvc_is_selected_and_unknown_holds_are_reported() {
        let kind = Resource::pvcs();
        let pvc = object("shop", &[], &[]);
        assert_eq!(
            selects(names::PVC_PROTECTION_HOLD, &kind, &pvc),
            Selected::Yes
        );
        assert!(matches!(
            selects("belayer.dev/x", &kind, &pvc),
            Selected::Unknown(_)
        ));
    }
}
