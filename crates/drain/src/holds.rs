//! Which finalizers are holds of ours, and whose they are.

use belayer_core::object::Resource;
use belayer_holds::names::{
    KUBERNETES_PVC_PROTECTION, OWNER_HOLDS, POD_HOLDS, PVC_PROTECTION_HOLD,
};

/// What the names of our finalizers begin with.
pub const PREFIX: &str = "belayer.dev/";

/// Every hold of ours that this version knows. `kubernetes.io/pvc-protection` is none of them, not
/// even where Belayer works in place of Kubernetes' controller: that hold is handed over.
pub fn all() -> impl Iterator<Item = &'static str> {
    POD_HOLDS
        .iter()
        .chain(OWNER_HOLDS)
        .copied()
        .chain([PVC_PROTECTION_HOLD])
}

/// What a finalizer is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A hold that this version knows.
    Ours(&'static str),
    /// It is called like one of ours, and this version does not know it.
    OfAnotherVersion,
    /// Not ours. It is never touched.
    Foreign,
}

/// What a finalizer is to us.
pub fn whose(finalizer: &str) -> Whose {
    match all().find(|hold| *hold == finalizer) {
        Some(hold) => Whose::Ours(hold),
        None if finalizer.starts_with(PREFIX) => Whose::OfAnotherVersion,
        None => Whose::Foreign,
    }
}

/// Whether a kind is that of claims, whose hold keeps data.
pub fn is_claim(kind: &Resource) -> bool {
    kind.group.is_empty() && *kind.plural == *"persistentvolumeclaims"
}

/// Whether a kind is that of pods.
pub fn is_pod(kind: &Resource) -> bool {
    kind.group.is_empty() && *kind.plural == *"pods"
}

/// The hold that Kubernetes' own controller lets go of.
pub const HANDED_OVER: &str = KUBERNETES_PVC_PROTECTION;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("belayer.dev/pod-status", Whose::Ours("belayer.dev/pod-status"))]
    #[case(
        "belayer.dev/workflow-cleanup",
        Whose::Ours("belayer.dev/workflow-cleanup")
    )]
    #[case(
        "belayer.dev/pvc-protection",
        Whose::Ours("belayer.dev/pvc-protection")
    )]
    #[case("belayer.dev/of-tomorrow", Whose::OfAnotherVersion)]
    #[case("kubernetes.io/pvc-protection", Whose::Foreign)]
    #[case("workflows.argoproj.io/status", Whose::Foreign)]
    #[case("not-belayer.dev/pod-status", Whose::Foreign)]
    #[case("belayer.dev", Whose::Foreign)]
    fn only_our_names_are_ours(#[case] finalizer: &str, #[case] expected: Whose) {
        assert_eq!(whose(finalizer), expected);
    }

    #[test]
    fn every_hold_has_our_prefix() {
        assert!(all().all(|hold| hold.starts_with(PREFIX)));
    }
}
