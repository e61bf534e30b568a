//! The cluster of the model.

use belayer_pod_recreation::api::Phase;

use super::{FIRST, MOST};

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Seen {
    Pending,
    Started,
    Rejected,
}

/// The pod of the name, as the API server or a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pod {
    pub(super) uid: u8,
    pub(super) seen: Seen,
    pub(super) held: bool,
    pub(super) deleting: bool,
    /// The attempt that created it; 0: a user.
    pub(super) attempt: u8,
    /// Whether it requests its re-creation.
    pub(super) selected: bool,
    /// Whether Belayer has annotated that it is not re-created.
    pub(super) marked: bool,
}

/// A record, as the API server or a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Rec {
    pub(super) version: u8,
    /// The first pod.
    pub(super) first: u8,
    /// As [`Phase`], by [`number_of`].
    pub(super) phase: u8,
    pub(super) attempts: u8,
    pub(super) rejected: u8,
    pub(super) pod: u8,
    pub(super) hold_kept: bool,
    pub(super) wiped: bool,
}

/// All phases; 0 is none.
const PHASES: [Phase; 8] = [
    Phase::Rejected,
    Phase::Deleting,
    Phase::Waiting,
    Phase::Creating,
    Phase::Recreated,
    Phase::Started,
    Phase::Exhausted,
    Phase::Ended,
];

pub(super) fn number_of(phase: Option<Phase>) -> u8 {
    let index = phase.and_then(|phase| PHASES.iter().position(|one| *one == phase));
    index.map_or(0, |index| index as u8 + 1)
}

/// What a store has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stored<T> {
    #[default]
    Unknown,
    Known(Option<T>),
}

impl<T> Stored<T> {
    pub(super) fn found(self) -> Option<T> {
        match self {
            Self::Unknown => None,
            Self::Known(found) => found,
        }
    }
}

/// A request of a step that has not reached the server yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum RecordStep {
    ReadCandidate(u8),
    CreateRecord(u8),
    ReadPod {
        base: Rec,
        next: Rec,
        gone: u8,
    },
    ReadName {
        base: Rec,
        rejected: u8,
    },
    ReadRejected {
        base: Rec,
        next: Rec,
        uid: u8,
    },
    Write {
        base: Rec,
        next: Rec,
    },
    ReadToDelete {
        base: Rec,
        uid: u8,
    },
    DeletePod(u8),
    ReadToCreate {
        base: Rec,
        attempt: u8,
    },
    CreatePod {
        attempt: u8,
        rejected: u8,
        base: Rec,
    },
    ReadRecord {
        attempt: u8,
        uid: u8,
    },
    Annotate(u8),
    RequestWipe(u8),
}

/// A replica. The last attempt whose pod it has seen is in memory only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Replica {
    pub(super) pod: Stored<Pod>,
    pub(super) record: Stored<Rec>,
    pub(super) wipe: Option<(u8, bool)>,
    pub(super) created: u8,
    pub(super) step: Option<RecordStep>,
    /// Whether the last step has changed nothing, and no store since: it is repeated once a store changes.
    pub(super) waits: bool,
    /// A patch of the hold: the pod that it names, and whether it releases it.
    pub(super) patch: Option<(Pod, bool)>,
}

/// What a step has violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    RanTwice,
    Identity,
    Undeclared,
    Wipe,
}

/// A state of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) pod: Option<Pod>,
    pub(super) record: Option<Rec>,
    /// The rejected pod of which the node is to be wiped, and whether that is done.
    pub(super) wipe: Option<(u8, bool)>,
    pub(super) last_uid: u8,
    pub(super) rejections: u8,
    pub(super) deletions: u8,
    pub(super) others: u8,
    pub(super) crashed: u8,
    /// Whether a user has interfered.
    pub(super) by_users: bool,
    /// Whether a pod of the chain has started.
    pub(super) has_run: bool,
    pub(super) replicas: [Replica; MOST],
    /// The write of a replica that has crashed.
    pub(super) late: Option<RecordStep>,
    pub(super) broken: Option<Broken>,
}

