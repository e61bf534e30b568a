//! The state machine of a record: a pure function of what is known and the time. Each arrow is one
//! write.

mod ends;
mod verdict;

use std::time::Duration;

use belayer_core::decision::{Row, Severity};
use belayer_core::object::Uid;
use jiff::Timestamp;

use crate::api::{
    ConditionStatus, ConditionType, OnWipeTimeout, Phase, Status, Wipe, whole_seconds,
};
use crate::config::DENIED_FOR;
use crate::record::Record;
use crate::row;
use crate::snapshot::{Asked, PodState, PodView, Rejection, Selection, Sight};

use ends::{cancelled, cancelled_if_gone, end, exhausted, name_taken, reported};
pub use ends::{cut_short, finished, taken};
pub use verdict::{Effect, Step, Verdict};

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
        Phase::Waiting => waiting(record, pod, now),
        Phase::Creating => creating(record, pod, now),
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
        Some(pod) if pod.selection == Selection::No => {
            let why = "not re-created: nothing selects the pod";
            end(record, (row::REPORTED, "reported"), why, now)
        }
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

/// The status that a rejection leads to.
fn rejection_of(record: &Record, pod: &PodView, rejection: &Rejection, now: Timestamp) -> Status {
    let mut next = record.status.clone();
    let message = rejection.message.as_deref().unwrap_or_default();
    next.phase = Some(Phase::Rejected);
    next.rejected_uid = Some(pod.uid.to_string());
    next.node_name = pod.node.as_deref().map(str::to_owned);
    next.reason = Some(rejection.reason.to_string());
    next.message = None;
    next.set(
        ConditionType::PodRejected,
        ConditionStatus::True,
        (&rejection.reason, message),
        now,
    );
    if record.policy.wipe == Wipe::Required {
        next.set(
            ConditionType::StateWiped,
            ConditionStatus::False,
            ("Waiting", "the node has not said that it is done"),
            now,
        );
    }
    if record.policy.avoid_rejected_node {
        avoid(&mut next);
    }
    next
}

fn avoid(status: &mut Status) {
    if let Some(node) = status.node_name.clone()
        && !status.avoid_nodes.contains(&node)
    {
        status.avoid_nodes.push(node);
    }
}

/// Steps 2 to 4.
fn rejected(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    let status = &record.status;
    let Some(uid) = status.rejected_uid.as_deref() else {
        return end(
            record,
            (row::CANCELLED, "cancelled"),
            "the status names no pod",
            now,
        );
    };
    let Some(pod) = pod.filter(|pod| pod.uid.as_str() == uid) else {
        return cancelled_if_gone(record, uid, "the rejected pod was deleted", now);
    };
    if pod.is_deleting() {
        return cancelled(record, "the rejected pod was deleted", now);
    }
    if pod.recreatable().is_none() {
        return reported(record, pod, now);
    }
    if status.attempts >= record.policy.max_retries {
        return exhausted(record, now);
    }
    if let Some(since) = denied_too_long(status, now) {
        return end(record, (row::DENIED, "denied"), &since, now);
    }
    let mut next = status.clone();
    if record.policy.wipe == Wipe::Required && !status.is_true(ConditionType::StateWiped) {
        match wiping(record, &mut next, now) {
            Wiped::Wait(verdict) => return verdict,
            Wiped::GoOn => {}
        }
    }
    next.phase = Some(Phase::Deleting);
    next.set(
        ConditionType::CreateDenied,
        ConditionStatus::False,
        ("Accepted", ""),
        now,
    );
    Verdict::of(
        row::INTEND,
        Effect::Intend {
            pod: pod.uid.clone(),
            step: Step::to(next),
        },
    )
}

enum Wiped {
    Wait(Verdict),
    GoOn,
}

