//! The decision table of the hold: when it is added to a pod, and when it is released. A pure
//! function of a snapshot. It belongs to the rules of [`row`].

use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{Decision, Missing, Notice, Rule, Write};
use belayer_holds::namespace::NamespaceView;
use belayer_holds::owned::{ObservedOwner, OwnerEnd};
use belayer_holds::owner::{OwnerQuery, OwnerState};
use belayer_holds::selection::NotSelected;
use jiff::Timestamp;

use crate::api::Phase;
use crate::decide::is_created_after_end;
use crate::evidence::{Evidence, Final, Intended, record_gone};
use crate::query::RecreationQuery;
use crate::record::Record;
use crate::row;
use crate::snapshot::{Origin, PodState, PodView, Rejection, UNKNOWN};

/// A decision about a pod. It belongs to the rules of [`row`].
pub type HoldDecision = Decision<Evidence, RecreationQuery>;

/// A live read that proved nothing is repeated after this time.
const RECHECK: Duration = Duration::from_secs(30);

/// The input of a decision about a pod. It belongs to the rules of [`row`].
#[derive(Debug, Clone)]
pub struct HoldSnapshot {
    /// The pod.
    pub pod: PodView,
    /// When this process first saw it.
    pub first_seen: LogicalTime,
    /// Its record.
    pub record: ObservedRecord,
    /// Whether another client deleted its record before the record had ended.
    pub cancelled: bool,
    /// Whether its record was deleted, and its last version did not name the pod.
    pub created_in_vain: bool,
    /// Whether it was rejected without its hold while this process watched it or not long before, and without the proof that
    /// no container of it ran.
    pub to_report: bool,
    /// The query for the record that its annotations name, and its answer, if there is one.
    pub live_record: Option<(OwnerQuery, Option<LiveAnswer<OwnerState>>)>,
    /// Its namespace, if the cache shows that as ignored.
    pub namespace: Option<NamespaceView>,
    /// Its controller, if Belayer watches that kind.
    pub owner: Option<ObservedOwner>,
}

/// The record of a pod. It belongs to the rules of [`row`].
#[derive(Debug, Clone)]
pub enum ObservedRecord {
    /// The store is not synced.
    Unknown,
    /// The API server does not serve PodRecreations: no pod can be re-created.
    NotServed,
    /// The store has no such record.
    Absent,
    /// The record.
    Found(Box<Record>),
}

impl HoldSnapshot {
    fn owner_has_ended(&self) -> bool {
        let end = self.owner.as_ref().map(ObservedOwner::end);
        matches!(end, Some(OwnerEnd::Ended(_)))
    }

    /// Whether an attempt created the pod, and the store does not have its record any more.
    pub(crate) fn has_lost_record(&self) -> bool {
        let is_known = matches!(
            self.record,
            ObservedRecord::Absent | ObservedRecord::Found(_)
        );
        is_known && self.pod.origin.is_some() && self.record_of_origin().is_none()
    }

    /// The record whose attempt created the pod, if the store has it.
    fn record_of_origin(&self) -> Option<&Record> {
        match (&self.pod.origin, &self.record) {
            (Some(origin), ObservedRecord::Found(record))
                if record.meta.uid == origin.record_uid =>
            {
                Some(record)
            }
            _ => None,
        }
    }

    /// Whether its record has its rejection and nothing refutes that.
    fn is_recorded_rejection(&self) -> bool {
        let ObservedRecord::Found(record) = &self.record else {
            return false;
        };
        let status = &record.status;
        status.phase == Some(Phase::Rejected)
            && status.rejected_uid.as_deref() == Some(self.pod.uid.as_str())
            && self.pod.recorded_rejection().is_some()
    }

    /// Rule 2: the request of an admin counts, but not for a pod that would be created again after its removal: if its record does
    /// not name it yet, or intends to re-create it although it ran.
    fn may_be_released_on_request(&self) -> bool {
        match &self.record {
            ObservedRecord::Unknown | ObservedRecord::NotServed => true,
            ObservedRecord::Found(record)
                if would_run_again(&self.pod, record)
                    && Intended::prove(record, &self.pod.uid).is_some() =>
            {
                false
            }
            ObservedRecord::Found(_) | ObservedRecord::Absent => self.is_recorded(),
        }
    }

