//! The same decisions for a person: snapshots from live looks instead of stores, and their rows in words.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::executor::{Class, Executor};
use belayer_core::facts::{LiveReader, LookError, look};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::informer::Decoders;
use belayer_core::moment::LogicalTime;
use belayer_core::object::Resource;
use belayer_core::slim::{Phase as PodPhase, Pod};
use belayer_holds::holding::Holding;
use belayer_holds::names::{
    IGNORE_LABEL, MIRROR_ANNOTATION, RECREATE_ANNOTATION, SYSTEM_NAMESPACE,
};
use belayer_holds::namespace::{NamespaceQuery, NamespaceState, is_ignored};
use belayer_holds::owned::OwnerSight;
use belayer_holds::owner::{OwnerQuery, OwnerState};
use jiff::Timestamp;

use crate::api::{self, Phase};
use crate::component::{question_about, record_key};
use crate::config::Settings;
use crate::decide::{Effect, NamespaceSight, Snapshot, Verdict, decide};
use crate::holds::{HoldSnapshot, RecordSight};
use crate::proof::FirstSight;
use crate::record::Record;
use crate::row;
use crate::snapshot::{Asked, Hold, PodState, PodView, Selection, Sight};

/// What is looked at live.
pub struct Looks {
    /// The settings in force.
    pub settings: Settings,
    /// Reads records.
    pub executor: Arc<Executor>,
    /// Decodes records.
    pub records: Decoders<Record>,
    /// Answers about namespaces.
    pub namespaces: Arc<dyn LiveReader<NamespaceQuery>>,
    /// Answers about records, for the pods that name one, and about the owners of pods.
    pub owners: Arc<dyn LiveReader<OwnerQuery>>,
    /// The kinds of owners that a controller watches.
    pub owner_kinds: Vec<Resource>,
}

/// All that was seen of a pod and its record.
pub struct Seen {
    /// What the table of the hold reads.
    pub hold: HoldSnapshot,
    /// What the state machine of the record reads.
    pub machine: Snapshot,
    /// Whether its namespace is left alone.
    pub ignored: Asked,
}

impl Looks {
    /// The snapshots that a controller would have that starts now.
    ///
    /// # Errors
    ///
    /// When a look gave no answer.
    pub async fn look(&self, pod: &Pod) -> Result<Seen, LookError> {
        // Everything below begins after this: it is evidence about this very pod.
        let first_seen = LogicalTime::now();
        let question = NamespaceQuery::new(Arc::clone(pod.meta.key.shared_namespace()));
        let namespace = look(&*self.namespaces, &question).await?;
        let (ignored, terminating) = match namespace.answer() {
            NamespaceState::Present(meta) => (is_ignored(&meta.labels), meta.is_deleting()),
            NamespaceState::Gone => (false, true),
        };
        let sight = if pod.phase == PodPhase::Failed {
            FirstSight::Rejected
        } else {
            FirstSight::Earlier
        };
        let mut view = PodView::of(pod, &self.settings, sight);
        if ignored {
            view.selection = Selection::No;
        }
        let record = self.record(pod).await?;
        let look = match question_about(pod, &view) {
            Some(question) => {
                let fact = look(&*self.owners, &question).await?;
                Some((question, Some(fact)))
            }
            None => None,
        };
        let owner = self.owner(pod).await?;
        let machine = Snapshot {
            record: match &record {
                RecordSight::Found(record) => Some(record.clone()),
                RecordSight::Unknown | RecordSight::NotServed | RecordSight::Absent => None,
            },
            pod: Sight::Present(Box::new(view.clone())),
            namespace: if terminating {
                NamespaceSight::Terminating
            } else {
                NamespaceSight::Active
            },
            cancelled: Asked::No,
            created: None,
            holding: Holding::Allowed,
            record_ttl: self.settings.record_ttl,
        };
        Ok(Seen {
            hold: HoldSnapshot {
                pod: view,
                first_seen,
                record,
                cancelled: Asked::No,
                to_report: Asked::No,
                look,
                owner,
            },
            machine,
            ignored: if ignored { Asked::Yes } else { Asked::No },
        })
    }

    async fn owner(&self, pod: &Pod) -> Result<Option<OwnerSight>, LookError> {
        let Some(owner) = &pod.meta.controller else {
            return Ok(None);
        };
        let mut kinds = self.owner_kinds.iter();
        let of_kind = |kind: &&Resource| kind.kind == owner.kind && *kind.group == *owner.group();
        let Some(kind) = kinds.find(of_kind) else {
            return Ok(None);
        };
        let question = OwnerQuery::new(kind.clone(), pod.meta.key.shared_namespace(), owner);
        let fact = look(&*self.owners, &question).await?;
        // A controller has an owner that exists in its store.
        let cached = match fact.answer() {
            OwnerState::Present(meta) => Some(meta.clone()),
            OwnerState::Gone(_) | OwnerState::Unknown(_) => None,
        };
        let fact = Some(fact);
        Ok(Some(OwnerSight {
            question,
            cached,
            fact,
        }))
    }

