//! How a record ends.

use belayer_core::object::Uid;
use belayer_holds::decision::Notice;
use belayer_holds::selection::Selection;
use jiff::Timestamp;

use super::decision::{Precondition, RecordDecision, StatusWrite};
use crate::api::{ConditionStatus, ConditionType, Phase, Status, whole_seconds};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView};

/// Every allowed re-creation was rejected.
pub(super) fn exhausted(record: &Record, now: Timestamp) -> RecordDecision {
    let retries = record.policy.max_retries;
    let why =
        format!("its node rejected the pod, and the limit of {retries} re-creations is reached");
    let notice = Notice::warning("RecreationExhausted", why);
    RecordDecision::status(
        row::EXHAUSTED,
        end(record, Phase::Exhausted, "exhausted", notice, now),
    )
}

/// The pod may have run, or its reason is not one that is re-created. Unless it ran, a live read must confirm it: the cache
/// may have a version before the one that the last leader saw.
pub(super) fn reported(record: &Record, pod: &PodView, now: Timestamp) -> RecordDecision {
    let why = match &pod.state {
        PodState::Rejected(rejection) => format!("not re-created: {}", rejection.objection()),
        PodState::Started => "not re-created: a container of the pod has started".to_owned(),
        PodState::Pending | PodState::Ended => {
            "not re-created: the pod ended without a rejection".to_owned()
        }
    };
    let step = not_recreated_step(record, "reported", why, now);
    // That it ran stays true, and must be written before the pod is removed.
    let precondition = if pod.ran() {
        Precondition::None
    } else {
        Precondition::Unchanged
    };
    RecordDecision::status(row::REPORTED, step.requiring(precondition))
}

/// The pod does not request its re-creation any more.
pub(super) fn not_selected(record: &Record, pod: &PodView, now: Timestamp) -> RecordDecision {
    let (why, precondition) = match pod.selection {
        Selection::Ignored => (
            "its namespace has the label belayer.dev/ignore=true",
            Precondition::Ignored,
        ),
        Selection::Yes | Selection::No => (
            "neither the pod nor the configuration requests it any more",
            Precondition::Unchanged,
        ),
    };
    let step = reported_step(record, why, now);
    RecordDecision::status(row::REPORTED, step.requiring(precondition))
}

/// The end with the Event `NotRecreated`.
fn not_recreated_step(
    record: &Record,
    outcome: &'static str,
    why: String,
    now: Timestamp,
) -> StatusWrite {
    let notice = Notice::warning("NotRecreated", why);
    end(record, Phase::Ended, outcome, notice, now)
}

/// The reason of the condition `CreateDenied` of a record whose pod exists only in it.
const GIVEN_UP: &str = "GivenUp";

/// Whether the record ended although its pod existed only in it, and without a request of a user. Then it is kept: nothing
/// else has the pod's spec (NO-LOSS).
pub(super) fn is_only_copy(status: &Status) -> bool {
    let denied = status.condition(ConditionType::CreateDenied);
    denied.is_some_and(|denied| denied.status == ConditionStatus::True && denied.reason == GIVEN_UP)
}

/// The API server has denied the pod for too long. While the record reserves an attempt, its pod must not exist.
pub(super) fn denied(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    if record.status.phase != Some(Phase::Creating) {
        let step = not_recreated_step(record, "denied", format!("not re-created: {why}"), now);
        return RecordDecision::status(row::DENIED, step);
    }
    let why = format!(
        "not re-created, and the pod exists only in .spec.pod of this record, which is kept until a pod has its name: {why}"
    );
    let mut step = not_recreated_step(record, "denied", why, now);
    let message = step.next.condition(ConditionType::CreateDenied);
    let message = message.map_or_else(String::new, |denied| denied.message.clone());
    let because = (GIVEN_UP, message.as_str());
    step.next.set(
        ConditionType::CreateDenied,
        ConditionStatus::True,
        because,
        now,
    );
    RecordDecision::status(row::DENIED, step.if_gone(Uid::new("")))
}

/// The node did not finish the wipe in time, and the policy is `fail`.
pub(super) fn wipe_failed(record: &Record, now: Timestamp) -> RecordDecision {
    let why = "not re-created: the node was not wiped in time".to_owned();
    RecordDecision::status(
        row::WIPING,
        not_recreated_step(record, "wipe_failed", why, now),
    )
}

