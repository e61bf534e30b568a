//! Why a hold may be removed without its component: an order of an admin, and for PVCs a proof
//! that no data is lost (invariants EVIDENCE and IN-USE). The [crate's example](crate) has the
//! order of an admin.

use belayer_core::logical_time::LogicalTime;
use belayer_core::slim::ObjectMeta;
use belayer_holds::decision;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;
use belayer_pvc_protection::uses::Users;

/// Why a hold is removed. The [crate's example](crate) has the order of an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Evidence {
    /// An admin ordered to remove every hold.
    Drained(Order),
    /// An admin ordered to remove the holds of unselected objects, and this object is unselected.
    Unselected(Order),
    /// The component of the hold is switched off.
    SwitchedOff(Order),
    /// Kubernetes still protects the PVC.
    HandedOver(StillProtected),
    /// No pod uses the PVC.
    Unused(NoUser),
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        self.into()
    }
}

/// Names of the evidence for holds of a component that is switched off.
pub const SWITCHED_OFF: &[&str] = &["SwitchedOff", "HandedOver", "Unused"];

/// An explicit order of an admin. The [crate's example](crate) has the order of an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order(());

impl Order {
    /// The order of the admin who started the command or switched a component off. Create it only where that
    /// input is read.
    pub fn of_the_admin() -> Self {
        Self(())
    }
}

/// The version of the PVC that the patch names has the finalizer `kubernetes.io/pvc-protection`.
/// The [crate's example](crate) has the order of an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillProtected(());

impl StillProtected {
    /// The proof, if Kubernetes protects `pvc`.
    pub fn prove(pvc: &ObjectMeta) -> Option<Self> {
        pvc.has_finalizer(KUBERNETES_PVC_PROTECTION)
            .then_some(Self(()))
    }
}

/// A list of the namespace's pods that began after this version of the PVC was read has no user of
/// it. The [crate's example](crate) has the order of an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoUser(());

impl NoUser {
    /// The proof for a PVC read at `seen`, from a list that began at `begun`.
    pub fn prove(users: &Users, begun: LogicalTime, seen: LogicalTime) -> Option<Self> {
        (users.is_empty() && begun > seen).then_some(Self(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_began_before_the_pvc_was_read_proves_nothing() {
        let early = LogicalTime::now();
        let seen = LogicalTime::now();
        let late = LogicalTime::now();
        let (none, some) = (Users::default(), Users::from_iter(["web-0"]));
        assert!(NoUser::prove(&none, late, seen).is_some());
        assert!(NoUser::prove(&none, early, seen).is_none());
        assert!(NoUser::prove(&some, late, seen).is_none());
    }
}