impl Pod {
    pub(super) fn of_user(uid: u8, selected: bool) -> Self {
        Self {
            uid,
            seen: Seen::Pending,
            held: false,
            deleting: false,
            attempt: 0,
            selected,
            marked: false,
        }
    }

    /// Whether a record is created for it.
    pub(super) fn is_candidate(self) -> bool {
        self.seen == Seen::Rejected
            && self.attempt == 0
            && self.selected
            && self.held
            && !self.deleting
            && !self.marked
    }
}

impl Rec {
    pub(super) fn new(first: u8) -> Self {
        Self {
            version: 1,
            first,
            phase: 0,
            attempts: 0,
            rejected: 0,
            pod: 0,
            hold_kept: false,
            wiped: false,
        }
    }

    pub(super) fn phase(self) -> Option<Phase> {
        let index = usize::from(self.phase).checked_sub(1)?;
        Some(PHASES[index])
    }

    pub(super) fn is_creating(self) -> bool {
        self.phase() == Some(Phase::Creating)
    }

    pub(super) fn is_waiting(self) -> bool {
        self.phase() == Some(Phase::Waiting)
    }

    /// The end because another pod has the name.
    pub(super) fn ended(self) -> Self {
        Self {
            phase: number_of(Some(Phase::Ended)),
            ..self
        }
    }
}

impl RecordStep {
    /// What of a step still arrives after a crash: a write, without what would follow it.
    pub(super) fn on_the_way(self) -> Option<Self> {
        let is_write = matches!(
            self,
            Self::CreateRecord(_)
                | Self::Write { .. }
                | Self::DeletePod(_)
                | Self::CreatePod { .. }
                | Self::Annotate(_)
                | Self::RequestWipe(_)
        );
        is_write.then_some(self)
    }
}

impl Replica {
    pub(super) fn see_pod(&mut self, pod: Option<Pod>) {
        if let Some(pod) = pod
            && pod.attempt > 0
        {
            self.created = self.created.max(pod.attempt);
        }
        self.waits &= self.pod == Stored::Known(pod);
        self.pod = Stored::Known(pod);
    }

    pub(super) fn see_record(&mut self, record: Option<Rec>) {
        self.waits &= self.record == Stored::Known(record);
        self.record = Stored::Known(record);
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            pod: Some(Pod::of_user(FIRST, true)),
            record: None,
            wipe: None,
            last_uid: FIRST,
            rejections: 0,
            deletions: 0,
            others: 0,
            crashed: 0,
            by_users: false,
            has_run: false,
            replicas: [Replica::default(); MOST],
            late: None,
            broken: None,
        }
    }

    pub(super) fn start(&mut self) {
        let Some(pod) = &mut self.pod else { return };
        pod.seen = Seen::Started;
        let is_of_chain = pod.uid == FIRST || pod.attempt > 0;
        if is_of_chain && std::mem::replace(&mut self.has_run, true) {
            self.broken.get_or_insert(Broken::RanTwice);
        }
    }

    /// Creates the pod of an attempt; returns its UID.
    pub(super) fn create(&mut self, attempt: u8) -> u8 {
        self.last_uid += 1;
        self.pod = Some(Pod {
            held: true,
            attempt,
            ..Pod::of_user(self.last_uid, true)
        });
        self.last_uid
    }

    /// The API server removes a pod that nothing holds. To stop one that has started takes longer than a request: a
    /// create that is on its way has met it.
    pub(super) fn remove_what_is_done(&mut self) {
        let Some(pod) = self.pod.filter(|pod| pod.deleting && !pod.held) else {
            return;
        };
        self.pod = None;
        if pod.seen == Seen::Started {
            let steps = self.replicas.iter_mut().map(|replica| &mut replica.step);
            for step in steps.chain([&mut self.late]) {
                step.take_if(|step| matches!(step, RecordStep::CreatePod { .. }));
            }
        }
    }

    /// Whether a pod of the chain has started, or all allowed pods were rejected and the record says so.
    pub(super) fn has_ended_well(&self) -> bool {
        let is_exhausted = self.record.and_then(Rec::phase) == Some(Phase::Exhausted);
        self.has_run || is_exhausted
    }
}
