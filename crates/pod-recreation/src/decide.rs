//! The state machine of a record: a pure function of what is known and the time. Each arrow is one
//! write.

mod attempt;
mod ends;
mod rejection;
mod verdict;

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::Severity;
use belayer_holds::holding::Holding;
use jiff::Timestamp;

use crate::api::{ConditionStatus, ConditionType, Phase, Status, whole_seconds};
use crate::config::DENIED_FOR;
use crate::record::Record;
use crate::row;
use crate::snapshot::{Asked, PodState, PodView, Selection, Sight};

pub use attempt::adopt;
use attempt::{creating, take_away, waiting};
use ends::{cancelled, cancelled_if_gone, name_taken, not_selected, reported};
pub use ends::{cut_short, finished, name_taken_notice, taken};
use rejection::{rejected, rejection_of};
pub use verdict::{Effect, Leads, Step, Verdict};

/// All that is read about one record, or about a pod that is to have one.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The record.
    pub record: Option<Box<Record>>,
    /// The pod under its name; without a record, the pod that is to have one.
    pub pod: Sight,
    /// Whether their namespace is being deleted, as far as the cache knows.
    pub namespace: NamespaceSight,
    /// Whether somebody deleted the pod's record before anything was done.
    pub cancelled: Asked,
    /// The last attempt of the record whose pod this process has seen.
    pub created: Option<u32>,
    /// Whether holds may be added. While Belayer is draining no re-creation begins.
    pub holding: Holding,
    /// How long a record is kept after its end.
    pub record_ttl: Duration,
}

/// The namespace of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceSight {
    /// Nothing is known against it.
    Active,
    /// Its content goes without our doing.
    Terminating,
}

/// A store that cannot say is asked again after this time.
const UNKNOWN: Duration = Duration::from_secs(5);

/// How often a node that is to be wiped is looked for.
const NODE_LOOK: Duration = Duration::from_secs(10);

/// Decides the next step.
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> Verdict {
    if snapshot.namespace == NamespaceSight::Terminating {
        return Verdict::nothing();
    }
    let pod = match &snapshot.pod {
        Sight::Unknown => return Verdict::waits(row::NOTHING, UNKNOWN),
        Sight::Absent => None,
        Sight::Present(pod) => Some(&**pod),
    };
    let Some(record) = snapshot.record.as_deref() else {
        return unrecorded(pod, snapshot.cancelled);
    };
    if record.meta.is_deleting() {
        return Verdict::nothing();
    }
    let Some(phase) = record.status.phase else {
        return begin(record, pod, now);
    };
    match phase {
        Phase::Rejected => rejected(record, pod, now),
        Phase::Deleting => deleting(record, pod, now),
        Phase::Waiting => waiting(record, pod, snapshot.holding, now),
        Phase::Creating => creating(record, pod, snapshot.created, now),
        Phase::Recreated => recreated(record, pod, now),
        Phase::Started | Phase::Exhausted | Phase::Ended => {
            ended(record, pod, snapshot.record_ttl, now)
        }
    }
}

/// Step 1: the spec becomes durable.
fn unrecorded(pod: Option<&PodView>, cancelled: Asked) -> Verdict {
    match pod {
        Some(pod) if pod.is_candidate() && cancelled == Asked::Yes => {
            // Memory ends with the process; what the user asked for must not.
            let text = "not re-created: its record was deleted".to_owned();
            let pod = pod.uid.clone();
            Verdict::of(row::MARK, Effect::Mark { pod, text })
        }
        Some(pod) if pod.is_candidate() => Verdict::of(
            row::REJECTED,
            Effect::CreateRecord {
                pod: pod.uid.clone(),
                wipe: pod.asks.wipe,
            },
        ),
        _ => Verdict::nothing(),
    }
}

/// Step 1: the record says what it is about.
fn begin(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    match pod.filter(|pod| pod.uid.as_str() == record.first_uid) {
        None => Verdict {
            row: row::ORPHAN,
            ..Verdict::nothing()
        }
        .telling(
            Severity::Warning,
            "Ignored",
            format!(
                "there is no pod {} with the UID {}: a record that was restored or made by hand is \
                 ignored",
                record.pod_name, record.first_uid
            ),
        ),
        Some(pod) if pod.is_deleting() => cancelled(record, "the rejected pod was deleted", now),
        Some(pod) if pod.selection == Selection::No => not_selected(record, now),
        Some(pod) => match pod.recreatable() {
            Some(rejection) => {
                let mut next = rejection_of(record, pod, rejection, now);
                next.pod_starts = 1;
                next.observed_generation = Some(1);
                Verdict::of(
                    row::BEGIN,
                    Effect::Status(Step::to(next).counting("rejected")),
                )
            }
            None if pod.state == PodState::Pending => Verdict::waits(row::ORPHAN, UNKNOWN * 12),
            None => reported(record, pod, now),
        },
    }
}