/// The pod of the reserved attempt does not exist, but it may have been created.
pub(super) fn hold_lost(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    let why = format!("not re-created: {why}. A pod that may have run is never created again");
    let step = not_recreated_step(record, "reported", why, now);
    RecordDecision::status(row::HOLD_LOST, step.if_gone(Uid::new("")))
}

/// Another client deleted the pod.
pub(super) fn cancelled(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    RecordDecision::status(row::CANCELLED, cancelled_step(record, why, now))
}

/// The pod's annotations end its re-creation, which a live read must confirm.
pub(super) fn cancelled_by_pod(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    let step = cancelled_step(record, why, now).requiring(Precondition::Unchanged);
    RecordDecision::status(row::CANCELLED, step)
}

/// As [`cancelled`], once a live read shows that the pod does not exist.
pub(super) fn cancelled_if_gone(
    record: &Record,
    pod: &str,
    why: &str,
    now: Timestamp,
) -> RecordDecision {
    let step = cancelled_step(record, why, now).if_gone(Uid::new(pod));
    RecordDecision::status(row::CANCELLED, step)
}

/// The end of a record whose pod, owner or namespace another client deleted.
pub(crate) fn cancelled_step(record: &Record, why: &str, now: Timestamp) -> StatusWrite {
    let notice = Notice::normal("RecreationCancelled", format!("not re-created: {why}"));
    end(record, Phase::Ended, "cancelled", notice, now)
}

/// The end of a record whose rejected pod is not re-created.
pub(crate) fn reported_step(record: &Record, why: &str, now: Timestamp) -> StatusWrite {
    not_recreated_step(record, "reported", format!("not re-created: {why}"), now)
}

/// A pod that Belayer did not create has the name, by the store, which a live read must confirm.
pub(super) fn name_taken(record: &Record, now: Timestamp) -> RecordDecision {
    let step = name_taken_step(record, now).requiring(Precondition::NameTaken);
    RecordDecision::status(row::CANCELLED, step)
}

/// The end of a record whose pod name another pod has.
pub(crate) fn name_taken_step(record: &Record, now: Timestamp) -> StatusWrite {
    let why = format!(
        "not re-created: another pod, which Belayer did not create, has the name {}",
        record.pod_name
    );
    let notice = Notice::warning("NameTaken", why);
    end(record, Phase::Ended, "name_taken", notice, now)
}

/// The name of a rejected pod that does not exist any more was used again, by a pod that has a later record.
pub(super) fn replaced(record: &Record, now: Timestamp) -> RecordDecision {
    let why = format!(
        "not re-created: a later pod had the name {}, and has its own record",
        record.pod_name
    );
    let notice = Notice::warning("NameTaken", why);
    let step = end(record, Phase::Ended, "name_taken", notice, now);
    RecordDecision::status(row::CANCELLED, step)
}

/// The re-created pod has started.
pub(super) fn pod_started(record: &Record, now: Timestamp) -> RecordDecision {
    let notice = Notice::normal("RecreatedPodStarted", "the re-created pod has started");
    let step = end(record, Phase::Started, "started", notice, now);
    RecordDecision::status(row::POD_STARTED, step)
}

/// The end of a record in this phase, with the Event that says why.
fn end(
    record: &Record,
    phase: Phase,
    outcome: &'static str,
    notice: Notice,
    now: Timestamp,
) -> StatusWrite {
    let next = final_status(record, phase, &notice.message, now);
    StatusWrite::of(next).counted(outcome).noticed(notice)
}

/// The status of a record that ends in this phase. Every condition about the chain has a value.
fn final_status(record: &Record, phase: Phase, why: &str, now: Timestamp) -> Status {
    let mut next = Status {
        phase: Some(phase),
        message: Some(why.to_owned()),
        finished_at: Some(whole_seconds(now)),
        ..record.status.clone()
    };
    let because = (phase.as_str(), why);
    for (condition, is_true) in [
        (ConditionType::PodRejected, false),
        (ConditionType::Started, phase == Phase::Started),
        (ConditionType::Exhausted, phase == Phase::Exhausted),
    ] {
        next.set(condition, ConditionStatus::of(is_true), because, now);
    }
    // The hold of the last pod is released now.
    if next.condition(ConditionType::HoldKept).is_some() {
        next.set(
            ConditionType::HoldKept,
            ConditionStatus::False,
            because,
            now,
        );
    }
    for condition in [ConditionType::Recreated, ConditionType::CreateDenied] {
        if next.condition(condition).is_none() {
            next.set(condition, ConditionStatus::False, because, now);
        }
    }
    next
}
