//! A decision about a record: the rule, at most one step, an Event, and the requeue delay.

use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::decision::{Notice, Rule};
use belayer_holds::holding::Holding;

use crate::api::{Status, Wipe};
use crate::row;

/// A decision about a record. It belongs to the rules of [`row`](crate::row).
#[derive(Debug, Clone, PartialEq)]
pub struct RecordDecision {
    /// The rule that matched.
    pub row: &'static Rule,
    /// The step: at most one persistent write.
    pub effect: Option<Effect>,
    /// The Event to record now. That of a status is recorded after the status was written.
    pub notice: Option<Notice>,
    /// Requeue after exactly this time.
    pub again: Option<Duration>,
}

/// One step. Each checks its conditions by live reads before it writes. It belongs to the rules of
/// [`row`](crate::row).
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Create the record of a rejected pod that has not changed.
    CreateRecord {
        /// The rejected pod.
        pod: Uid,
        /// Whether its node must be wiped first.
        wipe: Wipe,
    },
    /// Write the status: compare-and-swap on the record's version.
    Status(StatusWrite),
    /// Try the create as a server-side dry run, then write the status.
    Intend {
        /// The rejected pod, which must not have changed.
        pod: Uid,
        /// The status if the server accepts the pod.
        step: StatusWrite,
    },
    /// Reserve an attempt, once the rate limits allow it.
    Reserve {
        /// The status with the reserved attempt.
        step: StatusWrite,
        /// The node that rejected the pod, for its rate limit.
        node: Option<String>,
    },
    /// Delete a pod, by UID, if the record has not changed.
    DeletePod {
        /// The pod.
        pod: Uid,
    },
    /// Create the pod of the reserved attempt, then read the record again.
    CreatePod {
        /// Number of the attempt.
        attempt: u32,
    },
    /// Read the node; write the status if it does not exist.
    ReadNode {
        /// Name of the node.
        node: String,
        /// The status if it does not exist.
        step: StatusWrite,
    },
    /// Add an entry of the rejected pod to the `NodeWipe` of its node, after live reads of the node and the pod.
    RequestWipe {
        /// Name of the node.
        node: String,
        /// The rejected pod.
        pod: Uid,
    },
    /// Annotate the rejected pod with the reason why it is not re-created.
    AnnotatePod {
        /// The pod.
        pod: Uid,
        /// The reason.
        text: String,
    },
    /// Delete the record.
    DeleteRecord,
}

impl Effect {
    /// What the step writes, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::CreateRecord { .. } => "the record of the rejected pod",
            Self::Status(_) | Self::Intend { .. } | Self::Reserve { .. } => {
                "the status of its record"
            }
            Self::DeletePod { .. } => "the deletion of the pod",
            Self::CreatePod { .. } => "the re-created pod",
            Self::ReadNode { .. } => "a read of its node",
            Self::RequestWipe { .. } => "the request to wipe its node",
            Self::AnnotatePod { .. } => "the annotation of the pod",
            Self::DeleteRecord => "the deletion of its record",
        }
    }
}

/// How a step advances a re-creation; decides whether it is executed while Belayer is draining. It
/// belongs to the rules of [`row`](crate::row).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It begins a re-creation of a pod that still exists. A drain keeps that pod.
    Starts,
    /// It completes the re-creation of a pod that exists only in its record. A drain waits for that.
    Completes,
    /// It leads to no new pod.
    None,
}

impl RecordDecision {
    /// How its step advances a re-creation.
    pub fn progress(&self) -> Progress {
        match &self.effect {
            Some(Effect::CreateRecord { .. } | Effect::Intend { .. }) => Progress::Starts,
            Some(Effect::DeletePod { .. }) if self.row == row::DELETE => Progress::Starts,
            Some(Effect::Reserve { .. } | Effect::DeletePod { .. } | Effect::CreatePod { .. }) => {
                Progress::Completes
            }
            Some(
                Effect::Status(_)
                | Effect::ReadNode { .. }
                | Effect::RequestWipe { .. }
                | Effect::AnnotatePod { .. }
                | Effect::DeleteRecord,
            )
            | None => Progress::None,
        }
    }

    /// Whether its step may be executed.
    pub fn is_allowed(&self, holding: Holding) -> bool {
        match self.progress() {
            Progress::None => true,
            Progress::Completes => matches!(holding, Holding::Allowed | Holding::Draining),
            Progress::Starts => holding == Holding::Allowed,
        }
    }

    /// Whether the record waits for the wipe of its node.
    pub(crate) fn is_wiping(&self) -> bool {
        self.row == row::WIPING && !matches!(self.effect, Some(Effect::Status(_)))
    }

    pub(super) fn nothing() -> Self {
        Self {
            row: row::NOTHING,
            effect: None,
            notice: None,
            again: None,
        }
    }

    pub(super) fn of(row: &'static Rule, effect: Effect) -> Self {
        Self {
            row,
            effect: Some(effect),
            ..Self::nothing()
        }
    }

    pub(super) fn status(row: &'static Rule, step: StatusWrite) -> Self {
        Self::of(row, Effect::Status(step))
    }

    pub(super) fn waits(row: &'static Rule, again: Duration) -> Self {
        Self {
            row,
            again: Some(again),
            ..Self::nothing()
        }
    }

    pub(super) fn with_notice(self, notice: Notice) -> Self {
        match self.effect {
            Some(Effect::Status(step)) => Self {
                effect: Some(Effect::Status(step.noticed(notice))),
                ..self
            },
            effect => Self {
                effect,
                notice: Some(notice),
                ..self
            },
        }
    }
}

/// What live reads must find before a status is written. It belongs to the rules of
/// [`row`](crate::row).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// This pod does not exist.
    Gone(Uid),
    /// A pod of the record's pod name that Belayer did not create.
    NameTaken,
    /// The pod as the decision saw it.
    Unchanged,
    /// The pod as the decision saw it, in a namespace that is ignored.
    Ignored,
}

/// A status to write. It belongs to the rules of [`row`](crate::row).
#[derive(Debug, Clone, PartialEq)]
pub struct StatusWrite {
    /// The new status.
    pub next: Box<Status>,
    /// What live reads must find first.
    pub precondition: Precondition,
    /// The label `outcome` of the counter that the write increments.
    pub outcome: Option<&'static str>,
    /// The Event to record after the write.
    pub notice: Option<Notice>,
}

impl StatusWrite {
    pub(crate) fn of(next: Status) -> Self {
        Self {
            next: Box::new(next),
            precondition: Precondition::None,
            outcome: None,
            notice: None,
        }
    }

    /// With the Event to record after the write.
    pub(super) fn noticed(self, notice: Notice) -> Self {
        Self {
            notice: Some(notice),
            ..self
        }
    }

    pub(super) fn requiring(self, precondition: Precondition) -> Self {
        Self {
            precondition,
            ..self
        }
    }

    pub(super) fn if_gone(self, pod: Uid) -> Self {
        self.requiring(Precondition::Gone(pod))
    }

    pub(crate) fn counted(self, outcome: &'static str) -> Self {
        Self {
            outcome: Some(outcome),
            ..self
        }
    }
}