    /// Whether no attempt created the pod, or its record has noted the attempt: it names the pod, or creates no other one in
    /// its place. An older version of the record, which the cache may have, does not know the attempt.
    fn is_recorded(&self) -> bool {
        let Some(origin) = &self.pod.origin else {
            return true;
        };
        self.record_of_origin().is_some_and(|record| {
            record.status.attempts >= origin.attempt && !record.awaits(&self.pod.uid)
        })
    }
}

/// Whether the pod ran after all, and its record has not ended: once the pod does not exist, the record may re-create it, also if the
/// cache does not show that intent yet. A record that is being deleted creates nothing.
fn would_run_again(pod: &PodView, record: &Record) -> bool {
    pod.ran() && !record.meta.is_deleting() && Final::prove(record).is_none()
}

/// Decides about the hold on one pod. It belongs to the rules of [`row`].
pub fn decide(snapshot: &HoldSnapshot, _now: Timestamp) -> HoldDecision {
    let pod = &snapshot.pod;
    if !pod.held {
        return unheld(snapshot);
    }
    if pod.release_requested && snapshot.may_be_released_on_request() {
        return release(row::ADMIN_ASKED, Evidence::AdminAsked);
    }
    let decision = match &pod.origin {
        Some(origin) => recreated_pod(snapshot, origin),
        None => first_pod(snapshot),
    };
    unless_owner_ends(snapshot, decision)
}

/// Rule 13: a pod that would be kept is released if its owner ends, because the owner may wait for it. A pod that its
/// record does not name yet is kept: that a pod does not exist must still prove that it was never created.
fn unless_owner_ends(snapshot: &HoldSnapshot, mut decision: HoldDecision) -> HoldDecision {
    if decision.write.is_some() || !snapshot.is_recorded() {
        return decision;
    }
    match snapshot.owner.as_ref().map(ObservedOwner::end) {
        Some(OwnerEnd::Ended(ended)) => release(row::OWNER_ENDS, Evidence::OwnerEnds(ended)),
        Some(OwnerEnd::Ask { query, after }) => {
            let query = RecreationQuery::Owner(query);
            decision.missing.push(Missing::Answer { query, after });
            decision
        }
        Some(OwnerEnd::Lives) | None => decision,
    }
}

/// Rules 1 and 3.
fn unheld(snapshot: &HoldSnapshot) -> HoldDecision {
    let pod = &snapshot.pod;
    // A drain may have removed the hold of a pod that its record names.
    let is_first_or_recorded = pod.origin.is_none()
        || snapshot
            .record_of_origin()
            .is_some_and(|record| record.names(&pod.uid));
    let is_eligible = pod.is_selected()
        && is_first_or_recorded
        && !pod.recreation_ended
        && !pod.release_requested
        && !pod.deleting
        && !snapshot.cancelled
        && !matches!(snapshot.record, ObservedRecord::NotServed)
        && !snapshot.owner_has_ended();
    // After the end of its record a hold would be released at once.
    let has_ended = match &snapshot.record {
        ObservedRecord::Found(record) => Final::prove(record).is_some(),
        ObservedRecord::Unknown | ObservedRecord::NotServed | ObservedRecord::Absent => false,
    };
    if !is_eligible || has_ended {
        return Decision::nothing(row::NOT_OURS);
    }
    match &pod.state {
        PodState::Pending => Decision::write(row::ADD_HOLD, Write::AddHold),
        // It was rejected before it was held, and no container of it ran: the hold keeps it until its spec is stored.
        PodState::Rejected(_)
            if pod.recreatable().is_some() || snapshot.is_recorded_rejection() =>
        {
            Decision::write(row::ADD_HOLD, Write::AddHold)
        }
        // Its record, if there is one, reports its end.
        PodState::Rejected(rejection)
            if snapshot.to_report && matches!(snapshot.record, ObservedRecord::Absent) =>
        {
            Decision::nothing(row::NOT_OURS).with_notice(not_recreated(rejection))
        }
        _ => Decision::nothing(row::NOT_OURS),
    }
}

