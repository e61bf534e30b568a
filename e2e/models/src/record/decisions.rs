//! From the model's states to the snapshots of pod-recreation, and back from its decisions. The planted faults that
//! change a decision are here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{self, ObjectMeta};
use belayer_holds::decision::Write;
use belayer_holds::holding::Holding;
use belayer_holds::node_wipe::{Report, WipeState};
use belayer_holds::selection::Selection;
use belayer_pod_recreation::Settings;
use belayer_pod_recreation::api::{ConditionStatus, ConditionType, Phase, Policy, Status, Wipe};
use belayer_pod_recreation::decide::{
    Effect, ObservedWipe, Precondition, RecordSnapshot, StatusWrite, decide,
};
use belayer_pod_recreation::holds::{self, HoldSnapshot, ObservedRecord};
use belayer_pod_recreation::proof::{FirstSeen, NeverRan};
use belayer_pod_recreation::reason::Class;
use belayer_pod_recreation::record::Record;
use belayer_pod_recreation::snapshot::{ObservedPod, Origin, PodState, PodView, Rejection};
use belayer_pod_recreation::transitions;
use jiff::Timestamp;

use super::state::{Broken, Pod, Rec, RecordStep, Replica, Seen, State, Stored, number_of};
use super::{Fault, Recreation};

const RECORD: &str = "r-1";

impl Recreation {
    /// The step that the controller's own decision demands.
    pub(super) fn decide(&self, replica: &Replica) -> Option<RecordStep> {
        type Key = (
            Option<Fault>,
            u8,
            bool,
            Stored<Pod>,
            Stored<Rec>,
            u8,
            Option<(u8, bool)>,
        );
        thread_local! {
            static KNOWN: RefCell<HashMap<Key, Option<RecordStep>>> = RefCell::default();
        }
        let Replica {
            pod,
            record,
            created,
            wipe,
            ..
        } = *replica;
        let key = (
            self.fault,
            self.retries,
            self.wipe,
            pod,
            record,
            created,
            wipe,
        );
        KNOWN.with_borrow_mut(|known| {
            *known
                .entry(key)
                .or_insert_with(|| self.step_of(pod, record, created, wipe))
        })
    }

    fn step_of(
        &self,
        pod: Stored<Pod>,
        record: Stored<Rec>,
        created: u8,
        wipe: Option<(u8, bool)>,
    ) -> Option<RecordStep> {
        let is = |fault| self.fault == Some(fault);
        let (Stored::Known(pod), Stored::Known(base)) = (pod, record) else {
            return None;
        };
        if is(Fault::DeletedBeforeRecord)
            && base.is_none()
            && let Some(pod) = pod.filter(|pod| pod.is_candidate())
        {
            return Some(RecordStep::DeletePod(pod.uid));
        }
        let first = base.map_or(pod.map(|pod| pod.uid), |base| Some(base.first))?;
        let snapshot = RecordSnapshot {
            record: base.map(|base| Box::new(self.record_of(base))),
            pod: match pod {
                // Another record would be created for it.
                Some(pod) if base.is_none() && pod.uid != first => ObservedPod::Absent,
                Some(pod) => ObservedPod::Present(Box::new(self.view(pod))),
                None => ObservedPod::Absent,
            },
            namespace_terminating: false,
            replaced: false,
            cancelled: false,
            created: (created > 0).then_some(created.into()),
            watched: Some(Duration::ZERO),
            holding: Holding::Allowed,
            wipe: match wipe {
                Some((pod, done)) if base.is_some_and(|base| base.rejected == pod) => {
                    ObservedWipe::Requested(done.then(wiped))
                }
                _ => ObservedWipe::NotRequested,
            },
            record_ttl: Duration::from_secs(3_600),
        };
        let effect = decide(&snapshot, now()).effect?;
        let Some(base) = base else {
            return match effect {
                Effect::CreateRecord { pod, .. } => Some(RecordStep::ReadCandidate(number(&pod))),
                _ => None,
            };
        };
        if is(Fault::NoReservation)
            && let Effect::Reserve { step, .. } = &effect
        {
            let next = rec_of(base, step);
            return Some(RecordStep::CreatePod {
                attempt: next.attempts,
                rejected: base.rejected,
                base,
            });
        }
        self.step_after(base, effect)
    }

