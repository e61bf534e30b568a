//! The decisions about a pod and its record, made on live reads, as text.

use belayer_controller::explain::Live;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::names::{
    IGNORE_LABEL, MIRROR_ANNOTATION, RECREATE_ANNOTATION, RECREATION_ENDED_ANNOTATION,
    SYSTEM_NAMESPACE,
};
use belayer_holds::node_wipe;
use jiff::Timestamp;

use crate::NAME;
use crate::api::{self, Phase};
use crate::component::{self, Parts, PodRecreation};
use crate::config::Settings;
use crate::decide::{Effect, RecordDecision, RecordSnapshot, decide, is_of_record};
use crate::holds::{HoldSnapshot, has_rejection};
use crate::row;
use crate::snapshot::{PodState, Rejection};

/// The controller itself, with live reads instead of caches. `owners` are the kinds of owners that Belayer watches.
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
        wipes: live.optional(node_wipe::resource(), Keep::nothing()),
        owners: owners
            .map(|kind| (kind.clone(), live.optional(kind.clone(), Keep::nothing())))
            .collect(),
        owner_queries: live.owners(Keep::nothing()),
        namespace_queries: live.namespaces(component::keep_of_namespaces()),
        pods_queue: WorkQueue::new(NAME),
        queue: WorkQueue::new(NAME),
    };
    PodRecreation::new(settings.clone(), parts)
}

/// The snapshots of a pod and its record.
pub(crate) struct Observed {
    /// The input of the decision about the hold.
    pub(crate) hold: HoldSnapshot,
    /// The input of the decision about the record.
    pub(crate) recreation: RecordSnapshot,
    /// Whether the pod's namespace is ignored.
    pub(crate) ignored: bool,
}

impl Observed {
    /// Whether the pod is being deleted so that Belayer can re-create it.
    pub(crate) fn is_being_recreated(&self) -> bool {
        let record = self.recreation.record.as_ref();
        let phase = record.and_then(|record| record.status.phase);
        phase == Some(Phase::Deleting) && self.hold.pod.deleting
    }

    /// Whether the record of the pod has its rejection, and has yet to delete the pod.
    pub(crate) fn is_rejection_recorded(&self) -> bool {
        let record = self.recreation.record.as_ref();
        record.is_some_and(|record| has_rejection(record, &self.hold.pod))
    }

    /// Whether a rejection of the pod leads to no re-creation. Once a record has it, only a start refutes it.
    fn is_refused(&self, rejection: &Rejection) -> bool {
        let record = self.recreation.record.as_ref();
        let is_recorded = record.is_some_and(|record| record.names(&self.hold.pod.uid));
        let is_proven = rejection.never_ran.is_ok() || is_recorded && !rejection.shows_start();
        !rejection.class.is_recreated() || !is_proven
    }

    /// Whether the decision depends on what the leader has watched: the pod was rejected without its hold, and is
    /// re-created only if no container of it ran.
    pub(crate) fn depends_on_history(&self) -> bool {
        let pod = &self.hold.pod;
        let may_be_recreated = match &pod.state {
            PodState::Rejected(rejection) => rejection.class.is_recreated(),
            PodState::Pending | PodState::Started | PodState::Ended => false,
        };
        may_be_recreated
            && pod.origin.is_none()
            && pod.is_selected()
            && !pod.recreation_ended
            && !pod.held
            && !pod.deleting
    }

    /// The state of the record and its next step; empty if the pod has no record and needs none.
    pub(crate) fn record_notes(&self, now: Timestamp) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(record) = &self.recreation.record {
            let status = &record.status;
            let phase = status.phase.map_or("new", Phase::as_str);
            notes.push(format!(
                "its record is PodRecreation {}, phase {phase}: {} of {} re-creations begun",
                record.meta.key.name(),
                status.attempts,
                record.policy.max_retries
            ));
            notes.extend(status.message.clone());
        }
        let decision = decide(&self.recreation, now);
        if decision.row != row::NOTHING || decision.again.is_some() {
            notes.push(next(&decision));
        }
        notes.extend(self.avoided_nodes());
        notes
    }

    /// The nodes that Belayer excluded for a re-created pod that has not started.
    fn avoided_nodes(&self) -> Option<String> {
        let pod = &self.hold.pod;
        let record = self.recreation.record.as_ref()?;
        let nodes = &record.status.avoid_nodes;
        if pod.state != PodState::Pending || nodes.is_empty() || !is_of_record(record, pod) {
            return None;
        }
        let because = if record.policy.avoid_rejected_node {
            "rejected it (podRecreation.avoidRejectedNode)"
        } else {
            "kept directories of the rejected pod longer than podRecreation.wipeTimeoutSeconds"
        };
        Some(format!(
            "it cannot run on {}: Belayer added a required node affinity (metadata.name NotIn) to the re-created pod, because \
             each of these nodes {because}",
            nodes.join(", ")
        ))
    }
}

