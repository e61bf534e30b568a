//! Rules 5, 6, 8 and 9: what the pod's owner shows, and that the result was read.

use std::time::Duration;

use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::argo;
use belayer_holds::decision::Missing;
use belayer_holds::owner::OwnerState;

use super::{Found, RECHECK, Reasons};
use crate::evidence::{Consumption, Evidence, OwnerDeletion};
use crate::profile::Profile;
use crate::query::PodQuery;
use crate::row;
use crate::snapshot::{CachedOwner, DecidingProfile, Owner, OwnerView, PodView, Selection};

/// Rules 5 and 6.
pub(super) fn gone_or_deleting(pod: &PodView, reasons: &mut Reasons) -> Found {
    let Owner::Known(owner) = &pod.owner else {
        return None;
    };
    let OwnerView {
        query,
        cached,
        answer,
    } = &**owner;
    if let CachedOwner::Present(meta) = cached {
        return deleting(owner, meta, reasons);
    }
    let needs_read = |reasons: &mut Reasons, after| {
        let query = PodQuery::Owner(query.clone());
        reasons.add(row::OWNER_GONE, Missing::Answer { query, after });
    };
    match answer.as_ref().map(LiveAnswer::answer) {
        Some(OwnerState::Gone(proof)) => {
            return Some((row::OWNER_GONE, Evidence::OwnerGone(proof.clone())));
        }
        Some(OwnerState::Present(meta)) => {
            if meta.is_deleting()
                && let Some(found) = deleting(owner, meta, reasons)
            {
                return Some(found);
            }
            // The owner exists, and the cache will show it. If its kind has no cache, the read is repeated.
            needs_read(reasons, RECHECK);
        }
        Some(OwnerState::Unknown(why)) => {
            needs_read(reasons, RECHECK);
            let text = format!("could not check whether the owner is gone: {why}");
            reasons.add(row::OWNER_GONE, Missing::Event(text.into()));
        }
        None => needs_read(reasons, Duration::ZERO),
    }
    None
}

/// Rule 6. It does not apply while Argo goes on running the workflow because another controller's finalizer keeps it
/// (A16): its pods still have results that Argo reads.
fn deleting(owner: &OwnerView, meta: &ObjectMeta, reasons: &mut Reasons) -> Found {
    let proof = OwnerDeletion::prove(meta, owner.query.uid())?;
    let kept = argo::kept_running_by(meta).filter(|_| owner.query.is_about_a_workflow());
    let Some(finalizer) = kept else {
        return Some((row::OWNER_DELETING, Evidence::OwnerDeleting(proof)));
    };
    let text = format!(
        "its workflow is being deleted, but Argo goes on running it while it has the finalizer {finalizer}"
    );
    reasons.add(row::OWNER_DELETING, Missing::Event(text.into()));
    None
}

/// Rule 8.
pub(super) fn missing(pod: &PodView) -> Found {
    matches!(pod.owner, Owner::Missing).then_some((row::NO_OWNER, Evidence::NoOwner))
}

/// Rule 9.
pub(super) fn consumed(pod: &PodView, reasons: &mut Reasons) -> Found {
    if pod.deciding_profiles().any(|(_, consumed)| consumed) {
        return Some((row::CONSUMED, Evidence::Consumed(Consumption::PodLabel)));
    }
    let Owner::Known(owner) = &pod.owner else {
        return None;
    };
    pod.deciding_profiles()
        .find_map(|(profile, _)| finished(pod, owner, profile, reasons))
}

impl PodView {
    /// The profile that selects the pod, and the further profiles that apply to it.
    pub(super) fn deciding_profiles(&self) -> impl Iterator<Item = (&Profile, bool)> {
        let selecting = match &self.selection {
            Selection::By { profile, consumed } => Some((&**profile, *consumed)),
            Selection::None | Selection::Ignored => None,
        };
        let others = self.deciding_profiles.iter();
        let others = others.map(|DecidingProfile { profile, consumed }| (&**profile, *consumed));
        selecting.into_iter().chain(others)
    }
}

fn finished(pod: &PodView, owner: &OwnerView, profile: &Profile, reasons: &mut Reasons) -> Found {
    let proof = owner.answer.as_ref().and_then(|answer| {
        Consumption::prove_owner_finished(answer, owner.query.uid(), pod.first_seen, profile)
    });
    let CachedOwner::Present(cached) = &owner.cached else {
        return proof.map(|proof| (row::CONSUMED, Evidence::Consumed(proof)));
    };
    if !profile.is_owner_finished(&cached.labels) {
        return None;
    }
    let is_current = owner.answer.as_ref().is_some_and(|answer| {
        answer.begun() > pod.first_seen
            && matches!(answer.answer(), OwnerState::Present(meta) if meta.resource_version >= cached.resource_version)
    });
    match proof {
        Some(proof) if is_current => Some((row::CONSUMED, Evidence::Consumed(proof))),
        _ => {
            let query = PodQuery::Owner(owner.query.clone());
            let after = if is_current { RECHECK } else { Duration::ZERO };
            reasons.add(row::CONSUMED, Missing::Answer { query, after });
            None
        }
    }
}
