//! Warnings about an unsafe or ineffective protection of PVCs in this cluster, inferred from the PVCs.
//!
//! The API does not show whether kube-controller-manager's own controller runs; only its effects are visible.
//!
//! ```
//! use belayer_pvc_protection::Mode;
//! use belayer_pvc_protection::advice::{Advice, Signs};
//!
//! for advice in Advice::on(Mode::InPlace, Signs::default()) {
//!     println!("{}: {advice}", advice.name());
//! }
//! ```

use std::fmt;

use belayer_core::words::one_or_many;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};

use crate::config::Mode;

/// The flag that switches kube-controller-manager's own controller off.
pub const SWITCH_OFF: &str = "--controllers=*,-persistentvolumeclaim-protection-controller";

/// From this many finalizers removed by another controller on, [`Advice::TwoAtWork`] is given.
const BY_OTHERS_LIMIT: u64 = 3;

/// Observations about the protection of PVCs. An argument of
/// [`Advice::on`](crate::advice::Advice::on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs {
    /// PVCs that are not being deleted and lack `kubernetes.io/pvc-protection`.
    pub bare: usize,
    /// PVCs that have been in deletion for a while, have only `kubernetes.io/pvc-protection` left, and that no
    /// pod uses.
    pub left_behind: usize,
    /// Finalizers that Belayer protects PVCs by (with `kubernetes.io/pvc-protection` in place of Kubernetes, that one) and
    /// that another controller removed from PVCs being deleted, in the last hour.
    pub by_others: u64,
}

/// Something an admin should change. The [module's example](self) prints those for one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Advice {
    /// Belayer only reports, and nothing adds `kubernetes.io/pvc-protection` to PVCs.
    Unprotected {
        /// How many PVCs lack it.
        pvcs: usize,
    },
    /// Nothing adds `kubernetes.io/pvc-protection` to PVCs.
    Unmountable {
        /// How many PVCs lack it.
        pvcs: usize,
    },
    /// Nothing removes `kubernetes.io/pvc-protection`.
    LeftBehind {
        /// How many PVCs are stuck in deletion.
        pvcs: usize,
    },
    /// Two controllers remove `kubernetes.io/pvc-protection`.
    TwoAtWork {
        /// How many finalizers the other controller has removed in the last hour.
        by_others: u64,
    },
}

impl Advice {
    /// The advice that follows from the signs.
    pub fn on(mode: Mode, signs: Signs) -> Vec<Self> {
        let mut advice = Vec::new();
        match mode {
            Mode::Advise | Mode::Own => {
                if signs.bare > 0 {
                    let pvcs = signs.bare;
                    advice.push(match mode.adds_holds() {
                        true => Self::Unmountable { pvcs },
                        false => Self::Unprotected { pvcs },
                    });
                }
                if signs.left_behind > 0 {
                    advice.push(Self::LeftBehind {
                        pvcs: signs.left_behind,
                    });
                }
            }
            Mode::InPlace if signs.by_others >= BY_OTHERS_LIMIT => {
                advice.push(Self::TwoAtWork {
                    by_others: signs.by_others,
                });
            }
            Mode::InPlace => {}
        }
        advice
    }

    /// Its name, for logs and to suppress repetition.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected { pvcs } => write!(
                f,
                "{} not carry {KUBERNETES_PVC_PROTECTION}, and Belayer adds no finalizer: nothing keeps such a \
                 PVC while pods use it; switch the API server's admission plugin StorageObjectInUseProtection \
                 and kube-controller-manager's persistentvolumeclaim-protection-controller on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}",
                one_or_many(*pvcs, "PVC does", "PVCs do")
            ),
            Self::Unmountable { pvcs } => write!(
                f,
                "{} not carry {KUBERNETES_PVC_PROTECTION}, and {PVC_PROTECTION_HOLD} alone is not \
                 enough: the kubelet mounts a PVC that is being deleted only with the former, also for pods \
                 that run there already; switch the API server's admission plugin StorageObjectInUseProtection \
                 and kube-controller-manager's persistentvolumeclaim-protection-controller on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}",
                one_or_many(*pvcs, "PVC does", "PVCs do")
            ),
            Self::LeftBehind { pvcs } => write!(
                f,
                "{}, and still nothing removes \
                 {KUBERNETES_PVC_PROTECTION}: kube-controller-manager's \
                 persistentvolumeclaim-protection-controller does not seem to run; switch it on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}, so that Belayer does its work",
                one_or_many(
                    *pvcs,
                    "PVC is being deleted, nothing uses it",
                    "PVCs are being deleted, nothing uses them"
                )
            ),
            Self::TwoAtWork { by_others } => write!(
                f,
                "{KUBERNETES_PVC_PROTECTION} was removed {by_others} times in the last hour by another controller: \
                 kube-controller-manager's persistentvolumeclaim-protection-controller seems to run as well, which \
                 makes Belayer's protection pointless; switch it off with {SWITCH_OFF}, or set \
                 pvcProtection.finalizer to {PVC_PROTECTION_HOLD}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NONE: Signs = Signs {
        bare: 0,
        left_behind: 0,
        by_others: 0,
    };

    #[rstest]
    #[case::all_is_well_beside(Mode::Own, NONE, &[])]
    #[case::all_is_well_in_its_place(Mode::InPlace, NONE, &[])]
    #[case::a18_unprotected(Mode::Advise, Signs { bare: 4, ..NONE }, &["Unprotected"])]
    #[case::a18_finalizer_left_behind(Mode::Advise, Signs { left_behind: 2, ..NONE }, &["LeftBehind"])]
    #[case::no_controller_adds_the_finalizer(Mode::Own, Signs { bare: 4, ..NONE }, &["Unmountable"])]
    #[case::no_controller_removes_the_finalizer(Mode::Own, Signs { left_behind: 2, ..NONE }, &["LeftBehind"])]
    #[case::belayer_adds_it_itself(Mode::InPlace, Signs { bare: 4, left_behind: 2, ..NONE }, &[])]
    #[case::two_at_work(Mode::InPlace, Signs { by_others: 3, ..NONE }, &["TwoAtWork"])]
    #[case::one_may_be_an_accident(Mode::InPlace, Signs { by_others: 2, ..NONE }, &[])]
    #[case::the_in_tree_controller_is_expected_beside(Mode::Own, Signs { by_others: 9, ..NONE }, &[])]
    fn advice_follows_from_signs(#[case] mode: Mode, #[case] signs: Signs, #[case] names: &[&str]) {
        let advice = Advice::on(mode, signs);
        assert_eq!(
            advice.iter().map(|one| one.name()).collect::<Vec<_>>(),
            names
        );
    }

    #[rstest]
    #[case(
        1,
        "1 PVC does not carry ",
        "1 PVC is being deleted, nothing uses it, and "
    )]
    #[case(
        2,
        "2 PVCs do not carry ",
        "2 PVCs are being deleted, nothing uses them, and "
    )]
    fn one_pvc_is_reported_in_the_singular(
        #[case] pvcs: usize,
        #[case] bare: &str,
        #[case] left: &str,
    ) {
        let said = Advice::Unmountable { pvcs }.to_string();
        assert!(said.starts_with(bare), "{said}");
        let said = Advice::LeftBehind { pvcs }.to_string();
        assert!(said.starts_with(left), "{said}");
    }
}
