//! The state machine of a record: a pure function of a snapshot and the time. Each transition is
//! one write. It belongs to the rules of [`row`]. Comments refer to these steps:
//!
//! 1. Create the record, with the pod's spec, then its first status.
//! 2. Compare the attempts with `maxRetries`.
//! 3. Wait for the wipe of the node.
//! 4. Create the pod as a server-side dry run, then record the intent to delete the rejected one (`Deleting`).
//! 5. Delete the rejected pod, and wait until its name is free.
//! 6. Wait for the pause (`Waiting`).
//! 7. Reserve the attempt in the record (`Creating`), then create the pod.
//! 8. Read the record again: if it was cancelled, or reserved by another replica, delete the new pod.
//! 9. Record the new pod (`Recreated`). It starts, or is rejected again, which leads to step 2.

mod attempt;
mod decision;
mod ends;
mod rejection;
mod wipe;

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::Notice;
use belayer_holds::holding::Holding;
use jiff::Timestamp;

use crate::api::{ConditionStatus, ConditionType, Phase, Status, whole_seconds};
use crate::config::DENIED_FOR;
use crate::evidence::Intended;
use crate::record::Record;
use crate::row;
use crate::snapshot::{ObservedPod, Origin, PodState, PodView, UNKNOWN};

pub use attempt::status_with_pod;
use attempt::{creating, delete_pod, waiting};
pub use decision::{Effect, Precondition, Progress, RecordDecision, StatusWrite};
use ends::{
    cancelled, cancelled_if_gone, is_only_copy, name_taken, not_selected, pod_started, replaced,
    reported,
};
pub(crate) use ends::{cancelled_step, name_taken_step, reported_step};
use rejection::{rejected, rejected_status};
pub use wipe::ObservedWipe;
pub(crate) use wipe::{REFUSED, WITHDRAWN, node_gone_status, refused_status};

/// The input of a decision about a record, or about a rejected pod without a record. It belongs to
/// the rules of [`row`].
#[derive(Debug, Clone)]
pub struct RecordSnapshot {
    /// The record.
    pub record: Option<Box<Record>>,
    /// The pod with the record's pod name; without a record, the rejected pod.
    pub pod: ObservedPod,
    /// Whether their namespace is being deleted, as far as the cache shows.
    pub namespace_terminating: bool,
    /// Whether a later pod of the same name has a record, so that its user wants that one.
    pub replaced: bool,
    /// Whether another client deleted the pod's record before it had ended.
    pub cancelled: bool,
    /// The last attempt of the record whose pod this process has seen.
    pub created: Option<u32>,
    /// How long this process has seen the record wait for the same; `None` if it does not watch the record.
    pub watched: Option<Duration>,
    /// Whether holds may be added. While Belayer is draining no re-creation begins.
    pub holding: Holding,
    /// The entry in the `NodeWipe` of the node for the rejected pod.
    pub wipe: ObservedWipe,
    /// How long a record is kept after its end.
    pub record_ttl: Duration,
}

/// Requeue delay while the pod must change. Its events do not reach the record once its user has removed what names the
/// record, or what selects the pod.
pub(crate) const RECHECK: Duration = Duration::from_secs(60);

/// Interval of the reads of a node that must be wiped.
const NODE_INTERVAL: Duration = Duration::from_secs(10);

/// The time of a decision. The clock of the leader that wrote the times of a record may differ from this one, and both
/// may jump, so what this process has seen by its monotonic clock counts too.
#[derive(Debug, Clone, Copy)]
struct Clock {
    now: Timestamp,
    watched: Option<Duration>,
}

impl Clock {
    /// The elapsed part of a pause that began at `since`. It ends at the latest after this process has seen all of it.
    fn paused(self, since: Timestamp) -> Duration {
        elapsed(since, self.now).max(self.watched.unwrap_or_default())
    }

    /// How long something has been tried since `since`, before it is given up. A jump of a clock gives up nothing.
    fn tried(self, since: Timestamp) -> Duration {
        self.watched.unwrap_or_else(|| elapsed(since, self.now))
    }
}

/// Decides the next step. It belongs to the rules of [`row`].
pub fn decide(snapshot: &RecordSnapshot, now: Timestamp) -> RecordDecision {
    let clock = Clock {
        now,
        watched: snapshot.watched,
    };
    let pod = match &snapshot.pod {
        ObservedPod::Unknown => return RecordDecision::waits(row::NOTHING, UNKNOWN),
        ObservedPod::Absent => None,
        ObservedPod::Present(pod) => Some(&**pod),
    };
    let Some(record) = snapshot.record.as_deref() else {
        return unrecorded(pod, snapshot);
    };
    if record.meta.is_deleting() {
        return RecordDecision::nothing();
    }
    let Some(phase) = record.status.phase else {
        return begin(record, pod, snapshot.record_ttl, clock);
    };
    if let Some(decision) = wipe::report(record, &snapshot.wipe, now) {
        return decision;
    }
    match phase {
        Phase::Waiting | Phase::Creating if pod.is_none() && snapshot.replaced => {
            replaced(record, now)
        }
        Phase::Rejected => rejected(record, pod, &snapshot.wipe, clock),
        Phase::Deleting => deleting(record, pod, now),
        Phase::Waiting => waiting(record, pod, snapshot.holding, clock),
        Phase::Creating => creating(record, pod, snapshot.created, clock),
        Phase::Recreated => recreated(record, pod, now),
        Phase::Started | Phase::Exhausted | Phase::Ended => {
            ended(record, pod, snapshot.record_ttl, clock)
        }
    }
}

