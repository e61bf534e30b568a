//! Which pods are re-created: those that request it by an annotation or that the configuration
//! selects, except static pods and pods whose owner replaces them. The rules of
//! [`row`](crate::row) depend on it.

use std::collections::BTreeMap;

use belayer_core::slim::Pod;
use belayer_holds::names::{MIRROR_ANNOTATION, RECREATE_ANNOTATION, SYSTEM_NAMESPACE};
use belayer_holds::selection::Namespaces;

/// Kinds that replace their own pods. The configuration cannot list them.
pub const REPLACE_THEIR_OWN: &[(&str, &str)] = &[
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
];

/// Whether a built-in kind replaces its own pods, or owns static pods.
pub(crate) fn replaces_its_own(group: &str, kind: &str) -> bool {
    REPLACE_THEIR_OWN.contains(&(group, kind)) || (group, kind) == ("", "Node")
}

/// A kind of owner whose pods may be re-created. The rules of [`row`](crate::row) depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// Which pods are re-created. The rules of [`row`](crate::row) depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// Selectors: a pod matches one of them if it has all its labels.
    pub selectors: Vec<BTreeMap<String, String>>,
    /// Kinds of controllers whose pods are re-created, too.
    pub owners: Vec<OwnerKind>,
    /// The namespaces of the pods.
    pub namespaces: Namespaces,
}

impl Eligibility {
    /// Whether `pod` is re-created if its node rejects it.
    pub fn selects(&self, pod: &Pod) -> bool {
        let annotation = pod.meta.annotations.get(RECREATE_ANNOTATION);
        let requested = match annotation {
            Some("true") => true,
            // Any other value means no, whatever the configuration selects.
            Some(_) => false,
            None => self.selectors.iter().any(|labels| {
                labels
                    .iter()
                    .all(|(name, value)| pod.meta.labels.get(name) == Some(value))
            }),
        };
        requested && !self.is_excluded(pod)
    }

    fn is_excluded(&self, pod: &Pod) -> bool {
        if pod.meta.annotations.get(MIRROR_ANNOTATION).is_some()
            || pod.meta.key.namespace() == Some(SYSTEM_NAMESPACE)
            || !self
                .namespaces
                .contains(pod.meta.key.namespace().unwrap_or_default())
        {
            return true;
        }
        let Some(owner) = &pod.meta.controller else {
            return false;
        };
        let named = |kind: &OwnerKind| kind.kind == *owner.kind && kind.group == owner.group();
        replaces_its_own(owner.group(), &owner.kind) || !self.owners.iter().any(named)
    }

    /// The labels that the selectors read.
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

    const REQUESTED: &[(&str, &str)] = &[(RECREATE_ANNOTATION, "true")];

    #[rstest]
    #[case::no_annotation(pod(&[], None), false)]
    #[case::requests_it(pod(REQUESTED, None), true)]
    #[case::declines_it(pod(&[(RECREATE_ANNOTATION, "false")], None), false)]
    #[case::a_mirror_of_a_static_pod(pod(&[REQUESTED[0], (MIRROR_ANNOTATION, "hash")], None), false)]
    #[case::a_static_pod(pod(REQUESTED, Some(("v1", "Node"))), false)]
    #[case::of_a_replica_set(pod(REQUESTED, Some(("apps/v1", "ReplicaSet"))), false)]
    #[case::of_a_stateful_set(pod(REQUESTED, Some(("apps/v1", "StatefulSet"))), false)]
    #[case::of_a_daemon_set(pod(REQUESTED, Some(("apps/v1", "DaemonSet"))), false)]
    #[case::of_a_replication_controller(pod(REQUESTED, Some(("v1", "ReplicationController"))), false)]
    #[case::of_a_job(pod(REQUESTED, Some(("batch/v1", "Job"))), false)]
    #[case::of_a_kind_that_is_not_listed(pod(REQUESTED, Some(("example.com/v1", "Thing"))), false)]
    #[case::of_a_workflow(pod(REQUESTED, Some(("argoproj.io/v1alpha1", "Workflow"))), false)]
    fn by_annotation(#[case] pod: Pod, #[case] expected: bool) {
        assert_eq!(Eligibility::default().selects(&pod), expected);
    }

    #[rstest]
    #[case::selected("web", &[], true)]
    #[case::not_selected("db", &[], false)]
    #[case::the_user_declines_it("web", &[(RECREATE_ANNOTATION, "no")], false)]
    fn by_selector(
        #[case] value: &str,
        #[case] annotations: &[(&str, &str)],
        #[case] expected: bool,
    ) {
        let eligibility = Eligibility {
            selectors: vec![[("app".to_owned(), value.to_owned())].into()],
            ..Eligibility::default()
        };
        assert_eq!(eligibility.selects(&pod(annotations, None)), expected);
    }

    #[rstest]
    #[case::all(&[], &[], true)]
    #[case::listed(&["shop"], &[], true)]
    #[case::not_listed(&["other"], &[], false)]
    #[case::excluded(&[], &["shop"], false)]
    fn by_namespace(#[case] include: &[&str], #[case] exclude: &[&str], #[case] expected: bool) {
        let names = |names: &[&str]| names.iter().copied().map(Arc::from).collect();
        let eligibility = Eligibility {
            namespaces: Namespaces {
                include: names(include),
                exclude: names(exclude),
            },
            ..Eligibility::default()
        };
        assert_eq!(eligibility.selects(&pod(REQUESTED, None)), expected);
    }

    #[rstest]
    #[case::listed("example.com/v1", "Thing", true)]
    #[case::of_another_group("example.org/v1", "Thing", false)]
    #[case::a_replica_set_although_listed("apps/v1", "ReplicaSet", false)]
    #[case::a_job_of_another_system("batch.example.com/v1", "Job", true)]
    #[case::a_job_of_kubernetes("batch/v1", "Job", false)]
    fn by_owner_kind(#[case] api_version: &str, #[case] kind: &str, #[case] expected: bool) {
        let owner = |group: &str, kind: &str| OwnerKind {
            group: group.into(),
            kind: kind.into(),
        };
        let eligibility = Eligibility {
            owners: vec![
                owner("example.com", "Thing"),
                owner("apps", "ReplicaSet"),
                owner("batch.example.com", "Job"),
                owner("batch", "Job"),
            ],
            ..Eligibility::default()
        };
        let pod = pod(REQUESTED, Some((api_version, kind)));
        assert_eq!(eligibility.selects(&pod), expected);
    }
}
