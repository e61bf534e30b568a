//! Rules 16 to 19: a pod of Argo Workflows that has no result to be read.
//!
//! They come after all rules that depend on a consumer, remove no finalizers of other controllers, and delete
//! nothing.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::Missing;

use super::{Found, RECHECK, Reasons, elapsed};
use crate::argo::{
    ArgoPod, EndedByDeletion, Ending, Held as Because, NeverHeld, NodeLost, NodeState, NodeView,
};
use crate::evidence::{EarlierRun, Evidence};
use crate::profile::{DeletedWhileRunning, Profile};
use crate::query::{Delay, PodQuery};
use crate::row;
use crate::snapshot::{PodView, Selection};

/// Delay before a node is read again that is not known to be lost. A pod that was deleted by force waits at most this
/// long once its node is not ready.
const REREAD_NODE: Duration = Duration::from_secs(5);

/// How long Argo has to read why a node failed a pod whose workflow's status cannot show that it was read. It checks its
/// pods more often.
const ARGO_READS_WITHIN: Duration = Duration::from_secs(60);

/// The input of these rules. `None` if only other controllers' finalizers hold the pod.
fn argo(pod: &PodView) -> Option<&ArgoPod> {
    let bound_by_others = !pod.held && !pod.adopted.is_empty();
    pod.argo.as_ref().filter(|_| !bound_by_others)
}

fn profile(pod: &PodView) -> Option<&Profile> {
    match &pod.selection {
        Selection::By { profile, .. } => Some(profile),
        Selection::None | Selection::Ignored => None,
    }
}

/// The profile that selects the pod; if none does any more, all that apply to it (A4).
fn deciding(pod: &PodView) -> impl Iterator<Item = &Profile> {
    let count = if profile(pod).is_some() {
        1
    } else {
        usize::MAX
    };
    pod.deciding_profiles()
        .map(|(profile, _)| profile)
        .take(count)
}

/// Whether Belayer never holds this pod and never records its outcome.
pub(super) fn is_never_held(pod: &PodView) -> bool {
    let argo = pod.argo.as_ref();
    argo.is_some_and(|argo| NeverHeld::prove(&argo.pod.meta.labels).is_some())
}

/// Rule 16. Applies also if no profile selects the pod any more, however many such pods there are.
pub(super) fn never_held(pod: &PodView) -> Found {
    let proof = NeverHeld::prove(&argo(pod)?.pod.meta.labels)?;
    Some((row::NEVER_HELD, Evidence::NeverHeld(proof)))
}

/// Rule 19: by the status that rule 10 reads. Argo deletes the pods of an earlier run when a workflow is retried, and
/// creates new ones under the same names once they are gone.
pub(super) fn earlier_run(pod: &PodView) -> Found {
    let created = argo(pod)?.pod.shutdown.as_ref()?.created?;
    let node = pod.node.as_ref()?;
    let proof = EarlierRun::prove(node.answer.as_ref()?, &node.node, created, pod.first_seen)?;
    Some((row::EARLIER_RUN, Evidence::EarlierRun(proof)))
}

/// Rule 17: by the watched versions of the pod alone; or, some time after the deletion, by the pod's own status, if that
/// of its workflow cannot be read and the pod has nothing to be read but why its node failed it.
pub(super) fn ended_by_deletion(pod: &PodView, now: Timestamp, reasons: &mut Reasons) -> Found {
    let holds = |profile: &Profile| profile.deleted_while_running == DeletedWhileRunning::Hold;
    if deciding(pod).next().is_none() || deciding(pod).any(holds) {
        return None;
    }
    let found = |proof| Some((row::ENDED_BY_DELETION, Evidence::EndedByDeletion(proof)));
    if let Some(proof) = EndedByDeletion::prove(&argo(pod)?.pod) {
        return found(proof);
    }
    let proof = failed_by_node(pod)?;
    let left = ARGO_READS_WITHIN.saturating_sub(elapsed(pod.deleting?, now));
    if left.is_zero() {
        return found(proof);
    }
    reasons.requeue_after(left);
    let text = format!(
        "{proof}: it is released {} s after its deletion, so that Argo can read that before",
        ARGO_READS_WITHIN.as_secs()
    );
    reasons.add(row::ENDED_BY_DELETION, Missing::Event(text.into()));
    None
}

fn failed_by_node(pod: &PodView) -> Option<EndedByDeletion> {
    let status = pod.node.as_ref()?.answer.as_ref()?;
    EndedByDeletion::prove_failed_by_node(&argo(pod)?.pod, status, pod.first_seen)
}

