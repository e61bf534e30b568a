//! RBAC permissions of pvc-protection.
//!
//! ```
//! for permission in belayer_pvc_protection::permissions::permissions() {
//!     println!("{} {}", permission.verb, permission.resource);
//! }
//! ```

use belayer_core::object::Resource;
use belayer_holds::permissions::{FOLLOW, Permission};

/// The permissions to hold and release PVCs. The [module's example](self) prints them.
pub fn permissions() -> Vec<Permission> {
    let pvcs = Resource::pvcs();
    let pods = Resource::pods();
    let mut permissions: Vec<Permission> = Permission::on(
        &pvcs,
        FOLLOW,
        "PVCs are neither watched nor held nor released",
    )
    .collect();
    permissions.push(Permission::new(
        "",
        "persistentvolumeclaims",
        "patch",
        "finalizers are neither added nor removed: held PVCs stay held, also those that an earlier version held",
    ));
    permissions.push(Permission::new(
        "argoproj.io",
        "workflows",
        "get",
        "a held PVC of a finished workflow is not released until its completed pods are deleted",
    ));
    permissions.extend(Permission::on(
        &pods,
        FOLLOW,
        "whether a PVC is in use is unknown: no PVC is released",
    ));
    permissions
}