/// A pod that an attempt created. It is released only once its record names it: until then, that it does not exist
/// would prove that it was never created.
fn recreated_pod(snapshot: &HoldSnapshot, origin: &Origin) -> HoldDecision {
    let pod = &snapshot.pod;
    if matches!(snapshot.record, ObservedRecord::Unknown) {
        return keep("its record is not known yet").with_requeue_after(UNKNOWN);
    }
    let Some(record) = snapshot.record_of_origin() else {
        return without_record(snapshot);
    };
    if let Some(end) = Final::prove(record) {
        return match (is_created_after_end(record, pod), pod.deleting) {
            (false, _) => release(row::RECORD_ENDED, Evidence::RecordEnded(end)),
            (true, true) => release(row::LEFTOVER, Evidence::Leftover),
            (true, false) => {
                keep("it was created after its record had ended, and Belayer deletes it")
            }
        };
    }
    let is_recorded = record.names(&pod.uid);
    if is_recorded && pod.deleting {
        return deleted(pod, record);
    }
    let is_given_up = match record.status.phase {
        Some(Phase::Waiting) => origin.attempt <= record.status.attempts,
        Some(Phase::Creating) => origin.attempt < record.status.attempts,
        _ => false,
    };
    if !is_recorded && is_given_up && pod.deleting && pod.state != PodState::Started {
        return release(row::LEFTOVER, Evidence::Leftover);
    }
    if let Some(waits) = waits_for_steps(pod, record) {
        return waits;
    }
    if is_recorded && pod.state == PodState::Pending && !pod.is_selected() {
        return unselected(snapshot);
    }
    if is_recorded && pod.state == PodState::Pending {
        return keep("it has not started");
    }
    keep("its record is not up to date yet")
}

/// Rule 4. A create may complete after its record was deleted, when the call that sent it does not delete the pod any more:
/// the response was lost, or its process has ended. Who deletes a record wants no further pod, so such a pod is deleted. One
/// that the record named stays. After a restart, and if the deletion was missed, it is unknown whether the record named
/// the pod. Then the pod stays, because its spec exists nowhere else.
fn without_record(snapshot: &HoldSnapshot) -> HoldDecision {
    let Some((query, answer)) = &snapshot.live_record else {
        return keep("its record is not known");
    };
    match answer {
        Some(answer) => match record_gone(answer, snapshot.first_seen) {
            Some(proof) if is_unwanted(snapshot) => {
                Decision::write(row::RECORD_GONE, Write::Delete(Evidence::RecordGone(proof)))
            }
            Some(proof) => {
                let released = release(row::RECORD_GONE, Evidence::RecordGone(proof));
                let may_be_rejected = matches!(
                    snapshot.pod.state,
                    PodState::Pending | PodState::Rejected(_)
                );
                if snapshot.pod.deleting || !may_be_rejected {
                    return released;
                }
                let message = "not re-created again: its record was deleted";
                released.with_notice(Notice::normal("RecreationCancelled", message))
            }
            None => Decision::missing(
                row::RECORD_GONE,
                Missing::Answer {
                    query: RecreationQuery::Owner(query.clone()),
                    after: if answer.begun() > snapshot.first_seen {
                        RECHECK
                    } else {
                        Duration::ZERO
                    },
                },
            ),
        },
        None => Decision::ask(row::RECORD_GONE, RecreationQuery::Owner(query.clone())),
    }
}

/// Whether the pod is not wanted: its record was deleted before it named the pod. Its user may have asked for its release,
/// or taken back the request to re-create it: then it stays.
fn is_unwanted(snapshot: &HoldSnapshot) -> bool {
    let pod = &snapshot.pod;
    let is_kept = pod.release_requested || pod.recreation_ended || !pod.is_selected();
    snapshot.created_in_vain && !is_kept && !pod.ran() && !pod.deleting
}

/// A pod that no attempt created.
fn first_pod(snapshot: &HoldSnapshot) -> HoldDecision {
    let pod = &snapshot.pod;
    match &snapshot.record {
        ObservedRecord::Unknown => {
            return keep("its record is not known yet").with_requeue_after(UNKNOWN);
        }
        ObservedRecord::Found(record) if record.first_uid == pod.uid.as_str() => {
            return first_pod_with_record(pod, record);
        }
        ObservedRecord::Found(_) | ObservedRecord::Absent | ObservedRecord::NotServed => {}
    }
    if pod.deleting {
        return release(row::DELETED, Evidence::DeletedFirst);
    }
    match &pod.state {
        PodState::Started => release(row::STARTED, Evidence::Started),
        PodState::Ended => release(row::ENDED, Evidence::Ended),
        PodState::Rejected(rejection) if !rejection.is_recreated() => {
            release(row::ENDED, Evidence::Ended).with_notice(not_recreated(rejection))
        }
        _ if !pod.is_selected() || pod.recreation_ended => unselected(snapshot),
        PodState::Rejected(_) if snapshot.cancelled => {
            keep("Belayer has not annotated yet why it is not re-created")
        }
        PodState::Rejected(_) if matches!(snapshot.record, ObservedRecord::NotServed) => {
            let message = "not re-created: the API server does not serve PodRecreations. Install the CRD: belayer crds \
                           | kubectl apply -f -";
            let notice = Notice::warning("NotRecreated", message);
            keep("the API server does not serve PodRecreations").with_notice(notice)
        }
        PodState::Rejected(_) => keep("its rejection is not recorded yet"),
        PodState::Pending => keep("it has not started"),
    }
}

