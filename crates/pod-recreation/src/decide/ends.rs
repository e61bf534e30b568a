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
    let mut next = final_status(record, Phase::Exhausted, &why, now);
    next.set(
        ConditionType::PodRejected,
        ConditionStatus::False,
        ("Exhausted", ""),
        now,
    );
    next.set(
        ConditionType::Exhausted,
        ConditionStatus::True,
        ("Exhausted", &why),
        now,
    );
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
    end(record, outcome, &why, now).with_notice(Severity::Warning, "NotRecreated", why)
}

/// The node did not finish the wipe in time, and the policy is `fail`.
pub(super) fn wipe_failed(record: &Record, now: Timestamp) -> RecordDecision {
    let why = "the node was not wiped in time";
    end(record, (row::WIPING, "wipe_failed"), why, now).with_notice(
        Severity::Warning,
        "NotRecreated",
        format!("not re-created: {why}"),
    )
}

/// The pod of the reserved attempt does not exist, but it may have been created.
pub(super) fn hold_lost(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    let why = format!("not re-created: {why}. A pod that may have run is never created again");
    let step = StatusWrite::of(ended_status(record, &why, now));
    let step = step.if_gone(Uid::new("")).counted("reported");
    RecordDecision::of(row::HOLD_LOST, Effect::Status(step)).with_notice(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// Another client deleted the pod.
pub(super) fn cancelled(record: &Record, why: &str, now: Timestamp) -> RecordDecision {
    end(record, (row::CANCELLED, "cancelled"), why, now)
}

/// As [`cancelled`], once a live read shows that the pod does not exist.
pub(super) fn cancelled_if_gone(
    record: &Record,
    pod: &str,
    why: &str,
    now: Timestamp,
) -> RecordDecision {
    let next = final_status(record, Phase::Ended, why, now);
    let step = StatusWrite::of(next)
        .if_gone(Uid::new(pod))
        .counted("cancelled");
    RecordDecision::of(row::CANCELLED, Effect::Status(step))
}

/// A pod that Belayer did not create has the name.
pub(super) fn name_taken(record: &Record, now: Timestamp) -> RecordDecision {
    let why = name_taken_message(record);
    RecordDecision {
        notice: Some(name_taken_notice(record)),
        ..end(record, (row::CANCELLED, "name_taken"), &why, now)
    }
}

/// The Event that another pod has the name.
pub fn name_taken_notice(record: &Record) -> Notice {
    Notice {
        severity: Severity::Warning,
        reason: "NameTaken",
        message: format!("not re-created: {}", name_taken_message(record)).into(),
    }
}

/// An end that is written without a live read.
pub(super) fn end(
    record: &Record,
    (row, outcome): (Row, &'static str),
    why: &str,
    now: Timestamp,
) -> RecordDecision {
    let next = ended_status(record, why, now);
    RecordDecision::of(row, Effect::Status(StatusWrite::of(next).counted(outcome)))
}

/// The status `Ended` of a record whose rejected pod is not re-created.
pub fn ended_status(record: &Record, why: &str, now: Timestamp) -> Status {
    let mut next = final_status(record, Phase::Ended, why, now);
    if next.condition(ConditionType::PodRejected).is_some() {
        next.set(
            ConditionType::PodRejected,
            ConditionStatus::False,
            ("Ended", why),
            now,
        );
    }
    next
}

/// The status `Ended` of a record whose pod name another pod has.
pub fn name_taken_status(record: &Record, now: Timestamp) -> Status {
    final_status(record, Phase::Ended, &name_taken_message(record), now)
}

fn name_taken_message(record: &Record) -> String {
    format!(
        "another pod, which Belayer did not create, has the name {}",
        record.pod_name
    )
}

/// The status of a record that ends in this phase.
pub fn final_status(record: &Record, phase: Phase, why: &str, now: Timestamp) -> Status {
    Status {
        phase: Some(phase),
        message: Some(why.to_owned()),
        finished_at: Some(whole_seconds(now)),
        ..record.status.clone()
    }
}
