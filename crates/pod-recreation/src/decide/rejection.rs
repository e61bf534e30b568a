//! Steps 2 to 4: what a rejection leads to, until the rejected pod may be deleted.

use std::time::Duration;

use belayer_holds::decision::Severity;
use jiff::Timestamp;

use super::ends::{cancelled, cancelled_if_gone, end, exhausted, not_selected, reported};
use super::verdict::{Effect, Step, Verdict};
use super::{NODE_LOOK, UNKNOWN, denied_too_long, elapsed};
use crate::api::{ConditionStatus, ConditionType, OnWipeTimeout, Phase, Status, Wipe};
use crate::record::Record;
use crate::row;
use crate::snapshot::{Hold, PodView, Rejection, Selection};

/// The status that a rejection leads to.
pub(super) fn rejection_of(
    record: &Record,
    pod: &PodView,
    rejection: &Rejection,
    now: Timestamp,
) -> Status {
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
pub(super) fn rejected(record: &Record, pod: Option<&PodView>, now: Timestamp) -> Verdict {
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
    if pod.selection == Selection::No {
        return not_selected(record, now);
    }
    if pod.recreatable().is_none() {
        return reported(record, pod, now);
    }
    if pod.hold == Hold::Off {
        // No container of it ran, and a drain removed its hold: adding it again comes first.
        return Verdict::waits(row::NOTHING, UNKNOWN);
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
        OnWipeTimeout::Fail => {
            let why = "the node was not wiped in time";
            let failed = end(record, (row::WIPING, "wipe_failed"), why, now);
            Wiped::Wait(failed.telling(
                Severity::Warning,
                "NotRecreated",
                format!("not re-created: {why}"),
            ))
        }
        OnWipeTimeout::Proceed => {
            avoid(next);
            Wiped::GoOn
        }
    }
}
