//! What pvc-protection reports of its finalizers, for `/debug/holds`.

use serde_json::{Value, json};

use crate::component::PvcProtection;

/// The claims that wait for the pods that use them, the longest waiting first.
pub(crate) fn report(protection: &PvcProtection) -> Value {
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
        // Nothing while Belayer only advises.
        "finalizer": Some(protection.mode().hold()).filter(|_| protection.mode().adds_holds()),
        "held": protection.held_objects().counts().held,
        "waiting": protection.held_objects().counts().waiting,
        "claims": waiting,
    })
}
