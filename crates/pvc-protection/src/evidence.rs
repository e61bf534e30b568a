//! Why a claim may go. The one variant cannot be had without its proof (invariants EVIDENCE and
//! IN-USE).

use belayer_core::decision::{self, Reach};
use belayer_core::facts::Fact;
use belayer_core::invariants;

use crate::look::PodsLook;
use crate::snapshot::{CachedUsers, ClaimView};

/// Why the hold is taken off a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Row 4: no pod uses the claim, by a look begun after its deletion was seen.
    Unused(Unused),
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        match self {
            Self::Unused(_) => "Unused",
        }
    }

    /// A claim that nothing uses needs none of our holds: where Belayer was switched from its own
    /// name to Kubernetes' one, both leave together.
    fn reach(&self) -> Reach {
        Reach::AllOfOurs
    }
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = &["Unused"];

/// A look at the namespace's pods, begun after the claim's deletion was seen, found no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unused(By);

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A list of the namespace's pods.
    List,
    /// The pod store, which had passed the version that the server was at.
    Store,
}

impl Unused {
    /// The proof, if `look` gives it for `claim`.
    pub fn prove(claim: &ClaimView, look: &Fact<PodsLook>) -> Option<Self> {
        let (by, users) = match look.answer() {
            PodsLook::Listed(listed) => (By::List, listed.users_of(&claim.meta).total()),
            PodsLook::StoreReached(version) => match &claim.cached {
                CachedUsers::Known { users, as_of } if as_of >= version => {
                    (By::Store, users.total())
                }
                CachedUsers::Known { .. } | CachedUsers::Unknown => return None,
            },
        };
        invariants::unused_after_deletion(claim.deletion_seen, look.begun(), users)
            .then_some(Self(by))
    }
}