    fn step_after(&self, base: Rec, effect: Effect) -> Option<RecordStep> {
        let write = |step: &StatusWrite| RecordStep::Write {
            base,
            next: rec_of(base, step),
        };
        Some(match effect {
            Effect::CreateRecord { .. } | Effect::ReadNode { .. } | Effect::DeleteRecord => {
                return None;
            }
            Effect::Status(step) => match &step.precondition {
                Precondition::NameTaken => RecordStep::ReadName {
                    base,
                    rejected: base.rejected,
                },
                Precondition::Gone(gone) => RecordStep::ReadPod {
                    base,
                    next: rec_of(base, &step),
                    gone: number(gone),
                },
                Precondition::None | Precondition::Unchanged | Precondition::Ignored => {
                    write(&step)
                }
            },
            Effect::Intend { pod, step } => RecordStep::ReadRejected {
                base,
                next: rec_of(base, &step),
                uid: number(&pod),
            },
            Effect::Reserve { step, .. } => write(&step),
            Effect::DeletePod { pod } => RecordStep::ReadToDelete {
                base,
                uid: number(&pod),
            },
            Effect::CreatePod { attempt } => RecordStep::ReadToCreate {
                base,
                attempt: attempt as u8,
            },
            Effect::RequestWipe { pod, .. } => RecordStep::RequestWipe(number(&pod)),
            Effect::AnnotatePod { pod, .. } => RecordStep::Annotate(number(&pod)),
        })
    }

    /// The patch that the controller's own decision about the hold demands.
    pub(super) fn decide_hold(&self, replica: &Replica) -> Option<(Pod, bool)> {
        type Key = (Option<Fault>, u8, bool, Pod, Stored<Rec>);
        thread_local! {
            static KNOWN: RefCell<HashMap<Key, Option<bool>>> = RefCell::default();
        }
        let pod = replica.pod.found()?;
        let key = (self.fault, self.retries, self.wipe, pod, replica.record);
        let releases = KNOWN.with_borrow_mut(|known| {
            *known
                .entry(key)
                .or_insert_with(|| self.hold_of(pod, replica.record))
        });
        Some((pod, releases?))
    }

    /// Whether the hold is released; `None`: nothing changes.
    fn hold_of(&self, pod: Pod, record: Stored<Rec>) -> Option<bool> {
        if self.fault == Some(Fault::ReleasedEarly) && pod.attempt > 0 && pod.held {
            return Some(true);
        }
        let snapshot = HoldSnapshot {
            pod: self.view(pod),
            first_seen: LogicalTime::now(),
            record: match record {
                Stored::Unknown => ObservedRecord::Unknown,
                Stored::Known(None) => ObservedRecord::Absent,
                // A pod of a user finds the record by its own UID.
                Stored::Known(Some(record)) if pod.attempt == 0 && record.first != pod.uid => {
                    ObservedRecord::Absent
                }
                Stored::Known(Some(record)) => {
                    ObservedRecord::Found(Box::new(self.record_of(record)))
                }
            },
            cancelled: false,
            created_in_vain: false,
            to_report: false,
            // No record is ever deleted, so that no read shows one to be gone.
            live_record: None,
            namespace: None,
            owner: None,
        };
        match holds::decide(&snapshot, now()).write? {
            Write::AddHold => Some(false),
            Write::Release(_) => Some(true),
            _ => None,
        }
    }

    fn record_of(&self, rec: Rec) -> Record {
        Record {
            meta: meta("web-u-1", RECORD),
            created: Some(now()),
            pod_name: "web".into(),
            first_uid: uid(rec.first).to_string(),
            policy: Policy {
                max_retries: match self.fault {
                    Some(Fault::NoBudget) => u32::MAX,
                    _ => self.retries.into(),
                },
                backoff_seconds: 0,
                wipe: if self.wipe {
                    Wipe::Required
                } else {
                    Wipe::None
                },
                ..Policy::default()
            },
            status: status_of(rec),
        }
    }

