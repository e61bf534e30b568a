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

/// Where no user was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A list of the namespace's pods.
    List,
    /// The pod store, once it had passed the version that the look saw.
    Store,
}

impl Unused {
    /// The proof, if `look` gives it for `claim`.
    pub fn prove(claim: &ClaimView, look: &Fact<PodsLook>) -> Option<Self> {
        // A store that has passed the version of a list knows what became of the users in it.
        let (listed, version) = match look.answer() {
            PodsLook::Listed(listed) => (Some(listed.users_of(&claim.meta)), listed.version()),
            PodsLook::StoreReached(version) => (None, *version),
        };
        let (by, users) = match (listed, &claim.cached) {
            (Some(users), _) if users.is_empty() => (By::List, users.total()),
            (_, CachedUsers::Known { users, as_of }) if *as_of >= version => {
                (By::Store, users.total())
            }
            _ => return None,
        };
        invariants::unused_after_deletion(claim.deletion_seen, look.begun(), users)
            .then_some(Self(by))
    }
}
