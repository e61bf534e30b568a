//! The table of the hold: when it comes on a pod, when it leaves. A pure function, one arm per row.

use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{Decision, Missing, Notice, Row, Severity, Write};
use belayer_holds::owned::{ObservedOwner, OwnerEnd};
use belayer_holds::owner::{OwnerQuery, OwnerState};
use jiff::Timestamp;

use crate::api::{Phase, Status};
use crate::decide::is_in_vain;
use crate::evidence::{Evidence, Final, Intended, record_gone};
use crate::record::Record;
use crate::row;
use crate::snapshot::{Asked, Hold, Mark, PodState, PodView, Rejection, Selection};

/// What is decided about a pod.
pub type HoldDecision = Decision<Evidence, OwnerQuery>;

/// A look that proved nothing is repeated after this time.
const RECHECK: Duration = Duration::from_secs(30);

/// A store that cannot say is asked again after this time.
const UNKNOWN: Duration = Duration::from_secs(5);

/// All that is read about a pod.
#[derive(Debug, Clone)]
pub struct HoldSnapshot {
    /// The pod.
    pub pod: PodView,
    /// When this process first saw it.
    pub first_seen: LogicalTime,
    /// Its record.
    pub record: RecordSight,
    /// Whether somebody deleted its record before anything was done.
    pub cancelled: Asked,
    /// Whether it was rejected after it had started and our hold had gone.
    pub to_report: Asked,
    /// What a live look at the record of its mark said, and what to ask for one.
    pub look: Option<(OwnerQuery, Option<LiveAnswer<OwnerState>>)>,
    /// Its controller, if that is of a kind that is watched.
    pub owner: Option<ObservedOwner>,
}

/// A user's pod, or the one that its record names: a drain may have removed its hold.
fn is_first_or_next(snapshot: &HoldSnapshot) -> bool {
    match (&snapshot.pod.mark, &snapshot.record) {
        (None, _) => true,
        (Some(mark), RecordSight::Found(record)) => {
            let this = Some(snapshot.pod.uid.as_str());
            let Status {
                pod_uid,
                rejected_uid,
                ..
            } = &record.status;
            record.meta.uid == mark.record_uid
                && (pod_uid.as_deref() == this || rejected_uid.as_deref() == this)
        }
        (Some(_), _) => false,
    }
}

impl HoldSnapshot {
    fn owner_has_ended(&self) -> bool {
        let end = self.owner.as_ref().map(ObservedOwner::end);
        matches!(end, Some(OwnerEnd::Ended(_)))
    }
}

/// The record of a pod.
#[derive(Debug, Clone)]
pub enum RecordSight {
    /// The store cannot say.
    Unknown,
    /// The kind is not served: nothing can be re-created.
    NotServed,
    /// There is none, as of the store.
    Absent,
    /// There is one.
    Found(Box<Record>),
}

/// Decides about the hold on one pod.
pub fn decide(snapshot: &HoldSnapshot, _now: Timestamp) -> HoldDecision {
    let pod = &snapshot.pod;
    if pod.hold == Hold::Off {
        return unheld(snapshot);
    }
    if pod.asks.release == Asked::Yes && !is_unknown_to_its_record(snapshot) {
        return release(row::ADMIN_ASKED, Evidence::AdminAsked);
    }
    let decision = match &pod.mark {
        Some(mark) => successor(snapshot, mark),
        None => first(snapshot),
    };
    unless_its_owner_ends(snapshot, decision)
}

/// Row 13: a pod that would be kept is released if its owner ends, because the owner may wait for it. A pod
/// that its record does not name yet is kept: "it does not exist" must keep meaning "it was never created".
fn unless_its_owner_ends(snapshot: &HoldSnapshot, mut decision: HoldDecision) -> HoldDecision {
    let is_known = snapshot.pod.mark.is_none()
        || matches!(snapshot.record, RecordSight::Found(_)) && !is_unknown_to_its_record(snapshot);
    if decision.write.is_some() || !is_known {
        return decision;
    }
    match snapshot.owner.as_ref().map(ObservedOwner::end) {
        Some(OwnerEnd::Ended(ended)) => release(row::OWNER_ENDS, Evidence::OwnerEnds(ended)),
        Some(OwnerEnd::Ask { query, after }) => {
            decision.missing.push(Missing::Answer { query, after });
            decision
        }
        Some(OwnerEnd::Lives) | None => decision,
    }
}

