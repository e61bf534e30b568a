//! What `belayer explain` reports about the consumer of a held pod of Argo Workflows.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use belayer_core::object::ObjectKey;
use belayer_core::slim::Pod;
use belayer_holds::names;
use belayer_inspect::argo::{INSTANCE_LABEL, STATUS_FINALIZER, controllers, why_not_processed};
use belayer_inspect::reader::{ReadResult, Reader};
use belayer_inspect::report::age;

use crate::decide::PodDecision;
use crate::profile::argo;
use crate::snapshot::Snapshot;

/// A workflow that has not changed for longer is reported: the limit of the alert `BelayerConsumerSilent`.
const SILENCE: SignedDuration = SignedDuration::from_mins(5);

/// For a pod of Argo Workflows that has ended or is being deleted and stays held: whether its workflow is processed, and
/// since when the workflow has not changed (A21, A22).
pub(super) async fn notes(
    reader: &Reader,
    pod: &Pod,
    snapshot: &Snapshot,
    decision: &PodDecision,
) -> Vec<String> {
    let waits = snapshot.pod.as_ref().is_some_and(|view| {
        view.held && view.argo.is_some() && (view.ended || view.deleting.is_some())
    });
    let Some(owner) = pod
        .meta
        .controller
        .as_ref()
        .filter(|_| waits && decision.write.is_none())
    else {
        return Vec::new();
    };
    let key = ObjectKey::new(pod.meta.key.shared_namespace().clone(), owner.name.clone());
    let ReadResult::Found(workflow) = reader.object::<Written>(&argo::workflow(), &key).await
    else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    let labels = &workflow.metadata.labels;
    let instance = labels.get(INSTANCE_LABEL).map_or("", String::as_str);
    match controllers(reader).await {
        ReadResult::Found(all) => {
            let namespace = pod.meta.key.namespace().unwrap_or_default();
            notes.extend(why_not_processed(&all, instance, namespace));
        }
        ReadResult::Absent => {}
        ReadResult::Unknown(why) => {
            notes.push(format!(
                "could not check whether a workflow controller runs: {why}"
            ));
        }
    }
    if let Some(last) = workflow.metadata.last_change() {
        let silence = belayer_core::clock::now().duration_since(last);
        if silence > SILENCE {
            notes.push(format!(
                "its workflow has not changed since {last} ({} ago)",
                age(silence.as_secs())
            ));
        }
    }
    if pod.meta.has_finalizer(STATUS_FINALIZER) {
        notes.push(format!(
            "it also has {STATUS_FINALIZER}, Argo's own finalizer: Belayer removes it only if the profile lists it in `adopt`"
        ));
    }
    notes
}

#[derive(Deserialize)]
struct Written {
    metadata: WrittenMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
}

impl WrittenMeta {
    /// When another client than Belayer last changed it.
    fn last_change(&self) -> Option<Timestamp> {
        let others = self.managed_fields.iter();
        let others = others.filter(|entry| entry.manager != names::FIELD_MANAGER);
        others.filter_map(|entry| entry.time).max()
    }
}

#[derive(Deserialize)]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    time: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A21: Belayer adds its finalizer to a workflow, which shows nothing about Argo.
    #[test]
    fn a21_a_write_of_belayer_is_no_change_of_the_workflow() {
        let workflow = json!({ "managedFields": [
            { "manager": "argo", "time": "2026-11-21T12:00:00Z" },
            { "manager": "workflow-controller", "time": "2026-11-21T12:01:00Z" },
            { "manager": names::FIELD_MANAGER, "time": "2026-11-21T12:10:00Z" },
            { "manager": "without-a-time" },
        ] });
        let workflow: WrittenMeta = serde_json::from_value(workflow).unwrap();
        let last = workflow.last_change().map(|time| time.to_string());
        assert_eq!(last.as_deref(), Some("2026-11-21T12:01:00Z"));
    }
}
