//! What is unsafe or pointless about the way claims are protected in this cluster, by what is seen
//! of the claims.
//!
//! Whether kube-controller-manager's own controller runs cannot be asked; what it does can be seen.

use std::fmt;

use belayer_core::words::one_or_many;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};

use crate::config::Mode;

/// The flag that switches kube-controller-manager's own controller off.
pub const SWITCH_OFF: &str = "--controllers=*,-persistentvolumeclaim-protection-controller";

/// Holds taken off by others that are no accident any more.
const FOREIGN_LIMIT: u64 = 3;

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs {
    /// Claims that are not being deleted and do not carry `kubernetes.io/pvc-protection`.
    pub bare: usize,
    /// Claims that wait for nothing but `kubernetes.io/pvc-protection` and that no pod uses, for a
    /// while now.
    pub left_behind: usize,
    /// Holds that went from claims being deleted without our doing.
    pub foreign: u64,
}

/// Something an admin should change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Belayer only reports, and nothing adds `kubernetes.io/pvc-protection` to PVCs.
    Unprotected {
        /// How many PVCs lack it.
        claims: usize,
    },
    /// Nothing puts `kubernetes.io/pvc-protection` on claims.
    Unmountable {
        /// How many PVCs lack it.
        claims: usize,
    },
    /// Nothing takes `kubernetes.io/pvc-protection` off.
    LeftBehind {
        /// How many claims hang.
        claims: usize,
    },
    /// Two controllers take `kubernetes.io/pvc-protection` off.
    TwoAtWork {
        /// How many the other one took off so far.
        foreign: u64,
    },
}

impl Advice {
    /// What follows from the signs.
    pub fn on(mode: Mode, signs: Signs) -> Vec<Self> {
        let mut advice = Vec::new();
        match mode {
            Mode::Advise | Mode::Beside => {
                if signs.bare > 0 {
                    let claims = signs.bare;
                    advice.push(match mode.adds_holds() {
                        true => Self::Unmountable { claims },
                        false => Self::Unprotected { claims },
                    });
                }
                if signs.left_behind > 0 {
                    advice.push(Self::LeftBehind {
                        claims: signs.left_behind,
                    });
                }
            }
            Mode::Replacing if signs.foreign >= FOREIGN_LIMIT => {
                advice.push(Self::TwoAtWork {
                    foreign: signs.foreign,
                });
            }
            Mode::Replacing => {}
        }
        advice
    }

    /// One word for it: what was said lately is not said again.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unprotected { .. } => "Unprotected",
            Self::Unmountable { .. } => "Unmountable",
            Self::LeftBehind { .. } => "LeftBehind",
            Self::TwoAtWork { .. } => "TwoAtWork",
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected { claims } => write!(
                f,
                "{} not carry {KUBERNETES_PVC_PROTECTION}, and Belayer adds no finalizer: nothing keeps such a \
                 PVC while pods use it; switch the API server's admission plugin StorageObjectInUseProtection \
                 and kube-controller-manager's persistentvolumeclaim-protection-controller on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}",
                one_or_many(*claims, "PVC does", "PVCs do")
            ),
            Self::Unmountable { claims } => write!(
                f,
                "{} not carry {KUBERNETES_PVC_PROTECTION}, and {PVC_PROTECTION_HOLD} alone is not \
                 enough: the kubelet mounts a PVC that is being deleted only with the former, also for pods \
                 that run there already; switch the API server's admission plugin StorageObjectInUseProtection \
                 and kube-controller-manager's persistentvolumeclaim-protection-controller on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}",
                one_or_many(*claims, "PVC does", "PVCs do")
            ),
            Self::LeftBehind { claims } => write!(
                f,
                "{}, and still nothing removes \
                 {KUBERNETES_PVC_PROTECTION}: kube-controller-manager's \
                 persistentvolumeclaim-protection-controller does not seem to run; switch it on, or set \
                 pvcProtection.finalizer to {KUBERNETES_PVC_PROTECTION}, so that Belayer does its work",
                one_or_many(
                    *claims,
                    "PVC is being deleted, nothing uses it",
                    "PVCs are being deleted, nothing uses them"
                )
            ),
            Self::TwoAtWork { foreign } => write!(
                f,
                "{KUBERNETES_PVC_PROTECTION} was removed {foreign} times by someone else: \
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
        foreign: 0,
    };

    #[rstest]
    #[case::all_is_well_beside(Mode::Beside, NONE, &[])]
    #[case::all_is_well_in_its_place(Mode::Replacing, NONE, &[])]
    #[case::a18_nobody_protects(Mode::Advise, Signs { bare: 4, ..NONE }, &["Unprotected"])]
    #[case::a18_nobody_takes_it_off(Mode::Advise, Signs { left_behind: 2, ..NONE }, &["LeftBehind"])]
    #[case::nobody_adds_the_finalizer(Mode::Beside, Signs { bare: 4, ..NONE }, &["Unmountable"])]
    #[case::nobody_takes_it_off(Mode::Beside, Signs { left_behind: 2, ..NONE }, &["LeftBehind"])]
    #[case::we_add_it_ourselves(Mode::Replacing, Signs { bare: 4, left_behind: 2, ..NONE }, &[])]
    #[case::two_at_work(Mode::Replacing, Signs { foreign: 3, ..NONE }, &["TwoAtWork"])]
    #[case::one_may_be_an_accident(Mode::Replacing, Signs { foreign: 2, ..NONE }, &[])]
    #[case::the_in_tree_one_is_welcome_beside(Mode::Beside, Signs { foreign: 9, ..NONE }, &[])]
    fn what_follows_from_signs(#[case] mode: Mode, #[case] signs: Signs, #[case] names: &[&str]) {
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
    fn one_claim_is_told_as_one(#[case] claims: usize, #[case] bare: &str, #[case] left: &str) {
        let said = Advice::Unmountable { claims }.to_string();
        assert!(said.starts_with(bare), "{said}");
        let said = Advice::LeftBehind { claims }.to_string();
        assert!(said.starts_with(left), "{said}");
    }
}
