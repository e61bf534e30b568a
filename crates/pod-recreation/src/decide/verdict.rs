//! What a decision says: the row, at most one step, whom to tell, when to look again.

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::{Notice, Row, Severity};
use belayer_holds::holding::Holding;

use crate::api::Status;
use crate::row;
use crate::snapshot::Asked;

/// What is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The row that matched.
    pub row: Row,
    /// What to do: at most one write that is kept.
    pub effect: Option<Effect>,
    /// Whom to tell.
    pub notice: Option<Notice>,
    /// Look again after this time.
    pub again: Option<Duration>,
}

/// One step, with what must be true of the live objects for it to be taken.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Create the record of a pod that is still as it was seen.
    CreateRecord {
        /// The rejected pod.
        pod: Uid,
        /// What the pod asks for.
        wipe: Asked,
    },
    /// Write the status: compare-and-swap on the record's version.
    Status(Step),
    /// Try the create, then write the status.
    Intend {
        /// The rejected pod, which must still be as it was seen.
        pod: Uid,
        /// What is written if the server would take the pod.
        step: Step,
    },
    /// Reserve an attempt, once storm control lets it go.
    Reserve {
        /// What is written.
        step: Step,
        /// The controller of the pod, for its bucket.
        node: Option<String>,
    },
    /// Delete a pod, by UID, if the record still stands as it was seen.
    DeletePod {
        /// Which.
        pod: Uid,
    },
    /// Create the pod of the attempt that is reserved, then look at the record again.
    CreatePod {
        /// Which attempt.
        attempt: u32,
    },
    /// Ask whether the node is there; write the status if it is not.
    LookAtNode {
        /// Its name.
        node: String,
        /// What is written if it is gone.
        step: Step,
    },
    /// Write on the rejected pod that it is left alone.
    Mark {
        /// Which.
        pod: Uid,
        /// Why.
        text: String,
    },
    /// Delete the record.
    DeleteRecord,
}

impl Effect {
    /// What is done, for the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateRecord { .. } => "create-record",
            Self::Status(_) => "write-status",
            Self::Intend { .. } => "try-create",
            Self::Reserve { .. } => "reserve",
            Self::DeletePod { .. } => "delete-pod",
            Self::CreatePod { .. } => "create-pod",
            Self::LookAtNode { .. } => "read-node",
            Self::Mark { .. } => "mark-pod",
            Self::DeleteRecord => "delete-record",
        }
    }
}

/// What a step means while Belayer is draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// It begins a re-creation of a pod that still exists: that pod stays as it is.
    Begins,
    /// It finishes the re-creation of a pod that exists only in its record: a drain waits for that.
    Finishes,
    /// It leads to no new pod.
    Nowhere,
}

impl Verdict {
    /// What the step means while Belayer is draining.
    pub fn leads(&self) -> Leads {
        match &self.effect {
            Some(Effect::CreateRecord { .. } | Effect::Intend { .. }) => Leads::Begins,
            Some(Effect::DeletePod { .. }) if self.row == row::DELETE => Leads::Begins,
            Some(Effect::Reserve { .. } | Effect::DeletePod { .. } | Effect::CreatePod { .. }) => {
                Leads::Finishes
            }
            Some(
                Effect::Status(_)
                | Effect::LookAtNode { .. }
                | Effect::Mark { .. }
                | Effect::DeleteRecord,
            )
            | None => Leads::Nowhere,
        }
    }

    /// Whether the step may be taken.
    pub fn is_allowed(&self, holding: Holding) -> bool {
        match self.leads() {
            Leads::Nowhere => true,
            Leads::Finishes => matches!(holding, Holding::Allowed | Holding::Draining),
            Leads::Begins => holding == Holding::Allowed,
        }
    }
}

/// A status to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The status as it is to be.
    pub next: Box<Status>,
    /// A pod that must be gone by a live look.
    pub gone: Option<Uid>,
    /// What is counted when it is written: the outcome of a re-creation.
    pub counts: Option<&'static str>,
}

impl Step {
    pub(super) fn to(next: Status) -> Self {
        Self {
            next: Box::new(next),
            gone: None,
            counts: None,
        }
    }

    pub(super) fn if_gone(self, pod: Uid) -> Self {
        Self {
            gone: Some(pod),
            ..self
        }
    }

    pub(super) fn counting(self, outcome: &'static str) -> Self {
        Self {
            counts: Some(outcome),
            ..self
        }
    }
}

impl Verdict {
    pub(super) fn nothing() -> Self {
        Self {
            row: row::NOTHING,
            effect: None,
            notice: None,
            again: None,
        }
    }

    pub(super) fn of(row: Row, effect: Effect) -> Self {
        Self {
            row,
            effect: Some(effect),
            ..Self::nothing()
        }
    }

    pub(super) fn waits(row: Row, again: Duration) -> Self {
        Self {
            row,
            again: Some(again),
            ..Self::nothing()
        }
    }

    pub(super) fn telling(self, severity: Severity, reason: &'static str, message: String) -> Self {
        Self {
            notice: Some(Notice {
                severity,
                reason,
                message: message.into(),
            }),
            ..self
        }
    }
}
