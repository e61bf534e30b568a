//! When a pod uses a PVC, and which pods use a PVC.
//!
//! A pod uses a PVC once it is bound to a node and refers to it, in any phase: a phase does not prove that the
//! volume is unmounted (kubernetes#123320). Before the pod is bound no kubelet sees it, and the scheduler binds no
//! pod that uses a PVC which is being deleted.
//!
//! The PVC of a generic ephemeral volume is named `<pod>-<volume>`. Another PVC may have the same name, so the pod
//! uses it only if the pod, by UID, is its controller owner. Such a PVC is deleted with its pod, so a pod that is
//! shut down (deleted, grace period over) does not count as a user; otherwise each would wait for the other.
//!
//! Of a pod with very many PVCs the names are not kept (T3). It counts as a user of every PVC of its namespace.
//!
//! The [crate's example](crate) has a pod that ended.

use std::fmt;
use std::sync::Arc;

use belayer_core::slim::{ObjectMeta, Phase, Pod};

/// How many users of a PVC are named in messages.
pub const NAMED: usize = 5;

/// Whether `pod` uses the PVC with the metadata `pvc`. The [crate's example](crate) has a pod
/// that ended.
pub fn uses(pod: &Pod, pvc: &ObjectMeta) -> bool {
    if !pod.is_bound() || pod.meta.key.namespace() != pvc.key.namespace() {
        return false;
    }
    if pod.may_use_any_pvc() {
        return !(pod.is_shut_down() && is_made_for(pod, pvc));
    }
    let named = |names: &[Arc<str>]| names.iter().any(|name| **name == *pvc.key.name());
    named(&pod.pvcs) || (named(&pod.ephemeral_pvcs) && !pod.is_shut_down() && is_made_for(pod, pvc))
}

fn is_made_for(pod: &Pod, pvc: &ObjectMeta) -> bool {
    pvc.controller
        .as_ref()
        .is_some_and(|owner| owner.uid == pod.meta.uid)
}

/// The names of the PVCs that a pod refers to, including those of its ephemeral volumes.
pub(crate) fn pvcs_of(pod: &Pod) -> impl Iterator<Item = &Arc<str>> {
    pod.pvcs.iter().chain(&pod.ephemeral_pvcs)
}

/// Whether no container of a pod runs any more, by its phase. Pod garbage collection marks the pods of a lost
/// node Failed and deletes them while their containers may run, so a failed pod that is being deleted proves
/// nothing.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    match pod.phase {
        Phase::Succeeded => true,
        Phase::Failed => !pod.meta.is_deleting(),
        Phase::Pending | Phase::Running | Phase::Unknown => false,
    }
}

/// Whether a pod has ended or is shut down: its PVCs may soon be unused.
pub(crate) fn is_terminated(pod: &Pod) -> bool {
    pod.is_ended() || pod.is_shut_down()
}

/// Pods that use a PVC: some of their names, and their number. Which pods they are is decided as
/// in the [crate's example](crate).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    named: Vec<Arc<str>>,
    total: usize,
    ended: usize,
    /// How many have so many PVCs that it is not known which ones.
    uncertain: usize,
}

impl Users {
    /// Adds a pod by name.
    pub fn note(&mut self, pod: &str) {
        self.total += 1;
        if self.named.len() < NAMED {
            self.named.push(pod.into());
        }
    }

    /// Adds a pod, and counts whether it has ended.
    pub fn note_pod(&mut self, pod: &Pod) {
        self.note_one(pod.meta.key.name(), has_ended(pod));
        self.uncertain += usize::from(pod.may_use_any_pvc());
    }

    /// Adds a pod of which it is not known which PVCs it uses, and whether it has ended.
    pub fn note_uncertain(&mut self, pod: &str, has_ended: bool) {
        self.note_one(pod, has_ended);
        self.uncertain += 1;
    }

    /// Adds a pod by name, and whether it has ended.
    pub fn note_one(&mut self, pod: &str, has_ended: bool) {
        self.note(pod);
        self.ended += usize::from(has_ended);
    }

    /// Adds `more` pods without names, of which it is unknown whether they have ended.
    pub fn note_more(&mut self, more: usize) {
        self.total += more;
    }

    /// Up to [`NAMED`] of their names, in no particular order.
    pub fn named(&self) -> &[Arc<str>] {
        &self.named
    }