/// Whether the record has the rejection of a pod that it has yet to delete.
pub(crate) fn has_rejection(record: &Record, pod: &PodView) -> bool {
    let status = &record.status;
    matches!(status.phase, Some(Phase::Rejected | Phase::Deleting))
        && status.rejected_uid.as_deref() == Some(pod.uid.as_str())
        && matches!(pod.state, PodState::Rejected(_))
        && !pod.deleting
}

/// Rule 12 for a pod whose record is up to date.
fn waits_for_steps(pod: &PodView, record: &Record) -> Option<HoldDecision> {
    has_rejection(record, pod).then(|| {
        let name = record.meta.key.name();
        let text = format!("the steps of its record must end (see PodRecreation {name})");
        Decision::missing(row::KEEP, Missing::Event(text.into()))
    })
}

/// The first pod of a record.
fn first_pod_with_record(pod: &PodView, record: &Record) -> HoldDecision {
    if let Some(end) = Final::prove(record) {
        let may_be_released =
            pod.deleting || pod.recreation_ended || !matches!(pod.state, PodState::Rejected(_));
        return if may_be_released {
            release(row::RECORD_ENDED, Evidence::RecordEnded(end))
        } else {
            keep("Belayer has not annotated yet why it is not re-created")
        };
    }
    // Only the first status ends the record of a deleted pod, or requests the wipe that comes first.
    let begins = record.status.phase.is_none()
        && !record.meta.is_deleting()
        && matches!(pod.state, PodState::Rejected(_));
    if let Some(waits) = waits_for_steps(pod, record) {
        return waits;
    }
    if !pod.deleting || begins {
        return keep("its record is not up to date yet");
    }
    deleted(pod, record)
}

/// Rules 6 and 8: the record of a pod that is being deleted has not ended.
fn deleted(pod: &PodView, record: &Record) -> HoldDecision {
    if would_run_again(pod, record) {
        return keep("its record is not up to date yet");
    }
    match Intended::prove(record, &pod.uid) {
        Some(intended) => release(row::RECREATING, Evidence::Recreating(intended)),
        // Another client deleted it first: the record ends once the pod does not exist.
        None => release(row::DELETED, Evidence::DeletedFirst),
    }
}

/// Rule 11. The cache alone does not prove that the namespace is ignored: it may still have a deleted one of that name.
fn unselected(snapshot: &HoldSnapshot) -> HoldDecision {
    let evidence = match &snapshot.namespace {
        Some(namespace) if !snapshot.pod.recreation_ended => {
            match namespace.ignored(snapshot.first_seen) {
                Some(proof) => NotSelected::ByNamespace(proof),
                None => {
                    let query = RecreationQuery::Namespace(namespace.query.clone());
                    let after = namespace.next_read(snapshot.first_seen, RECHECK);
                    return Decision::missing(row::UNSELECTED, Missing::Answer { query, after });
                }
            }
        }
        _ => NotSelected::ByConfiguration,
    };
    release(row::UNSELECTED, Evidence::Unselected(evidence))
}

/// The rejection that ends here, as the decision reports: it leads to no re-creation, and so to no record that counts it.
pub(crate) fn reported<'a>(
    snapshot: &'a HoldSnapshot,
    decision: &HoldDecision,
) -> Option<&'a Rejection> {
    match &snapshot.pod.state {
        PodState::Rejected(rejection)
            if snapshot.pod.origin.is_none()
                && !rejection.is_recreated()
                && !decision.notices.is_empty() =>
        {
            Some(rejection)
        }
        _ => None,
    }
}

fn not_recreated(rejection: &Rejection) -> Notice {
    Notice::warning(
        "NotRecreated",
        format!("not re-created: {}", rejection.objection()),
    )
}

fn release(row: &'static Rule, evidence: Evidence) -> HoldDecision {
    Decision::write(row, Write::Release(evidence))
}

fn keep(why: &'static str) -> HoldDecision {
    Decision::missing(row::KEEP, Missing::Event(why.into()))
}

#[cfg(test)]
mod tests;
