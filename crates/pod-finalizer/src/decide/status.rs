//! Rule 10: the owner's own status shows the pod's node as fulfilled.

use std::time::Duration;

use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{Missing, Notice};
use belayer_holds::names::RELEASE_ANNOTATION;

use super::{Found, RECHECK, Reasons};
use crate::evidence::{Consumption, Evidence};
use crate::profile::{OwnerStatus, Profile};
use crate::query::PodQuery;
use crate::row;
use crate::snapshot::{CachedOwner, NodeView, Owner, PodView};
use crate::status::{NODE_ID, StatusState};

/// A pod that has ended and is not being deleted is not urgent: the consumer gets this long to set its label before
/// the status is read.
const LABEL_FIRST: Duration = Duration::from_secs(10);

/// A status that was too large is read again after this time: reading it takes a second of CPU time.
const TOO_LARGE: Duration = Duration::from_secs(600);

/// Delays before a status is read.
struct Pace {
    /// A status that was not read yet.
    first: Duration,
    /// A status that is newer than the last one read.
    changed: Duration,
    /// A status that has not changed: only the cache is checked.
    unchanged: Duration,
}

impl Pace {
    fn of(pod: &PodView) -> Self {
        let (first, changed, unchanged) = match (pod.deleting, pod.held) {
            // Each change of the workflow queues the pod.
            (Some(_), _) => (Duration::ZERO, Duration::ZERO, RECHECK),
            (None, true) => (LABEL_FIRST, LABEL_FIRST, RECHECK),
            // Rule 13 needs to know whether this rule would release the pod. Only one read: a workflow that changes
            // all the time must not delay the finalizer for ever.
            (None, false) => (Duration::ZERO, RECHECK, RECHECK),
        };
        Self {
            first,
            changed,
            unchanged,
        }
    }
}

/// Rule 10. A status that is not newer than the last one read is not read again.
pub(super) fn node_fulfilled(pod: &PodView, reasons: &mut Reasons) -> Found {
    let view = pod.node.as_ref()?;
    if !pod.ended && pod.deleting.is_none() {
        return None;
    }
    let Owner::Known(owner) = &pod.owner else {
        return None;
    };
    let cached = match &owner.cached {
        CachedOwner::Present(cached) => Some(cached),
        // No informer has its kind: the pod's profile is built in and not configured, and judges all the same (A4).
        CachedOwner::Unknown if pod.deleting.is_some() => None,
        CachedOwner::Unknown | CachedOwner::Absent => return None,
    };
    let NodeView {
        node,
        query,
        answer,
    } = view;
    let pace = Pace::of(pod);
    let ask = |reasons: &mut Reasons, after| {
        let query = PodQuery::Status(query.clone());
        reasons.add(row::NODE_FULFILLED, Missing::Answer { query, after });
    };
    let current = |answer: &&LiveAnswer<StatusState>| {
        // A live read for which this node was not requested proves nothing about it.
        let covers = |state: &StatusState| match state {
            StatusState::Read(nodes) => nodes.covers(node),
            StatusState::TooLarge(_) | StatusState::Offloaded(_) | StatusState::Unreadable(_) => {
                true
            }
        };
        answer.begun() > pod.first_seen && covers(answer.answer())
    };
    let Some(answer) = answer.as_ref().filter(current) else {
        ask(reasons, pace.first);
        return None;
    };
    let argo = pod.argo.as_ref();
    let created = argo.and_then(|argo| argo.pod.shutdown.as_ref()?.created);
    let this = (&pod.uid, created);
    if let Some(proof) = Consumption::prove_node_fulfilled(answer, node, this, pod.first_seen) {
        return Some((row::NODE_FULFILLED, Evidence::Consumed(proof)));
    }
    if let StatusState::Read(nodes) = LiveAnswer::answer(answer)
        && let Some(objection) = nodes.objection(node)
    {
        reasons.add(row::NODE_FULFILLED, Missing::Event(objection));
    }
    match LiveAnswer::answer(answer) {
        StatusState::Read(nodes) => match cached {
            Some(cached) if nodes.version() >= cached.resource_version => {
                reasons.requeue_after(pace.unchanged);
            }
            Some(_) => ask(reasons, pace.changed),
            None => ask(reasons, RECHECK),
        },
        StatusState::TooLarge(why) => {
            ask(reasons, TOO_LARGE);
            let text = format!("the status of its owner exceeds Belayer's size limit: {why}");
            let notice = Notice::warning("WorkflowStatusTooLarge", with_way_out(&text));
            reasons.notices.push(notice);
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
        StatusState::Offloaded(why) => {
            ask(reasons, RECHECK);
            let text = with_way_out(&format!("the status of its owner could not be read: {why}"));
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
        StatusState::Unreadable(why) => {
            ask(reasons, RECHECK);
            let text = format!("the status of its owner could not be read: {why}");
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
    }
    None
}

/// What releases a pod whose owner's status will not be readable before the owner has finished.
fn with_way_out(why: &str) -> String {
    format!(
        "{why}; until its owner has finished, only its consumer's label on this pod releases it, or the annotation \
         {RELEASE_ANNOTATION}"
    )
}

/// What the consumer of an ended or deleted pod has not shown yet, for messages; `None` if the profile reads no owner
/// status.
pub(super) fn message(pod: &PodView, profile: &Profile) -> Option<String> {
    if !matches!(pod.owner, Owner::Known(_)) {
        return None;
    }
    if let Some(when) = &profile.consumed_when {
        return Some(format!("`{when}` is not true for its owner"));
    }
    if profile.owner_status == OwnerStatus::None {
        return None;
    }
    let Some(view) = &pod.node else {
        return Some(format!(
            "it names no node of its workflow by the annotation {NODE_ID} or node-name, so only a label on the pod or the end of \
             the workflow can show that"
        ));
    };
    Some(format!(
        "its workflow's status does not show its node {} as fulfilled",
        view.node
    ))
}