/// The rule that would have released a pod that was not held and is gone. A pod that was gone before its end had no
/// result. Of a pod that looked as if its node was lost, the node was not read: it would have been held until its
/// node was known to be lost, or its kubelet had reported its end.
pub(crate) fn unread(pod: &PodView) -> Option<&'static str> {
    let argo = pod.argo.as_ref()?;
    let holds = profile(pod)?.deleted_while_running == DeletedWhileRunning::Hold;
    let by_deletion = !pod.ended || EndedByDeletion::prove(&argo.pod).is_some();
    if by_deletion {
        return (!holds).then_some("EndedByDeletion");
    }
    argo.node.as_ref().map(|_| "NodeLost")
}

/// Why rule 17 does not release a pod that is being deleted, for messages.
pub(super) fn held_because(pod: &PodView) -> Option<Cow<'static, str>> {
    let holds = profile(pod)
        .is_some_and(|profile| profile.deleted_while_running == DeletedWhileRunning::Hold);
    let argo = argo(pod)?;
    match Ending::of(&argo.pod) {
        Ending::Held(Because::NotDeleted) => None,
        Ending::Held(Because::Undecided) if holds => Some(
            "undecided: no watched version shows whether it ended by itself or by its deletion; its profile \
             holds it in both cases (`deletedWhileRunning: hold`)"
                .into(),
        ),
        // Rule 17 waits for Argo.
        Ending::Held(_) if !holds && failed_by_node(pod).is_some() => None,
        Ending::Held(why) => Some(why.message(&argo.pod)),
        Ending::ByDeletion(_) => holds.then_some(
            "it was deleted before it had a result, and its profile holds such pods (`deletedWhileRunning: hold`)"
                .into(),
        ),
    }
}

/// Rule 18. The delay begins with the first proof, and there must still be a proof at its end. A live read that shows
/// that the node is not lost ends it: the next proof begins another.
pub(super) fn node_lost(pod: &PodView, reasons: &mut Reasons) -> Found {
    let delay = deciding(pod).map(|profile| profile.node_lost_delay).max()?;
    let argo = argo(pod)?;
    let view = argo.node.as_ref()?;
    let Some(proof) = proof(argo, view) else {
        unproven(view, reasons);
        return None;
    };
    let left = delay.saturating_sub(view.lost_for.unwrap_or_default());
    if left.is_zero() {
        return Some((row::NODE_LOST, Evidence::NodeLost(proof)));
    }
    let answer = |query, after| Missing::Answer { query, after };
    let wait = PodQuery::Delay(Delay::NodeLost(pod.uid.clone()));
    reasons.add(row::NODE_LOST, answer(wait, left));
    let again = PodQuery::Node(view.query.clone());
    reasons.add(row::NODE_LOST, answer(again, RECHECK));
    let text = format!(
        "{proof}: the pod is held for another {} s (nodeLostDelay)",
        left.as_secs()
    );
    reasons.add(row::NODE_LOST, Missing::Event(text.into()));
    None
}

fn proof(argo: &ArgoPod, view: &NodeView) -> Option<NodeLost> {
    NodeLost::prove(&argo.pod, view.answer.as_ref()?, view.suspected)
}

/// Whether a live read shows that the pod's node is not lost.
pub(crate) fn is_node_present(pod: &PodView) -> bool {
    let argo = pod.argo.as_ref();
    let Some((argo, view)) = argo.and_then(|argo| Some((argo, argo.node.as_ref()?))) else {
        return false;
    };
    let present = matches!(state(view), Some(NodeState::Ready | NodeState::NotReady));
    present && proof(argo, view).is_none()
}

/// The state of the node, by a live read that began after it was suspected.
fn state(view: &NodeView) -> Option<&NodeState> {
    let answer = view.answer.as_ref();
    let current = answer.filter(|answer| answer.begun() > view.suspected);
    current.map(LiveAnswer::answer)
}

fn unproven(view: &NodeView, reasons: &mut Reasons) {
    let query = PodQuery::Node(view.query.clone());
    let state = state(view);
    let after = match state {
        Some(NodeState::Unknown(_)) => RECHECK,
        Some(_) => REREAD_NODE,
        None => Duration::ZERO,
    };
    reasons.add(row::NODE_LOST, Missing::Answer { query, after });
    let says = match state {
        Some(NodeState::Ready) => {
            "its node is ready, so it is not lost: its kubelet has yet to report how the containers ended"
                .to_owned()
        }
        Some(NodeState::Unknown(why)) => {
            format!("could not check whether its node is lost: {why}")
        }
        Some(NodeState::NotReady) => {
            "its node is not ready; that proves that the node is lost only if the pod was deleted by force or the \
             node has the taint node.kubernetes.io/out-of-service"
                .to_owned()
        }
        _ => return,
    };
    reasons.add(row::NODE_LOST, Missing::Event(says.into()));
}