/// Step 1: creates the record, which stores the pod's spec.
fn unrecorded(pod: Option<&PodView>, snapshot: &RecordSnapshot) -> RecordDecision {
    match pod {
        Some(pod) if pod.is_candidate() && snapshot.cancelled => {
            // `cancelled` is in memory only; the annotation survives a restart.
            let text = "not re-created: its record was deleted".to_owned();
            let pod = pod.uid.clone();
            RecordDecision::of(row::MARK, Effect::AnnotatePod { pod, text })
        }
        // A record would keep the pod, and the pods of a namespace that is being deleted are removed before its records are. An
        // existing record goes on: the cache may show an older namespace of that name, and the API server refuses to create a pod
        // in one that is being deleted.
        Some(pod) if pod.is_candidate() && !snapshot.namespace_terminating => RecordDecision::of(
            row::REJECTED,
            Effect::CreateRecord {
                pod: pod.uid.clone(),
                wipe: pod.wipe,
            },
        ),
        _ => RecordDecision::nothing(),
    }
}

/// Step 1: writes the first status.
fn begin(record: &Record, pod: Option<&PodView>, ttl: Duration, clock: Clock) -> RecordDecision {
    let now = clock.now;
    let age = clock.paused(record.created.unwrap_or(now));
    match pod.filter(|pod| pod.uid.as_str() == record.first_uid) {
        // It contains the inline values of a pod that does not exist.
        None if age >= ttl => RecordDecision::of(row::EXPIRED, Effect::DeleteRecord),
        None => {
            let message = format!(
                "ignoring this record: there is no pod {} with the UID {}. The pod was deleted before its re-creation \
                 began, or the record was restored from a backup or created by another client",
                record.pod_name, record.first_uid
            );
            let notice = Notice::warning("Ignored", message);
            RecordDecision::waits(row::ORPHAN, ttl - age).with_notice(notice)
        }
        Some(pod) if pod.deleting && !wipe::comes_first(record, pod) => {
            cancelled(record, "the rejected pod was deleted", now)
        }
        Some(pod) if !pod.is_selected() && !wipe::comes_first(record, pod) => {
            not_selected(record, pod, now)
        }
        Some(pod) => match pod.recreatable() {
            Some(rejection) => {
                let mut next = rejected_status(record, pod, rejection, now);
                next.pod_starts = 1;
                next.observed_generation = Some(1);
                RecordDecision::status(row::BEGIN, StatusWrite::of(next).counted("rejected"))
            }
            None if pod.state == PodState::Pending => {
                RecordDecision::waits(row::ORPHAN, UNKNOWN * 12)
            }
            None => reported(record, pod, now),
        },
    }
}

/// Step 5: deletes the rejected pod, then waits until it does not exist.
fn deleting(record: &Record, pod: Option<&PodView>, now: Timestamp) -> RecordDecision {
    let status = &record.status;
    let uid = status.rejected_uid.clone().unwrap_or_default();
    let mut next = status.clone();
    next.phase = Some(Phase::Waiting);
    next.pod_deletion_time = Some(whole_seconds(now));
    match pod {
        // It ran after all. Its kubelet may report that only now.
        Some(pod) if pod.uid.as_str() == uid && pod.ran() => reported(record, pod, now),
        Some(pod) if pod.uid.as_str() == uid => delete_pod(row::DELETE, pod),
        Some(pod) if is_of_the_past(record, pod) || is_undecided(record, pod) => {
            RecordDecision::waits(row::NOTHING, UNKNOWN)
        }
        Some(pod) if !is_of_record(record, pod) => name_taken(record, now),
        _ => RecordDecision::status(row::FREE, StatusWrite::of(next).if_gone(Uid::new(uid))),
    }
}

