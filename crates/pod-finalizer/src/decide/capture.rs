//! Rules 7 and 11: the outcome is recorded; if the consumer reads records, the pod is released.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use belayer_holds::decision::Missing;

use super::{Found, Reasons, elapsed, unread};
use crate::evidence::Evidence;
use crate::outcome::{NOT_FINAL, RecordState};
use crate::profile::{Consumer, Mode, Profile};
use crate::row;
use crate::snapshot::{PodView, Selection};

/// The pod's profile, if it records outcomes. In mode `observe` it records those of pods that are held from before, if only a record
/// releases them.
fn captures(pod: &PodView) -> Option<&Profile> {
    match &pod.selection {
        Selection::By { profile, .. } => {
            let is_needed = pod.held && profile.consumer == Consumer::PodOutcome;
            let records = profile.mode == Mode::Enforce || is_needed;
            (profile.capture && records).then_some(profile)
        }
        Selection::None | Selection::Ignored => None,
    }
}

/// Whether the consumer reads the pod's record. For a pod of Argo Workflows a record is no evidence, whatever its
/// profile says: Argo reads only pods.
pub(super) fn is_read(pod: &PodView) -> bool {
    captures(pod).is_some_and(|profile| profile.consumer == Consumer::PodOutcome)
        && pod.argo.is_none()
}

/// Whether the outcome of the pod may be final: it has ended, or its node may be lost and a record would release it.
fn may_be_final(pod: &PodView) -> bool {
    pod.ended || pod.shut_down && is_read(pod)
}

/// Rule 7: the outcome is not recorded, and the phase is terminal, or the consumer reads the record and the pod was deleted
/// by force, so that its node may be lost. The step that writes the record reads the whole pod and checks whether the
/// outcome of every container is final. A record that the server rejects does not prevent the rules below. If the clock
/// jumps back, it is checked again at once (L9).
pub(super) fn is_due(pod: &PodView, now: Timestamp, reasons: &mut Reasons) -> bool {
    if captures(pod).is_none() || !may_be_final(pod) || unread::is_never_held(pod) {
        return false;
    }
    match &pod.record {
        RecordState::Unknown => true,
        RecordState::Written(_) => false,
        // It may have been recorded before it ended.
        RecordState::Incomplete(version) => *version != pod.version,
        RecordState::NotFinal { why, version, at } => {
            let waited = elapsed(*at, now);
            if *version != pod.version || waited >= NOT_FINAL || *at > now {
                return true;
            }
            reasons.requeue_after((NOT_FINAL - waited).max(Duration::from_secs(1)));
            let why = Missing::Event(Cow::Owned(why.to_string()));
            reasons.missing.push(why);
            false
        }
        RecordState::Refused { at, pause, .. } => {
            let waited = elapsed(*at, now);
            if waited >= *pause || *at > now {
                return true;
            }
            let left = pause.saturating_sub(waited);
            reasons.requeue_after(left.max(Duration::from_secs(1)));
            false
        }
    }
}

/// Whether the pod has no record although it is to be released by `evidence`: then what is known of its outcome is
/// recorded first, marked as not final (A12).
pub(super) fn comes_first(pod: &PodView, evidence: &Evidence) -> bool {
    if captures(pod).is_none() || matches!(evidence, Evidence::NeverHeld(_)) {
        return false;
    }
    match &pod.record {
        RecordState::NotFinal { .. } => true,
        // It has not ended. Where its deletion ends it before it has begun, nothing is known.
        RecordState::Unknown => pod.held && !matches!(evidence, Evidence::EndedByDeletion(_)),
        RecordState::Written(_) | RecordState::Incomplete(_) | RecordState::Refused { .. } => false,
    }
}

/// Why the outcome of the pod cannot be recorded.
pub(super) fn refused(pod: &PodView) -> Option<String> {
    match &pod.record {
        RecordState::Refused { why, .. } if captures(pod).is_some() => {
            Some(format!("the outcome of this pod cannot be recorded: {why}"))
        }
        _ => None,
    }
}

/// Rule 11. The metadata of a record does not show who wrote it: a record of a pod that runs is no outcome.
pub(super) fn captured(pod: &PodView) -> Found {
    match &pod.record {
        RecordState::Written(proof) if is_read(pod) && may_be_final(pod) => {
            Some((row::CAPTURED, Evidence::Captured(proof.clone())))
        }
        _ => None,
    }
}
