//! Why a hold may be taken off without its component: a person's word, and for claims a proof that
//! no data is lost by it (invariants EVIDENCE and IN-USE).

use belayer_core::moment::LogicalTime;
use belayer_core::slim::ObjectMeta;
use belayer_holds::decision;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;
use belayer_pvc_protection::uses::Users;

/// Why a hold is taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// An admin wants every hold gone.
    Drained(Order),
    /// An admin wants the holds gone that nothing selects any more, and nothing selects this one.
    Unselected(Order),
    /// The component whose hold it is was switched off.
    SwitchedOff(Order),
    /// A claim that Kubernetes goes on protecting.
    HandedOver(StillProtected),
    /// A claim that no pod uses.
    Unused(NoUser),
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        match self {
            Self::Drained(_) => "Drained",
            Self::Unselected(_) => "Unselected",
            Self::SwitchedOff(_) => "SwitchedOff",
            Self::HandedOver(_) => "HandedOver",
            Self::Unused(_) => "Unused",
        }
    }
}

/// The names of the evidence on which a component's holds go once it is switched off.
pub const SWITCHED_OFF: &[&str] = &["SwitchedOff", "HandedOver", "Unused"];

/// A person has said so, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order(());

impl Order {
    /// The word of the admin who started the command, or who switched a component off. To be made
    /// where that word is read, and nowhere else.
    pub fn of_the_admin() -> Self {
        Self(())
    }
}

/// `kubernetes.io/pvc-protection` is on the claim as well, at the very version that the patch names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillProtected(());

impl StillProtected {
    /// The proof, if `claim` is protected by Kubernetes.
    pub fn prove(claim: &ObjectMeta) -> Option<Self> {
        claim
            .has_finalizer(KUBERNETES_PVC_PROTECTION)
            .then_some(Self(()))
    }
}

/// A look at the namespace's pods, begun after this version of the claim was read, found no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoUser(());

impl NoUser {
    /// The proof, if a look that began at `begun` gives it for a claim read at `seen`.
    pub fn prove(users: &Users, begun: LogicalTime, seen: LogicalTime) -> Option<Self> {
        (users.is_empty() && begun > seen).then_some(Self(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_begun_before_the_claim_was_read_proves_nothing() {
        let early = LogicalTime::now();
        let seen = LogicalTime::now();
        let late = LogicalTime::now();
        let (none, some) = (Users::default(), Users::from_iter(["web-0"]));
        assert!(NoUser::prove(&none, late, seen).is_some());
        assert!(NoUser::prove(&none, early, seen).is_none());
        assert!(NoUser::prove(&some, late, seen).is_none());
    }
}