/// Step 9: the re-created pod starts, is rejected again, or ends.
fn recreated(record: &Record, pod: Option<&PodView>, now: Timestamp) -> RecordDecision {
    let uid = record.status.pod_uid.clone().unwrap_or_default();
    let Some(pod) = pod.filter(|pod| pod.uid.as_str() == uid) else {
        return cancelled_if_gone(record, &uid, "the re-created pod was deleted", now);
    };
    match &pod.state {
        PodState::Started => pod_started(record, now),
        _ if pod.deleting && !wipe::comes_first(record, pod) => {
            cancelled(record, "the re-created pod was deleted", now)
        }
        PodState::Rejected(_) if !pod.is_selected() && !wipe::comes_first(record, pod) => {
            not_selected(record, pod, now)
        }
        PodState::Rejected(rejection)
            if rejection.is_recreated() || wipe::comes_first(record, pod) =>
        {
            let next = StatusWrite::of(rejected_status(record, pod, rejection, now));
            let step = if rejection.is_recreated() {
                next.counted("rejected")
            } else {
                next
            };
            RecordDecision::status(row::REJECTED_AGAIN, step)
        }
        PodState::Rejected(_) | PodState::Ended => reported(record, pod, now),
        PodState::Pending => RecordDecision::waits(row::NOTHING, RECHECK),
    }
}

/// After the end: annotates the rejected pod, deletes a late pod of an old leader, then deletes the record unless only it
/// has the pod.
fn ended(record: &Record, pod: Option<&PodView>, ttl: Duration, clock: Clock) -> RecordDecision {
    let status = &record.status;
    if let Some(pod) = pod.filter(|pod| needs_record(record, pod)) {
        let text = status.message.clone().unwrap_or_default();
        return RecordDecision::of(
            row::MARK,
            Effect::AnnotatePod {
                pod: pod.uid.clone(),
                text,
            },
        );
    }
    if let Some(pod) = pod.filter(|pod| is_created_after_end(record, pod) && !pod.deleting) {
        let pod = pod.uid.clone();
        return RecordDecision::of(row::IN_VAIN, Effect::DeletePod { pod });
    }
    if is_only_copy(status) && pod.is_none_or(|pod| is_created_after_end(record, pod)) {
        return RecordDecision::nothing();
    }
    let age = clock.paused(status.finished_at.unwrap_or(clock.now));
    if age < ttl {
        return RecordDecision::waits(row::NOTHING, ttl - age);
    }
    RecordDecision::of(row::EXPIRED, Effect::DeleteRecord)
}

/// Whether this is a pod of the record whose annotations name no record, and the record has not begun, or the pod would be
/// re-created from the start without it.
pub(crate) fn needs_record(record: &Record, pod: &PodView) -> bool {
    let would_be_recreated =
        matches!(pod.state, PodState::Rejected(_)) && !pod.recreation_ended && !pod.deleting;
    let lost_its_annotations =
        is_of_record(record, pod) && pod.origin.as_ref().is_some_and(|origin| !origin.annotated);
    (pod.uid.as_str() == record.first_uid || lost_its_annotations)
        && (record.status.phase.is_none() || would_be_recreated)
}

/// Whether an old leader created the pod after its record had ended: the record does not name it, and it has not
/// started.
pub(crate) fn is_created_after_end(record: &Record, pod: &PodView) -> bool {
    let status = &record.status;
    let this = Some(pod.uid.as_str());
    is_of_record(record, pod)
        && status.pod_uid.as_deref() != this
        && status.rejected_uid.as_deref() != this
        && pod.state != PodState::Started
}

/// Whether `record` leaves the pod name to `other`, as it does to each one that `is_later`: the user wants the pod of that one.
/// But a later record of a pod that this one has re-created is a duplicate, which a client caused by removing the pod's
/// annotations: the one goes on that has deleted the pod, and creates the next one.
pub(crate) fn yields_to(record: &Record, other: &Record, is_later: bool) -> bool {
    let is_duplicate = |first: &Record, second: &Record| {
        let pod = Uid::new(second.first_uid.as_str());
        second.status.attempts == 0
            && Origin::by(first, &pod).is_some()
            && Intended::prove(first, &pod).is_some()
    };
    is_duplicate(other, record) || is_later && !is_duplicate(record, other)
}

fn denied_too_long(status: &Status, clock: Clock) -> Option<String> {
    let denied = status
        .condition(ConditionType::CreateDenied)
        .filter(|condition| condition.status == ConditionStatus::True)?;
    (clock.tried(denied.last_transition_time) >= DENIED_FOR).then(|| {
        format!(
            "the API server has denied the pod for an hour: {}",
            denied.message
        )
    })
}

/// Whether an attempt of the record created the pod.
pub(crate) fn is_of_record(record: &Record, pod: &PodView) -> bool {
    pod.origin
        .as_ref()
        .is_some_and(|origin| origin.record_uid == record.meta.uid)
}

/// Whether another record has created the pod, and Belayer still holds it. A request may create a pod long after its record has
/// ended: such a pod is deleted, and the name is free again. If it stays, its hold is removed.
pub(crate) fn is_undecided(record: &Record, pod: &PodView) -> bool {
    let is_of_another = pod.origin.is_some() && !is_of_record(record, pod);
    is_of_another && pod.held && pod.state != PodState::Started
}

/// Whether the store is behind the record, which says that this pod was deleted.
fn is_of_the_past(record: &Record, pod: &PodView) -> bool {
    let this = pod.uid.as_str();
    record.first_uid == this || record.status.rejected_uid.as_deref() == Some(this)
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
