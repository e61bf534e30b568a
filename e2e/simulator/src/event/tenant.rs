//! What a tenant does that it should not do. The actor is none of the test's own, so that the checker judges everything but
//! the objects that it has changed.

use belayer_holds::names::{RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION};
use belayer_sandbox::{Actor, DeleteOptions, Gvr, Patch, Subresource, WriteOptions};
use belayer_workload::WORKFLOWS;
use serde_json::{Value, json};

use super::{RECORDS, Stage, index, key};

/// Its name in the record.
const TENANT: &str = "tenant";

/// Finalizers that nobody but the tenant removes.
const KEEPS: [&str; 2] = ["example.com/keep", "belayer.dev/unknown"];

/// What a tenant may write.
fn kinds() -> [Gvr; 4] {
    [Gvr::PODS, WORKFLOWS, Gvr::PERSISTENTVOLUMECLAIMS, RECORDS]
}

/// Removes the tenant's own finalizers, so that nothing waits for them.
pub(crate) fn clean_up(stage: &Stage) {
    for gvr in kinds() {
        for object in stage.list(&gvr, None) {
            let on = object["metadata"]["finalizers"].as_array();
            let on: Vec<&str> = on.into_iter().flatten().filter_map(Value::as_str).collect();
            let kept: Vec<&&str> = on.iter().filter(|name| !KEEPS.contains(name)).collect();
            if kept.len() < on.len() {
                patch(
                    stage,
                    &gvr,
                    &object,
                    json!({"metadata": {"finalizers": kept}}),
                );
            }
        }
    }
}

/// How many of the choices of an object go to each change.
const PER_CHANGE: u64 = 16;

/// A choice of [`meddle`] that removes all finalizers of a pod.
pub(crate) fn strip_pod(choice: u64) -> u64 {
    let (kinds, changes) = (kinds().len() as u64, 6);
    let of_change = choice % PER_CHANGE + choice / PER_CHANGE % 1_000 * PER_CHANGE * changes;
    of_change * kinds
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
        Some(body) => patch(stage, gvr, &object, body),
        None => {
            if let Some((namespace, name)) = key(&object) {
                let (tenant, now) = (Actor::new(TENANT), DeleteOptions::default());
                drop(
                    stage
                        .cluster()
                        .delete(&tenant, gvr, Some(namespace), name, &now),
                );
            }
        }
    }
}

fn patch(stage: &Stage, gvr: &Gvr, object: &Value, body: Value) {
    if let Some((namespace, name)) = key(object) {
        drop(stage.cluster().patch(
            &Actor::new(TENANT),
            gvr,
            Some(namespace),
            name,
            Patch::Merge(body),
            Subresource::None,
            &WriteOptions::default(),
        ));
    }
}

/// A merge patch; `None` to delete the object.
fn change(object: &Value, choice: u64) -> Option<Value> {
    let uid = &object["metadata"]["uid"];
    let metadata = match choice % 6 {
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
