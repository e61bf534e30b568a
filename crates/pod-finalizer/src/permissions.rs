//! RBAC permissions of pod-finalizer.
//!
//! ```
//! use belayer_pod_finalizer::permissions::permissions;
//! use belayer_pod_finalizer::profile::Profiles;
//!
//! for permission in permissions(&Profiles::argo()) {
//!     println!("{} {}", permission.verb, permission.resource);
//! }
//! ```

use belayer_core::object::Resource;
use belayer_holds::permissions::{FOLLOW, Permission};

use crate::outcome;
use crate::profile::{Cleanup, Profiles};

/// The permissions to hold and release pods. The [module's example](self) prints those of a
/// profile.
pub fn permissions(profiles: &Profiles) -> Vec<Permission> {
    let pods = Resource::pods();
    let mut permissions: Vec<Permission> = Permission::on(
        &pods,
        FOLLOW,
        "pods are neither watched nor held nor released",
    )
    .collect();
    permissions.push(Permission::new(
        "",
        "pods",
        "patch",
        "finalizers are neither added nor removed: held pods stay held",
    ));
    if profiles.iter().any(|profile| profile.is_argo()) {
        permissions.push(Permission::new(
            "",
            "nodes",
            "get",
            "held pods of a lost node stay held until their workflow is deleted",
        ));
    }
    for owner in profiles.owners() {
        permissions.extend(Permission::on(
            owner,
            FOLLOW,
            "pods of such owners are held, but not released when the owner finishes or is deleted",
        ));
    }
    permissions
}

/// The additional permissions to record outcomes; empty if no profile records them. The [module's
/// example](self) prints those of a profile.
pub fn permissions_to_capture(profiles: &Profiles) -> Vec<Permission> {
    if !profiles.capture() {
        return Vec::new();
    }
    let mut permissions: Vec<Permission> = Permission::on(
        &outcome::resource(),
        &["get", "list", "watch", "create"],
        "outcomes are not recorded: pods are held until their consumer has read the result",
    )
    .collect();
    permissions.extend(Permission::on(
        &outcome::resource(),
        &["delete"],
        "expired records without an owner are not deleted",
    ));
    permissions.push(Permission::new(
        "",
        "nodes",
        "get",
        "outcomes of pods whose node was deleted are never final",
    ));
    permissions
}

/// The additional permissions to delete pods by their annotation; empty if no profile does that.
/// The [module's example](self) prints those of a profile.
pub fn permissions_to_clean_up(profiles: &Profiles) -> Vec<Permission> {
    if profiles
        .iter()
        .all(|profile| profile.cleanup == Cleanup::None)
    {
        return Vec::new();
    }
    vec![Permission::new(
        "",
        "pods",
        "delete",
        "pods whose annotation requires their deletion are not deleted",
    )]
}
