//! What `/debug/holds` answers.

use serde_json::{Value, json};

#[cfg(feature = "pod-finalizer")]
use belayer_core::names;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::census::{Backlog, Selected};
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::component::PodFinalizer;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::snapshot::{Gate, MassRelease};
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::PodRecreation;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::component::PvcProtection;

#[cfg(feature = "pod-finalizer")]
/// The pods that are held, from memory.
pub fn pod_holds(finalizer: &PodFinalizer) -> Value {
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

/// The claims that wait for the pods that use them, the longest waiting first, from memory.
#[cfg(feature = "pvc-protection")]
pub fn claim_holds(protection: &PvcProtection) -> Value {
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

#[cfg(feature = "pod-recreation")]
/// The re-creations that are under way, from memory.
pub fn recreations(recreation: &PodRecreation) -> Value {
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
