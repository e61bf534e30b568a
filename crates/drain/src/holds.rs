//! Classifies finalizers: Belayer's or another controller's.

use belayer_core::object::Resource;
use belayer_holds::names::{CONTROLLERS, KUBERNETES_PVC_PROTECTION};

/// Prefix of Belayer's finalizers.
pub(crate) const PREFIX: &str = "belayer.dev/";

/// Every hold of this version. `kubernetes.io/pvc-protection` is not included, even where Belayer replaces
/// Kubernetes' controller: it is handed over to that.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|known| known.finalizer)
}

/// Class of a finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// A hold of this version.
    Belayer(&'static str),
    /// It has Belayer's prefix, but this version does not have it.
    OfAnotherVersion,
    /// Another controller's. It is never touched.
    Others,
}

/// Classifies a finalizer.
pub(crate) fn classify(finalizer: &str) -> Finalizer {
    match all().find(|hold| *hold == finalizer) {
        Some(hold) => Finalizer::Belayer(hold),
        None if finalizer.starts_with(PREFIX) => Finalizer::OfAnotherVersion,
        None => Finalizer::Others,
    }
}

/// Whether a kind is `PersistentVolumeClaim`.
pub(crate) fn is_pvc(kind: &Resource) -> bool {
    kind.group.is_empty() && *kind.plural == *"persistentvolumeclaims"
}

/// Whether a kind is `Pod`.
pub(crate) fn is_pod(kind: &Resource) -> bool {
    kind.group.is_empty() && *kind.plural == *"pods"
}

/// The finalizer that Kubernetes' own controller removes.
pub(crate) const HANDED_OVER: &str = KUBERNETES_PVC_PROTECTION;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("belayer.dev/pod-status", Finalizer::Belayer("belayer.dev/pod-status"))]
    #[case(
        "belayer.dev/workflow-cleanup",
        Finalizer::Belayer("belayer.dev/workflow-cleanup")
    )]
    #[case(
        "belayer.dev/pvc-protection",
        Finalizer::Belayer("belayer.dev/pvc-protection")
    )]
    #[case("belayer.dev/of-tomorrow", Finalizer::OfAnotherVersion)]
    #[case("kubernetes.io/pvc-protection", Finalizer::Others)]
    #[case("workflows.argoproj.io/status", Finalizer::Others)]
    #[case("not-belayer.dev/pod-status", Finalizer::Others)]
    #[case("belayer.dev", Finalizer::Others)]
    fn finalizers_are_classified(#[case] finalizer: &str, #[case] expected: Finalizer) {
        assert_eq!(classify(finalizer), expected);
    }

    #[test]
    fn every_hold_has_belayers_prefix() {
        assert!(all().all(|hold| hold.starts_with(PREFIX)));
    }
}
