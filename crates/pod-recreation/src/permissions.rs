//! What this component has to be allowed.

use belayer_core::object::Resource;
use belayer_holds::permissions::{FOLLOW, Permission};

use crate::api;

/// To hold pods, and to re-create those that their node rejected.
pub fn permissions() -> Vec<Permission> {
    const BLIND: &str = "no pod is seen, held or re-created";
    const STUCK: &str = "holds are neither added nor taken off: what is held stays";
    let pods = Resource::pods();
    let namespaces = Resource::namespaces();
    let mut permissions: Vec<Permission> = Permission::on(&pods, FOLLOW, BLIND).collect();
    permissions.extend(Permission::on(&pods, &["patch"], STUCK));
    permissions.extend(Permission::on(
        &pods,
        &["create", "delete"],
        "a rejected pod is recorded and not re-created",
    ));
    permissions.extend(Permission::on(&namespaces, FOLLOW, BLIND));
    permissions.push(Permission::new(
        "",
        "nodes",
        "get",
        "a pod whose node is to be wiped first is not re-created once that node is gone",
    ));
    permissions.extend(Permission::on(
        &api::resource(),
        &["get", "list", "watch", "create"],
        "no rejection is recorded, so nothing is re-created",
    ));
    permissions.extend(Permission::on(
        &api::resource(),
        &["delete"],
        "records that have come to their end stay for ever",
    ));
    permissions.push(
        Permission::new(
            api::GROUP,
            api::PLURAL,
            "patch",
            "a rejection is recorded, and nothing follows",
        )
        .subresource("status"),
    );
    permissions
}
