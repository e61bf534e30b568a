//! Steps 6 to 9: an attempt is reserved, its pod is created, and it is there.

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::{Row, Severity};
use belayer_holds::holding::Holding;
use jiff::Timestamp;

use super::ends::{cut_short, hold_lost, name_taken};
use super::verdict::{Effect, Step, Verdict};
use super::{UNKNOWN, denied_too_long, elapsed, is_ours};
use crate::api::{ConditionStatus, ConditionType, Phase, Status};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView};

/// Steps 6 and 7: the attempt is reserved.
pub(super) fn waiting(
    record: &Record,
    pod: Option<&PodView>,
    holding: Holding,
    now: Timestamp,
) -> Verdict {
    if let Some(pod) = pod {
        return in_the_way(record, pod, now);
    }
    let status = &record.status;
    let since = status.pod_deletion_time.unwrap_or(now);
    let pause = match holding {
        // A drain waits for it.
        Holding::Draining => Duration::ZERO,
        _ => record.policy.pause(status.attempts, spread(record)),
    };
    let waited = elapsed(since, now);
    if waited < pause {
        return Verdict::waits(row::BACKOFF, pause - waited);
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
    Verdict::of(
        row::RESERVE,
        Effect::Reserve {
            step: Step::to(next),
            node: status.node_name.clone(),
        },
    )
}

/// Step 7: the pod is created. That it is not there means that it was never created: nobody takes a pod
/// with our hold on it away. If that hold may have been removed, it proves nothing.
pub(super) fn creating(
    record: &Record,
    pod: Option<&PodView>,
    created: Option<u32>,
    now: Timestamp,
) -> Verdict {
    let status = &record.status;
    match pod {
        Some(pod) => in_the_way(record, pod, now),
        None if created == Some(status.attempts) => {
            let why = "its pod was created, and was deleted after its hold had been removed";
            hold_lost(record, why, now)
        }
        None if !status.is_true(ConditionType::HoldKept) => {
            let why = "its attempt was reserved by an earlier version, and a drain may have removed the hold of its pod since then";
            hold_lost(record, why, now)
        }
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
pub(super) fn take_away(row: Row, pod: &PodView) -> Verdict {
    if pod.is_deleting() {
        return Verdict {
            row,
            ..Verdict::nothing()
        };
    }
    let pod = pod.uid.clone();
    Verdict::of(row, Effect::DeletePod { pod })
}

/// The status of a record that names the pod that was created for it.
pub fn adopt(record: &Record, pod: &Uid, now: Timestamp) -> Status {
    let mut next = record.status.clone();
    next.phase = Some(Phase::Recreated);
    next.pod_uid = Some(pod.to_string());
    next.pod_starts += 1;
    next.pod_recreated += 1;
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

/// Step 9: the pod exists. Counted once, because the write is a compare-and-swap.
fn adopted(record: &Record, pod: &PodView, now: Timestamp) -> Verdict {
    let next = adopt(record, &pod.uid, now);
    Verdict::of(
        row::RECREATED,
        Effect::Status(Step::to(next).counting("recreated")),
    )
    .telling(
        Severity::Normal,
        "Recreated",
        format!(
            "re-created after its node had rejected it, {}",
            attempt_of(record)
        ),
    )
}

/// From 0 to 1, the same for a record at every look.
fn spread(record: &Record) -> f64 {
    let uid = record.meta.uid.as_str().bytes();
    let hash = uid.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}
