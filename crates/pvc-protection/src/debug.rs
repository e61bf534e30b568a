//! The part of `/debug/holds` for pvc-protection.

use serde_json::{Value, json};

use crate::component::PvcProtection;

/// The PVCs whose deletion waits for pods, the longest waiting first.
pub(crate) fn report(protection: &PvcProtection) -> Value {
    let waiting: Vec<Value> = protection
        .waiting()
        .into_iter()
        .map(|pvc| {
            let users = pvc.users.map(|users| {
                json!({
                    "count": users.total(),
                    "names": users.named().iter().map(|name| &**name).collect::<Vec<_>>(),
                })
            });
            json!({
                "namespace": pvc.key.namespace(),
                "name": pvc.key.name(),
                "deletionTimestamp": pvc.since.to_string(),
                // Null while the pod store is not synced.
                "pods": users,
            })
        })
        .collect();
    json!({
        // Null while Belayer only advises.
        "finalizer": Some(protection.mode().hold()).filter(|_| protection.mode().adds_holds()),
        "held": protection.held_objects().counts().held,
        "waiting": protection.held_objects().counts().waiting,
        "claims": waiting,
    })
}
