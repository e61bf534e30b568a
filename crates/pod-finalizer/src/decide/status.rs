//! Row 10: the owner's own status shows the pod's node fulfilled.

use std::time::Duration;

use belayer_core::facts::LiveAnswer;
use belayer_holds::decision::{Missing, Notice, Severity};
use belayer_holds::names::RELEASE_ANNOTATION;

use super::{Found, RECHECK, Reasons};
use crate::evidence::{Consumption, Evidence};
use crate::profile::{OwnerStatus, Profile};
use crate::question::PodQuery;
use crate::row;
use crate::snapshot::{CachedOwner, Ended, Held, NodeView, Owner, PodView};
use crate::status::{NODE_ID, StatusState};

/// A pod that has ended and is not being deleted waits for nobody: its consumer gets this long to
/// say by label what else would have to be fetched.
const LABEL_FIRST: Duration = Duration::from_secs(10);

/// The workflow has not changed since the last look: the cache, which costs nothing, is looked at
/// again after this time while a deletion waits.
const UNCHANGED: Duration = Duration::from_secs(2);

/// A status that was too large is read again after this time: reading it takes a second of CPU time.
const TOO_LARGE: Duration = Duration::from_secs(600);

/// How soon a status is asked for.
struct Pace {
    /// That nobody has looked at yet.
    first: Duration,
    /// That is newer than the one at hand.
    changed: Duration,
    /// That has not changed: by a look at the cache.
    unchanged: Duration,
}

impl Pace {
    fn of(pod: &PodView) -> Self {
        let (first, changed, unchanged) = match (pod.deleting, pod.held) {
            (Some(_), _) => (Duration::ZERO, Duration::ZERO, UNCHANGED),
            (None, Held::Yes) => (LABEL_FIRST, LABEL_FIRST, RECHECK),
            // Row 13 must know whether this row would release what it is about to hold. Once: a
            // workflow that changes all the time must not put the hold off for ever.
            (None, Held::No) => (Duration::ZERO, RECHECK, RECHECK),
        };
        Self {
            first,
            changed,
            unchanged,
        }
    }
}

/// Row 10. A status that is not newer than the last one read is not asked for again.
pub(super) fn node_fulfilled(pod: &PodView, reasons: &mut Reasons) -> Found {
    let view = pod.node.as_ref()?;
    if pod.ended == Ended::No && pod.deleting.is_none() {
        return None;
    }
    let Owner::Known(owner) = &pod.owner else {
        return None;
    };
    let CachedOwner::Present(cached) = &owner.cached else {
        return None;
    };
    let NodeView {
        node,
        question,
        fact,
    } = view;
    let pace = Pace::of(pod);
    let ask = |reasons: &mut Reasons, after| {
        let question = PodQuery::Status(question.clone());
        reasons.add(row::NODE_FULFILLED, Missing::Answer { question, after });
    };
    let current = |fact: &&LiveAnswer<StatusState>| {
        // A live read that did not keep this node proves nothing about it.
        let covers = |state: &StatusState| match state {
            StatusState::Read(nodes) => nodes.covers(node),
            StatusState::TooLarge(_) | StatusState::Unreadable(_) => true,
        };
        fact.begun() > pod.first_seen && covers(fact.answer())
    };
    let Some(fact) = fact.as_ref().filter(current) else {
        ask(reasons, pace.first);
        return None;
    };
    if let Some(proof) = Consumption::prove_node_fulfilled(fact, node, &pod.uid, pod.first_seen) {
        return Some((row::NODE_FULFILLED, Evidence::Consumed(proof)));
    }
    if let StatusState::Read(nodes) = LiveAnswer::answer(fact)
        && let Some(objection) = nodes.objection(node)
    {
        reasons.add(row::NODE_FULFILLED, Missing::Event(objection));
    }
    match LiveAnswer::answer(fact) {
        StatusState::Read(nodes) if nodes.version() >= cached.resource_version => {
            reasons.look_again(pace.unchanged);
        }
        StatusState::Read(_) => ask(reasons, pace.changed),
        StatusState::TooLarge(why) => {
            ask(reasons, TOO_LARGE);
            let text = format!("the status of its owner is larger than Belayer reads: {why}");
            reasons.notices.push(Notice {
                severity: Severity::Warning,
                reason: "WorkflowStatusTooLarge",
                message: format!(
                    "{text}; until its owner has finished, only its consumer's label on this pod releases it, or \
                     the annotation {RELEASE_ANNOTATION}"
                )
                .into(),
            });
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
        StatusState::Unreadable(why) => {
            ask(reasons, RECHECK);
            let text = format!("the status of its owner gives no evidence: {why}");
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
    }
    None
}

/// What the consumer of an ended or deleted pod has not said yet, for people; nothing where the owner
/// has no status that could say it.
pub(super) fn in_words(pod: &PodView, profile: &Profile) -> Option<String> {
    if profile.owner_status == OwnerStatus::None || !matches!(pod.owner, Owner::Known(_)) {
        return None;
    }
    let Some(view) = &pod.node else {
        return Some(format!(
            "it names no node of its workflow by the annotation {NODE_ID}, so that only a label can say so"
        ));
    };
    Some(format!(
        "its workflow's status does not show its node {} fulfilled",
        view.node
    ))
}