/// Step 3.
fn wiping(record: &Record, next: &mut Status, now: Timestamp) -> Wiped {
    let status = &record.status;
    let since = status
        .condition(ConditionType::PodRejected)
        .map_or(now, |condition| condition.last_transition_time);
    let timeout = Duration::from_secs(record.policy.wipe_timeout_seconds.into());
    let waited = elapsed(since, now);
    if waited < timeout {
        let left = timeout - waited;
        let Some(node) = status.node_name.clone() else {
            return Wiped::GoOn;
        };
        next.set(
            ConditionType::StateWiped,
            ConditionStatus::True,
            ("NodeGone", "the node does not exist any more"),
            now,
        );
        let step = Step::to(next.clone());
        return Wiped::Wait(Verdict {
            again: Some(left.min(NODE_LOOK)),
            ..Verdict::of(row::WIPING, Effect::LookAtNode { node, step })
        });
    }
    match record.policy.on_wipe_timeout {
        OnWipeTimeout::Fail => Wiped::Wait(end(
            record,
            (row::WIPING, "wipe_failed"),
            "the node was not wiped in time",
            now,
        )),
        OnWipeTimeout::Proceed => {
            avoid(next);
            Wiped::GoOn
        }
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

/// Steps 6 and 7: the attempt is reserved.
fn waiting(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    if let Some(pod) = pod {
        return in_the_way(record, pod, now);
    }
    let status = &record.status;
    let since = status.pod_deletion_time.unwrap_or(now);
    let pause = record.policy.pause(status.attempts, spread(record));
    let waited = elapsed(since, now);
    if waited < pause {
        return Verdict::waits(row::BACKOFF, pause - waited);
    }
    let mut next = status.clone();
    next.phase = Some(Phase::Creating);
    next.attempts += 1;
    Verdict::of(
        row::RESERVE,
        Effect::Reserve {
            step: Step::to(next),
            node: status.node_name.clone(),
        },
    )
}

/// Step 7: the pod is created. That it is not there means that it was never created: nobody takes a pod
/// with our hold on it away.
fn creating(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
    let status = &record.status;
    match pod {
        Some(pod) => in_the_way(record, pod, now),
        None => match denied_too_long(status, now) {
            Some(since) => {
                let next = cut_short(record, &since, now);
                let step = Step::to(next).if_gone(Uid::new("")).counting("denied");
                Verdict::of(row::DENIED, Effect::Status(step))
            }
            None => Verdict::of(
                row::CREATE,
                Effect::CreatePod {
                    attempt: status.attempts,
                },
            ),
        },
    }
}

/// A pod under the name while none of ours is to be there yet, or this attempt's.
fn in_the_way(record: &Record, pod: &PodView, now: Timestamp) -> Verdict {
    let status = &record.status;
    if status.rejected_uid.as_deref() == Some(pod.uid.as_str()) {
        // The store is behind: its deletion was seen by a live look.
        return Verdict::waits(row::NOTHING, UNKNOWN);
    }
    let Some(mark) = pod.mark.as_ref().filter(|_| is_ours(record, pod)) else {
        return name_taken(record, now);
    };
    let this_attempt = status.phase == Some(Phase::Creating) && mark.attempt == status.attempts;
    if this_attempt || pod.state == PodState::Started {
        return adopted(record, pod, now);
    }
    // An old leader woke up and created it. Nothing of it ran: it goes, and the reserved attempt comes.
    take_away(row::OLD_ATTEMPT, pod)
}

/// A pod that is to go. Once it is being deleted our hold leaves, and a foreign one is waited for.
fn take_away(row: Row, pod: &PodView) -> Verdict {
    if pod.is_deleting() {
        return Verdict {
            row,
            ..Verdict::nothing()
        };
    }
    let pod = pod.uid.clone();
    Verdict::of(row, Effect::DeletePod { pod })
}

/// Step 9: the pod is there. Counted once, for the write is a compare-and-swap.
fn adopted(record: &Record, pod: &PodView, now: Timestamp) -> Verdict {
    let mut next = record.status.clone();
    next.phase = Some(Phase::Recreated);
    next.pod_uid = Some(pod.uid.to_string());
    next.pod_starts += 1;
    next.pod_recreated += 1;
    next.message = None;
    let attempt = format!("attempt {} of {}", next.attempts, record.policy.max_retries);
    next.set(
        ConditionType::PodRejected,
        ConditionStatus::False,
        ("Recreated", ""),
        now,
    );
    next.set(
        ConditionType::Recreated,
        ConditionStatus::True,
        ("Created", &attempt),
        now,
    );
    next.set(
        ConditionType::CreateDenied,
        ConditionStatus::False,
        ("Accepted", ""),
        now,
    );
    Verdict::of(
        row::RECREATED,
        Effect::Status(Step::to(next).counting("recreated")),
    )
    .telling(
        Severity::Normal,
        "Recreated",
        format!("re-created after its node had rejected it, {attempt}"),
    )
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
/// has not started.
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

/// From 0 to 1, the same for a record at every look.
fn spread(record: &Record) -> f64 {
    let uid = record.meta.uid.as_str().bytes();
    let hash = uid.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
