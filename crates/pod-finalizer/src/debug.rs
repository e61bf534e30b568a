//! The part of `/debug/holds` for pod-finalizer.

use serde_json::{Value, json};

use crate::component::PodFinalizer;
use crate::snapshot::BacklogLimit;
use belayer_holds::names;

/// The pods that are held.
pub(crate) fn report(finalizer: &PodFinalizer) -> Value {
    let held_objects = finalizer.held_objects();
    let counts = held_objects.counts();
    let pods: Vec<Value> = held_objects
        .list()
        .into_iter()
        .map(|(key, pod)| {
            json!({
                "namespace": key.namespace(),
                "name": key.name(),
                "finalizer": names::POD_STATUS_HOLD,
                "selected": pod.unselected.is_none(),
                "endedOrDeleting": pod.ended || pod.deleting.is_some(),
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
    let active = held_objects.active_limits();
    let closed: Vec<Value> = active
        .closed
        .iter()
        .map(|(namespace, waiting)| {
            let unreadable = finalizer.unreadable_in(namespace).into_iter();
            let unreadable: Vec<Value> = unreadable
                .map(|(pod, why)| json!({ "name": pod.name(), "why": &*why }))
                .collect();
            json!({
                "namespace": &**namespace,
                "waiting": waiting,
                "ownerStatusUnreadable": unreadable,
            })
        })
        .collect();
    let kept_in: Vec<&str> = active.kept.namespaces.keys().map(|name| &**name).collect();
    json!({
        "held": counts.held,
        "waiting": counts.waiting,
        "backlog": counts.waiting,
        "unselected": counts.unselected,
        "observedLosses": finalizer.observed_losses(),
        "latestLosses": losses,
        "backlogGate": match active.backlog {
            BacklogLimit::NotReached | BacklogLimit::ReachedInNamespace => "open",
            BacklogLimit::Reached => "closed",
        },
        "closedNamespaces": closed,
        "unselectedKept": held_objects.kept() > 0,
        "unselectedKeptIn": kept_in,
        "pods": pods,
    })
}
