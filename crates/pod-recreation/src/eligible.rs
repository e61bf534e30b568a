//! Whose pods are re-created: those that ask for it, and those that the configuration selects. Never
//! those of the kubelet itself, nor those whose owner replaces them.

use std::collections::BTreeMap;

use belayer_core::slim::Pod;
use belayer_holds::names::{MIRROR_ANNOTATION, RECREATE_ANNOTATION, SYSTEM_NAMESPACE};

/// Kinds that replace their own pods: they can never be named in the configuration.
pub const REPLACE_THEIR_OWN: &[(&str, &str)] = &[
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
];

/// Whether a kind of Kubernetes' own replaces its own pods, or is the kubelet's.
pub fn replaces_its_own(group: &str, kind: &str) -> bool {
    REPLACE_THEIR_OWN.contains(&(group, kind)) || (group, kind) == ("", "Node")
}

/// A kind of owner whose pods may be re-created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// What is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// Labels that select a pod, each map by itself; all labels of a map must be there.
    pub selectors: Vec<BTreeMap<String, String>>,
    /// Controllers whose pods are eligible all the same.
    pub owners: Vec<OwnerKind>,
}

impl Eligibility {
    /// Whether `pod` is re-created if its node rejects it.
    pub fn selects(&self, pod: &Pod) -> bool {
        let asks = pod.meta.annotations.get(RECREATE_ANNOTATION);
        let wanted = match asks {
            Some("true") => true,
            // Any other word of the user's is a no, whatever the configuration selects.
            Some(_) => false,
            None => self.selectors.iter().any(|labels| {
                labels
                    .iter()
                    .all(|(name, value)| pod.meta.labels.get(name) == Some(value))
            }),
        };
        wanted && !self.is_barred(pod)
    }

    fn is_barred(&self, pod: &Pod) -> bool {
        if pod.meta.annotations.get(MIRROR_ANNOTATION).is_some()
            || pod.meta.key.namespace() == Some(SYSTEM_NAMESPACE)
        {
            return true;
        }
        let Some(owner) = &pod.meta.controller else {
            return false;
        };
        let named = |kind: &OwnerKind| kind.kind == *owner.kind && kind.group == owner.group();
        replaces_its_own(owner.group(), &owner.kind) || !self.owners.iter().any(named)
    }

    /// The labels that it reads.
    pub fn labels(&self) -> impl Iterator<Item = &String> {
        self.selectors.iter().flat_map(BTreeMap::keys)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_core::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
    use belayer_core::slim::ObjectMeta;
    use rstest::rstest;

    use super::*;

    fn pod(annotations: &[(&str, &str)], owner: Option<(&str, &str)>) -> Pod {
        Pod::new(ObjectMeta {
            annotations: annotations.iter().copied().collect(),
            labels: [("app", "web")].into_iter().collect(),
            controller: owner.map(|(api_version, kind)| {
                Arc::new(OwnerReference {
                    api_version: api_version.into(),
                    kind: kind.into(),
                    name: "o".into(),
                    uid: Uid::new("o-1"),
                })
            }),
            ..ObjectMeta::new(
                ObjectKey::new("shop", "web"),
                Uid::new("u"),
                ResourceVersion::new(1),
            )
        })
    }

    const ASKS: &[(&str, &str)] = &[(RECREATE_ANNOTATION, "true")];

    #[rstest]
    #[case::nothing_said(pod(&[], None), false)]
    #[case::asks_for_it(pod(ASKS, None), true)]
    #[case::says_no(pod(&[(RECREATE_ANNOTATION, "false")], None), false)]
    #[case::a_mirror_of_a_static_pod(pod(&[ASKS[0], (MIRROR_ANNOTATION, "hash")], None), false)]
    #[case::a_static_pod(pod(ASKS, Some(("v1", "Node"))), false)]
    #[case::of_a_replica_set(pod(ASKS, Some(("apps/v1", "ReplicaSet"))), false)]
    #[case::of_a_stateful_set(pod(ASKS, Some(("apps/v1", "StatefulSet"))), false)]
    #[case::of_a_daemon_set(pod(ASKS, Some(("apps/v1", "DaemonSet"))), false)]
    #[case::of_a_replication_controller(pod(ASKS, Some(("v1", "ReplicationController"))), false)]
    #[case::of_a_job(pod(ASKS, Some(("batch/v1", "Job"))), false)]
    #[case::of_a_kind_nobody_named(pod(ASKS, Some(("example.com/v1", "Thing"))), false)]
    #[case::of_a_workflow(pod(ASKS, Some(("argoproj.io/v1alpha1", "Workflow"))), false)]
    fn by_annotation(#[case] pod: Pod, #[case] expected: bool) {
        assert_eq!(Eligibility::default().selects(&pod), expected);
    }

    #[rstest]
    #[case::selected("web", &[], true)]
    #[case::not_selected("db", &[], false)]
    #[case::the_user_says_no("web", &[(RECREATE_ANNOTATION, "no")], false)]
    fn by_selector(
        #[case] value: &str,
        #[case] annotations: &[(&str, &str)],
        #[case] expected: bool,
    ) {
        let eligibility = Eligibility {
            selectors: vec![[("app".to_owned(), value.to_owned())].into()],
            owners: Vec::new(),
        };
        assert_eq!(eligibility.selects(&pod(annotations, None)), expected);
    }

    #[rstest]
    #[case::named("example.com/v1", "Thing", true)]
    #[case::of_another_group("example.org/v1", "Thing", false)]
    #[case::a_replica_set_all_the_same("apps/v1", "ReplicaSet", false)]
    #[case::a_job_of_another_system("batch.example.com/v1", "Job", true)]
    #[case::a_job_of_kubernetes("batch/v1", "Job", false)]
    fn an_owner_kind_that_is_named(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] expected: bool,
    ) {
        let owner = |group: &str, kind: &str| OwnerKind {
            group: group.into(),
            kind: kind.into(),
        };
        let eligibility = Eligibility {
            selectors: Vec::new(),
            owners: vec![
                owner("example.com", "Thing"),
                owner("apps", "ReplicaSet"),
                owner("batch.example.com", "Job"),
                owner("batch", "Job"),
            ],
        };
        let pod = pod(ASKS, Some((api_version, kind)));
        assert_eq!(eligibility.selects(&pod), expected);
    }
}
