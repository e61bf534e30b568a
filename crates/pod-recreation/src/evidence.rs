//! Why the recreation hold may leave a pod. No variant can be had without its proof (invariant
//! EVIDENCE): a state of the pod at the version that the patch names, a state of the record that is
//! never taken back, or a live look.

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::queries::LiveAnswer;
use belayer_holds::decision::{self, Reach};
use belayer_holds::owned::EndedOwner;
use belayer_holds::owner::{GoneProof, OwnerState};

use crate::api::Phase;
use crate::record::Record;

/// Why the hold is taken off a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Row 2: the pod carries the annotation `belayer.dev/release: "true"`.
    AdminAsked,
    /// Row 4: its record is gone, by a live look begun after the pod was seen.
    RecordGone(GoneProof),
    /// Row 5: its record has come to an end, which is final.
    RecordEnded(Final),
    /// Row 6: its spec is in the record, its deletion is ours, and it is being deleted.
    Recreating(Intended),
    /// Row 7: a pod of an attempt that was given up, being deleted.
    Leftover,
    /// Row 8: being deleted, and no rejection of it was recorded.
    DeletedFirst,
    /// Row 9: it has started.
    Started,
    /// Row 10: it ended otherwise.
    Ended,
    /// Row 11: nothing asks for its re-creation any more.
    Unselected,
    /// Row 13: its owner is being deleted or gone, so the pod is no longer wanted.
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
            Self::Unselected => "Unselected",
            Self::OwnerEnds(ended) => ended.name(),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            // The rejected pod never ran: there is no result that anybody could wait for.
            Self::AdminAsked | Self::Recreating(_) => Reach::AllOfOurs,
            _ => Reach::OwnHold,
        }
    }
}

/// A record's end, which is never taken back, so that a cache proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final(Phase);

impl Final {
    /// The proof, if the record has ended.
    pub fn prove(record: &Record) -> Option<Self> {
        let phase = record.status.phase.filter(|phase| phase.is_final())?;
        Some(Self(phase))
    }

    /// How it ended.
    pub fn phase(&self) -> Phase {
        self.0
    }
}

/// The intent to delete a pod, persisted in a record that holds its spec.
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

/// The proof that a record is gone, if `answer` gives it for a pod first seen at `pod_seen`.
pub fn record_gone(answer: &LiveAnswer<OwnerState>, pod_seen: LogicalTime) -> Option<GoneProof> {
    match answer.answer() {
        OwnerState::Gone(proof) if answer.begun() > pod_seen => Some(proof.clone()),
        _ => None,
    }
}