/// Whether an attempt created the pod, and its record, which may still create another one, does not name
/// it.
fn is_unknown_to_its_record(snapshot: &HoldSnapshot) -> bool {
    match (&snapshot.pod.mark, &snapshot.record) {
        (Some(mark), RecordSight::Found(record)) => {
            record.meta.uid == mark.record_uid && record.awaits(&snapshot.pod.uid)
        }
        _ => false,
    }
}

/// Rows 1 and 3.
fn unheld(snapshot: &HoldSnapshot) -> HoldDecision {
    let pod = &snapshot.pod;
    let eligible = pod.selection == Selection::Eligible
        && is_first_or_next(snapshot)
        && pod.asks.leave == Asked::No
        && pod.asks.release == Asked::No
        && !pod.is_deleting()
        && snapshot.cancelled == Asked::No
        && !matches!(snapshot.record, RecordSight::NotServed)
        && !snapshot.owner_has_ended();
    // With a hold it would be released at once.
    let over = match &snapshot.record {
        RecordSight::Found(record) => Final::prove(record).is_some(),
        RecordSight::Unknown | RecordSight::NotServed | RecordSight::Absent => false,
    };
    if !eligible || over {
        return Decision::nothing(row::NOT_OURS);
    }
    match &pod.state {
        PodState::Pending => Decision::write(row::ADD_HOLD, Write::AddHold),
        // It was rejected before it could be held, and no container of it ran: the hold keeps it while its
        // spec is saved.
        PodState::Rejected(_) if pod.recreatable().is_some() => {
            Decision::write(row::ADD_HOLD, Write::AddHold)
        }
        PodState::Rejected(rejection) if snapshot.to_report == Asked::Yes => {
            Decision::nothing(row::NOT_OURS).telling(not_recreated(rejection))
        }
        _ => Decision::nothing(row::NOT_OURS),
    }
}

/// A pod that we created. It is let go only once its record knows of it, so that "it is not there"
/// keeps meaning "it was never created".
fn successor(snapshot: &HoldSnapshot, mark: &Mark) -> HoldDecision {
    let pod = &snapshot.pod;
    let record = match &snapshot.record {
        RecordSight::Unknown => {
            return keep("its record is not known yet").looking_again_within(UNKNOWN);
        }
        RecordSight::Found(record) if record.meta.uid == mark.record_uid => record,
        RecordSight::Found(_) | RecordSight::Absent | RecordSight::NotServed => {
            return gone(snapshot);
        }
    };
    let status = &record.status;
    let this = Some(pod.uid.as_str());
    if let Some(end) = Final::prove(record) {
        return match (is_in_vain(record, pod), pod.is_deleting()) {
            (false, _) => release(row::RECORD_ENDED, Evidence::RecordEnded(end)),
            (true, true) => release(row::LEFTOVER, Evidence::Leftover),
            (true, false) => {
                keep("it was created after its record had ended, and is to be deleted")
            }
        };
    }
    if pod.is_deleting()
        && let Some(intended) = Intended::prove(record, &pod.uid)
    {
        return release(row::RECREATING, Evidence::Recreating(intended));
    }
    // The record knows of it: that it is gone tells the record's rules enough.
    let known = status.pod_uid.as_deref() == this || status.rejected_uid.as_deref() == this;
    if known && pod.is_deleting() {
        return release(row::DELETED, Evidence::DeletedFirst);
    }
    let given_up = match status.phase {
        Some(Phase::Waiting) => true,
        Some(Phase::Creating) => mark.attempt < status.attempts,
        _ => false,
    };
    if !known && given_up && pod.is_deleting() && pod.state != PodState::Started {
        return release(row::LEFTOVER, Evidence::Leftover);
    }
    if known && pod.state == PodState::Pending && pod.selection == Selection::No {
        return release(row::UNSELECTED, Evidence::Unselected);
    }
    if known && pod.state == PodState::Pending {
        return keep("it has not started");
    }
    keep("its record has not settled")
}

