//! The same decisions for a person: the controller itself, which reads live, and its rows in words.

use std::time::Duration;

use belayer_controller::explain::Live;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::names::{
    IGNORE_LABEL, MIRROR_ANNOTATION, RECREATE_ANNOTATION, SYSTEM_NAMESPACE,
};
use jiff::Timestamp;

use crate::NAME;
use crate::api::{self, Phase};
use crate::component::{self, Parts, PodRecreation};
use crate::config::Settings;
use crate::decide::{Effect, Snapshot, Verdict, decide};
use crate::holds::HoldSnapshot;
use crate::row;
use crate::snapshot::{Asked, Hold, PodState, Selection};

/// The controller itself, which reads live. These kinds of owners are watched by a controller.
pub(crate) fn recreation(
    live: &Live,
    settings: &Settings,
    owners: &[Resource],
) -> PodRecreation<Live> {
    let owners = owners.iter();
    let parts = Parts {
        pods: live.store(Resource::pods(), component::keep_of_pods(settings)),
        records: live.store(api::resource(), Keep::nothing()),
        namespaces: live.store(Resource::namespaces(), component::keep_of_namespaces()),
        owners: owners
            .map(|kind| (kind.clone(), live.optional(kind.clone(), Keep::nothing())))
            .collect(),
        owner_queries: live.owners(Keep::nothing()),
        pods_queue: WorkQueue::new(NAME),
        queue: WorkQueue::new(NAME),
    };
    PodRecreation::new(settings.clone(), parts)
}

/// All that was seen of a pod and its record.
pub(crate) struct Seen {
    /// What the table of the hold reads.
    pub(crate) hold: HoldSnapshot,
    /// What the state machine of the record reads.
    pub(crate) machine: Snapshot,
    /// Whether its namespace is left alone.
    pub(crate) ignored: Asked,
}

impl Seen {
    /// Whether the pod goes so that it can be made anew.
    pub(crate) fn is_made_anew(&self) -> bool {
        let phase = self
            .machine
            .record
            .as_ref()
            .and_then(|record| record.status.phase);
        phase == Some(Phase::Deleting) && self.hold.pod.is_deleting()
    }

    /// Whether the decision depends on what a process has watched: the pod was rejected without a hold, and
    /// would be re-created if no container of it ran.
    pub(crate) fn only_the_leader_knows(&self) -> bool {
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
    pub(crate) fn of_the_record(&self, now: Timestamp) -> Vec<String> {
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
pub(crate) fn next(verdict: &Verdict) -> String {
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
pub(crate) fn why_not(settings: &Settings, pod: &Pod, seen: &Seen) -> Option<String> {
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
