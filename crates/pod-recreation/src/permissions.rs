//! RBAC permissions of pod-recreation.
//!
//! ```
//! for permission in belayer_pod_recreation::permissions::permissions() {
//!     println!("{} {}", permission.verb, permission.resource);
//! }
//! ```

use belayer_core::object::Resource;
use belayer_holds::node_wipe;
use belayer_holds::permissions::{FOLLOW, Permission};

use crate::api;

/// The permissions to hold pods and to re-create those that their node rejected. The [module's
/// example](self) prints them.
pub fn permissions() -> Vec<Permission> {
    const NOT_WATCHED: &str = "no pod is watched, held or re-created";
    const NOT_PATCHED: &str = "finalizers are neither added nor removed: held pods stay held";
    let pods = Resource::pods();
    let namespaces = Resource::namespaces();
    let mut permissions: Vec<Permission> = Permission::on(&pods, FOLLOW, NOT_WATCHED).collect();
    permissions.extend(Permission::on(&pods, &["patch"], NOT_PATCHED));
    permissions.extend(Permission::on(
        &pods,
        &["create", "delete"],
        "rejected pods are recorded, but not re-created",
    ));
    permissions.extend(Permission::on(&namespaces, FOLLOW, NOT_WATCHED));
    permissions.push(Permission::new(
        "",
        "nodes",
        "get",
        "pods that wait for the wipe of a deleted node wait until wipeTimeoutSeconds",
    ));
    permissions.extend(Permission::on(
        &Resource::leases(),
        &["get"],
        "the clocks of nodes are not corrected: rejected pods of a node whose clock is wrong are not re-created",
    ));
    permissions.extend(Permission::on(
        &api::resource(),
        &["get", "list", "watch", "create"],
        "rejections are not recorded, and no pod is re-created",
    ));
    permissions.extend(Permission::on(
        &api::resource(),
        &["delete"],
        "ended records are never deleted",
    ));
    permissions.push(
        Permission::new(
            api::GROUP,
            api::PLURAL,
            "patch",
            "rejections are recorded, but no pod is re-created",
        )
        .subresource("status"),
    );
    permissions.extend(Permission::on(
        &node_wipe::resource(),
        &["get", "list", "watch", "create", "patch"],
        "no wipe is requested from the node agents: pods that request one wait until wipeTimeoutSeconds",
    ));
    permissions
}
