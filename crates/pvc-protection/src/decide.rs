//! The decision table of pvc-protection: a pure function, one arm per row, in the table's order.

use std::time::Duration;

use jiff::Timestamp;

use belayer_core::decision::{Decision, Missing, Notice, Severity, Write};
use belayer_core::facts::Fact;

use crate::evidence::{Evidence, Unused};
use crate::look::{PodsLook, PodsQuestion};
use crate::row;
use crate::snapshot::{CachedUsers, ClaimView, Snapshot};
use crate::uses::Users;

/// What is decided about a claim.
pub type ClaimDecision = Decision<Evidence, PodsQuestion>;

/// A claim whose deletion waits longer than this gets an Event that says what for.
pub const TELL_AFTER: Duration = Duration::from_secs(5);

/// A user that a look saw and the store does not show, gone before the store heard of it, brings no
/// event: it is looked for again after this time.
pub const RECHECK: Duration = Duration::from_secs(30);

/// How often a waiting claim is looked at without any event.
pub const RESYNC: Duration = Duration::from_secs(10 * 60);

/// Decides about one claim.
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> ClaimDecision {
    let Some(claim) = &snapshot.claim else {
        return Decision::nothing(row::NOT_IN_CACHE);
    };
    match (claim.deleting(), claim.hold) {
        (None, hold) if hold != crate::snapshot::Hold::Present => {
            Decision::write(row::ADD_HOLD, Write::AddHold)
        }
        (Some(since), hold) if hold.keeps() => match &claim.cached {
            CachedUsers::Known { users, .. } if !users.is_empty() => {
                let waits = waits_for(users);
                let decision = Decision::missing(row::IN_USE, Missing::Event(waits.clone().into()));
                telling(decision, &waits, since, now).looking_again_within(RESYNC)
            }
            CachedUsers::Known { .. } | CachedUsers::Unknown => confirm(claim, since, now),
        },
        _ => Decision::nothing(row::NOTHING),
    }
}

/// Row 4.
fn confirm(claim: &ClaimView, since: Timestamp, now: Timestamp) -> ClaimDecision {
    let proof = claim
        .look
        .as_ref()
        .and_then(|look| Unused::prove(claim, look));
    if let Some(proof) = proof {
        return Decision::write(row::CONFIRM, Write::Release(Evidence::Unused(proof)));
    }
    let question = claim.question.clone();
    if let Some(users) = claim.look.as_ref().and_then(|look| seen_by(claim, look)) {
        let waits = waits_for(&users);
        let mut decision = Decision::missing(row::CONFIRM, Missing::Event(waits.clone().into()));
        decision.missing.push(Missing::Answer {
            question,
            after: RECHECK,
        });
        return telling(decision, &waits, since, now);
    }
    let mut decision = Decision::ask(row::CONFIRM, question);
    let Some(error) = &claim.look_error else {
        // An answer comes sooner; without one there will be an error to tell of.
        return decision.looking_again_within(TELL_AFTER);
    };
    let waits = format!("whether a pod uses it cannot be found out: {error}");
    decision.missing.push(Missing::Event(waits.clone().into()));
    telling(decision, &waits, since, now).looking_again_within(RESYNC)
}

/// The users that a look begun late enough has seen, if there are any.
fn seen_by(claim: &ClaimView, look: &Fact<PodsLook>) -> Option<Users> {
    let PodsLook::Listed(listed) = look.answer() else {
        return None;
    };
    let users = listed.users_of(&claim.meta);
    let late = claim.deletion_seen.is_some_and(|seen| seen < look.begun());
    (late && !users.is_empty()).then_some(users)
}

fn waits_for(users: &Users) -> String {
    let pods = if users.total() == 1 { "pod" } else { "pods" };
    format!("it is used by the {pods} {users}")
}

/// Tells what the deletion waits for once it has waited for a while.
fn telling(
    decision: ClaimDecision,
    waits: &str,
    since: Timestamp,
    now: Timestamp,
) -> ClaimDecision {
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if waited < TELL_AFTER {
        return decision.looking_again_within(TELL_AFTER - waited);
    }
    decision.telling(Notice {
        severity: Severity::Normal,
        reason: "DeletionWaits",
        message: format!("deletion of this claim waits: {waits}").into(),
    })
}

#[cfg(test)]
mod tests;
