//! What the components need of the informers that they share: labels, annotations and indexes, each
//! only where somebody reads it.

use belayer_core::index;
use belayer_core::informer::InformerBuilder;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, Pod};
use belayer_holds::owned;

#[cfg(feature = "workflow-finalizer")]
use super::workflows::GoneOwners;
use crate::components::Components;
use crate::controllers::Controller;

impl Components {
    /// The labels and annotations of pods that some rule reads.
    pub(super) fn keep_of_pods(&self) -> Keep {
        let keep = Keep::nothing();
        #[cfg(feature = "pod-finalizer")]
        let keep = match &self.pod_finalizer {
            Some(on) => keep.and(&belayer_pod_finalizer::component::keep_of_pods(
                &on.profiles,
            )),
            None => keep,
        };
        #[cfg(feature = "pod-recreation")]
        let keep = match &self.pod_recreation {
            Some(on) => keep.and(&belayer_pod_recreation::component::keep_of_pods(on)),
            None => keep,
        };
        keep
    }

    /// The indexes by which some component finds pods: an index costs some thirty bytes per pod.
    pub(super) fn index_pods(&self, builder: InformerBuilder<Pod>) -> InformerBuilder<Pod> {
        #[cfg(feature = "pod-finalizer")]
        let builder = match &self.pod_finalizer {
            Some(_) => builder
                .index(index::PODS_BY_OWNER, index::owner_of_pod)
                .index(index::PODS_BY_NAMESPACE, index::namespace_of_pod),
            None => builder,
        };
        #[cfg(feature = "pvc-protection")]
        let builder = match &self.pvc_protection {
            Some(_) => builder.index(index::PODS_BY_CLAIM, index::claims_of_bound_pod),
            None => builder,
        };
        #[cfg(feature = "workflow-finalizer")]
        let builder = match &self.workflow_finalizer {
            Some(_) => builder.index(owned::HELD_BY_OWNER, owned::held_by_owner),
            None => builder,
        };
        #[cfg(feature = "pod-recreation")]
        let builder = match &self.pod_recreation {
            Some(_) => builder.index(owned::RECREATION_BY_OWNER, owned::recreation_by_owner),
            None => builder,
        };
        builder
    }

    /// The labels of namespaces that some rule reads.
    pub(super) fn keep_of_namespaces(&self) -> Keep {
        let keep = Keep::nothing();
        #[cfg(feature = "pod-finalizer")]
        let keep = keep.and(&belayer_pod_finalizer::component::keep_of_namespaces());
        #[cfg(feature = "pod-recreation")]
        let keep = keep.and(&belayer_pod_recreation::component::keep_of_namespaces());
        #[cfg(feature = "workflow-finalizer")]
        let keep = keep.and(&belayer_workflow_finalizer::component::keep_of_namespaces());
        keep
    }

    /// Whether some component decides by what namespaces are like. Claims do not depend on it.
    pub(super) fn read_namespaces(&self) -> bool {
        [
            Controller::PodFinalizer,
            Controller::PodRecreation,
            Controller::WorkflowFinalizer,
        ]
        .into_iter()
        .any(|controller| self.runs(controller))
    }

    /// The kinds that own pods, and the labels of them that some rule reads.
    pub(super) fn owners(&self) -> (Vec<Resource>, Keep) {
        let (kinds, keep) = (Vec::new(), Keep::nothing());
        #[cfg(feature = "pod-finalizer")]
        let (kinds, keep) = match &self.pod_finalizer {
            Some(on) => (
                super::pod_finalizer::kinds(on),
                keep.and(&belayer_pod_finalizer::component::keep_of_owners(
                    &on.profiles,
                )),
            ),
            None => (kinds, keep),
        };
        #[cfg(feature = "workflow-finalizer")]
        let (kinds, keep) = match &self.workflow_finalizer {
            Some(on) => {
                let mut kinds: Vec<Resource> = kinds;
                kinds.extend(on.owners.iter().map(|rule| rule.kind.clone()));
                let read = belayer_workflow_finalizer::component::keep_of_owners(on);
                (kinds, keep.and(&read))
            }
            None => (kinds, keep),
        };
        (kinds, keep)
    }
}

#[cfg(feature = "workflow-finalizer")]
impl Components {
    /// Whether somebody but workflow-finalizer asks whether the owners of pods are gone.
    pub(super) fn asks_for_gone_owners(&self) -> GoneOwners {
        #[cfg(feature = "pod-finalizer")]
        if self.pod_finalizer.is_some() {
            return GoneOwners::AskedByOthers;
        }
        GoneOwners::AskedHere
    }
}
