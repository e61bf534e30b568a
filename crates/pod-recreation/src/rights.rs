//! What this component has to be allowed.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

use crate::api;

/// To hold pods, and to re-create those that their node rejected.
pub fn rights() -> Vec<Right> {
    const BLIND: &str = "no pod is seen, held or re-created";
    const STUCK: &str = "holds are neither added nor taken off: what is held stays";
    let pods = Resource::pods();
    let namespaces = Resource::namespaces();
    let mut rights: Vec<Right> = Right::on(&pods, FOLLOW, BLIND).collect();
    rights.extend(Right::on(&pods, &["patch"], STUCK));
    rights.extend(Right::on(
        &pods,
        &["create", "delete"],
        "a rejected pod is recorded and not re-created",
    ));
    rights.extend(Right::on(&namespaces, FOLLOW, BLIND));
    rights.push(Right::new(
        "",
        "nodes",
        "get",
        "a pod whose node is to be wiped first is not re-created once that node is gone",
    ));
    rights.extend(Right::on(
        &api::resource(),
        &["get", "list", "watch", "create"],
        "no rejection is recorded, so nothing is re-created",
    ));
    rights.extend(Right::on(
        &api::resource(),
        &["delete"],
        "records that have come to their end stay for ever",
    ));
    rights.push(
        Right::new(
            api::GROUP,
            api::PLURAL,
            "patch",
            "a rejection is recorded, and nothing follows",
        )
        .subresource("status"),
    );
    rights
}
