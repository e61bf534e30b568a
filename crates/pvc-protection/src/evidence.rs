//! Why a PVC may be released. No variant can be built without its proof (invariants EVIDENCE and
//! IN-USE). A release by a rule of [`row`](crate::row) needs it.

use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{self, Reach};
use belayer_holds::invariants;

use crate::pods_query::PodsAnswer;
use crate::snapshot::{CachedUsers, PvcView};
use crate::uses::Users;

/// Why a PVC is released. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Evidence {
    /// Rule 4: no pod uses the PVC, by a live read begun after its deletion was seen.
    Unused(Unused),
    /// Rule 6: the Workflow that owns the PVC has finished, and no pod that uses the PVC still runs.
    OwnerFinished(OwnerFinished),
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        self.into()
    }

    /// An unused PVC needs none of Belayer's finalizers: if Belayer was switched from its own finalizer to
    /// Kubernetes', both are removed together.
    fn reach(&self) -> Reach {
        Reach::AllHolds
    }
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = <Evidence as strum::VariantNames>::VARIANTS;

/// A live read of the namespace's pods, begun after the PVC's deletion was seen, found no user. A
/// release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unused(By);

/// The source that showed no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A list of the namespace's pods.
    List,
    /// The pod store, once it had reached the version of the live read.
    Store,
}

impl Unused {
    /// Returns the proof if `pods_answer` provides it for `pvc`.
    pub fn prove(pvc: &PvcView, pods_answer: &LiveAnswer<PodsAnswer>) -> Option<Self> {
        none_left(pvc, pods_answer, Users::total).map(Self)
    }
}

/// A live read begun after the PVC's deletion was seen showed that its owner, an Argo Workflow,
/// has finished. A live read of the namespace's pods, also begun after that, found only users that
/// have ended. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerFinished(By);

impl OwnerFinished {
    /// Returns the proof if `pods_answer` and the PVC's owner provide it.
    pub fn prove(pvc: &PvcView, pods_answer: &LiveAnswer<PodsAnswer>) -> Option<Self> {
        let owner = pvc.owner.as_ref()?;
        if owner.finished(pvc.deletion_seen) != Some(true) {
            return None;
        }
        none_left(pvc, pods_answer, Users::running).map(Self)
    }
}

/// The version at which a live read begun after the deletion was seen found none of the users that `count` counts.
fn none_left(
    pvc: &PvcView,
    pods_answer: &LiveAnswer<PodsAnswer>,
    count: impl Fn(&Users) -> usize,
) -> Option<By> {
    // A store that has reached the version of the list is at least as new as the list, unless the server's data went back.
    let (listed, version) = match pods_answer.answer() {
        PodsAnswer::Listed(listed) => (Some(listed.users_of(&pvc.meta)), listed.version()),
        PodsAnswer::StoreReached(version) => (None, Some(*version)),
    };
    let (by, users) = match (listed, &pvc.cached) {
        (Some(users), _) if count(&users) == 0 => (By::List, 0),
        (_, CachedUsers::Known { users, as_of })
            if version.is_some_and(|version| *as_of >= version) =>
        {
            (By::Store, count(users))
        }
        _ => return None,
    };
    invariants::unused_after_deletion(pvc.deletion_seen, pods_answer.begun(), users).then_some(by)
}
