//! The same decision for a person: a snapshot from one live look, and its row in words.

use belayer_core::facts::LiveAnswer;
use belayer_core::moment::LogicalTime;
use belayer_core::slim::ObjectMeta;

use crate::config::Mode;
use crate::look::{PodsLook, PodsQuery};
use crate::owner::OwnerView;
use crate::snapshot::{CachedUsers, ClaimView, Hold, Snapshot};

/// The snapshot that a controller would have whose store is as of this look, for a claim that was
/// read before the look began (`seen`).
pub fn snapshot(
    mode: Mode,
    claim: ObjectMeta,
    seen: LogicalTime,
    look: LiveAnswer<PodsLook>,
    owner: Option<OwnerView>,
) -> Snapshot {
    let ours = |names: &[&str]| names.iter().any(|name| claim.has_finalizer(name));
    let hold = match () {
        () if ours(&[mode.hold()]) => Hold::Present,
        () if ours(mode.ours()) => Hold::Former,
        () => Hold::Missing,
    };
    let cached = match look.answer() {
        PodsLook::Listed(listed) => CachedUsers::Known {
            users: listed.users_of(&claim),
            as_of: listed.version(),
        },
        PodsLook::StoreReached(_) => CachedUsers::Unknown,
    };
    Snapshot {
        claim: Some(ClaimView {
            mode,
            owner,
            hold,
            deletion_seen: claim.is_deleting().then_some(seen),
            cached,
            question: PodsQuery::new(claim.key.shared_namespace().clone()),
            look: Some(look),
            look_error: None,
            meta: claim,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
    use belayer_core::slim::Pod;
    use belayer_holds::names::PVC_PROTECTION_HOLD;
    use jiff::Timestamp;

    use super::*;
    use crate::decide::ClaimDecision;
    use crate::decide::decide;
    use crate::look::Listed;
    use crate::row;

    fn meta(name: &str) -> ObjectMeta {
        ObjectMeta::new(
            ObjectKey::new("shop", name),
            Uid::new(name),
            ResourceVersion::new(1),
        )
    }

    fn decided(users: &[&str]) -> ClaimDecision {
        let mut claim = meta("data");
        claim.finalizers = Box::from([Arc::from(PVC_PROTECTION_HOLD)]);
        claim.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        let seen = LogicalTime::now();
        let mut listed = Listed::at(ResourceVersion::new(7));
        for user in users {
            let mut pod = Pod::new(meta(user));
            pod.node_name = Some("node-1".into());
            pod.claims = Box::from(["data".into()]);
            listed.note(&pod);
        }
        let look = LiveAnswer::scripted(PodsLook::Listed(Arc::new(listed)), LogicalTime::now());
        let snapshot = snapshot(Mode::Beside, claim, seen, look, None);
        decide(&snapshot, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_claim_in_use_is_row_3_and_names_the_pod() {
        let decision = decided(&["web-0"]);
        assert_eq!(decision.row, row::IN_USE);
        assert_eq!(decision.missing_in_words(), ["it is used by the pod web-0"]);
    }

    #[test]
    fn a_claim_without_users_is_row_4_with_its_evidence() {
        let decision = decided(&[]);
        assert_eq!(decision.row, row::CONFIRM);
        assert_eq!(decision.evidence(), Some("Unused"));
    }
}
