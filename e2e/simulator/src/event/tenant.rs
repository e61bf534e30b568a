//! What a tenant does that it should not do. The actor is none of the test's own, so that the checker judges everything but
//! the objects that it has changed.

use belayer_holds::names::{RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION};
use belayer_sandbox::{DeleteOptions, Gvr};
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};

use super::{RECORDS, Stage, index};

/// Its name in the record.
const TENANT: &str = "tenant";

/// Finalizers that only the tenant removes.
const KEEPS: [&str; 2] = ["example.com/keep", "belayer.dev/unknown"];

/// What a tenant may write.
fn kinds() -> [Gvr; 4] {
    [Gvr::PODS, WORKFLOWS, Gvr::PERSISTENTVOLUMECLAIMS, RECORDS]
}

/// Removes the tenant's own finalizers, so that nothing waits for them.
pub(crate) fn clean_up(stage: &Stage) {
    for gvr in kinds() {
        for object in stage.list(&gvr, None) {
            stage.remove_finalizers(TENANT, &gvr, &object, &KEEPS);
        }
    }
}

/// How many consecutive choices of an object lead to the same change.
const PER_CHANGE: u64 = 16;

/// How many changes there are.
const CHANGES: u64 = 6;

/// A choice of [`meddle`] that removes all finalizers of a pod.
pub(crate) fn strip_pod(choice: u64) -> u64 {
    let of_object = choice % PER_CHANGE + choice / PER_CHANGE % 1_000 * PER_CHANGE * CHANGES;
    of_object * kinds().len() as u64
}

/// Changes or deletes one object.
pub(crate) fn meddle(stage: &Stage, choice: u64) {
    let kinds = kinds();
    let gvr = &kinds[index(choice, kinds.len())];
    let choice = choice / kinds.len() as u64;
    let Some(object) = stage.choose(gvr, choice) else {
        return;
    };
    match change(&object, choice / PER_CHANGE) {
        Some(body) => stage.patch(TENANT, gvr, &object, body),
        None => stage.delete(TENANT, gvr, &object, &DeleteOptions::default()),
    }
}

/// A merge patch; `None` to delete the object.
fn change(object: &Value, choice: u64) -> Option<Value> {
    let uid = &object["metadata"]["uid"];
    let metadata = match choice % CHANGES {
        0 => json!({"finalizers": []}),
        1 => json!({"finalizers": KEEPS}),
        2 => json!({"labels": {"workflows.argoproj.io/completed": "true"}}),
        3 => json!({"annotations": {
            RECREATION_UID_ANNOTATION: uid, RECREATION_ENDED_ANNOTATION: "so says the tenant",
        }}),
        4 => json!({"labels": {"a": "b"}, "annotations": {"example.com/note": "x"}}),
        _ => return None,
    };
    Some(json!({ "metadata": metadata }))
}
