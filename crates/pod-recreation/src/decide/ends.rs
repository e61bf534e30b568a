//! How a record ends.

use belayer_core::object::Uid;
use belayer_holds::decision::{Notice, Row, Severity};
use jiff::Timestamp;

use super::verdict::{Effect, Step, Verdict};
use crate::api::{ConditionStatus, ConditionType, Phase, Status, whole_seconds};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView};

/// Every re-creation was rejected.
pub(super) fn exhausted(record: &Record, now: Timestamp) -> Verdict {
    let retries = record.policy.max_retries;
    let why = format!("every one of {retries} re-creations was rejected");
    let mut next = finished(record, Phase::Exhausted, &why, now);
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
    Verdict::of(
        row::EXHAUSTED,
        Effect::Status(Step::to(next).counting("exhausted")),
    )
    .telling(Severity::Warning, "RecreationExhausted", why)
}

/// The pod is none that is re-created.
pub(super) fn reported(record: &Record, pod: &PodView, now: Timestamp) -> Verdict {
    let why = match &pod.state {
        PodState::Rejected(rejection) => format!("not re-created: {}", rejection.objection()),
        PodState::Started => "not re-created: a container of it has started".to_owned(),
        PodState::Pending | PodState::Ended => "not re-created: it ended otherwise".to_owned(),
    };
    end(record, (row::REPORTED, "reported"), &why, now).telling(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// Nothing asks for the pod's re-creation any more.
pub(super) fn not_selected(record: &Record, now: Timestamp) -> Verdict {
    let why = "not re-created: nothing selects the pod";
    end(record, (row::REPORTED, "reported"), why, now).telling(
        Severity::Warning,
        "NotRecreated",
        why.to_owned(),
    )
}

/// The pod of the reserved attempt does not exist, and that does not prove that it was never created.
pub(super) fn hold_lost(record: &Record, why: &str, now: Timestamp) -> Verdict {
    let why = format!("not re-created: {why}. A pod that may have run is never created again");
    let step = Step::to(cut_short(record, &why, now));
    let step = step.if_gone(Uid::new("")).counting("reported");
    Verdict::of(row::HOLD_LOST, Effect::Status(step)).telling(
        Severity::Warning,
        "NotRecreated",
        why,
    )
}

/// Somebody wants the pod gone.
pub(super) fn cancelled(record: &Record, why: &str, now: Timestamp) -> Verdict {
    end(record, (row::CANCELLED, "cancelled"), why, now)
}

/// The same, once a live look shows that the pod is gone.
pub(super) fn cancelled_if_gone(record: &Record, pod: &str, why: &str, now: Timestamp) -> Verdict {
    let next = finished(record, Phase::Ended, why, now);
    let step = Step::to(next).if_gone(Uid::new(pod)).counting("cancelled");
    Verdict::of(row::CANCELLED, Effect::Status(step))
}

/// Another pod has the name.
pub(super) fn name_taken(record: &Record, now: Timestamp) -> Verdict {
    let why = whose_name(record);
    Verdict {
        notice: Some(name_taken_notice(record)),
        ..end(record, (row::CANCELLED, "name_taken"), &why, now)
    }
}

/// What is told where another pod has the name.
pub fn name_taken_notice(record: &Record) -> Notice {
    Notice {
        severity: Severity::Warning,
        reason: "NameTaken",
        message: format!("not re-created: {}", whose_name(record)).into(),
    }
}

/// An end that is written as it is.
pub(super) fn end(
    record: &Record,
    (row, counts): (Row, &'static str),
    why: &str,
    now: Timestamp,
) -> Verdict {
    let next = cut_short(record, why, now);
    Verdict::of(row, Effect::Status(Step::to(next).counting(counts)))
}

/// The end of a record whose rejected pod is not re-created any more.
pub fn cut_short(record: &Record, why: &str, now: Timestamp) -> Status {
    let mut next = finished(record, Phase::Ended, why, now);
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

/// The end that another pod under the name leads to; for whoever learns of it by a live look.
pub fn taken(record: &Record, now: Timestamp) -> Status {
    finished(record, Phase::Ended, &whose_name(record), now)
}

fn whose_name(record: &Record) -> String {
    format!("the name {} belongs to another pod now", record.pod_name)
}

/// The end that something the server said leads to.
pub fn finished(record: &Record, phase: Phase, why: &str, now: Timestamp) -> Status {
    Status {
        phase: Some(phase),
        message: Some(why.to_owned()),
        finished_at: Some(whole_seconds(now)),
        ..record.status.clone()
    }
}
