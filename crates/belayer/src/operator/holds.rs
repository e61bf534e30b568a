//! What `/debug/holds` answers, from memory.

use std::sync::Arc;

use serde_json::{Value, json};

use belayer_core::names;
use belayer_core::selection::MassRelease;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::census::{Backlog, Selected};
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::component::PodFinalizer;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::snapshot::Gate;
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::PodRecreation;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::component::PvcProtection;
#[cfg(feature = "workflow-finalizer")]
use belayer_workflow_finalizer::component::WorkflowFinalizer;

use crate::server::Holds;

/// What each component says, by its name.
#[derive(Default)]
pub(super) struct Told(Vec<(&'static str, HoldsOf)>);

type HoldsOf = Box<dyn Fn() -> Value + Send + Sync>;

impl Told {
    /// Has a component tell of its holds.
    pub(super) fn add<C: Clone + Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        component: &C,
        tell: impl Fn(&C) -> Value + Send + Sync + 'static,
    ) {
        let component = component.clone();
        self.0.push((name, Box::new(move || tell(&component))));
    }
}

impl Holds for Told {
    fn holds(&self) -> Value {
        let each = self.0.iter();
        Value::Object(
            each.map(|(name, tell)| ((*name).to_owned(), tell()))
                .collect(),
        )
    }
}

/// The pods that are held.
#[cfg(feature = "pod-finalizer")]
pub(super) fn pods(finalizer: &PodFinalizer) -> Value {
    let census = finalizer.census();
    let counts = census.counts();
    let pods: Vec<Value> = census
        .list()
        .into_iter()
        .map(|(key, pod)| {
            json!({
                "namespace": key.namespace(),
                "name": key.name(),
                "finalizer": names::POD_STATUS_HOLD,
                "selected": pod.selected == Selected::Yes,
                "endedOrDeleting": pod.backlog == Backlog::Part,
                "deletionTimestamp": pod.deleting.map(|time| time.to_string()),
            })
        })
        .collect();
    let losses: Vec<Value> = finalizer
        .latest_losses()
        .into_iter()
        .map(|lost| {
            json!({
                "namespace": lost.key.namespace(),
                "name": lost.key.name(),
                "uid": lost.uid.as_str(),
                "profile": &*lost.profile,
                "at": lost.at.to_string(),
            })
        })
        .collect();
    json!({
        "held": counts.held,
        "waiting": counts.waiting,
        "backlog": counts.backlog,
        "unselected": counts.unselected,
        "observedLosses": finalizer.observed_losses(),
        "latestLosses": losses,
        "backlogGate": match census.gate() {
            Gate::Open => "open",
            Gate::Closed => "closed",
        },
        "unselectedKept": matches!(census.mass_release(), MassRelease::Exceeded { .. }),
        "pods": pods,
    })
}

/// The claims that wait for the pods that use them, the longest waiting first.
#[cfg(feature = "pvc-protection")]
pub(super) fn claims(protection: &PvcProtection) -> Value {
    let waiting: Vec<Value> = protection
        .waiting()
        .into_iter()
        .map(|claim| {
            let users = claim.users.map(|users| {
                json!({
                    "count": users.total(),
                    "names": users.named().iter().map(|name| &**name).collect::<Vec<_>>(),
                })
            });
            json!({
                "namespace": claim.key.namespace(),
                "name": claim.key.name(),
                "deletionTimestamp": claim.since.to_string(),
                // Nothing is known as long as the pods are not.
                "pods": users,
            })
        })
        .collect();
    json!({
        "finalizer": protection.mode().hold(),
        "held": protection.census().held(),
        "waiting": protection.census().waiting(),
        "claims": waiting,
    })
}

/// The re-creations that are under way.
#[cfg(feature = "pod-recreation")]
pub(super) fn recreations(recreation: &PodRecreation) -> Value {
    let mut under_way = Vec::new();
    recreation.records().for_each(|record| {
        let status = &record.status;
        if status.phase.is_some_and(|phase| phase.is_final()) {
            return;
        }
        under_way.push(json!({
            "namespace": record.meta.key.namespace(),
            "name": record.meta.key.name(),
            "pod": record.pod_name,
            "phase": status.phase,
            "attempts": status.attempts,
            "maxRetries": record.policy.max_retries,
            "reason": status.reason,
        }));
    });
    json!({ "underWay": under_way, "records": recreation.records().len() })
}

/// The workflows, of every kind, that wait for their pods.
#[cfg(feature = "workflow-finalizer")]
pub(super) fn workflows(kinds: &[Arc<WorkflowFinalizer>]) -> Value {
    kinds.iter().map(|kind| workflows_of_kind(kind)).collect()
}

#[cfg(feature = "workflow-finalizer")]
fn workflows_of_kind(finalizer: &WorkflowFinalizer) -> Value {
    let census = finalizer.census();
    let counts = census.counts();
    let waiting: Vec<Value> = census
        .waiting()
        .into_iter()
        .map(|(key, workflow)| {
            json!({
                "namespace": key.namespace(),
                "name": key.name(),
                "uid": workflow.uid.as_str(),
                "deletionTimestamp": workflow.deleting.map(|time| time.to_string()),
                "podsRemaining": finalizer.pods_held(&workflow),
            })
        })
        .collect();
    json!({
        "kind": finalizer.rule().kind.to_string(),
        "finalizer": names::WORKFLOW_HOLD,
        "held": counts.held,
        "waiting": counts.waiting,
        "unselected": counts.unselected,
        "unselectedKept": matches!(census.mass_release(), MassRelease::Exceeded { .. }),
        "deleting": waiting,
    })
}
