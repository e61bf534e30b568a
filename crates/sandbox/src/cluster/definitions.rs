//! CustomResourceDefinitions in a cluster: installation and removal of their kinds.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Cluster, Consequence, DeleteOptions, State, Written};
use crate::address::{Gvr, ObjectKey};
use crate::error::ApiError;
use crate::kinds::ResourceInfo;
use crate::kinds::crd::{describe, key_of};
use crate::meta;
use crate::recorder::Verb;

/// The finalizer that keeps a definition until its last instance is gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn definitions(state: &State) -> Option<Arc<ResourceInfo>> {
    state.kinds.find(&Gvr::CUSTOMRESOURCEDEFINITIONS).cloned()
}

/// Installs a new definition and sets its status.
pub(crate) fn accept(
    cluster: &Cluster,
    state: &mut State,
    info: &Arc<ResourceInfo>,
    key: &ObjectKey,
) {
    let Some(crd) = state.get(info, key).cloned() else {
        return;
    };
    let mut crd = Value::clone(&crd);
    let now = cluster.clock().now_rfc3339();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": now,
            "reason": reason, "message": message,
        })
    };
    crd["status"]["acceptedNames"] = crd["spec"]["names"].clone();
    crd["status"]["conditions"] = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition(
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted"
        ),
    ]);
    let stored = state.put(info, key, crd);
    changed(state, &stored);
    note(
        state,
        Verb::Update,
        ("status", info),
        key,
        Ok(Written::changed(stored)),
    );
}

/// Records a write of the server itself.
fn note(
    state: &mut State,
    verb: Verb,
    (subresource, info): (&'static str, &Arc<ResourceInfo>),
    key: &ObjectKey,
    result: Result<Written, ApiError>,
) {
    state.consequences.push(Consequence {
        verb,
        resource: Arc::clone(info),
        subresource,
        key: key.clone(),
        result,
    });
}

/// Serves a definition's current versions.
pub(crate) fn changed(state: &mut State, crd: &Value) {
    let mut info = describe(crd);
    match state.kinds.get(&info.key()) {
        // A definition must not replace a built-in kind.
        Some(had) if !had.custom => return,
        Some(had) => info.schemas = info.schemas.replacing(&had.schemas),
        None => {}
    }
    state.kinds.insert(info);
}

/// Stops serving the kind of a deleted definition.
pub(crate) fn removed(state: &mut State, crd: &Value) {
    let key = key_of(crd);
    if state.kinds.get(&key).is_some_and(|info| info.custom) {
        state.kinds.remove(&key);
        state.drop_table(&key);
    }
}

/// What a delete request writes on a definition.
pub(crate) fn mark_terminating(cluster: &Cluster, crd: &mut Value) {
    let mut finalizers = meta::finalizers(crd).to_vec();
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(json!(CLEANUP));
    }
    meta::set_finalizers(crd, finalizers);
    let condition = json!({
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": cluster.clock().now_rfc3339(),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    if !crd.get("status").is_some_and(Value::is_object) {
        crd["status"] = json!({});
    }
    let conditions = crd["status"]
        .get_mut("conditions")
        .and_then(Value::as_array_mut);
    match conditions {
        Some(list) => list.push(condition),
        None => crd["status"]["conditions"] = json!([condition]),
    }
}

/// Deletes every instance; those with finalizers stay until they are released.
pub(crate) fn delete_instances(cluster: &Cluster, state: &mut State, crd: &Value) {
    let Some(info) = state
        .kinds
        .get(&key_of(crd))
        .filter(|info| info.custom)
        .cloned()
    else {
        return;
    };
    let all: Vec<ObjectKey> = state
        .table(&info)
        .into_iter()
        .flat_map(|t| t.keys().cloned())
        .collect();
    // Policies are not asked about what the server deletes.
    let author = state.author.take();
    for key in all {
        let before = state.consequences.len();
        let done = cluster.delete_known(state, &info, &key, &DeleteOptions::default());
        note(state, Verb::Delete, ("", &info), &key, done);
        // Removing the last instance may have removed the definition: record the cause before the effect.
        state.consequences[before..].rotate_right(1);
    }
    instance_removed(cluster, state, &info);
    state.author = author;
}

/// Removes a terminating definition after its last instance is gone.
pub(crate) fn instance_removed(cluster: &Cluster, state: &mut State, info: &Arc<ResourceInfo>) {
    if state.table(info).is_some_and(|table| !table.is_empty()) {
        return;
    }
    let Some(definitions) = definitions(state) else {
        return;
    };
    let key = ObjectKey::new(None, &format!("{}.{}", info.resource, info.group));
    let Some(crd) = state.get(&definitions, &key).cloned() else {
        return;
    };
    if !meta::is_deleting(&crd) || !meta::has_finalizer(&crd, CLEANUP) {
        return;
    }
    let left: Vec<Value> = meta::finalizers(&crd)
        .iter()
        .filter(|f| *f != CLEANUP)
        .cloned()
        .collect();
    let last = left.is_empty();
    let mut crd = Value::clone(&crd);
    meta::set_finalizers(&mut crd, left);
    let written = if last {
        cluster.remove_in(state, &definitions, &key);
        Written::removed(Arc::new(crd))
    } else {
        Written::changed(state.put(&definitions, &key, crd))
    };
    note(
        state,
        Verb::Update,
        ("status", &definitions),
        &key,
        Ok(written),
    );
}

/// 403 on a create of an instance while the definition is being deleted.
pub(crate) fn refuse_terminating(
    state: &State,
    info: &ResourceInfo,
    name: &str,
) -> Result<(), ApiError> {
    if !info.custom {
        return Ok(());
    }
    let Some(definitions) = definitions(state) else {
        return Ok(());
    };
    let key = ObjectKey::new(None, &format!("{}.{}", info.resource, info.group));
    if state
        .get(&definitions, &key)
        .is_some_and(|crd| meta::is_deleting(crd))
    {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::forbidden(&info.group, &info.resource, name, why));
    }
    Ok(())
}
