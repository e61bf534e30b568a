//! The decision table of pvc-protection: a pure function, one arm per rule.
//! It matches the rules of [`row`].

use std::time::Duration;

use jiff::Timestamp;

use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{Decision, Missing, Notice, Rule, Write};
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};

use crate::evidence::{Evidence, OwnerFinished, Unused};
use crate::owner::OwnerView;
use crate::pods_query::PodsAnswer;
use crate::query::PvcQuery;
use crate::row;
use crate::snapshot::{CachedUsers, Hold, PvcView, Snapshot};
use crate::uses::Users;

/// A decision about a PVC. It matches the rules of [`row`].
pub type PvcDecision = Decision<Evidence, PvcQuery>;

/// A PVC whose deletion waits longer than this gets the Event `DeletionWaits`.
pub const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Delay before a live read is repeated that found a user which the store does not show. If that pod was
/// deleted before the store saw it, no event follows.
pub const RECHECK: Duration = Duration::from_secs(30);

/// Delay before an unfinished Workflow is read again, because Workflows are not watched here. Argo deletes the
/// PVCs of a workflow just before it marks the workflow as finished.
pub const OWNER_RECHECK: Duration = Duration::from_secs(5);

/// How often a waiting PVC is checked again without an event.
pub const RESYNC: Duration = Duration::from_secs(10 * 60);

/// Decides about one PVC. It matches the rules of [`row`].
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> PvcDecision {
    let Some(pvc) = &snapshot.pvc else {
        return Decision::nothing(row::NOT_IN_CACHE);
    };
    let users = match &pvc.cached {
        CachedUsers::Known { users, .. } if !users.is_empty() => Some(users),
        CachedUsers::Known { .. } | CachedUsers::Unknown => None,
    };
    match (pvc.deleting(), pvc.hold, users) {
        (None, Hold::Missing | Hold::Former, _) if pvc.mode.adds_holds() => {
            Decision::write(row::ADD_HOLD, Write::AddHold)
        }
        (Some(since), hold, Some(users)) if hold.keeps() => match &pvc.owner {
            Some(owner) if users.running() == 0 => owner_finished(pvc, owner, users, since, now),
            _ => in_use(row::IN_USE, users, since, now),
        },
        (Some(since), hold, None) if hold.keeps() => confirm(pvc, since, now),
        _ if pvc.mode.adds_holds() => Decision::nothing(row::NOTHING),
        (Some(since), _, Some(users)) if pvc.is_protected_by_kubernetes() => {
            in_use(row::ADVISE, users, since, now)
        }
        (None, hold, Some(users)) if hold.keeps() && !pvc.is_protected_by_kubernetes() => {
            left_over(users)
        }
        _ => Decision::nothing(row::NOTHING),
    }
}

/// Rules 3 and 7.
fn in_use(row: &'static Rule, users: &Users, since: Timestamp, now: Timestamp) -> PvcDecision {
    let waits = waits_for(users);
    let decision = Decision::missing(row, Missing::Event(waits.clone().into()));
    report_wait(decision, &waits, since, now).with_requeue_after(RESYNC)
}

/// Rule 6.
fn owner_finished(
    pvc: &PvcView,
    owner: &OwnerView,
    users: &Users,
    since: Timestamp,
    now: Timestamp,
) -> PvcDecision {
    let pods = || PvcQuery::Pods(pvc.query.clone());
    let (query, after) = match owner.finished(pvc.deletion_seen) {
        None => (PvcQuery::Owner(owner.query.clone()), Duration::ZERO),
        Some(false) => (PvcQuery::Owner(owner.query.clone()), OWNER_RECHECK),
        Some(true) => match &pvc.pods_answer {
            Some(pods_answer) => match OwnerFinished::prove(pvc, pods_answer) {
                Some(proof) => {
                    let release = Write::Release(Evidence::OwnerFinished(proof));
                    return Decision::write(row::OWNER_FINISHED, release);
                }
                None if seen_by(pvc, pods_answer).is_some() => (pods(), RECHECK),
                None => (pods(), Duration::ZERO),
            },
            None => (pods(), Duration::ZERO),
        },
    };
    let waits = format!(
        "{}, and its Workflow {} is not known to have finished",
        waits_for(users),
        owner.query.key().name()
    );
    let mut decision = Decision::missing(row::OWNER_FINISHED, Missing::Event(waits.clone().into()));
    decision.missing.push(Missing::Answer { query, after });
    report_wait(decision, &waits, since, now).with_requeue_after(RESYNC)
}

