//! Step 3: the wipe of a rejected pod's node is requested in the `NodeWipe` of the node, and the report of the node agent
//! becomes a condition of the record.

use std::ops::ControlFlow;
use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::node_wipe::{Report, WipeState};
use jiff::Timestamp;

use super::Clock;
use super::decision::{Effect, RecordDecision, StatusWrite};
use crate::api::{ConditionStatus, ConditionType, Status, Wipe};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView, UNKNOWN};

/// The reason of the condition `StateWiped` until the wipe is requested.
pub(super) const WAITING: &str = "Waiting";

/// The reason of the condition `StateWiped` if the pod does not request the wipe any more.
pub(crate) const WITHDRAWN: &str = "Withdrawn";

/// The reason of the condition `StateWiped` if the wipe must not be requested.
pub(crate) const REFUSED: &str = "Refused";

/// How long this process tries a request that is refused. After that the record continues without it: a request that the
/// server denies must not keep a pod for ever. An outage does not count: it
/// [restarts](crate::component::PodRecreation::restart_wait) this time.
const REQUEST_FOR: Duration = Duration::from_secs(60);

/// The entry in the `NodeWipe` of the node for the rejected pod of a record. It belongs to the
/// rules of [`row`](crate::row).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedWipe {
    /// The store is not synced.
    Unknown,
    /// The API server does not serve the kind.
    NotServed,
    /// It has no entry of the pod.
    NotRequested,
    /// It has an entry, and perhaps a report of the node agent.
    Requested(Option<Report>),
}

/// Whether the node must be wiped of the pod before anything else happens to the record. Whether the pod is re-created
/// does not matter.
pub(super) fn comes_first(record: &Record, pod: &PodView) -> bool {
    let never_ran =
        matches!(&pod.state, PodState::Rejected(rejection) if rejection.never_ran.is_ok());
    record.policy.wipe == Wipe::Required && never_ran
}

/// Requests the wipe, before the record can end and the hold of the pod is released. Then, or without a request, the
/// decision continues; the text says why the request was given up, if it was.
pub(super) fn request(
    record: &Record,
    wipe: &ObservedWipe,
    clock: Clock,
) -> ControlFlow<RecordDecision, Option<&'static str>> {
    let status = &record.status;
    let unchanged = ControlFlow::Continue(None);
    if record.policy.wipe != Wipe::Required || !is_waiting(status) {
        return unchanged;
    }
    let (Some(pod), Some(node)) = (status.rejected_uid.as_deref(), &status.node_name) else {
        return unchanged;
    };
    let since = status
        .condition(ConditionType::PodRejected)
        .map_or(clock.now, |condition| condition.last_transition_time);
    // A create is tried, and denied, only after that time.
    let is_over = status.is_true(ConditionType::CreateDenied) || clock.tried(since) >= REQUEST_FOR;
    let why = match wipe {
        ObservedWipe::Requested(_) => return unchanged,
        ObservedWipe::NotServed => "the API server does not serve NodeWipes",
        ObservedWipe::Unknown if is_over => "Belayer could not read the NodeWipes for a minute",
        ObservedWipe::NotRequested if is_over => "the request of the wipe was refused for a minute",
        ObservedWipe::Unknown => {
            return ControlFlow::Break(RecordDecision::waits(row::WIPING, UNKNOWN));
        }
        ObservedWipe::NotRequested => {
            let effect = Effect::RequestWipe {
                node: node.clone(),
                pod: Uid::new(pod),
            };
            return ControlFlow::Break(RecordDecision::of(row::WIPING, effect));
        }
    };
    ControlFlow::Continue(Some(why))
}

/// The record whose wipe was not requested. Its condition says why.
pub(super) fn given_up(record: &Record, why: &str, now: Timestamp) -> Record {
    let mut record = record.clone();
    let no = ConditionStatus::False;
    let because = ("NotRequested", why);
    record
        .status
        .set(ConditionType::StateWiped, no, because, now);
    record
}

fn is_waiting(status: &Status) -> bool {
    status
        .condition(ConditionType::StateWiped)
        .is_none_or(|condition| {
            condition.status == ConditionStatus::False && condition.reason == WAITING
        })
}

/// Writes the agent's report into the record, in any phase: the last rejected pod is wiped after the record's end.
pub(super) fn report(
    record: &Record,
    wipe: &ObservedWipe,
    now: Timestamp,
) -> Option<RecordDecision> {
    let ObservedWipe::Requested(Some(report)) = wipe else {
        return None;
    };
    let (status, reason, message) = match report.state {
        WipeState::Wiped => (
            ConditionStatus::True,
            "Wiped",
            "nothing of the pod is left on the node",
        ),
        WipeState::NotWiped => (
            ConditionStatus::False,
            report.reason.as_str(),
            report.message.as_str(),
        ),
    };
    let written = record.status.condition(ConditionType::StateWiped);
    let is_known = written.is_some_and(|old| {
        old.status == ConditionStatus::True
            || (old.status == status && old.reason == reason && old.message == message)
    });
    if is_known {
        return None;
    }
    let mut next = record.status.clone();
    next.set(ConditionType::StateWiped, status, (reason, message), now);
    Some(RecordDecision::status(row::WIPING, StatusWrite::of(next)))
}

/// Whether the node must be wiped before the pod is re-created, and that is not done.
pub(super) fn is_due(record: &Record) -> bool {
    let condition = record.status.condition(ConditionType::StateWiped);
    let is_over = condition.is_some_and(|condition| {
        condition.status == ConditionStatus::True || condition.reason == WITHDRAWN
    });
    record.policy.wipe == Wipe::Required && !is_over
}

/// The status if a live read has shown that the wipe is not to be requested, with the reason and the message.
pub(crate) fn refused_status(record: &Record, because: (&str, &str), now: Timestamp) -> Status {
    let mut next = record.status.clone();
    next.set(
        ConditionType::StateWiped,
        ConditionStatus::False,
        because,
        now,
    );
    next
}

/// The status if the node does not exist: nothing of the pod is left.
pub(crate) fn node_gone_status(record: &Record, now: Timestamp) -> Status {
    let mut next = record.status.clone();
    next.set(
        ConditionType::StateWiped,
        ConditionStatus::True,
        ("NodeGone", "the node does not exist any more"),
        now,
    );
    next
}