/// The next step of a running Belayer for a record, as text.
pub(crate) fn next(decision: &RecordDecision) -> String {
    let says = decision.row.says;
    let action = match &decision.effect {
        None if decision.row == row::DELETE => {
            return "the rejected pod is being deleted; Belayer re-creates it once all other finalizers are removed".to_owned();
        }
        None => {
            return decision.again.map_or_else(
                || says.to_owned(),
                |again| format!("{says}; Belayer checks again in {} s", again.as_secs()),
            );
        }
        Some(Effect::CreateRecord { .. }) => "writes its record",
        Some(Effect::Status(_)) => "writes the record's status",
        Some(Effect::Intend { .. }) => {
            "tries the create as a server-side dry run, then records that it deletes the rejected pod"
        }
        Some(Effect::Reserve { node, .. }) => {
            let node = node.as_ref().map(|node| format!(" of node {node}"));
            return format!(
                "{says}: a running Belayer reserves an attempt once the rate limits and the circuit breaker{} allow it \
                 (metric belayer_breaker_open, log of the leader)",
                node.unwrap_or_default()
            );
        }
        Some(Effect::DeletePod { .. }) => "deletes the pod, by its UID",
        Some(Effect::CreatePod { .. }) => "creates the pod",
        Some(Effect::ReadNode { .. }) => "checks whether the node still exists",
        Some(Effect::RequestWipe { .. }) => "requests the wipe in the NodeWipe of the node",
        Some(Effect::AnnotatePod { .. }) => {
            "annotates the pod with the reason why it is not re-created"
        }
        Some(Effect::DeleteRecord) => "deletes the record",
    };
    format!("{says}: a running Belayer {action}")
}

/// Why Belayer does not re-create the pod; `None` if it does.
pub(crate) fn why_not(settings: &Settings, pod: &Pod, observed: &Observed) -> Option<String> {
    let view = &observed.hold.pod;
    if !view.is_selected() {
        return Some(not_selected(settings, pod, observed));
    }
    match &view.state {
        PodState::Pending | PodState::Rejected(_) if observed.hold.has_lost_record() => {
            let why = "its record was deleted: a pod that an attempt created is not re-created without it";
            Some(why.to_owned())
        }
        PodState::Started => {
            Some("it has started: a pod that may have run is never re-created".to_owned())
        }
        PodState::Ended => Some("it ended, but its node did not reject it".to_owned()),
        PodState::Rejected(rejection) if observed.is_refused(rejection) => {
            Some(rejection.objection())
        }
        PodState::Pending | PodState::Rejected(_) if view.recreation_ended => {
            let why = pod.meta.annotations.get(RECREATION_ENDED_ANNOTATION);
            Some(format!(
                "its annotation {RECREATION_ENDED_ANNOTATION} ends its re-creation: {}",
                why.unwrap_or_default()
            ))
        }
        PodState::Pending | PodState::Rejected(_) => None,
    }
}

fn not_selected(settings: &Settings, pod: &Pod, observed: &Observed) -> String {
    let meta = &pod.meta;
    if meta.annotations.get(MIRROR_ANNOTATION).is_some() {
        return "it is the mirror pod of a static pod, which only its kubelet starts".to_owned();
    }
    if meta.key.namespace() == Some(SYSTEM_NAMESPACE) {
        return format!("pods in {SYSTEM_NAMESPACE} are never re-created");
    }
    let namespace = meta.key.namespace().unwrap_or_default();
    if !settings.eligibility.namespaces.contains(namespace) {
        return format!("podRecreation.namespaces does not select the namespace {namespace}");
    }
    if observed.ignored {
        return format!("its namespace has the label {IGNORE_LABEL}=true");
    }
    match meta.annotations.get(RECREATE_ANNOTATION) {
        Some("true") => {}
        Some(value) => return format!("its annotation {RECREATE_ANNOTATION} is {value:?}"),
        None if settings.eligibility.selectors.is_empty() => {
            return format!("it does not have the annotation {RECREATE_ANNOTATION}: \"true\"");
        }
        None => {
            return format!(
                "it does not have the annotation {RECREATE_ANNOTATION}, and no selector of podRecreation.selectors \
                 matches it"
            );
        }
    }
    match &meta.controller {
        Some(owner) => format!(
            "its owner is a {}: that kind replaces its pods itself or is not listed in podRecreation.owners",
            owner.kind
        ),
        None => "it is not selected".to_owned(),
    }
}