    fn view(&self, pod: Pod) -> PodView {
        let slim = slim::Pod::new(meta("web", uid(pod.uid).as_str()));
        let state = match pod.seen {
            Seen::Pending => PodState::Pending,
            Seen::Started => PodState::Started,
            Seen::Rejected => rejected(),
        };
        PodView {
            node: Some("node-1".into()),
            deleting: pod.deleting,
            held: pod.held,
            selection: if pod.selected {
                Selection::Yes
            } else {
                Selection::No
            },
            origin: (pod.attempt > 0).then(|| Origin {
                record: "web-u-1".into(),
                record_uid: Uid::new(RECORD),
                attempt: pod.attempt.into(),
                annotated: true,
            }),
            wipe: if self.wipe {
                Wipe::Required
            } else {
                Wipe::None
            },
            recreation_ended: pod.marked,
            state,
            ..PodView::of(&slim, &Settings::default(), FirstSeen::Earlier)
        }
    }
}

impl State {
    /// Writes a status. A transition that is not declared is a violation.
    pub(super) fn write(&mut self, base: Rec, next: Rec) {
        let state = |rec: Rec| transitions::State::of(&status_of(rec));
        let from = self.record.unwrap_or(base);
        if !transitions::is_declared(state(from), state(next)) {
            self.broken.get_or_insert(Broken::Undeclared);
        }
        self.record = Some(Rec {
            version: from.version + 1,
            ..next
        });
    }
}

/// The status of a record of the model.
pub(super) fn status_of(rec: Rec) -> Status {
    let named = |number: u8| (number > 0).then(|| uid(number).to_string());
    let mut status = Status {
        phase: rec.phase(),
        attempts: rec.attempts.into(),
        rejected_uid: named(rec.rejected),
        pod_uid: named(rec.pod),
        node_name: Some("node-1".into()),
        pod_deletion_time: Some(now()),
        finished_at: rec.phase().filter(|phase| phase.is_final()).map(|_| now()),
        ..Status::default()
    };
    let conditions = [
        (
            ConditionType::PodRejected,
            rec.phase() == Some(Phase::Rejected),
        ),
        (ConditionType::HoldKept, rec.hold_kept),
    ];
    for (condition, is_true) in conditions {
        status.set(
            condition,
            ConditionStatus::of(is_true),
            ("Model", ""),
            now(),
        );
    }
    let reason = if rec.wiped { "Wiped" } else { "Waiting" };
    let is_wiped = ConditionStatus::of(rec.wiped);
    status.set(ConditionType::StateWiped, is_wiped, (reason, ""), now());
    status
}

/// The record of the model that a step would write.
fn rec_of(base: Rec, step: &StatusWrite) -> Rec {
    let next = &*step.next;
    let named = |uid: &Option<String>| uid.as_deref().map_or(0, |uid| number(&Uid::new(uid)));
    Rec {
        phase: number_of(next.phase),
        attempts: next.attempts as u8,
        rejected: named(&next.rejected_uid),
        pod: named(&next.pod_uid),
        hold_kept: next.is_true(ConditionType::HoldKept),
        wiped: next.is_true(ConditionType::StateWiped),
        ..base
    }
}

fn rejected() -> PodState {
    let failed = slim::Pod {
        phase: slim::Phase::Failed,
        ..slim::Pod::new(meta("web", "x"))
    };
    PodState::Rejected(Rejection {
        reason: "OutOfcpu".into(),
        message: None,
        class: Class::Race,
        never_ran: NeverRan::prove(&failed, FirstSeen::Rejected),
    })
}

fn wiped() -> Report {
    Report {
        state: WipeState::Wiped,
        reason: "Wiped".into(),
        message: String::new(),
        paths: Vec::new(),
    }
}

fn uid(number: u8) -> Uid {
    Uid::new(format!("u-{number}"))
}

/// The number of a UID of this model; 0 for the empty one.
fn number(uid: &Uid) -> u8 {
    let text = uid.as_str().strip_prefix("u-");
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new("yard", name),
        Uid::new(uid),
        ResourceVersion::new(1),
    )
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
}