/// Row 4.
fn gone(snapshot: &HoldSnapshot) -> HoldDecision {
    let Some((query, answer)) = &snapshot.look else {
        return keep("its record is not known");
    };
    match answer {
        Some(answer) => match record_gone(answer, snapshot.first_seen) {
            Some(proof) => release(row::RECORD_GONE, Evidence::RecordGone(proof)),
            None => Decision::missing(
                row::RECORD_GONE,
                Missing::Answer {
                    query: query.clone(),
                    after: if answer.begun() > snapshot.first_seen {
                        RECHECK
                    } else {
                        Duration::ZERO
                    },
                },
            ),
        },
        None => Decision::ask(row::RECORD_GONE, query.clone()),
    }
}

/// The pod that the user created.
fn first(snapshot: &HoldSnapshot) -> HoldDecision {
    let pod = &snapshot.pod;
    match &snapshot.record {
        RecordSight::Unknown => {
            return keep("its record is not known yet").looking_again_within(UNKNOWN);
        }
        RecordSight::Found(record) if record.first_uid == pod.uid.as_str() => {
            return recorded(pod, record);
        }
        RecordSight::Found(_) | RecordSight::Absent | RecordSight::NotServed => {}
    }
    if pod.is_deleting() {
        return release(row::DELETED, Evidence::DeletedFirst);
    }
    match &pod.state {
        PodState::Started => release(row::STARTED, Evidence::Started),
        PodState::Ended => release(row::ENDED, Evidence::Ended),
        PodState::Rejected(rejection) if !rejection.is_recreated() => {
            release(row::ENDED, Evidence::Ended).telling(not_recreated(rejection))
        }
        _ if pod.selection == Selection::No || pod.asks.leave == Asked::Yes => {
            release(row::UNSELECTED, Evidence::Unselected)
        }
        PodState::Rejected(_) if snapshot.cancelled == Asked::Yes => {
            keep("it is to be marked as left alone")
        }
        PodState::Rejected(_) if matches!(snapshot.record, RecordSight::NotServed) => {
            keep("PodRecreations are not served").telling(Notice {
                severity: Severity::Warning,
                reason: "NotRecreated",
                message:
                    "not re-created: the API server does not serve PodRecreations; install their \
                          definition"
                        .into(),
            })
        }
        PodState::Rejected(_) => keep("its rejection is to be recorded"),
        PodState::Pending => keep("it has not started"),
    }
}

/// The user's pod, once there is a record of it.
fn recorded(pod: &PodView, record: &Record) -> HoldDecision {
    if let Some(end) = Final::prove(record) {
        let may_go = pod.is_deleting()
            || pod.asks.leave == Asked::Yes
            || !matches!(pod.state, PodState::Rejected(_));
        return if may_go {
            release(row::RECORD_ENDED, Evidence::RecordEnded(end))
        } else {
            keep("it is to be marked as left alone")
        };
    }
    if pod.is_deleting()
        && let Some(intended) = Intended::prove(record, &pod.uid)
    {
        return release(row::RECREATING, Evidence::Recreating(intended));
    }
    if pod.is_deleting() {
        // Somebody else's deletion, before ours was intended: the record ends when the pod is gone.
        return release(row::DELETED, Evidence::DeletedFirst);
    }
    keep("its record has not settled")
}

fn not_recreated(rejection: &Rejection) -> Notice {
    Notice {
        severity: Severity::Warning,
        reason: "NotRecreated",
        message: format!("not re-created: {}", rejection.objection()).into(),
    }
}

fn release(row: Row, evidence: Evidence) -> HoldDecision {
    Decision::write(row, Write::Release(evidence))
}

fn keep(why: &'static str) -> HoldDecision {
    Decision::missing(row::KEEP, Missing::Event(why.into()))
}

#[cfg(test)]
mod tests;
