//! Steps 6 to 9: the attempt is reserved, its pod is created, and the record names the pod.

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::{Notice, Rule};
use belayer_holds::holding::Holding;
use jiff::Timestamp;

use super::decision::{Effect, RecordDecision, StatusWrite};
use super::ends::{denied, exhausted, hold_lost, name_taken};
use super::{Clock, RECHECK, denied_too_long, is_of_record, is_of_the_past, is_undecided};
use crate::api::{ConditionStatus, ConditionType, Phase, Status};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView, UNKNOWN};

/// Steps 6 and 7: reserves the attempt after the pause.
pub(super) fn waiting(
    record: &Record,
    pod: Option<&PodView>,
    holding: Holding,
    clock: Clock,
) -> RecordDecision {
    let now = clock.now;
    if let Some(pod) = pod {
        return existing_pod(record, pod, now);
    }
    let status = &record.status;
    // The record is within its limit when the phase begins; another client may have changed its status since then.
    if status.attempts >= record.policy.max_retries {
        return exhausted(record, now);
    }
    let pause = match holding {
        // A drain waits for this re-creation.
        Holding::Draining => Duration::ZERO,
        _ => record.policy.pause(status.attempts, spread(record)),
    };
    let waited = clock.paused(status.pod_deletion_time.unwrap_or(now));
    if waited < pause {
        return RecordDecision::waits(row::BACKOFF, pause - waited);
    }
    let mut next = status.clone();
    next.phase = Some(Phase::Creating);
    next.attempts += 1;
    next.set(
        ConditionType::HoldKept,
        ConditionStatus::True,
        (
            "Reserved",
            "the pod of this attempt keeps its finalizer until it is recorded here",
        ),
        now,
    );
    RecordDecision::of(
        row::RESERVE,
        Effect::Reserve {
            step: StatusWrite::of(next),
            node: status.node_name.clone(),
        },
    )
}

/// Step 7: creates the pod. If it does not exist it was never created, because its hold keeps it until the record
/// names it. If that hold may have been removed, its absence proves nothing.
pub(super) fn creating(
    record: &Record,
    pod: Option<&PodView>,
    created: Option<u32>,
    clock: Clock,
) -> RecordDecision {
    let now = clock.now;
    let status = &record.status;
    match pod {
        Some(pod) => existing_pod(record, pod, now),
        None if created == Some(status.attempts) => {
            let why = "its pod was created, and was deleted after its hold had been removed";
            hold_lost(record, why, now)
        }
        None if !status.is_true(ConditionType::HoldKept) => {
            let why = "its attempt was reserved by an earlier version, and a drain may have removed the hold of its pod since then";
            hold_lost(record, why, now)
        }
        None => match denied_too_long(status, clock) {
            Some(why) => denied(record, &why, now),
            None => RecordDecision::of(
                row::CREATE,
                Effect::CreatePod {
                    attempt: status.attempts,
                },
            ),
        },
    }
}

/// A pod with the record's pod name exists in phase `Waiting` or `Creating`.
fn existing_pod(record: &Record, pod: &PodView, now: Timestamp) -> RecordDecision {
    let status = &record.status;
    if is_of_the_past(record, pod) {
        // A live read has shown that this pod does not exist.
        return RecordDecision::waits(row::NOTHING, UNKNOWN);
    }
    if is_undecided(record, pod) {
        return RecordDecision::waits(row::NOTHING, UNKNOWN);
    }
    let Some(origin) = pod.origin.as_ref().filter(|_| is_of_record(record, pod)) else {
        return name_taken(record, now);
    };
    let this_attempt = status.phase == Some(Phase::Creating) && origin.attempt == status.attempts;
    if this_attempt || pod.state == PodState::Started {
        return pod_created(record, pod, now);
    }
    // An old leader resumed and created it. It has not started: it is deleted, and the reserved attempt follows.
    delete_pod(row::OLD_ATTEMPT, pod)
}

/// Deletes a pod. While it is being deleted Belayer's hold is released, and finalizers of others are waited for.
pub(super) fn delete_pod(row: &'static Rule, pod: &PodView) -> RecordDecision {
    if pod.deleting {
        return RecordDecision::waits(row, RECHECK);
    }
    let pod = pod.uid.clone();
    RecordDecision::of(row, Effect::DeletePod { pod })
}

/// The status of a record that names the pod that its attempt created. It belongs to the rules of
/// [`row`](crate::row).
pub fn status_with_pod(record: &Record, pod: &Uid, now: Timestamp) -> Status {
    let mut next = record.status.clone();
    next.phase = Some(Phase::Recreated);
    next.pod_uid = Some(pod.to_string());
    next.pod_starts = next.pod_starts.saturating_add(1);
    next.pod_recreated = next.pod_recreated.saturating_add(1);
    next.message = None;
    let attempt = attempt_of(record);
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
    next
}

fn attempt_of(record: &Record) -> String {
    let attempts = record.status.attempts;
    format!("attempt {attempts} of {}", record.policy.max_retries)
}

/// Step 9: the pod exists. It is counted once, because the write is a compare-and-swap.
fn pod_created(record: &Record, pod: &PodView, now: Timestamp) -> RecordDecision {
    let next = status_with_pod(record, &pod.uid, now);
    RecordDecision::status(row::RECREATED, StatusWrite::of(next).counted("recreated")).with_notice(
        Notice::normal(
            "Recreated",
            format!(
                "re-created after its node had rejected it, {}",
                attempt_of(record)
            ),
        ),
    )
}

/// From 0 to 1; constant for a record.
fn spread(record: &Record) -> f64 {
    let uid = record.meta.uid.as_str().bytes();
    let hash = uid.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}