    async fn record(&self, pod: &Pod) -> Result<RecordSight, LookError> {
        let (records, key) = (api::resource(), record_key(pod));
        let request = Request::get(records.object_path(&key));
        match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => self
                .records
                .read(&answer)
                .map(|record| RecordSight::Found(Box::new(record)))
                .map_err(|error| LookError::unusable(error.to_string())),
            Err(error) => match error.class() {
                ErrorClass::NotServed => Ok(RecordSight::NotServed),
                ErrorClass::NotFound => Ok(RecordSight::Absent),
                _ => Err(LookError::from(&error)),
            },
        }
    }
}

impl Seen {
    /// Whether the pod goes so that it can be made anew.
    pub fn is_made_anew(&self) -> bool {
        let phase = self
            .machine
            .record
            .as_ref()
            .and_then(|record| record.status.phase);
        phase == Some(Phase::Deleting) && self.hold.pod.is_deleting()
    }

    /// Whether the decision depends on what a process has watched: the pod was rejected without a hold, and
    /// would be re-created if no container of it ran.
    pub fn only_the_leader_knows(&self) -> bool {
        let pod = &self.hold.pod;
        let is_worth_it = match &pod.state {
            PodState::Rejected(rejection) => rejection.class.is_recreated(),
            PodState::Pending | PodState::Started | PodState::Ended => false,
        };
        let wanted = pod.selection == Selection::Eligible && pod.asks.leave == Asked::No;
        is_worth_it && wanted && pod.hold == Hold::Off && !pod.is_deleting()
    }

    /// What its record says, and what the state machine does next; nothing for a pod without one that
    /// needs none.
    pub fn of_the_record(&self, now: Timestamp) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(record) = &self.machine.record {
            let status = &record.status;
            let phase = status
                .phase
                .map_or_else(|| "new".to_owned(), |phase| format!("{phase:?}"));
            told.push(format!(
                "its record is PodRecreation {}, phase {phase}: {} of {} re-creations begun",
                record.meta.key.name(),
                status.attempts,
                record.policy.max_retries
            ));
            told.extend(status.message.clone());
        }
        let verdict = decide(&self.machine, now);
        if verdict.row != row::NOTHING || verdict.again.is_some() {
            told.push(next(&verdict));
        }
        told
    }
}

/// What a running Belayer does next about a record, in words.
pub fn next(verdict: &Verdict) -> String {
    let says = verdict.row.says;
    let after = |again: Duration| format!("{says}; the next look is in {} s", again.as_secs());
    let does = match &verdict.effect {
        None if verdict.row == row::DELETE => {
            return "the rejected pod is being deleted, and made anew once it is gone: what else holds it is waited for".to_owned();
        }
        None => return verdict.again.map_or_else(|| says.to_owned(), after),
        Some(Effect::CreateRecord { .. }) => "writes its record",
        Some(Effect::Status(_)) => "writes the record's status",
        Some(Effect::Intend { .. }) => "tries the create, then writes down that it will delete it",
        Some(Effect::Reserve { .. }) => "reserves an attempt, as soon as storm control allows",
        Some(Effect::DeletePod { .. }) => "deletes the pod, by its UID",
        Some(Effect::CreatePod { .. }) => "creates the pod",
        Some(Effect::LookAtNode { .. }) => "looks whether the node is still there",
        Some(Effect::Mark { .. }) => "writes on the pod why it is left alone",
        Some(Effect::DeleteRecord) => "deletes the record",
    };
    format!("{says}: a running Belayer {does}")
}

/// Why nothing would re-create the pod, in words; `None` if it would be.
pub fn why_not(settings: &Settings, pod: &Pod, seen: &Seen) -> Option<String> {
    let view = &seen.hold.pod;
    if view.selection == Selection::No {
        return Some(not_selected(settings, pod, seen.ignored));
    }
    match &view.state {
        PodState::Started => Some("it has started: a pod that ran is never re-created".to_owned()),
        PodState::Ended => Some("it ended, and not by a rejection".to_owned()),
        PodState::Rejected(rejection) if !rejection.is_recreated() => Some(rejection.objection()),
        PodState::Pending | PodState::Rejected(_) => None,
    }
}

fn not_selected(settings: &Settings, pod: &Pod, ignored: Asked) -> String {
    let meta = &pod.meta;
    if meta.annotations.get(MIRROR_ANNOTATION).is_some() {
        return "it is the API's mirror of a static pod: its kubelet alone starts it".to_owned();
    }
    if meta.key.namespace() == Some(SYSTEM_NAMESPACE) {
        return format!("pods in {SYSTEM_NAMESPACE} are never re-created");
    }
    if ignored == Asked::Yes {
        return format!("its namespace carries the label {IGNORE_LABEL}=true");
    }
    match meta.annotations.get(RECREATE_ANNOTATION) {
        Some("true") => {}
        Some(_) => return format!("its annotation {RECREATE_ANNOTATION} says no"),
        None if settings.eligibility.selectors.is_empty() => {
            return format!(
                "it does not ask for it by the annotation {RECREATE_ANNOTATION}: \"true\""
            );
        }
        None => {
            return format!(
                "neither its annotation {RECREATE_ANNOTATION} nor a selector of the configuration asks for it"
            );
        }
    }
    match &meta.controller {
        Some(owner) => format!(
            "a {} owns it, which replaces its pods itself or is not among podRecreation.owners",
            owner.kind
        ),
        None => "nothing selects it".to_owned(),
    }
}
