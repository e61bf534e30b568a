//! Steps 6 to 9: an attempt is reserved, its pod is created, and it is there.

use belayer_core::decision::{Row, Severity};
use belayer_core::object::Uid;
use jiff::Timestamp;

use super::ends::{cut_short, name_taken};
use super::verdict::{Effect, Step, Verdict};
use super::{UNKNOWN, denied_too_long, elapsed, is_ours};
use crate::api::{ConditionStatus, ConditionType, Phase};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView};

/// Steps 6 and 7: the attempt is reserved.
pub(super) fn waiting(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
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
pub(super) fn creating(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
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

/// From 0 to 1, the same for a record at every look.
fn spread(record: &Record) -> f64 {
    let uid = record.meta.uid.as_str().bytes();
    let hash = uid.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}
