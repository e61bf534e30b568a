//! RBAC permissions of pvc-protection.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

/// The permissions to hold and release PVCs.
pub fn rights() -> Vec<Right> {
    let claims = Resource::claims();
    let pods = Resource::pods();
    let mut rights: Vec<Right> = Right::on(
        &claims,
        FOLLOW,
        "PVCs are neither watched nor held nor released",
    )
    .collect();
    rights.push(Right::new(
        "",
        "persistentvolumeclaims",
        "patch",
        "finalizers are neither added nor removed: held PVCs stay held, also those that an earlier version held",
    ));
    rights.push(Right::new(
        "argoproj.io",
        "workflows",
        "get",
        "a held PVC of a finished workflow is not released until its completed pods are deleted",
    ));
    rights.extend(Right::on(
        &pods,
        FOLLOW,
        "whether a PVC is in use is unknown: no PVC is released",
    ));
    rights
}
