//! Events about pods, as the simulated controllers' originals write them.

use serde_json::{Value, json};

use super::object;
use crate::address::{Actor, Gvr};
use crate::cluster::{Cluster, WriteOptions};

/// Writes a Warning about a pod. Nothing is written when the API server refuses it, as in a namespace that
/// is being deleted.
pub(crate) fn warn(
    cluster: &Cluster,
    actor: &Actor,
    component: &str,
    pod: &Value,
    (reason, message): (&str, &str),
) {
    let namespace = object::namespace(pod).unwrap_or_default();
    let now = cluster.clock().now_rfc3339();
    let stamp = cluster.rng().next_u64();
    let event = json!({
        "metadata": {"name": format!("{}.{stamp:016x}", object::name(pod)), "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace,
            "name": object::name(pod), "uid": object::uid(pod),
        },
        "type": "Warning", "reason": reason, "message": message,
        "source": {"component": component}, "reportingComponent": component,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let options = WriteOptions::default();
    if let Err(error) = cluster.create(actor, &Gvr::EVENTS, Some(namespace), event, &options) {
        tracing::debug!(%error, reason, "cannot write an Event");
    }
}
