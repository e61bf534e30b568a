//! Writes to a pod that several simulated controllers share. Each has a UID precondition.

use serde_json::{Value, json};

use super::object;
use crate::address::{Actor, Gvr, Subresource};
use crate::cluster::{Cluster, DeleteOptions, Patch, Preconditions, WriteOptions};
use crate::error::ApiError;

/// Merges `status` into its status, as the pod API does: conditions by their type.
pub(super) fn patch_status(
    cluster: &Cluster,
    actor: &Actor,
    pod: &Value,
    status: &Value,
) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let patch = json!({"metadata": {"uid": object::uid(pod)}, "status": status});
    cluster
        .patch(
            actor,
            &Gvr::PODS,
            namespace,
            name,
            Patch::Strategic(patch),
            Subresource::Status,
            &WriteOptions::default(),
        )
        .map(drop)
}

/// Deletes it without grace: nothing of it runs any more.
pub(super) fn remove(cluster: &Cluster, actor: &Actor, pod: &Value) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        preconditions: Preconditions {
            uid: Some(object::uid(pod).to_owned()),
            resource_version: None,
        },
        ..DeleteOptions::default()
    };
    cluster
        .delete(actor, &Gvr::PODS, namespace, name, &options)
        .map(drop)
}
