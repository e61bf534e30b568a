//! How a record ends.

use belayer_core::object::Uid;
use belayer_holds::decision::{Notice, Row, Severity};
use jiff::Timestamp;

use super::decision::{Effect, RecordDecision, StatusWrite};
use crate::api::{ConditionStatus, ConditionType, Phase, Status, whole_seconds};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView};

/// Every allowed re-creation was rejected.
pub(super) fn exhausted(record: &Record, now: Timestamp) -> RecordDecision {
    let retries = record.policy.max_retries;
    let why =
        format!("its node rejected the pod, and the limit of {retries} re-creations is reached");
    let next = final_status(record, Phase::Exhausted, &why, now);
    RecordDecision::of(
        row::EXHAUSTED,
        Effect::Status(StatusWrite::of(next).counted("exhausted")),
    )
    .with_notice(Severity::Warning, "RecreationExhausted", why)
}

/// The pod may have run, or its reason is not one that is re-created.
pub(super) fn reported(record: &Record, pod: &PodView, now: Timestamp) -> RecordDecision {
    let why = match &pod.state {
        PodState::Rejected(rejection) => format!("not re-created: {}", rejection.objection()),
        PodState::Started => "not re-created: a container of the pod has started".to_owned(),
        PodState::Pending | PodState::Ended => {
            "not re-created: the pod ended without a rejection".to_owned()
        }
    };
    not_recreated((row::REPORTED, "reported"), record, why, now)
}

/// The pod does not request its re-creation any more.
pub(super) fn not_selected(record: &Record, now: Timestamp) -> RecordDecision {
    let why = "not re-created: neither the pod nor the configuration requests it any more";
    not_recreated((row::REPORTED, "reported"), record, why.to_owned(), now)
}

/// The end with the Event `NotRecreated`.
fn not_recreated(
    outcome: (Row, &'static str),
    record: &Record,
    why: String,
    now: Timestamp,
) -> RecordDecision {
    let (row, outcome) = outcome;
    let next = final_status(record, Phase::Ended, &why, now);
    RecordDecision::of(row, Effect::Status(StatusWrite::of(next).counted(outcome))).with_notice(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// The API server has denied the pod for too long. While the record reserves an attempt, its pod must not exist.
pub(super) fn denied(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    let why = format!("not re-created: {why}");
    let step = StatusWrite::of(final_status(record, Phase::Ended, &why, now)).counted("denied");
    let is_reserved = record.status.phase == Some(Phase::Creating);
    let step = if is_reserved {
        step.if_gone(Uid::new(""))
    } else {
        step
    };
    RecordDecision::of(row::DENIED, Effect::Status(step)).with_notice(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// The node did not finish the wipe in time, and the policy is `fail`.
pub(super) fn wipe_failed(record: &Record, now: Timestamp) -> RecordDecision {
    let why = "not re-created: the node was not wiped in time".to_owned();
    not_recreated((row::WIPING, "wipe_failed"), record, why, now)
}

/// The pod of the reserved attempt does not exist, but it may have been created.
pub(super) fn hold_lost(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    let why = format!("not re-created: {why}. A pod that may have run is never created again");
    let step = StatusWrite::of(final_status(record, Phase::Ended, &why, now));
    let step = step.if_gone(Uid::new("")).counted("reported");
    RecordDecision::of(row::HOLD_LOST, Effect::Status(step)).with_notice(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// Another client deleted the pod.
pub(super) fn cancelled(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    RecordDecision::of(
        row::CANCELLED,
        Effect::Status(cancelled_step(record, why, now)),
    )
}

/// As [`cancelled`], once a live read shows that the pod does not exist.
pub(super) fn cancelled_if_gone(
    record: &Record,
    pod: &str,
    why: &str,
    now: Timestamp,
) -> RecordDecision {
    let step = cancelled_step(record, why, now).if_gone(Uid::new(pod));
    RecordDecision::of(row::CANCELLED, Effect::Status(step))
}

/// The end of a record whose pod, owner or namespace another client deleted.
pub(crate) fn cancelled_step(record: &Record, why: &str, now: Timestamp) -> StatusWrite {
    let why = format!("not re-created: {why}");
    StatusWrite::of(final_status(record, Phase::Ended, &why, now))
        .counted("cancelled")
        .noticed(Notice {
            severity: Severity::Normal,
            reason: "RecreationCancelled",
            message: why.into(),
        })
}

/// The end of a record whose rejected pod is not re-created.
pub(crate) fn reported_step(record: &Record, why: &str, now: Timestamp) -> StatusWrite {
    let why = format!("not re-created: {why}");
    StatusWrite::of(final_status(record, Phase::Ended, &why, now))
        .counted("reported")
        .noticed(Notice {
            severity: Severity::Warning,
            reason: "NotRecreated",
            message: why.into(),
        })
}

/// A pod that Belayer did not create has the name, by the store, which a live read must confirm.
pub(super) fn name_taken(record: &Record, now: Timestamp) -> RecordDecision {
    let step = StatusWrite {
        name_taken: true,
        ..name_taken_step(record, now)
    };
    RecordDecision::of(row::CANCELLED, Effect::Status(step))
}

/// The end of a record whose pod name another pod has.
pub(crate) fn name_taken_step(record: &Record, now: Timestamp) -> StatusWrite {
    let why = format!(
        "not re-created: another pod, which Belayer did not create, has the name {}",
        record.pod_name
    );
    StatusWrite::of(final_status(record, Phase::Ended, &why, now))
        .counted("name_taken")
        .noticed(Notice {
            severity: Severity::Warning,
            reason: "NameTaken",
            message: why.into(),
        })
}

/// The re-created pod has started.
pub(super) fn pod_started(record: &Record, now: Timestamp) -> RecordDecision {
    let why = "the re-created pod has started";
    let next = final_status(record, Phase::Started, why, now);
    RecordDecision::of(
        row::POD_STARTED,
        Effect::Status(StatusWrite::of(next).counted("started")),
    )
    .with_notice(Severity::Normal, "RecreatedPodStarted", why.to_owned())
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
    for condition in [ConditionType::Recreated, ConditionType::CreateDenied] {
        if next.condition(condition).is_none() {
            next.set(condition, ConditionStatus::False, because, now);
        }
    }
    next
}
