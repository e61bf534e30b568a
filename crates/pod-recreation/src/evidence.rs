//! Why the hold of pod-recreation may be removed from a pod. No variant can be built without its
//! proof (invariant EVIDENCE): the pod's state at the version that the patch names, a final state
//! of the record, or a live read. A release by a rule of [`row`](crate::row) needs it.

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{self, Reach};
use belayer_holds::owned::EndedOwner;
use belayer_holds::owner::{GoneProof, OwnerState};
use belayer_holds::selection::NotSelected;

use crate::api::Phase;
use crate::record::Record;

/// Why the hold is removed from a pod. A release by a rule of [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Rule 2: the pod has the annotation `belayer.dev/release: "true"`.
    AdminAsked,
    /// Rule 4: its record does not exist, by a live read begun after the pod was seen.
    RecordGone(GoneProof),
    /// Rule 5: its record has ended, which is final.
    RecordEnded(Final),
    /// Rule 6: its spec is stored in the record, and Belayer has deleted it.
    Recreating(Intended),
    /// Rule 7: it is being deleted, and the attempt that created it was given up.
    Leftover,
    /// Rule 8: another client has deleted it.
    DeletedFirst,
    /// Rule 9: it has started.
    Started,
    /// Rule 10: it ended, and is not re-created.
    Ended,
    /// Rule 11: it is not selected for re-creation any more.
    Unselected(NotSelected),
    /// Rule 13: its owner is being deleted or gone.
    OwnerEnds(EndedOwner),
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = &[
    "AdminAsked",
    "RecordGone",
    "RecordEnded",
    "Recreating",
    "Leftover",
    "DeletedFirst",
    "Started",
    "Ended",
    "Unselected",
    "OwnerDeleting",
    "OwnerGone",
];

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        match self {
            Self::AdminAsked => "AdminAsked",
            Self::RecordGone(_) => "RecordGone",
            Self::RecordEnded(_) => "RecordEnded",
            Self::Recreating(_) => "Recreating",
            Self::Leftover => "Leftover",
            Self::DeletedFirst => "DeletedFirst",
            Self::Started => "Started",
            Self::Ended => "Ended",
            Self::Unselected(_) => "Unselected",
            Self::OwnerEnds(ended) => ended.name(),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            // The rejected pod never ran: it has no result.
            Self::AdminAsked | Self::Recreating(_) => Reach::AllHolds,
            _ => Reach::OwnHold,
        }
    }
}

/// The end of a record, which is final, so that a cached version proves it. A release by a rule of
/// [`row`](crate::row) needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final(Phase);

impl Final {
    /// The proof, if the record has ended.
    pub fn prove(record: &Record) -> Option<Self> {
        let phase = record.status.phase.filter(|phase| phase.is_final())?;
        Some(Self(phase))
    }

    /// The phase in which it ended.
    pub fn phase(&self) -> Phase {
        self.0
    }
}

/// The intent to delete a pod, written in a record that contains its spec. A release by a rule of
/// [`row`](crate::row) needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intended(Uid);

impl Intended {
    /// The proof, if the record intends to delete `pod`, or has deleted it.
    pub fn prove(record: &Record, pod: &Uid) -> Option<Self> {
        let status = &record.status;
        let intended = matches!(
            status.phase,
            Some(Phase::Deleting | Phase::Waiting | Phase::Creating)
        );
        let this = status.rejected_uid.as_deref() == Some(pod.as_str());
        (intended && this).then(|| Self(pod.clone()))
    }
}

/// The proof that a record does not exist, if `answer` provides it for a pod first seen at `pod_seen`.
pub(crate) fn record_gone(
    answer: &LiveAnswer<OwnerState>,
    pod_seen: LogicalTime,
) -> Option<GoneProof> {
    match answer.answer() {
        OwnerState::Gone(proof) if answer.begun() > pod_seen => Some(proof.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_gone_by_a_read_that_began_after_the_pod_was_seen() {
        let gone = OwnerState::Gone(GoneProof::scripted());
        let before = LogicalTime::now();
        let answer = LiveAnswer::scripted(gone, LogicalTime::now());
        assert!(record_gone(&answer, before).is_some());
        assert!(record_gone(&answer, answer.begun()).is_none());
    }
}