/// Rule 8. Such finalizers are removed like those of a disabled component.
fn left_over(users: &Users) -> PvcDecision {
    let waits = waits_for(users);
    let message = format!(
        "{PVC_PROTECTION_HOLD} stays on this PVC although pvc-protection only reports: {waits}, and the PVC does \
         not have {KUBERNETES_PVC_PROTECTION}"
    );
    let notice = Notice::normal("FinalizerKept", message);
    Decision::missing(row::LEFT_OVER, Missing::Event(waits.into())).with_notice(notice)
}

/// Rule 4.
fn confirm(pvc: &PvcView, since: Timestamp, now: Timestamp) -> PvcDecision {
    let proof = pvc
        .pods_answer
        .as_ref()
        .and_then(|pods_answer| Unused::prove(pvc, pods_answer));
    if let Some(proof) = proof {
        return Decision::write(row::CONFIRM, Write::Release(Evidence::Unused(proof)));
    }
    let query = PvcQuery::Pods(pvc.query.clone());
    if let Some(users) = pvc
        .pods_answer
        .as_ref()
        .and_then(|pods_answer| seen_by(pvc, pods_answer))
    {
        let waits = waits_for(&users);
        let mut decision = Decision::missing(row::CONFIRM, Missing::Event(waits.clone().into()));
        decision.missing.push(Missing::Answer {
            query,
            after: RECHECK,
        });
        return report_wait(decision, &waits, since, now);
    }
    let mut decision = Decision::ask(row::CONFIRM, query);
    let Some(error) = &pvc.list_error else {
        // The answer arrives before this; otherwise there is an error to report.
        return decision.with_requeue_after(REPORT_AFTER);
    };
    let waits = format!("whether a pod uses it could not be read: {error}");
    decision.missing.push(Missing::Event(waits.clone().into()));
    report_wait(decision, &waits, since, now).with_requeue_after(RESYNC)
}

/// The users that a live read begun after the deletion was seen has found; `None` if there are none.
fn seen_by(pvc: &PvcView, pods_answer: &LiveAnswer<PodsAnswer>) -> Option<Users> {
    let PodsAnswer::Listed(listed) = pods_answer.answer() else {
        return None;
    };
    let users = listed.users_of(&pvc.meta);
    let late = pvc
        .deletion_seen
        .is_some_and(|seen| seen < pods_answer.begun());
    (late && !users.is_empty()).then_some(users)
}

fn waits_for(users: &Users) -> String {
    let pods = if users.total() == 1 { "pod" } else { "pods" };
    let uncertain = users.uncertain();
    let refers = if uncertain == 1 {
        "it refers"
    } else {
        "they refer"
    };
    if uncertain == 0 {
        format!("it is used by the {pods} {users}")
    } else if uncertain == users.total() {
        format!("it may be used by the {pods} {users}: {refers} to more PVCs than Belayer keeps")
    } else {
        format!(
            "it is used by the {pods} {users}; {uncertain} of them may use it: {refers} to more PVCs than Belayer keeps"
        )
    }
}

/// Adds the Event `DeletionWaits` once the deletion has waited for [`REPORT_AFTER`].
fn report_wait(
    decision: PvcDecision,
    waits: &str,
    since: Timestamp,
    now: Timestamp,
) -> PvcDecision {
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if waited < REPORT_AFTER {
        return decision.with_requeue_after(REPORT_AFTER - waited);
    }
    decision.with_notice(Notice::normal(
        "DeletionWaits",
        format!("deletion of this PVC waits: {waits}"),
    ))
}

#[cfg(test)]
mod tests;
