//! Steps 2 to 4: from the rejection until the rejected pod may be deleted.

use std::ops::ControlFlow;
use std::time::Duration;

use belayer_holds::decision::Notice;
use jiff::Timestamp;

use super::decision::{Effect, RecordDecision, StatusWrite};
use super::ends::{
    cancelled, cancelled_by_pod, cancelled_if_gone, denied, exhausted, not_selected, reported,
    wipe_failed,
};
use super::wipe::{self, ObservedWipe, node_gone_status};
use super::{Clock, NODE_INTERVAL, denied_too_long};
use crate::api::{ConditionStatus, ConditionType, OnWipeTimeout, Phase, Status, Wipe};
use crate::record::Record;
use crate::row;
use crate::snapshot::{PodState, PodView, Rejection, UNKNOWN};

/// The status after a rejection.
pub(super) fn rejected_status(
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
            (
                wipe::WAITING,
                "the node agent has not reported the wipe yet",
            ),
            now,
        );
    }
    if record.policy.avoid_rejected_node {
        avoid_node(&mut next);
    }
    next
}

fn avoid_node(status: &mut Status) {
    if let Some(node) = status.node_name.clone()
        && !status.avoid_nodes.contains(&node)
    {
        status.avoid_nodes.push(node);
    }
}

/// Steps 2 to 4.
pub(super) fn rejected(
    record: &Record,
    pod: Option<&PodView>,
    wipe: &ObservedWipe,
    clock: Clock,
) -> RecordDecision {
    let now = clock.now;
    let record = match wipe::request(record, wipe, clock) {
        ControlFlow::Continue(None) => record,
        ControlFlow::Continue(Some(why)) => &wipe::given_up(record, why, now),
        ControlFlow::Break(decision) => return decision,
    };
    let status = &record.status;
    let Some(uid) = status.rejected_uid.as_deref() else {
        return cancelled(record, "the status names no rejected pod", now);
    };
    let Some(pod) = pod.filter(|pod| pod.uid.as_str() == uid) else {
        return cancelled_if_gone(record, uid, "the rejected pod was deleted", now);
    };
    if pod.deleting {
        return cancelled(record, "the rejected pod was deleted", now);
    }
    if pod.state == PodState::Pending {
        // The record says that it was rejected: the store is behind the one of the leader that recorded it.
        return RecordDecision::waits(row::NOTHING, UNKNOWN);
    }
    if !pod.is_selected() {
        return not_selected(record, pod, now);
    }
    if pod.release_requested {
        let why = "its annotation belayer.dev/release requests its release";
        return cancelled_by_pod(record, why, now);
    }
    if pod.recreation_ended {
        let why = "its annotation belayer.dev/recreation-ended ends its re-creation";
        return cancelled_by_pod(record, why, now);
    }
    let rejection = pod.recorded_rejection();
    if !rejection.is_some_and(|rejection| rejection.class.is_recreated()) {
        return reported(record, pod, now);
    }
    if !pod.held {
        // No container of it ran, and a drain removed its hold, which must be added again first.
        return RecordDecision::waits(row::NOTHING, UNKNOWN);
    }
    if status.attempts >= record.policy.max_retries {
        return exhausted(record, now);
    }
    if let Some(why) = denied_too_long(status, clock) {
        return denied(record, &why, now);
    }
    let mut next = status.clone();
    let notice = if wipe::is_due(record) {
        match wiping(record, &mut next, clock) {
            ControlFlow::Continue(notice) => notice,
            ControlFlow::Break(decision) => return decision,
        }
    } else {
        None
    };
    next.phase = Some(Phase::Deleting);
    next.set(
        ConditionType::CreateDenied,
        ConditionStatus::False,
        ("Accepted", ""),
        now,
    );
    RecordDecision::of(
        row::INTEND,
        Effect::Intend {
            pod: pod.uid.clone(),
            step: StatusWrite {
                notice,
                ..StatusWrite::of(next)
            },
        },
    )
}

/// Step 3: the wipe of the node. If the re-creation continues without it, the Event says so.
fn wiping(
    record: &Record,
    next: &mut Status,
    clock: Clock,
) -> ControlFlow<RecordDecision, Option<Notice>> {
    let now = clock.now;
    let status = &record.status;
    let since = status
        .condition(ConditionType::PodRejected)
        .map_or(now, |condition| condition.last_transition_time);
    let timeout = Duration::from_secs(record.policy.wipe_timeout_seconds.into());
    let waited = clock.tried(since);
    // If the create was denied, it was tried: the time was over before.
    if waited < timeout && !status.is_true(ConditionType::CreateDenied) {
        let left = timeout - waited;
        let Some(node) = status.node_name.clone() else {
            return ControlFlow::Continue(None);
        };
        let step = StatusWrite::of(node_gone_status(record, now));
        return ControlFlow::Break(RecordDecision {
            again: Some(left.min(NODE_INTERVAL)),
            ..RecordDecision::of(row::WIPING, Effect::ReadNode { node, step })
        });
    }
    match record.policy.on_wipe_timeout {
        OnWipeTimeout::Fail => ControlFlow::Break(wipe_failed(record, now)),
        OnWipeTimeout::Proceed => {
            avoid_node(next);
            ControlFlow::Continue(
                status
                    .node_name
                    .as_deref()
                    .map(|node| timed_out(record, node)),
            )
        }
    }
}

/// Otherwise only an affinity that the user did not write would show why the pod does not return to its node.
fn timed_out(record: &Record, node: &str) -> Notice {
    let condition = record.status.condition(ConditionType::StateWiped);
    let message = condition.map_or("", |condition| &*condition.message);
    let why = if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    };
    Notice::warning(
        "WipeTimedOut",
        format!(
            "its directories on node {node} were not removed within {} s{why}: it is re-created, but never again on that \
             node",
            record.policy.wipe_timeout_seconds
        ),
    )
}
