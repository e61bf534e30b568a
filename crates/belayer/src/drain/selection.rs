//! What the components of this build select, by the configuration.

use std::collections::BTreeSet;

use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta};
use belayer_drain::selection::{Selected, Selection};
use belayer_holds::names;

use crate::config::{ConfigError, Source};

/// What is selected.
pub(super) struct Profiles {
    #[cfg(feature = "pod-finalizer")]
    pods: belayer_pod_finalizer::profile::Profiles,
    #[cfg(feature = "workflow-finalizer")]
    workflows: belayer_workflow_finalizer::config::Settings,
    #[cfg(feature = "pod-recreation")]
    recreations: belayer_pod_recreation::Settings,
}

impl Profiles {
    /// As the configuration says.
    pub(super) fn of(source: &Source) -> Result<Self, ConfigError> {
        let _ = source;
        Ok(Self {
            #[cfg(feature = "pod-finalizer")]
            pods: source.pod_finalizer(None)?.profiles,
            #[cfg(feature = "workflow-finalizer")]
            workflows: source.workflow_finalizer(None)?,
            #[cfg(feature = "pod-recreation")]
            recreations: source.pod_recreation(None)?,
        })
    }

    #[cfg(feature = "pod-recreation")]
    fn recreation(&self, pod: &ObjectMeta) -> Selected {
        let pod = belayer_core::slim::Pod::new(pod.clone());
        if self.recreations.eligibility.selects(&pod) {
            Selected::Yes
        } else {
            Selected::No
        }
    }

    #[cfg(not(feature = "pod-recreation"))]
    fn recreation(&self, _: &ObjectMeta) -> Selected {
        unknown("pod-recreation")
    }

    #[cfg(feature = "pod-finalizer")]
    fn pod(&self, pod: &ObjectMeta, ignored: &BTreeSet<String>) -> Selected {
        let namespace = pod.key.namespace().unwrap_or_default();
        let selected = !ignored.contains(namespace)
            && pod.annotations.get(names::MIRROR_ANNOTATION).is_none()
            && self.pods.first_match(&pod.labels, namespace).is_some();
        if selected {
            Selected::Yes
        } else {
            Selected::No
        }
    }

    #[cfg(not(feature = "pod-finalizer"))]
    fn pod(&self, _: &ObjectMeta, _: &BTreeSet<String>) -> Selected {
        unknown("pod-finalizer")
    }

    #[cfg(feature = "workflow-finalizer")]
    fn workflow(
        &self,
        kind: &Resource,
        workflow: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected {
        let namespace = workflow.key.namespace().unwrap_or_default();
        let mut rules = self.workflows.owners.iter();
        let selected = !ignored.contains(namespace)
            && rules.any(|rule| {
                rule.kind.is_same_kind(kind) && rule.selects(&workflow.labels, namespace)
            });
        if selected {
            Selected::Yes
        } else {
            Selected::No
        }
    }

    #[cfg(not(feature = "workflow-finalizer"))]
    fn workflow(&self, _: &Resource, _: &ObjectMeta, _: &BTreeSet<String>) -> Selected {
        unknown("workflow-finalizer")
    }
}

#[allow(dead_code, reason = "a build with every component knows them all")]
fn unknown(component: &str) -> Selected {
    Selected::Unknown(format!("{component} is not part of this build"))
}

impl Selection for Profiles {
    fn keep(&self) -> Keep {
        let keep = Keep::nothing().annotations([names::MIRROR_ANNOTATION]);
        #[cfg(feature = "pod-finalizer")]
        let keep = keep.and(&Keep::nothing().labels(self.pods.pod_labels()));
        #[cfg(feature = "workflow-finalizer")]
        let keep = keep.and(&belayer_workflow_finalizer::component::keep_of_owners(
            &self.workflows,
        ));
        #[cfg(feature = "pod-recreation")]
        let keep = keep.and(&belayer_pod_recreation::component::keep_of_pods(
            &self.recreations,
        ));
        keep
    }

    fn selects(
        &self,
        hold: &'static str,
        kind: &Resource,
        object: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected {
        match hold {
            names::POD_STATUS_HOLD => self.pod(object, ignored),
            names::POD_RECREATION_HOLD => self.recreation(object),
            names::WORKFLOW_HOLD => self.workflow(kind, object, ignored),
            // Every claim is held: there is nothing to be selected by.
            names::PVC_PROTECTION_HOLD => Selected::Yes,
            _ => Selected::Unknown(format!("nothing here knows what {hold} selects")),
        }
    }
}

#[cfg(test)]
#[cfg(all(feature = "pod-finalizer", feature = "workflow-finalizer"))]
mod tests {
    use rstest::rstest;

    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};

    use super::*;

    const LABEL: &str = "workflows.argoproj.io/workflow";

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

    #[test]
    fn every_claim_is_selected_and_what_is_unknown_is_said() {
        let kind = Resource::claims();
        let claim = object("shop", &[], &[]);
        assert_eq!(
            selects(names::PVC_PROTECTION_HOLD, &kind, &claim),
            Selected::Yes
        );
        assert!(matches!(
            selects("belayer.dev/x", &kind, &claim),
            Selected::Unknown(_)
        ));
    }
}
