//! What pod-finalizer says of its holds.

use serde_json::{Value, json};

use belayer_core::names;
use belayer_core::selection::MassRelease;
use belayer_pod_finalizer::census::{Backlog, Selected};
use belayer_pod_finalizer::component::PodFinalizer;
use belayer_pod_finalizer::snapshot::Gate;

/// The pods that are held.
pub(in crate::operator) fn of(finalizer: &PodFinalizer) -> Value {
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