    /// The approximate size in bytes, without its own `size_of`.
    pub fn weight(&self) -> usize {
        let names = self.named.iter().map(|name| name.len());
        names.sum::<usize>() + self.named.capacity() * size_of::<(Arc<str>, Arc<str>)>()
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many of them may not use it: they have so many PVCs that Belayer does not keep their names.
    pub fn uncertain(&self) -> usize {
        self.uncertain
    }

    /// How many of them may still run: those that neither succeeded, nor failed without being deleted.
    pub fn running(&self) -> usize {
        self.total - self.ended
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

impl<S: AsRef<str>> FromIterator<S> for Users {
    fn from_iter<I: IntoIterator<Item = S>>(pods: I) -> Self {
        let mut users = Self::default();
        pods.into_iter().for_each(|pod| users.note(pod.as_ref()));
        users
    }
}

/// As in "web-0, web-1 and 7 more".
impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        match self.total - self.named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn meta(name: &str, uid: &str) -> ObjectMeta {
        ObjectMeta::new(
            ObjectKey::new("shop", name),
            Uid::new(uid),
            ResourceVersion::new(1),
        )
    }

    fn pod() -> Pod {
        Pod {
            node_name: Some("node-1".into()),
            ..Pod::new(meta("web-0", "p-1"))
        }
    }

    fn plain() -> Pod {
        Pod {
            pvcs: Box::from(["data".into()]),
            ..pod()
        }
    }

    fn ephemeral() -> Pod {
        Pod {
            ephemeral_pvcs: Box::from(["web-0-scratch".into()]),
            ..pod()
        }
    }

    fn unbound(pod: Pod) -> Pod {
        Pod {
            node_name: None,
            ..pod
        }
    }

    fn phase(phase: Phase, pod: Pod) -> Pod {
        Pod { phase, ..pod }
    }

    fn deleted(grace: i64, pod: Pod) -> Pod {
        Pod {
            meta: ObjectMeta {
                deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
                deletion_grace_period: Some(grace),
                ..pod.meta
            },
            ..pod
        }
    }

    fn owned_by(uid: &str) -> ObjectMeta {
        ObjectMeta {
            controller: Some(Arc::new(OwnerReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                name: "web-0".into(),
                uid: Uid::new(uid),
            })),
            ..meta("web-0-scratch", "c-1")
        }
    }

    #[rstest]
    #[case::bound(plain(), true)]
    #[case::not_bound(unbound(plain()), false)]
    #[case::a_succeeded_pod_counts(phase(Phase::Succeeded, plain()), true)]
    #[case::a_failed_pod_counts(phase(Phase::Failed, plain()), true)]
    #[case::a_deleted_pod_counts(deleted(30, plain()), true)]
    #[case::a_shut_down_pod_counts(deleted(0, plain()), true)]
    #[case::a_pod_that_refers_to_another(ephemeral(), false)]
    fn a_pvc_by_name(#[case] pod: Pod, #[case] expected: bool) {
        assert_eq!(uses(&pod, &meta("data", "c-1")), expected);
    }

    #[rstest]
    #[case::of_this_pod(ephemeral(), owned_by("p-1"), true)]
    #[case::of_another_pod_of_that_name(ephemeral(), owned_by("p-0"), false)]
    #[case::without_an_owner(ephemeral(), meta("web-0-scratch", "c-1"), false)]
    #[case::not_bound(unbound(ephemeral()), owned_by("p-1"), false)]
    #[case::ended(phase(Phase::Succeeded, ephemeral()), owned_by("p-1"), true)]
    #[case::in_its_grace(deleted(30, ephemeral()), owned_by("p-1"), true)]
    #[case::shut_down(deleted(0, ephemeral()), owned_by("p-1"), false)]
    fn an_ephemeral_pvc(#[case] pod: Pod, #[case] pvc: ObjectMeta, #[case] expected: bool) {
        assert_eq!(uses(&pod, &pvc), expected);
    }

    #[test]
    fn a_pod_of_another_namespace_does_not_count() {
        let mut other = plain();
        other.meta.key = ObjectKey::new("bank", "web-0");
        assert!(!uses(&other, &meta("data", "c-1")));
    }

    #[rstest]
    #[case::running(phase(Phase::Running, plain()), false)]
    #[case::unknown(phase(Phase::Unknown, plain()), false)]
    #[case::succeeded(phase(Phase::Succeeded, plain()), true)]
    #[case::succeeded_and_deleted(deleted(0, phase(Phase::Succeeded, plain())), true)]
    #[case::failed(phase(Phase::Failed, plain()), true)]
    #[case::marked_failed_by_pod_garbage_collection(
        deleted(0, phase(Phase::Failed, plain())),
        false
    )]
    fn a_pod_that_has_ended(#[case] pod: Pod, #[case] ended: bool) {
        let mut users = Users::default();
        users.note_pod(&pod);
        assert_eq!((users.total(), users.running() == 0), (1, ended));
    }

    #[test]
    fn few_users_are_named_and_the_others_counted() {
        let few: Users = ["a", "b"].into_iter().collect();
        assert_eq!(few.to_string(), "a, b");
        let many: Users = (0..9).map(|n| format!("web-{n}")).collect();
        assert_eq!(
            many.to_string(),
            "web-0, web-1, web-2, web-3, web-4 and 4 more"
        );
        assert_eq!(many.total(), 9);
    }
}
