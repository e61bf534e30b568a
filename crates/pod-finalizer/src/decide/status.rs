//! Row 10: the owner's own status shows the pod's node fulfilled.

use std::time::Duration;

use belayer_core::decision::Missing;
use belayer_core::facts::Fact;

use super::{Found, RECHECK, Reasons};
use crate::evidence::{Consumption, Evidence};
use crate::question::PodQuestion;
use crate::row;
use crate::snapshot::{CachedOwner, Ended, NodeView, Owner, PodView};
use crate::status::StatusState;

/// A pod that has ended and is not being deleted waits for nobody: its consumer gets this long to
/// say by label what else would have to be fetched.
const LABEL_FIRST: Duration = Duration::from_secs(10);

/// The workflow has not changed since the last look: the cache, which costs nothing, is looked at
/// again after this time while a deletion waits.
const UNCHANGED: Duration = Duration::from_secs(2);

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
    let (soon, later) = match pod.deleting {
        Some(_) => (Duration::ZERO, UNCHANGED),
        None => (LABEL_FIRST, RECHECK),
    };
    let ask = |reasons: &mut Reasons, after| {
        let question = PodQuestion::Status(question.clone());
        reasons.add(row::NODE_FULFILLED, Missing::Answer { question, after });
    };
    let Some(fact) = fact.as_ref().filter(|fact| fact.begun() > pod.first_seen) else {
        ask(reasons, soon);
        return None;
    };
    if let Some(proof) = Consumption::prove_node_fulfilled(fact, node, &pod.uid, pod.first_seen) {
        return Some((row::NODE_FULFILLED, Evidence::Consumed(proof)));
    }
    if let StatusState::Read(nodes) = Fact::answer(fact)
        && nodes.is_taken_in_part(node)
    {
        let text = "its workflow has the phase of its node and not yet its outputs (taskResultSynced is false)";
        reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
    }
    match Fact::answer(fact) {
        StatusState::Read(nodes) if nodes.version() >= cached.resource_version => {
            reasons.look_again(later);
        }
        StatusState::Read(_) => ask(reasons, soon),
        StatusState::Unreadable(why) => {
            ask(reasons, RECHECK);
            let text = format!("the status of its owner gives no evidence: {why}");
            reasons.add(row::NODE_FULFILLED, Missing::Event(text.into()));
        }
    }
    None
}
