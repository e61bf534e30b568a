//! Why a pod may be released. No variant can be built without its proof (invariant EVIDENCE). A
//! release by a rule of [`row`](crate::row) needs it.

use jiff::Timestamp;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ResourceVersion, Uid};
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{self, Reach};
use belayer_holds::owner::{GoneProof, OwnerState};
use belayer_holds::selection::NotSelected;

pub use belayer_holds::namespace::{NamespaceDeletion, is_ignored};
pub use belayer_holds::owner::OwnerDeletion;

use crate::argo::{EndedByDeletion, NeverHeld, NodeLost};
use crate::outcome::Captured;
use crate::profile::Profile;
use crate::status::{NodeRef, StatusState};

/// Why a pod is released. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Evidence {
    /// Rule 2: the pod has the annotation `belayer.dev/release: "true"` at the version the
    /// patch names.
    AdminAsked {
        /// Which holds are removed. That of pod-recreation stays on a re-created pod until its record names the pod:
        /// otherwise one more would be created. pod-recreation reads the same annotation.
        reach: Reach,
    },
    /// Rule 3: the namespace is being deleted, by a live read begun after the pod was seen.
    NamespaceTerminating(NamespaceDeletion),
    /// Rule 4: no profile selects the pod at the version the patch names.
    Unselected(NotSelected),
    /// Rule 5: the owner's UID is gone, by a live read.
    OwnerGone(GoneProof),
    /// Rule 6: the owner has a deletion timestamp, which is never removed.
    OwnerDeleting(OwnerDeletion),
    /// Rule 8: the profile requires an owner and the pod, at the version the patch names, has none.
    NoOwner,
    /// Rules 9 and 10: the consumer has read the result.
    Consumed(Consumption),
    /// Rule 11: the outcome is recorded.
    Captured(Captured),
    /// Rule 16: an agent pod or artifact garbage collection pod of Argo.
    NeverHeld(NeverHeld),
    /// Rule 17: the pod was deleted before it had a result.
    EndedByDeletion(EndedByDeletion),
    /// Rule 18: its node is lost, so that no result will be reported.
    NodeLost(NodeLost),
    /// Rule 19: its workflow was retried, and no longer needs this pod.
    EarlierRun(EarlierRun),
    /// The profile's `releaseAfter` expired. No evidence, but the admin's configuration; counted separately.
    ReleaseAfter,
}

impl Evidence {
    /// Whether no result was read, because there is none: such a release removes no finalizers of others
    /// and deletes nothing.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(
            self,
            Self::NeverHeld(_) | Self::EndedByDeletion(_) | Self::NodeLost(_) | Self::EarlierRun(_)
        )
    }
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn reach(&self) -> Reach {
        match self {
            Self::AdminAsked { reach } => *reach,
            Self::NamespaceTerminating(_) => Reach::AllHolds,
            _ => Reach::OwnHold,
        }
    }

    fn is_traced(&self) -> bool {
        self.is_unread()
    }
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = <Evidence as strum::VariantNames>::VARIANTS;

/// The pod belongs to an earlier run of its workflow, by a live read of the workflow's status: the
/// workflow is unfinished and was retried after the pod was created, and no current node is the
/// pod's. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierRun(ResourceVersion);

impl EarlierRun {
    /// Returns the proof if `answer` provides it for the pod of `node`, created at `created` and first seen at
    /// `pod_seen`.
    pub fn prove(
        answer: &LiveAnswer<StatusState>,
        node: &NodeRef,
        created: Timestamp,
        pod_seen: LogicalTime,
    ) -> Option<Self> {
        let StatusState::Read(nodes) = answer.answer() else {
            return None;
        };
        let proven = answer.begun() > pod_seen && nodes.is_of_earlier_run(node, created);
        proven.then(|| Self(nodes.version()))
    }
}

/// What shows that the result was read. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consumption {
    /// A label on the pod, at the version the patch names.
    PodLabel,
    /// The owner finished, by its labels in a live read begun after the pod was seen. A cache is not sufficient: a
    /// retry makes a workflow unfinished again and gives it new pods.
    OwnerFinished(Uid),
    /// The owner's status, by a live read begun after the pod was seen, shows the pod's node as fulfilled: the
    /// consumer no longer needs the pod.
    NodeFulfilled(ResourceVersion),
}

impl Consumption {
    /// Returns the proof that `node` no longer needs `pod`, if `answer` provides it for a pod first seen at `pod_seen`.
    ///
    /// The live read must have begun after that, because a retried node has the key of its predecessor; and `created`,
    /// when the pod was created, tells it from a pod of the same name that was deleted before.
    pub fn prove_node_fulfilled(
        answer: &LiveAnswer<StatusState>,
        node: &NodeRef,
        (pod, created): (&Uid, Option<Timestamp>),
        pod_seen: LogicalTime,
    ) -> Option<Self> {
        let StatusState::Read(nodes) = answer.answer() else {
            return None;
        };
        let proven = answer.begun() > pod_seen && nodes.is_fulfilled(node, pod, created);
        proven.then(|| Self::NodeFulfilled(nodes.version()))
    }

    /// Returns the proof that the owner `expected` finished, if `answer` provides it.
    pub fn prove_owner_finished(
        answer: &LiveAnswer<OwnerState>,
        expected: &Uid,
        pod_seen: LogicalTime,
        profile: &Profile,
    ) -> Option<Self> {
        let OwnerState::Present(owner) = answer.answer() else {
            return None;
        };
        let proven = owner.uid == *expected
            && answer.begun() > pod_seen
            && profile.is_owner_finished(&owner.labels);
        proven.then(|| Self::OwnerFinished(owner.uid.clone()))
    }
}