/// Step 5.
fn deleting(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    let status = &record.status;
    let uid = status.rejected_uid.clone().unwrap_or_default();
    let mut next = status.clone();
    next.phase = Some(Phase::Waiting);
    next.pod_deletion_time = Some(whole_seconds(now));
    match pod {
        Some(pod) if pod.uid.as_str() == uid => take_away(row::DELETE, pod),
        Some(pod) if !is_ours(record, pod) => name_taken(record, now),
        Some(_) => Verdict::of(row::FREE, Effect::Status(Step::to(next))),
        None => Verdict::of(
            row::FREE,
            Effect::Status(Step::to(next).if_gone(Uid::new(uid))),
        ),
    }
}

/// Step 9: what becomes of the pod.
fn recreated(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    let uid = record.status.pod_uid.clone().unwrap_or_default();
    let Some(pod) = pod.filter(|pod| pod.uid.as_str() == uid) else {
        return cancelled_if_gone(record, &uid, "the re-created pod was deleted", now);
    };
    match &pod.state {
        PodState::Started => {
            let mut next = finished(
                record,
                Phase::Started,
                "a pod of the chain has started",
                now,
            );
            next.set(
                ConditionType::Started,
                ConditionStatus::True,
                ("Started", ""),
                now,
            );
            Verdict::of(
                row::POD_STARTED,
                Effect::Status(Step::to(next).counting("started")),
            )
        }
        _ if pod.is_deleting() => cancelled(record, "the re-created pod was deleted", now),
        PodState::Rejected(_) if pod.selection == Selection::No => not_selected(record, now),
        PodState::Rejected(rejection) if rejection.is_recreated() => {
            let next = rejection_of(record, pod, rejection, now);
            Verdict::of(
                row::REJECTED_AGAIN,
                Effect::Status(Step::to(next).counting("rejected")),
            )
        }
        PodState::Rejected(_) | PodState::Ended => reported(record, pod, now),
        PodState::Pending => Verdict::nothing(),
    }
}

/// After the end.
fn ended(record: &Record, pod: Option<&PodView>, ttl: Duration, now: Timestamp) -> Verdict {
    let status = &record.status;
    let left_alone = pod.filter(|pod| {
        pod.uid.as_str() == record.first_uid
            && matches!(pod.state, PodState::Rejected(_))
            && pod.asks.leave == Asked::No
            && !pod.is_deleting()
    });
    if let Some(pod) = left_alone {
        let text = status.message.clone().unwrap_or_default();
        return Verdict::of(
            row::MARK,
            Effect::Mark {
                pod: pod.uid.clone(),
                text,
            },
        );
    }
    if let Some(pod) = pod.filter(|pod| is_in_vain(record, pod) && !pod.is_deleting()) {
        let pod = pod.uid.clone();
        return Verdict::of(row::IN_VAIN, Effect::DeletePod { pod });
    }
    let since = status.finished_at.unwrap_or(now);
    let kept = elapsed(since, now);
    if kept < ttl {
        return Verdict::waits(row::NOTHING, ttl - kept);
    }
    Verdict::of(row::EXPIRED, Effect::DeleteRecord)
}

/// A pod that an old leader created after its record had ended: the record knows nothing of it, and it
/// has not started. That we created it is looked at before it is deleted.
pub fn is_in_vain(record: &Record, pod: &PodView) -> bool {
    let status = &record.status;
    let this = Some(pod.uid.as_str());
    is_ours(record, pod)
        && status.pod_uid.as_deref() != this
        && status.rejected_uid.as_deref() != this
        && pod.state != PodState::Started
}

fn denied_too_long(status: &Status, now: Timestamp) -> Option<String> {
    let denied = status
        .condition(ConditionType::CreateDenied)
        .filter(|condition| condition.status == ConditionStatus::True)?;
    (elapsed(denied.last_transition_time, now) >= DENIED_FOR).then(|| {
        format!(
            "the API server has refused the pod for an hour: {}",
            denied.message
        )
    })
}

fn is_ours(record: &Record, pod: &PodView) -> bool {
    pod.mark
        .as_ref()
        .is_some_and(|mark| mark.record_uid == record.meta.uid)
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
